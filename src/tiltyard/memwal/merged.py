"""The rows of a table with merge functions: of each key one, made of the base's row and of what was streamed
after it (docs/design/011-merge-functions.md).

Invariants, and their tests in tests/memwal/test_merge_histories.py:
1. Scans, counts, lookups, searches and compaction give what putting the log's rows into a dictionary, one
   after the other over the base's rows, gives.
2. That holds whatever was published, replayed or compacted between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import BatchTooLarge
from tiltyard.expr.arrays import bools_of
from tiltyard.memwal.folding import Bools, Ints, Runs, combined, runs
from tiltyard.memwal.levels import Keys, Level, MemoryLevel, one_batch
from tiltyard.memwal.lookup import Hashes, Piece, all_in_memory, all_in_sstable, base_pieces
from tiltyard.memwal.winners import disjoint
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows
from tiltyard.table.plan import DEFAULT_BATCH_ROWS
from tiltyard.table.take import kept_taker
from tiltyard.table.unit_reader import batch_of

if TYPE_CHECKING:
    from tiltyard.format.field import Field
    from tiltyard.memwal.capture import Captured
    from tiltyard.memwal.log_schema import LogSchema
    from tiltyard.table.merge.lookup import Found
    from tiltyard.table.snapshot import Snapshot

Addresses = npt.NDArray[np.uint64]

SLAB_BYTES = 1 << 30
"""Rows that are put together at most (bytes): texts of an array have offsets of 32 bits."""

PIECES_OF_SLAB = 4
"""Where there are several slabs, in how many pieces the rows of each are merged: rows of a key may come from
all of them.
"""


@dataclass(frozen=True, slots=True)
class _Under:
    """Rows of the base that what was streamed is merged with: addresses, and the codes of their keys."""

    addresses: Addresses
    codes: Ints


class MergedLevel:
    """Levels and the rows of the base under them as one level: each key once, in no order that means
    anything; keys that have no row any more stand last, and delete.
    """

    def __init__(self, levels: Sequence[Level], base: Snapshot, schema: LogSchema) -> None:
        """`levels`: oldest first."""
        self.generation = levels[-1].generation
        """The newest of the levels."""
        self._levels = levels
        self._base = base
        self._schema = schema
        keys = [each.keys() for each in levels]
        columns = [
            pa.concat_arrays(list(each)) for each in zip(*(each.columns for each in keys), strict=True)
        ]
        deletes = np.concatenate([each.deletes for each in keys])
        index = KeyIndex(columns)
        found = find_rows(base, resolve_key(base.schema, schema.key), index, columns)
        self.shadowed: Addresses = found.addresses
        """The rows of the base that are not its newest any more (uint64, ascending)."""
        streamed = runs(index.codes, deletes)
        reached = np.zeros(index.distinct, np.bool_)
        reached[streamed.codes[~streamed.after_delete]] = True
        self._under = _under(found, reached)
        below = len(self._under.codes)
        self._runs = runs(
            np.concatenate([self._under.codes, index.codes]),
            np.concatenate([np.zeros(below, np.bool_), deletes]),
        )
        codes = np.concatenate([self._runs.codes, self._runs.deleted])
        first = pa.array(index.first_rows()[codes])
        gone = np.zeros(len(codes), np.bool_)
        gone[len(self._runs) :] = True
        self._keys = Keys(tuple(each.take(first) for each in columns), gone)

    @property
    def rows(self) -> int:
        """How many keys, those without a row included."""
        return len(self._keys.deletes)

    def keys(self) -> Keys:
        """The keys, and which have no row."""
        return self._keys

    def batches(self, fields: Sequence[Field]) -> Iterator[Any]:
        """All rows with these of the base's columns; of keys without a row the key."""
        schema = _arrow(self._schema, fields)
        if not fields:
            yield batch_of([], schema, self.rows)
            return
        slabs = _slabs(self._parts(fields, schema), schema)
        for rows, which in _pieces(slabs, self._runs):
            yield from _cut(_merged(rows, which, self._schema, fields))
        yield from _cut(_gathered(slabs, self._runs.deletions))

    def _parts(self, fields: Sequence[Field], schema: Any) -> Iterator[Any]:
        """The sequence whose rows are combined: those of the base, then those of the levels."""
        yield _of_base(self._base, self._under.addresses, fields, schema)
        for level in self._levels:
            yield from level.batches(fields)


