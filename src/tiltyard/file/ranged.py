"""Reading a data file of an object store: only the bytes that a read needs are fetched.

They are put at their places in memory that is as long as the file and otherwise untouched, so that everything
that reads a mapped file reads these. What a column's tables are built from (chunk words, dictionaries,
scalars) is fetched when the column is first read; of its values, the chunks or entries that hold the wanted
rows where a layout tells where those are, else their pages. All that one read lacks comes in one round of
requests.

Invariants, with their tests in tests/file/test_ranged.py:

1. Nothing looks at bytes that were not fetched: every read names its rows before it begins.
2. Memory that an array refers to is never changed: when much was fetched, the file begins anew in other
   memory.
3. What is on its way is not asked for again, and nothing is locked while it is.
4. Rows that were fetched ahead are read where they were put, also after the file began anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import TiltyardError
from tiltyard.file.column import ColumnTable, Rows
from tiltyard.file.direct import WordFilter
from tiltyard.file.reader import READER_BYTES, FileReader, _Plan, read_file
from tiltyard.file.values import LeafReader
from tiltyard.format.container import ColumnPages, FileTail, FileVersion, parse_tail, tail_start
from tiltyard.format.layouts import FullZip, MiniBlock
from tiltyard.format.schema import Field
from tiltyard.session import Session
from tiltyard.session.arena import reserved
from tiltyard.store.content import flat
from tiltyard.store.protocol import Store

T = TypeVar("T")
I64 = npt.NDArray[np.int64]
Range = tuple[int, int]
"""Position and length in bytes."""

TAIL_BYTES = 64 << 10
"""Read first, from the end: a smaller file is read whole, and most tails are shorter."""

RENEW_BYTES = 64 << 20
"""After so much was fetched of a file, it begins anew: what no array uses any more is given back."""

MAX_AHEAD = 64
"""Ranges of rows fetched ahead that are remembered; those of others are found until the file begins anew."""

TAIL_READS = 3
"""What stands before what was read may send us back twice: to the tables, and to the schema."""


def open_ranged(store: Store, path: str, size: int | None, session: Session, key: Any) -> FileReader:
    """The reader of a data file, kept in the session under `key`; raises as `reader.open_file`."""
    if size is None:
        size = store.stat(path).size
    data = store.read(path, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
    for _ in range(TAIL_READS):
        start = tail_start(data, size, path)
        if start >= size - data.size:
            break
        data = store.read(path, start, size - start)
    tail = parse_tail(data, size, path)
    if data.size == size:
        return read_file(data, path, session)
    if tail.version is FileVersion.V2_0:
        return read_file(store.map(path, size), path, session)
    return RangedReader(store, path, session, tail, data, key)


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """Ranges that a thread of a process has asked for; `landed` is set when they are here, or have failed."""

    ranges: list[Range]
    landed: runtime.Event
    process: int

    def meets(self, ranges: Iterable[Range]) -> bool:
        """Whether it brings any byte of these."""
        return any(
            start < begin + size and begin < start + length
            for start, length in ranges
            for begin, size in self.ranges
        )


class Fetched:
    """Memory as long as a file, and which bytes of it have been fetched. Safe to share among threads."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._memory = reserved(size)
        self._view = memoryview(self._memory)
        self.size = size
        self.buffer: Any = pa.py_buffer(self._memory)
        self._lock = runtime.lock()
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._flights: list[_Flight] = []
        self.nbytes = 0

    def put(self, start: int, data: Any) -> None:
        """Enter bytes that are at hand."""
        with self._lock:
            self._enter(start, data)

    def need(self, ranges: Iterable[Range]) -> int:
        """Have these bytes here; how many of them this call has fetched."""
        wanted, fetched = _joined(ranges), 0
        while True:
            with self._lock:
                missing = [piece for each in wanted for piece in self._missing(*each)]
                process = runtime.process_id()  # a child of fork will see nothing arrive
                others = [each for each in self._flights if each.process == process and each.meets(missing)]
                mine = [piece for piece in missing if not any(each.meets([piece]) for each in others)]
                if mine:
                    flight = _Flight(mine, runtime.event(), process)
                    self._flights.append(flight)
            if mine:
                self._fly(flight)
                fetched += sum(length for _, length in mine)
            elif others:
                others[0].landed.wait()  # and look again: it may have failed, or bring a part only
            else:
                return fetched

    def _fly(self, flight: _Flight) -> None:
        try:
            found = self._store.read_ranges(self._path, flight.ranges)
            with self._lock:
                for (start, _), data in zip(flight.ranges, found, strict=True):
                    self._enter(start, data)
        finally:
            with self._lock:
                self._flights.remove(flight)
            flight.landed.set()

    def _missing(self, start: int, end: int) -> Iterator[Range]:
        at = bisect_right(self._ends, start)
        while start < end:
            begin = self._starts[at] if at < len(self._starts) else end
            if begin > start:
                yield start, min(begin, end) - start
            if at >= len(self._ends):
                return
            start = max(start, self._ends[at])
            at += 1

    def _enter(self, start: int, data: Any) -> None:
        view = flat(data)
        end = start + len(view)
        self._view[start:end] = view
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:  # touches what is there
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self.nbytes -= sum(self._ends[first:last]) - sum(self._starts[first:last])
        self._starts[first:last], self._ends[first:last] = [start], [end]
        self.nbytes += end - start


