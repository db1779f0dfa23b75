"""Rows of a streamed table by key: newest sources first, each asked only for keys that were not found yet
(MemWAL, section 6.3).

An SSTable's Bloom filter says which keys it cannot hold, its `_pk_index` where the others are. What deletes a
key is an answer too: no older source is asked for it.

Invariant L1: a lookup gives what a scan with a filter on the keys gives (tests/memwal/test_lookup.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, SchemaMismatch, UnsupportedFeature
from tiltyard.expr.arrays import bools_of, plain
from tiltyard.kernels.distinct import distinct
from tiltyard.memwal.keys import sortable
from tiltyard.memwal.levels import Level, MemoryLevel, SsTableLevel
from tiltyard.table.deletions import load_deletions, without_deleted
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.kept_keys import find_kept, find_one_kept
from tiltyard.table.merge.key_filter import holds, holds_one
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows
from tiltyard.table.merge.sorted_keys import is_exact, key_words
from tiltyard.table.projection import NOTHING_FOUND, ColumnsLike, Projection, project
from tiltyard.table.take import kept_taker
from tiltyard.table.unit_reader import batch_of, output_column

if TYPE_CHECKING:
    from tiltyard.format.field import Field
    from tiltyard.memwal.capture import Captured

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a level that are the newest of their keys there: numbers or addresses, and the keys' codes."""

    rows: Any
    codes: Ints


NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that were found in one source: a batch with the fields that were asked for, the source's
    generation (0: the base), and their addresses in the base (uint64; None beside it).
    """

    batch: Any
    generation: int
    addresses: Any = None


def found_rows(captured: Captured, keys: Sequence[Any], fields: Sequence[Field]) -> Iterator[Piece]:
    """The rows of some keys (a plain array per key column, of its type), with these top-level fields of the
    base; of a key that is named twice once.
    """
    if captured.schema.functions is not None:
        from tiltyard.memwal.merged import merged_rows

        yield from merged_rows(captured, _Asked(captured, keys).columns(), fields)
        return
    if len(keys[0]) == 1 and not keys[0].null_count and is_exact([each.type for each in keys]):
        yield from found_row(captured, key_words(keys)[0][0], fields, lambda: keys[0])
        return
    yield from _found(captured, _Asked(captured, keys), fields)


def found_row(
    captured: Captured, word: np.uint64, fields: Sequence[Field], asked: Callable[[], Any]
) -> Iterator[Piece]:
    """The same for one key that is its own word (see `is_exact`) in a table without merge functions; `asked`
    gives the key as an array.
    """
    for shard in captured.shards:
        for level in shard.levels:
            row = level.row_of(word)
            if row is None:
                hits = _Asked(captured, [asked()]).in_level(level)
                row = int(hits.rows[0]) if len(hits.rows) else -1
            if row >= 0:
                batch = level.one(row, fields)
                if batch is not None:
                    yield Piece(batch, level.generation)
                return
    base = captured.base
    key = captured.schema.kept("key", lambda: resolve_key(base.schema, captured.schema.key))
    address = find_one_kept(base, key, word)
    if address is None:
        yield from _of_base(captured, _Asked(captured, [asked()]), fields)
    elif address >= 0:
        names = tuple([each.name for each in fields]) or key.names[:1]
        batch = kept_taker(base, names).row_that_lives(address)
        yield Piece(batch, 0, pa.array(np.array([address], np.uint64)))


def _found(captured: Captured, asked: _Asked, fields: Sequence[Field]) -> Iterator[Piece]:
    read = (*fields, captured.schema.stored.fields[-1])
    for shard in captured.shards:
        for level in shard.levels:
            if not len(asked.open):
                return
            hits = asked.in_level(level)
            if not len(hits.codes):
                continue
            asked.found(hits.codes)
            batch = level.take(hits.rows, read)
            deletes = bools_of(batch.column(batch.num_columns - 1))
            if deletes.any():
                batch = batch.filter(pa.array(~deletes))
            if batch.num_rows:
                yield Piece(batch, level.generation)
    if len(asked.open):
        yield from _of_base(captured, asked, fields)


def _of_base(captured: Captured, asked: _Asked, fields: Sequence[Field]) -> Iterator[Piece]:
    base = captured.base
    key = captured.schema.kept("key", lambda: resolve_key(base.schema, captured.schema.key))
    kept = find_kept(base, key, asked.words)
    columns = asked.columns()
    if kept is None:
        addresses = find_rows(base, key, KeyIndex(columns), columns).addresses
    else:
        addresses = kept[1] if len(kept[1]) == 1 else distinct(kept[1])  # two keys may have one word
    if not len(addresses):
        return
    names = [each.name for each in fields] or list(key.names[:1])
    if kept is not None and not asked.is_exact:
        names += [name for name in key.names if name not in names]
    rows = kept_taker(base, tuple(names)).rows_that_live(addresses)
    if kept is not None and not asked.is_exact:
        known = [plain(rows.column(name).combine_chunks()) for name in key.names]
        equal = np.zeros(len(addresses), np.bool_)
        equal[KeyIndex(columns).find(known)[0]] = True
        if not equal.all():
            rows, addresses = rows.filter(pa.array(equal)), addresses[equal]
    yield from base_pieces(rows, addresses)


def base_pieces(rows: pa.Table, addresses: Addresses) -> Iterator[Piece]:
    """Rows of the base, with their addresses, in as few batches as they can be: the dictionaries of several
    fragments may be too many for one, and their texts too long.
    """
    if rows.num_rows and rows.column(0).num_chunks > 1:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            rows = rows.combine_chunks()
    start = 0
    for batch in rows.to_batches():
        end = start + batch.num_rows
        yield Piece(batch, 0, pa.array(addresses[start:end]))
        start = end


class _Asked:
    """The keys of a lookup, each once, that were not found yet."""

    def __init__(self, captured: Captured, keys: Sequence[Any]) -> None:
        self._columns = list(keys)
        if len(keys[0]) != 1 or any(each.null_count for each in keys):
            first = KeyIndex(keys).first_rows()  # keys with a null are not among them
            self._columns = [each.take(pa.array(first)) for each in keys]
        self._schema = captured.schema
        self.is_exact = is_exact([each.type for each in keys])
        """Whether rows that have a key's word have the key."""
        self.words = key_words(self._columns)[0]
        """The words of the keys that were not found yet."""
        self.open = np.arange(len(self.words))
        """Which of all keys those are."""
        self._hashes = Hashes(self._columns)

    def found(self, codes: Ints) -> None:
        """These of the open keys, by position, were found."""
        left = np.ones(len(self.open), np.bool_)
        left[codes] = False
        self.open, self.words = self.open[left], self.words[left]

    def columns(self) -> list[Any]:
        """The key columns of the open keys."""
        if len(self.open) == len(self._columns[0]):
            return self._columns
        return [each.take(pa.array(self.open)) for each in self._columns]

    def in_level(self, level: Level) -> Hits:
        """The newest rows of the open keys in a level: by their words where those are kept."""
        if isinstance(level, MemoryLevel):
            if not level.is_as_written:
                return in_memory(level, self.columns())
            positions, rows = level.last_rows(self.words)
        else:
            kept = level.sorted_keys()
            if kept is None and level.is_small:
                kept = level.kept_keys()
            if kept is None:
                hashed = self._hashes.of(self.open)
                if not len(_possible(level, len(self.open), hashed)):
                    return NO_HITS
                kept = None if level.is_small else level.kept_keys()
                if kept is None:
                    return in_sstable(level, self.columns(), hashed)
            positions, rows = kept.last(self.words)
        if not len(positions):
            return NO_HITS
        if len(positions) > 1:
            order = np.argsort(rows, kind="stable")
            positions, rows = positions[order], rows[order]
        if not self.is_exact and not self._are_equal(level, rows, positions):
            if isinstance(level, MemoryLevel):
                return in_memory(level, self.columns())
            return in_sstable(level, self.columns(), self._hashes.of(self.open))
        return Hits(rows, positions)

    def _are_equal(self, level: Level, rows: Any, positions: Ints) -> bool:
        """Whether these rows have these keys: two may have one word."""
        fields = [self._schema.stored.field((name,)) for name in self._schema.key]
        batch = level.take(rows, fields)
        asked = [each.take(pa.array(self.open[positions])) for each in self._columns]
        return all(plain(batch.column(at)).equals(each) for at, each in enumerate(asked))


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
        self._key = captured.schema.kept("key", lambda: resolve_key(base, captured.schema.key))
        self._projection = projection_of(captured, columns, nested_as_struct=True)
        self._fields = tuple(base.field((each.name,)) for each in self._projection.fields)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._projection.schema

    def find(self, keys: Any) -> Any:
        """The rows of these keys as a `pa.Table`, in no order that means anything; keys without a row give
        none, a key that is named twice gives its row once.

        `keys`: per key column an array of its type (or one that casts to it), in key order.
        """
        found = found_rows(self._captured, self._typed(keys), self._fields)
        return pa.Table.from_batches([self._output(each.batch) for each in found], self.schema)

    def _typed(self, keys: Any) -> list[Any]:
        parts = list(keys) if isinstance(keys, (list, tuple)) else [keys]
        if len(parts) != len(self._key.fields):
            raise InvalidInput(
                f"the key has {len(self._key.fields)} columns ({', '.join(self._key.names)}), found "
                f"{len(parts)}"
            )
        columns = [_typed(each, field) for each, field in zip(parts, self._key.fields, strict=True)]
        if len({len(each) for each in columns}) > 1:
            raise InvalidInput("the parts of the keys have different lengths")
        return columns

    def _output(self, batch: Any) -> Any:
        arrays = [pruned(batch.column(each.name), each.arrow_type) for each in self._projection.fields]
        if self._projection.direct and arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        scope = batch if self._projection.has_expressions else None
        columns = [output_column(each, arrays, {}, scope) for each in self._projection.outputs]
        return batch_of(columns, self.schema, batch.num_rows)