def _slabs(batches: Iterator[Any], schema: Any) -> list[pa.Table]:
    """Batches put together to tables, none of more than `SLAB_BYTES`; at least one table."""
    made: list[pa.Table] = []
    held: list[Any] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > SLAB_BYTES:
            made.append(pa.Table.from_batches(held, schema).combine_chunks())
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    return [*made, pa.Table.from_batches(held, schema)]


def _pieces(slabs: list[pa.Table], which: Runs) -> Iterator[tuple[pa.Table, Runs]]:
    """What is combined at a time: rows, and runs of them."""
    if len(slabs) == 1:
        yield slabs[0], which
        return
    for piece in which.pieces(PIECES_OF_SLAB * len(slabs)):
        yield _gathered(slabs, piece.order), piece.alone()


def _gathered(slabs: list[pa.Table], rows: Ints) -> pa.Table:
    """Rows by number over all slabs, in this order."""
    if len(slabs) == 1:
        return slabs[0].take(pa.array(rows))
    ends = np.cumsum([each.num_rows for each in slabs])
    of_row = np.searchsorted(ends, rows, side="right")
    order = np.argsort(of_row, kind="stable")
    bounds = np.searchsorted(of_row[order], np.arange(len(slabs) + 1))
    parts = []
    for at, slab in enumerate(slabs):
        here = rows[order[bounds[at] : bounds[at + 1]]]
        parts.append(slab.take(pa.array(here - (ends[at] - slab.num_rows))))
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.concat_tables(parts).combine_chunks().take(pa.array(back))


def _cut(rows: pa.Table) -> Iterator[Any]:
    yield from rows.combine_chunks().to_batches(max_chunksize=DEFAULT_BATCH_ROWS)


def _under(found: Found, reached: Bools) -> _Under:
    """Those rows of the base that what was streamed is merged with; of several with one key the last."""
    last = np.full(len(reached), -1, np.int64)
    last[found.codes] = np.arange(len(found.codes))
    codes = np.flatnonzero(reached & (last >= 0))
    return _Under(found.addresses[last[codes]], codes)


def _arrow(schema: LogSchema, fields: Sequence[Field]) -> Any:
    return pa.schema([schema.stored.arrow.field(each.name) for each in fields])


