"""The sources of a streamed table beside its base: MemTables and SSTables, each as batches in the base's
columns.

Columns are matched by field id: what was renamed since is found, what was added is null, what was dropped is
left out (MemWAL, section 6.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import BatchTooLarge, CorruptFile, ObjectNotFound
from tiltyard.expr.arrays import bools_of, plain, values_of
from tiltyard.format.field import Field
from tiltyard.format.flags import has_partial_rows
from tiltyard.format.schema import Schema
from tiltyard.memwal import layout
from tiltyard.memwal.joining import has_dictionary, in_few, joined
from tiltyard.memwal.log_schema import TOMBSTONE, LogSchema, check_same_key, reconciled
from tiltyard.memwal.memtable import View
from tiltyard.table.merge.key_filter import BITMAP_BYTES
from tiltyard.table.merge.keys import Words
from tiltyard.table.merge.sorted_keys import Ints, SortedKeys, key_words
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot

if TYPE_CHECKING:
    from tiltyard.format.shard_manifest import SsTable
    from tiltyard.index.btree import BTree
    from tiltyard.table.take import Taker

ENTRY_BYTES = 512
"""What the cached keys of an SSTable are accounted as beside the keys (bytes)."""

SMALL_KEYS = 1 << 14
"""Rows of an SSTable up to which its keys, in order, take about as much room as its Bloom filter."""

MAX_KEPT_KEYS = 1 << 21
"""Rows of an SSTable up to which its keys are kept in order (about 12 bytes each)."""

WHOLE_ROWS = 1 << 16
"""Rows of an SSTable up to which it is read at once, by what takes rows of it."""

SLICED_ROWS = 1024
"""A row is given as a part of a batch of at most so many rows, which then stays in memory with it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a level's rows, oldest first (plain `pa.Array`s), and which rows delete theirs."""

    columns: tuple[Any, ...]
    deletes: npt.NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.deletes.nbytes) + sum(each.nbytes for each in self.columns)


class MemoryLevel:
    """A MemTable as a reader saw it."""

    def __init__(self, view: View, written: LogSchema, wanted: LogSchema) -> None:
        self.generation = view.generation
        self._view = view
        self._batches: Sequence[Any] = view.batches
        self.is_as_written = written.is_as(wanted)
        """Whether its columns are those that the base has now."""
        if not self.is_as_written:
            named = [pa.RecordBatch.from_arrays(b.columns, schema=written.entry) for b in view.batches]
            self._batches = [reconciled(each, wanted, "in memory") for each in named]
        self._wanted = wanted

    @property
    def view(self) -> View:
        """What was seen of the MemTable: the same object as long as it is the same."""
        return self._view

    @property
    def rows(self) -> int:
        """Rows, superseded ones included."""
        return self._view.rows

    def last_rows(self, words: Words) -> tuple[Ints, Ints]:
        """See `View.last_rows`; only of rows that are as they were written."""
        return self._view.last_rows(words)

    def row_of(self, word: np.uint64) -> int | None:
        """The last row of one key, by its word (see `key_words`), -1 where there is none; None where rows are
        not as they were written.
        """
        return self._view.last_row(word) if self.is_as_written else None

    def one(self, row: int, fields: Sequence[Field]) -> Any:
        """A row with these of the base's columns, as a batch; None where it deletes its key."""
        at, row = self._view.place(row)
        batch = self._batches[at]
        if batch.column(batch.num_columns - 1)[row].as_py():
            return None
        if not fields:
            return _batch([], self._wanted.arrow(()), 1)
        few = batch.select(self._wanted.places(fields))
        return few.slice(row, 1) if batch.num_rows <= SLICED_ROWS else few.take(pa.array([row]))

    def keys(self) -> Keys:
        """The keys of all rows."""
        whole = pa.Table.from_batches(self._batches)
        columns = tuple([plain(whole.column(name).combine_chunks()) for name in self._wanted.key])
        return Keys(columns, bools_of(_one(whole.column(TOMBSTONE))))

    def batches(self, fields: Sequence[Field]) -> Iterator[Any]:
        """All rows, oldest first, with these of the base's columns."""
        schema = self._wanted.arrow(fields)
        if not fields:
            yield from (_batch([], schema, each.num_rows) for each in self._batches)
            return
        is_plain = not any(has_dictionary(each.type) for each in schema)
        yield from in_few(self._batches, self._wanted.places(fields), schema, is_plain=is_plain)

    def take(self, rows: npt.NDArray[np.int64], fields: Sequence[Field]) -> Any:
        """These rows (by number, ascending) with these of the base's columns, as one batch."""
        whole = pa.Table.from_batches(list(self.batches(fields)))
        taken = whole.take(pa.array(rows)).combine_chunks()
        found = taken.to_batches()
        return found[0] if found else pa.RecordBatch.from_pylist([], whole.schema)