def _joined(ranges: Iterable[Range]) -> list[tuple[int, int]]:
    """Ranges as ascending, disjoint (start, end)."""
    out: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if not length:
            continue
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], start + length)
        else:
            out.append((start, start + length))
    return out


# -- which bytes ---------------------------------------------------------------------------------


def _value_buffer(layout: Any) -> int | None:
    """Which buffer of a page holds values that tables are not built from; None if all are."""
    if isinstance(layout, MiniBlock):
        return 1
    return 0 if isinstance(layout, FullZip) else None


def table_ranges(pages: ColumnPages) -> list[Range]:
    """What the tables of a column are built from: all of its pages but their values."""
    keep = np.ones(len(pages.offsets), bool)
    for number, layout in enumerate(pages.layouts):
        values = _value_buffer(layout)
        if values is not None:
            keep[pages.buffer_start[:-1][pages.layout_index == number] + values] = False
    found = zip(pages.offsets[keep].tolist(), pages.sizes[keep].tolist(), strict=True)
    return [*found, *zip(pages.column_offsets, pages.column_sizes, strict=True)]


def all_ranges(pages: ColumnPages) -> list[Range]:
    """All buffers of a column."""
    found = zip(pages.offsets.tolist(), pages.sizes.tolist(), strict=True)
    return [*found, *zip(pages.column_offsets, pages.column_sizes, strict=True)]


def value_ranges(pages: ColumnPages, table: ColumnTable, rows: Rows) -> list[Range]:
    """Where the values of some rows of a column are."""
    begin, end = rows.start, rows.start + rows.counts()
    begin, end = begin[begin < end], end[begin < end]
    if not len(begin):
        return []
    # Each run of rows, cut where a page ends.
    first = np.searchsorted(pages.first_row, begin, "right") - 1
    pieces = np.searchsorted(pages.first_row, end - 1, "right") - first
    run = np.repeat(np.arange(len(begin)), pieces)
    page = np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + np.repeat(first, pieces)
    low = np.maximum(begin[run], pages.first_row[page])
    high = np.minimum(end[run], pages.first_row[page] + pages.rows[page])
    there = low < high  # pages without rows
    page, low, high = page[there], low[there], high[there]
    found: list[I64] = []
    for number, layout in enumerate(pages.layouts):
        values = _value_buffer(layout)
        if values is None:
            continue
        mine = pages.layout_index[page] == number
        if mine.any():
            found.append(_of_layout(pages, table, layout, values, page[mine], low[mine], high[mine]))
    if not found:
        return []
    return [(start, size) for start, size in np.unique(np.concatenate(found), axis=0).tolist()]


def _of_layout(
    pages: ColumnPages, table: ColumnTable, layout: Any, values: int, page: I64, low: I64, high: I64
) -> I64:
    """int64[pieces, 2]: position and length of rows `low` to `high` of pages of one layout."""
    buffer = pages.buffer_start[:-1][page] + values
    position, size = pages.offsets[buffer], pages.sizes[buffer]
    if table.layers.max_rep:  # rows of lists: where they begin only the levels say
        return np.stack([position, size], 1)
    if isinstance(layout, MiniBlock):
        chunks = table.chunks.reshape(-1, 3)
        start = np.searchsorted(table.first, low, "right") - 1
        last = np.searchsorted(table.first, high - 1, "right") - 1
        at = chunks[start, 0]
        return np.stack([at, chunks[last, 0] + chunks[last, 1] - at], 1)
    width = size // pages.rows[page]
    even = (width * pages.rows[page] == size) & (not layout.variable)
    row = low - pages.first_row[page]
    return np.stack(
        [np.where(even, position + row * width, position), np.where(even, (high - low) * width, size)], 1
    )


# -- readers -------------------------------------------------------------------------------------


