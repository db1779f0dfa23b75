"""Rows of a streamed table by key: newest sources first, each asked only for keys that were not found yet
(MemWAL, section 6.3).

An SSTable's Bloom filter says which keys it cannot hold, its `_pk_index` where the others are. What deletes a
key is an answer too: no older source is asked for it.

Invariant L1: a lookup gives what a scan with a filter on the keys gives (tests/memwal/test_reading.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, ObjectNotFound, SchemaMismatch
from tiltyard.expr.arrays import bools_of, plain
from tiltyard.memwal.key_hash import is_hashed, key_hashes
from tiltyard.memwal.keys import sortable
from tiltyard.memwal.levels import MemoryLevel, SsTableLevel
from tiltyard.table.deletions import load_deletions, without_deleted
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_filter import holds
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows
from tiltyard.table.projection import ColumnsLike, project
from tiltyard.table.take import Taker
from tiltyard.table.unit_reader import batch_of, output_column

if TYPE_CHECKING:
    from tiltyard.memwal.capture import Captured, ShardLevels

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a level that are the newest of their keys there: numbers or addresses, and the keys' codes."""

    rows: Any
    codes: Ints


class Lookup:
    """Lookups with one choice of columns in a captured table."""

    def __init__(self, captured: Captured, columns: ColumnsLike = None) -> None:
        if not captured.schema.has_key:
            raise InvalidInput(
                "Dataset has no primary key. Set 'lance-schema:unenforced-primary-key' metadata on the "
                "primary key field(s)."
            )
        self._captured = captured
        base = captured.base.schema
        self._key = resolve_key(base, captured.schema.key)
        self._projection = project(base, columns, nested_as_struct=True)
        self._fields = tuple(base.field((each.name,)) for each in self._projection.fields)
        self._tombstone = captured.schema.stored.fields[-1]

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._projection.schema

    def find(self, keys: Any) -> Any:
        """The rows of these keys as a `pa.Table`, in no order that means anything; keys without a row give
        none, a key that is named twice gives its row once.

        `keys`: per key column an array of its type (or one that casts to it), in key order.
        """
        columns = self._typed(keys)
        index = KeyIndex(columns)
        wanted = [each.take(pa.array(index.first_rows())) for each in columns]  # by code
        open_codes = np.ones(index.distinct, np.bool_)
        found: list[Any] = []
        for shard in self._captured.shards:
            self._of_shard(shard, wanted, open_codes, found)
        if open_codes.any():
            found += self._of_base(wanted, open_codes)
        return pa.Table.from_batches(found, self.schema)

    def _typed(self, keys: Any) -> list[Any]:
        parts = list(keys) if isinstance(keys, (list, tuple)) else [keys]
        if len(parts) != len(self._key.fields):
            raise InvalidInput(
                f"the key has {len(self._key.fields)} columns ({', '.join(self._key.names)}), found "
                f"{len(parts)}"
            )
        columns = []
        for each, field in zip(parts, self._key.fields, strict=True):
            try:
                array = (
                    each
                    if isinstance(each, (pa.Array, pa.ChunkedArray))
                    else pa.array(each, field.arrow_type)
                )
                array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
                columns.append(
                    plain(array if array.type.equals(field.arrow_type) else array.cast(field.arrow_type))
                )
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
                raise SchemaMismatch(
                    f"keys of column {field.name!r} must be {field.arrow_type}: {error}"
                ) from error
        if len({len(each) for each in columns}) > 1:
            raise InvalidInput("the parts of the keys have different lengths")
        return columns

    # -- sources ---------------------------------------------------------------------------------

    def _of_shard(
        self, shard: ShardLevels, wanted: Sequence[Any], open_codes: npt.NDArray[np.bool_], found: list[Any]
    ) -> None:
        for level in shard.levels:
            codes = np.flatnonzero(open_codes)
            if not len(codes):
                return
            asked = wanted if len(codes) == len(open_codes) else [w.take(pa.array(codes)) for w in wanted]
            hits = in_memory(level, asked) if isinstance(level, MemoryLevel) else in_sstable(level, asked)
            if not len(hits.codes):
                continue
            open_codes[codes[hits.codes]] = False
            batch = level.take(hits.rows, (*self._fields, self._tombstone))
            lives = ~bools_of(batch.column(batch.num_columns - 1))
            if not lives.all():
                batch = batch.filter(pa.array(lives))
            if batch.num_rows:
                found.append(self._output(batch))

    def _of_base(self, wanted: Sequence[Any], open_codes: npt.NDArray[np.bool_]) -> list[Any]:
        asked = [each.filter(pa.array(open_codes)) for each in wanted]
        hits = find_rows(self._captured.base, self._key, KeyIndex(asked), asked)
        if not len(hits.addresses):
            return []
        taken = Taker(self._captured.base, projection=self._projection).rows_at_addresses(hits.addresses)
        return taken.to_batches() if isinstance(taken, pa.Table) else [taken]

    def _output(self, batch: Any) -> Any:
        arrays = [batch.column(each.name) for each in self._projection.fields]
        scope = batch if self._projection.has_expressions else None
        columns = [output_column(each, arrays, {}, scope) for each in self._projection.outputs]
        return batch_of(columns, self.schema, batch.num_rows)


def in_memory(level: MemoryLevel, asked: Sequence[Any]) -> Hits:
    """The newest row of each key in a MemTable."""
    columns = level.keys().columns
    rows, codes = KeyIndex(asked).find(columns)
    return _newest(rows.astype(np.int64), codes.astype(np.int64))


def in_sstable(level: SsTableLevel, asked: Sequence[Any]) -> Hits:
    """The living row of each key in an SSTable, by address."""
    possible = _possible(level, asked)
    if not len(possible):
        return Hits(np.empty(0, np.uint64), np.empty(0, np.int64))
    fewer = asked if len(possible) == len(asked[0]) else [each.take(pa.array(possible)) for each in asked]
    try:
        positions, ids = level.key_index().find(sortable(fewer))
    except ObjectNotFound:  # other writers have published without it (MemWAL, section 9.7)
        keys = level.keys().columns
        rows, codes = KeyIndex(fewer).find(keys)
        live = level.addresses()[rows]
        return Hits(live, possible[codes])
    deletions = load_deletions(level.snapshot, level.snapshot.fragments[0])
    kept = without_deleted(deletions, ids.astype(np.int64))
    order = np.argsort(ids[kept], kind="stable")
    return Hits(ids[kept][order], possible[positions[kept][order]])


def _newest(rows: Ints, codes: Ints) -> Hits:
    """Of several rows with one code the last; by row."""
    if not len(rows):
        return Hits(rows, codes)
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = rows  # ascending, so that the last one stays
    kept = np.sort(last[last >= 0])
    of_row = np.empty(0, np.int64)
    by_row = np.argsort(last, kind="stable")
    of_row = by_row[len(last) - len(kept) :]
    return Hits(kept, of_row)


def _possible(level: SsTableLevel, asked: Sequence[Any]) -> Ints:
    """Positions of the keys that the SSTable may hold."""
    rows = len(asked[0])
    if not all(is_hashed(each.type) for each in asked):
        return np.arange(rows)
    bitmap = level.bloom()
    if bitmap is None:
        return np.arange(rows)
    return np.flatnonzero(holds(bitmap, key_hashes(asked, rows)))