def _typed(values: Any, field: Field) -> Any:
    """Key values as a plain array of the key's type."""
    try:
        array = (
            values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, field.arrow_type)
        )
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        return plain(array if array.type.equals(field.arrow_type) else array.cast(field.arrow_type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise SchemaMismatch(f"keys of column {field.name!r} must be {field.arrow_type}: {error}") from error


def projection_of(
    captured: Captured,
    columns: ColumnsLike,
    *,
    row_address: bool = False,
    nested_as_struct: bool = False,
    found: Mapping[str, Any] = NOTHING_FOUND,
) -> Projection:
    """`project` over the base's columns; what lists of names ask for is kept."""
    schema = captured.base.schema

    def made() -> Projection:
        return project(
            schema, columns, row_address=row_address, nested_as_struct=nested_as_struct, found=found
        )

    is_plain = columns is None or (isinstance(columns, list) and all(type(each) is str for each in columns))
    if not is_plain:
        return made()
    asked = None if columns is None else tuple(columns)
    kept: Projection = captured.schema.kept((asked, row_address, nested_as_struct, *found), made)
    return kept


def pruned(array: Any, kind: Any) -> Any:
    """A struct without the children that nobody asked for."""
    if array.type.equals(kind) or not pa.types.is_struct(kind):
        return array
    children = [pruned(array.field(each.name), each.type) for each in kind]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def in_memory(level: MemoryLevel, asked: Sequence[Any]) -> Hits:
    """The newest row of each key in a MemTable."""
    hits = all_in_memory(level, asked)
    return _newest(hits.rows, hits.codes)


def all_in_memory(level: MemoryLevel, asked: Sequence[Any]) -> Hits:
    """All rows of the keys in a MemTable, oldest first."""
    rows, codes = KeyIndex(asked).find(level.keys().columns)
    return Hits(rows.astype(np.int64), codes.astype(np.int64))


class Hashes:
    """The hashes of the keys of a lookup, made when the first SSTable is asked."""

    def __init__(self, wanted: Sequence[Any]) -> None:
        self._wanted = wanted
        self._hashed: Words | None = None

    def of(self, codes: Ints) -> Words | None:
        """Those of some keys; None where Bloom filters do not know their type."""
        from tiltyard.memwal.key_hash import is_hashed, key_hashes

        if self._hashed is None:
            if not all(is_hashed(each.type) for each in self._wanted):
                return None
            self._hashed = key_hashes(self._wanted, len(self._wanted[0]))
        return self._hashed[codes]


def in_sstable(level: SsTableLevel, asked: Sequence[Any], hashed: Words | None) -> Hits:
    """The living row of each key in an SSTable, by address. `hashed`: see `key_hash`."""
    hits = all_in_sstable(level, asked, hashed)
    return _one_each(hits.rows, hits.codes)


def all_in_sstable(level: SsTableLevel, asked: Sequence[Any], hashed: Words | None) -> Hits:
    """All living rows of the keys in an SSTable, by address."""
    possible = _possible(level, len(asked[0]), hashed)
    if not len(possible):
        return NO_HITS
    fewer = asked if len(possible) == len(asked[0]) else [each.take(pa.array(possible)) for each in asked]
    fragments = level.snapshot.fragments
    found = None
    if len(fragments) == 1:
        # Other writers have published without it (MemWAL, section 9.7), or in a version that is not read.
        with suppress(ObjectNotFound, UnsupportedFeature):
            found = level.key_index().find(sortable(fewer))
    if found is None:
        rows, codes = KeyIndex(fewer).find(level.keys().columns)
        return Hits(level.addresses()[rows], possible[codes])
    positions, ids = found
    if len(ids) and int(ids.max()) >= fragments[0].physical_rows:
        raise CorruptFile(
            f"the key index of the SSTable at {level.snapshot.store.uri} leads to row {int(ids.max())}, and "
            f"there are {fragments[0].physical_rows}: it is damaged"
        )
    kept = without_deleted(load_deletions(level.snapshot, fragments[0]), ids.astype(np.int64))
    order = np.argsort(ids[kept], kind="stable")
    return Hits(ids[kept][order], possible[positions[kept][order]])


def _one_each(addresses: Addresses, codes: Ints) -> Hits:
    """Of several living rows of a key, which writers of ours do not leave, the last; by address."""
    if len(distinct(codes)) < len(codes):
        _, back = np.unique(codes[::-1], return_index=True)
        kept = np.sort(len(codes) - 1 - back)
        addresses, codes = addresses[kept], codes[kept]
    return Hits(addresses, codes)


def _newest(rows: Ints, codes: Ints) -> Hits:
    """Of several rows with one code the last; by row."""
    if not len(rows):
        return Hits(rows, codes)
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = rows  # ascending, so that the last one stays
    kept = np.sort(last[last >= 0])
    by_row = np.argsort(last, kind="stable")
    return Hits(kept, by_row[len(last) - len(kept) :])


def _possible(level: SsTableLevel, rows: int, hashed: Words | None) -> Ints:
    """Positions of the keys that the SSTable may hold."""
    bitmap = None if hashed is None else level.bloom()
    if bitmap is None or hashed is None:
        return np.arange(rows)
    if rows == 1:
        return np.arange(int(holds_one(bitmap, int(hashed[0]))))
    return np.flatnonzero(holds(bitmap, hashed))