class _Generation(FileReader):
    """A file in one stretch of memory."""

    def __init__(self, fetched: Fetched, path: str, session: Session, tail: FileTail) -> None:
        super().__init__(fetched.buffer, path, session, tail)
        self.fetched = fetched
        self._ready: set[int] = set()
        self._pages: dict[LeafReader, ColumnPages] = {}

    def _count_take(self) -> None:
        """Nothing is mapped, and untouched memory costs nothing."""

    def _plan(self, fields: Sequence[Field], columns: Mapping[int, int] | None) -> _Plan:
        self._get_ready(self._columns_of(fields, columns))
        return super()._plan(fields, columns)

    def _columns_of(self, fields: Iterable[Field], columns: Mapping[int, int] | None) -> list[int]:
        known = self._columns() if columns is None else columns
        limit, found = len(self._tail.columns), []
        left = list(fields)
        while left:
            field = left.pop()
            column = known.get(field.id)
            if column is not None and 0 <= column < limit:  # what is not is told by who opens it
                found.append(column)
            left += field.children
        return found

    def _get_ready(self, columns: Iterable[int]) -> int:
        """Fetch what the tables of columns are built from; how many bytes."""
        new = [column for column in columns if column not in self._ready]
        if not new:
            return 0
        tables = (each for column in new for each in table_ranges(self._tail.columns[column]))
        nbytes = self.fetched.need(tables)
        self._ready.update(new)
        return nbytes

    def _opened(self, column: int, field: Field, make: Callable[[ColumnPages], T]) -> T:
        if 0 <= column < len(self._tail.columns):
            self._get_ready([column])
        found = super()._opened(column, field, make)
        if isinstance(found, LeafReader):
            self._pages[found] = self._tail.columns[column]
        return found

    def prefetch(self, fields: Sequence[Field], columns: Mapping[int, int] | None, rows: Rows) -> int:
        """Have here all that a read of these rows looks at; how many bytes were fetched."""
        try:
            whole = self._columns_of(fields, columns)
            if 2 * rows.total >= self.num_rows:
                return self.fetched.need(
                    each for column in whole for each in all_ranges(self._tail.columns[column])
                )
            nbytes = self._get_ready(whole)
            ranges: list[Range] = []
            for leaf in self._plan(fields, columns).leaves:
                pages = self._pages[leaf.reader]
                ranges += value_ranges(pages, leaf.reader.table, rows.scaled(leaf.scale))
            return nbytes + self.fetched.need(ranges)
        except TiltyardError as error:
            raise self._named(error) from error


class RangedReader(FileReader):
    """One data file of an object store."""

    def __init__(self, store: Store, path: str, session: Session, tail: FileTail, end: Any, key: Any) -> None:
        super().__init__(pa.py_buffer(b""), path, session, tail)
        self._store = store
        self._end = end
        self._key = key
        self._now = self._begun()
        self._ahead: list[tuple[int, int, ref[_Generation]]] = []
        self._accounted = self.nbytes

    def _begun(self) -> _Generation:
        fetched = Fetched(self._store, self.path, self._tail.file_size)
        fetched.put(fetched.size - self._end.size, self._end)
        return _Generation(fetched, self.path, self.session, self._tail)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keeping this reader costs."""
        return self._now.fetched.nbytes + int(self._end.size) + READER_BYTES

    def _current(self) -> _Generation:
        if self._now.fetched.nbytes > RENEW_BYTES:
            self._now = self._begun()
        return self._now

    def _prefetched(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None, rows: Rows
    ) -> tuple[_Generation, int]:
        now = self._holding(rows) or self._current()
        nbytes = now.prefetch(fields, columns, rows)
        size = self.nbytes
        if size != self._accounted:
            self._accounted = size
            self.session.maps.put(self._key, self, size)
        return now, nbytes

    def _holding(self, rows: Rows) -> _Generation | None:
        """Where a range of rows has been put ahead of its reading, while somebody holds it."""
        if len(rows.count) != 1:
            return None
        start, stop = int(rows.start[0]), int(rows.start[0]) + rows.total
        for first, last, held in self._ahead:
            found = held()
            if found is not None and first <= start and stop <= last:
                return found
        return None

    def fetch(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None, rows: slice
    ) -> tuple[Any, int]:
        """As `FileReader.fetch`."""
        wanted = self._rows(rows)
        found, nbytes = self._prefetched(fields, columns, wanted)
        start = int(wanted.start[0])
        held = [each for each in self._ahead if each[2]() is not None]
        self._ahead = [*held[-MAX_AHEAD:], (start, start + wanted.total, ref(found))]
        return found, nbytes

    def read(
        self,
        fields: Sequence[Field],
        columns: Mapping[int, int] | None,
        rows: slice | npt.NDArray[np.int64],
    ) -> list[Any]:
        """As `FileReader.read`."""
        return self._prefetched(fields, columns, self._rows(rows))[0].read(fields, columns, rows)

    def within(
        self,
        field: Field,
        columns: Mapping[int, int] | None,
        rows: slice | npt.NDArray[np.int64],
        low: int,
        span: int,
    ) -> npt.NDArray[np.bool_] | None:
        """As `FileReader.within`."""
        now, _ = self._prefetched((field,), columns, self._rows(rows))
        return now.within(field, columns, rows, low, span)

    def among(
        self, field: Field, columns: Mapping[int, int] | None, words: WordFilter, *, is_signed: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]] | None:
        """As `FileReader.among`."""
        now, _ = self._prefetched((field,), columns, Rows.range(0, self.num_rows))
        return now.among(field, columns, words, is_signed=is_signed)

    def whole(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None
    ) -> tuple[LeafReader, ...] | None:
        """As `FileReader.whole`."""
        return self._prefetched(fields, columns, Rows.range(0, self.num_rows))[0].whole(fields, columns)

    def verify(self) -> bool:
        """As `FileReader.verify`."""
        now = self._current()
        now.fetched.need([(0, now.fetched.size)])
        return now.verify()