class SsTableLevel:
    """A published generation. Its rows are those that its deletion file leaves."""

    def __init__(self, snapshot: Snapshot, fact: SsTable, wanted: LogSchema) -> None:
        self.generation = fact.generation
        self.fact = fact
        self.stored = snapshot
        """The table in the SSTable's directory, as it was written."""
        self._wanted = wanted
        self.snapshot = _as_base(snapshot, wanted)
        self._present = frozenset(self.snapshot.schema.names)
        self._some = self.snapshot.schema.names[-1]  # a column to count rows by
        self.is_small = fact.physical_rows is not None and fact.physical_rows <= SMALL_KEYS
        """Whether its keys take so little room that they are kept before its Bloom filter is asked."""
        self._deletes: bool | None = None  # not known yet
        self._sorted_key = (snapshot.store.identity, ",".join(wanted.key), "sorted keys", "")

    @property
    def rows(self) -> int:
        """Rows that its deletion file leaves."""
        return Scan(self.snapshot, ScanRequest(columns=[self._some])).count()

    def keys(self) -> Keys:
        """The keys of all rows, kept in the session."""
        session, names = self.snapshot.session, self._wanted.key

        def made() -> tuple[Keys, int]:
            read = list(dict.fromkeys((*names, self._some)))
            found = Scan(self.snapshot, ScanRequest(columns=read, use_index=False)).table()
            columns = tuple(plain(found.column(name).combine_chunks()) for name in names)
            deletes = np.zeros(found.num_rows, np.bool_)
            if TOMBSTONE in self._present:
                deletes = bools_of(_one(found.column(TOMBSTONE)))
            keys = Keys(columns, deletes)
            return keys, keys.nbytes + ENTRY_BYTES

        key = (self.snapshot.store.identity, ",".join(names), "stream keys", "")
        found: Keys = session.cache.get_or(key, made)
        return found

    def addresses(self) -> npt.NDArray[np.uint64]:
        """The addresses of all rows in its table."""
        scan = Scan(self.snapshot, ScanRequest(columns=[self._some], row_address=True, use_index=False))
        column = _one(scan.table().column(1))
        return np.asarray(values_of(column))

    def key_index(self) -> BTree:
        """The index of its keys. Raises `ObjectNotFound` where its writer made none."""
        from tiltyard.index.btree import open_btree

        return open_btree(self.snapshot.store, layout.PK_INDEX, self.snapshot.session)

    def bloom(self) -> npt.NDArray[np.uint32] | None:
        """The bits of its Bloom filter as 32-bit words, kept in the session; None without one."""

        def made() -> tuple[Any, int]:
            try:
                data = bytes(self.snapshot.store.read(layout.BLOOM_FILTER))
            except ObjectNotFound:
                data = b""
            words = np.frombuffer(data if len(data) == BITMAP_BYTES else b"", "<u4")
            return words, words.nbytes + ENTRY_BYTES

        key = (self.snapshot.store.identity, layout.BLOOM_FILTER, "bloom", "")
        words: npt.NDArray[np.uint32] = self.snapshot.session.cache.get_or(key, made)
        return words if len(words) else None

    def sorted_keys(self) -> SortedKeys | None:
        """Its keys and the address of each one's row, where the session has them."""
        kept = self.snapshot.session.cache.get(self._sorted_key)
        return kept if isinstance(kept, SortedKeys) else None

    def kept_keys(self) -> SortedKeys | None:
        """The same, read and kept in the session; None for the first who asks, who is better served by the
        files, and where they are too many to keep.
        """
        session = self.snapshot.session
        is_few: bool | None = session.cache.get(self._sorted_key)
        if is_few is None:
            rows = int(np.asarray(self.snapshot.fragments.physical_rows).sum())
            session.cache.put(self._sorted_key, rows <= MAX_KEPT_KEYS, ENTRY_BYTES)
        if not is_few:
            return None
        keys = self.keys()
        self._deletes = bool(keys.deletes.any())
        words, addresses = key_words(keys.columns)[0], self.addresses()
        if len(addresses) and int(addresses[-1]) <= np.iinfo(np.uint32).max:
            addresses = addresses.astype(np.uint32)
        made = SortedKeys(words.copy(), addresses)  # what was read may be a part of much more
        session.cache.put(self._sorted_key, made, made.nbytes + ENTRY_BYTES)
        return made

    def row_of(self, word: np.uint64) -> int | None:
        """The address of the row of one key, by its word (see `key_words`), -1 where there is none; None
        where its keys are not kept.
        """
        kept = self.sorted_keys()
        return None if kept is None else kept.last_of(word, None)

    def one(self, address: int, fields: Sequence[Field]) -> Any:
        """The row at an address, as `MemoryLevel.one` gives it."""
        if self._deletes is False and self._present.issuperset([each.name for each in fields]):
            return self._taker(fields).row_that_lives(address)
        batch = self.take(np.array([address], np.uint64), (*fields, self._wanted.stored.fields[-1]))
        at = batch.num_columns - 1
        if batch.column(at)[0].as_py():
            return None
        return _batch(batch.columns[:at], self._wanted.arrow(fields), 1)

    def _taker(self, fields: Sequence[Field]) -> Taker:
        from tiltyard.table.take import kept_taker

        return kept_taker(self.snapshot, tuple([each.name for each in fields]) or (self._some,))

    def batches(self, fields: Sequence[Field]) -> Iterator[Any]:
        """All rows, oldest first, with these of the base's columns."""
        read = [each.name for each in fields if each.name in self._present]
        schema = self._wanted.arrow(fields)
        for batch in self._read(tuple(read) or (self._some,)):
            yield _batch([self._column(batch, each, schema) for each in fields], schema, batch.num_rows)

    def _read(self, names: tuple[str, ...]) -> Iterator[Any]:
        """All rows with these of its columns."""
        from tiltyard.table.take import kept_taker

        if self.fact.physical_rows is not None and self.fact.physical_rows <= WHOLE_ROWS:
            with suppress(BatchTooLarge):
                whole = kept_taker(self.snapshot, names).whole()
                if whole is not None:
                    return iter([whole])
        return Scan(self.snapshot, ScanRequest(columns=list(names), use_index=False)).batches()

    def take(self, addresses: npt.NDArray[np.uint64], fields: Sequence[Field]) -> Any:
        """The rows at these addresses of its table, with these of the base's columns, as one batch."""
        from tiltyard.table.take import kept_taker

        schema = self._wanted.arrow(fields)
        read = tuple([each.name for each in fields if each.name in self._present]) or (self._some,)
        batch = one_batch(kept_taker(self.snapshot, read).rows_that_live(addresses))
        if len(read) == len(fields):
            return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return _batch([self._column(batch, each, schema) for each in fields], schema, batch.num_rows)

    def _column(self, batch: Any, field: Field, schema: Any) -> Any:
        if field.name in self._present:
            return batch.column(field.name)
        if field.name == TOMBSTONE:
            return pa.repeat(False, batch.num_rows)
        return pa.nulls(batch.num_rows, schema.field(field.name).type)