def _of_base(base: Snapshot, addresses: Addresses, fields: Sequence[Field], schema: Any) -> Any:
    """Rows of the base by address, in this order, as one batch."""
    if not fields:
        return batch_of([], schema, len(addresses))
    found = one_batch(kept_taker(base, tuple([each.name for each in fields])).rows_that_live(addresses))
    columns = [_typed(found.column(each.name), schema.field(each.name).type) for each in fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(array: Any, kind: Any) -> Any:
    return array if array.type.equals(kind) else array.cast(kind)


def _merged(rows: pa.Table, which: Runs, schema: LogSchema, fields: Sequence[Field]) -> pa.Table:
    assert schema.functions is not None
    names = [schema.functions.of(each) for each in fields]
    try:
        return pa.Table.from_batches([combined(rows, which, names)], rows.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BatchTooLarge(
            f"{len(which.order)} rows of {len(which)} keys cannot be merged into one batch: {error}. Ask for "
            "fewer columns, or have what was streamed compacted (`drain`) more often"
        ) from error


# -- lookups ------------------------------------------------------------------------------------


def merged_rows(captured: Captured, wanted: Sequence[Any], fields: Sequence[Field]) -> Iterator[Piece]:
    """The rows of some keys, each given once (a plain array per key column), as `lookup.found_rows` does."""
    schema = captured.schema
    hashed = Hashes(wanted)
    unseen = np.ones(len(wanted[0]), np.bool_)  # by no shard yet
    reached = np.zeros(len(wanted[0]), np.bool_)  # what was streamed is merged with the base's row
    found: list[tuple[int, list[_Part]]] = []
    for shard in disjoint(captured.shards):
        parts: list[_Part] = []
        open_codes = unseen.copy()
        for level in shard.levels:
            codes = np.flatnonzero(open_codes)
            if not len(codes):
                break
            part = _part(level, codes, wanted, hashed, fields, schema)
            if part is not None:
                parts.append(part)
                unseen[part.codes] = False
                open_codes[part.codes[part.deletes]] = False
        reached |= open_codes & ~unseen
        if parts:
            found.append((shard.levels[0].generation, parts[::-1]))
    yield from _with_base(captured, wanted, fields, found, unseen, reached)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of some keys in one level: a batch with the fields, the keys' codes, and which rows delete."""

    batch: Any
    codes: Ints
    deletes: Bools


def _part(
    level: Level,
    codes: Ints,
    wanted: Sequence[Any],
    hashed: Hashes,
    fields: Sequence[Field],
    schema: LogSchema,
) -> _Part | None:
    asked = wanted if len(codes) == len(wanted[0]) else [each.take(pa.array(codes)) for each in wanted]
    if isinstance(level, MemoryLevel):
        hits = all_in_memory(level, asked)
    else:
        hits = all_in_sstable(level, asked, hashed.of(codes))
    if not len(hits.codes):
        return None
    batch = level.take(hits.rows, (*fields, schema.stored.fields[-1]))
    deletes = bools_of(batch.column(batch.num_columns - 1))
    bare = batch_of(batch.columns[:-1], _arrow(schema, fields), batch.num_rows)
    return _Part(bare, codes[hits.codes], deletes)


def _with_base(
    captured: Captured,
    wanted: Sequence[Any],
    fields: Sequence[Field],
    found: list[tuple[int, list[_Part]]],
    unseen: Bools,
    reached: Bools,
) -> Iterator[Piece]:
    base, schema = captured.base, captured.schema
    arrow = _arrow(schema, fields)
    asked = np.flatnonzero(unseen | reached)
    below = _Under(np.empty(0, np.uint64), np.empty(0, np.int64))
    if len(asked):
        columns = [each.take(pa.array(asked)) for each in wanted]
        index = KeyIndex(columns)
        hits = find_rows(base, resolve_key(base.schema, schema.key), index, columns)
        of_hit = asked[index.first_rows()[hits.codes]]  # a key's code is its own, not its place
        alone = unseen[of_hit]
        if alone.any():
            addresses = hits.addresses[alone]
            names = tuple([each.name for each in fields]) or schema.key[:1]
            yield from base_pieces(kept_taker(base, names).rows_that_live(addresses), addresses)
        last = np.full(len(unseen), -1, np.int64)
        last[of_hit] = np.arange(len(of_hit))
        codes = np.flatnonzero(reached & (last >= 0))
        below = _Under(hits.addresses[last[codes]], codes)
    for generation, parts in found:
        mine = np.isin(below.codes, np.concatenate([each.codes for each in parts]))
        under = _of_base(base, below.addresses[mine], fields, arrow)
        batches = [under, *(each.batch for each in parts)]
        which = runs(
            np.concatenate([below.codes[mine], *(each.codes for each in parts)]),
            np.concatenate([np.zeros(under.num_rows, np.bool_), *(each.deletes for each in parts)]),
        )
        if not len(which):
            continue
        if not fields:
            yield Piece(batch_of([], arrow, len(which)), generation)
            continue
        made = _merged(pa.Table.from_batches(batches, arrow), which, schema, fields)
        yield Piece(made.combine_chunks().to_batches()[0], generation)