Level = MemoryLevel | SsTableLevel


def _as_base(snapshot: Snapshot, wanted: LogSchema) -> Snapshot:
    """An SSTable's version under the names that the base has now, without columns that it does not hold. One
    without `_tombstone`, as a plain writer makes it, deletes nothing.
    """
    theirs = snapshot.schema
    check_same_key([each.id for each in theirs.primary_key], wanted, f"the SSTable at {snapshot.store.uri}")
    last = theirs.fields[-1:]
    tombstone = last if last and last[0].name == TOMBSTONE else ()
    taken = {each.id for each in tombstone}
    present = tuple(
        each
        for each in wanted.stored.fields[:-1]
        if each.id not in taken and theirs.has_id(each.id) and theirs.by_id(each.id).parent_id < 0
    )
    lacking = [name for name in wanted.key if name not in {each.name for each in present}]
    if lacking or not (present or tombstone):
        raise CorruptFile(
            f"the SSTable at {snapshot.store.uri} has columns {theirs.names}: it lacks "
            f"{', '.join(lacking) or 'all of the table'}"
        )
    if wanted.functions is None and has_partial_rows(snapshot.manifest):
        raise CorruptFile(
            f"the SSTable at {snapshot.store.uri} has rows that are to be merged, and the table has no merge "
            "functions: it was copied here, or the table's MemWAL was made anew by another program"
        )
    schema = Schema((*present, *tombstone), theirs.metadata)
    if schema.fields == theirs.fields:
        return snapshot
    return replace(snapshot, manifest=replace(snapshot.manifest, schema=schema))


def one_batch(table: Any) -> Any:
    """The rows of a table that lies in memory whole, as one batch. Raises `BatchTooLarge`."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    return joined(batches) if batches else pa.RecordBatch.from_pylist([], table.schema)


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _batch(columns: list[Any], schema: Any, rows: int) -> Any:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    from tiltyard.table.unit_reader import batch_of

    return batch_of([], schema, rows)
