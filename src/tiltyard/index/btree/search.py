"""Reading a B-tree index: the page lookup in memory, pages of values and row ids as questions touch them.

The file of pages is one long sorted list (nulls first); the lookup says where each page begins and ends. A
question becomes intervals of rows: two places found by binary search in the lookup and then in one page
each. Row ids between the places are read in one go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, InvalidInput, TiltyardError, UnsupportedFeature
from tiltyard.expr.index_query import ColumnQuery
from tiltyard.file import FileReader, open_file
from tiltyard.format.schema import Field
from tiltyard.index.btree.layout import (
    BATCH_SIZE_KEY,
    DEFAULT_PAGE_ROWS,
    LOOKUP_COLUMNS,
    LOOKUP_FILE,
    PAGE_COLUMNS,
    PAGES_FILE,
    RANGE_PARTITIONED_KEY,
)
from tiltyard.index.order import Cut, Interval, Keys, Texts, order_of
from tiltyard.kernels.distinct import distinct
from tiltyard.session import Session
from tiltyard.store.protocol import Store

FEW_CUTS = 16
"""Places that are looked up one by one; more of them are looked up page by page."""

DENSE_SHARE = 64
"""One row in so many wanted: then the ids between the first and the last of them are read whole."""

ENTRY_ROWS = 1 << 16
"""Rows of a block of `entries`."""

FIXED_BYTES = 4096
"""What an open index is accounted as in the cache, besides its lookup."""

RowIds = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Rows, rows with null, pages, and the least and the greatest value as stored: a null stands first."""

    rows: int
    nulls: int
    pages: int
    min: pa.Scalar
    max: pa.Scalar


def open_btree(
    store: Store, directory: str, session: Session, *, sizes: dict[str, int] | None = None
) -> BTree:
    """The index in a directory, kept in the session; `sizes`: bytes of its files where they are known.

    Raises `ObjectNotFound`, `CorruptFile`, `UnsupportedFeature` (an index in range partitions, a type or file
    version that is not known).
    """
    key = (store.identity, directory, "btree", "")

    def opened() -> tuple[BTree, int]:
        made = BTree(store, directory, session, sizes or {})
        return made, made.nbytes

    found: BTree = session.cache.get_or(key, opened)
    return found


class BTree:
    """An open index. Safe to share among threads."""

    def __init__(self, store: Store, directory: str, session: Session, sizes: dict[str, int]) -> None:
        self.directory = directory
        self._store = store
        self._session = session
        self._path = f"{directory}/{PAGES_FILE}"
        self._size = sizes.get(PAGES_FILE)
        self._fragments: frozenset[int] | None = None
        path = f"{directory}/{LOOKUP_FILE}"
        lookup = open_file(store, path, size=sizes.get(LOOKUP_FILE), session=session)
        pages = open_file(store, self._path, size=self._size, session=session)
        try:
            self._open(lookup, pages)
        except CorruptFile as error:
            raise CorruptFile(str(error), path) from error

    def _open(self, lookup: FileReader, pages: FileReader) -> None:
        metadata = lookup.schema.metadata
        if metadata.get(RANGE_PARTITIONED_KEY, b"false").lower() == b"true":
            raise UnsupportedFeature(
                f"{lookup.path}: B-tree indices in range partitions are not read by this version; drop the "
                "index and create it again, or scan without it"
            )
        self.page_rows = _page_rows(metadata.get(BATCH_SIZE_KEY))
        if tuple(lookup.schema.names) != LOOKUP_COLUMNS:
            raise CorruptFile(f"the page lookup has columns {lookup.schema.names}, not {LOOKUP_COLUMNS}")
        if tuple(pages.schema.names) != PAGE_COLUMNS:
            raise CorruptFile(f"{self._path} has columns {pages.schema.names}, not {PAGE_COLUMNS}")
        self.rows = pages.num_rows
        self._values, self._ids = pages.schema.fields
        least, greatest, nulls, numbers = lookup.read(lookup.schema.fields, None, slice(None))
        self.type = self._values.arrow_type
        if least.type != self.type or greatest.type != self.type:
            raise CorruptFile(f"the pages hold {self.type}, the page lookup {least.type}")
        self.order = order_of(self.type)
        self._arrange(least, greatest, _numbers(nulls), _numbers(numbers))

    def _arrange(
        self, least: pa.Array, greatest: pa.Array, nulls: Places, numbers: npt.NDArray[np.int64]
    ) -> None:
        """Check the lookup and put it into the order of the pages."""
        count = -(-self.rows // self.page_rows)
        if len(numbers) != count:
            raise CorruptFile(f"{self.rows} rows make {count} pages, the page lookup has {len(numbers)}")
        if not np.array_equal(numbers, np.arange(count)):
            order = np.argsort(numbers, kind="stable")
            if not np.array_equal(numbers[order], np.arange(count)):
                raise CorruptFile("the page lookup does not name every page once")
            least, greatest, nulls = least.take(pa.array(order)), greatest.take(pa.array(order)), nulls[order]
        self.pages = count
        self.nulls = int(nulls.sum())
        expected = np.clip(self.nulls - np.arange(count) * self.page_rows, 0, self.page_rows)
        if count:
            expected[-1] = min(int(expected[-1]), self.rows - (count - 1) * self.page_rows)
        if not np.array_equal(nulls, expected):
            raise CorruptFile("nulls do not stand before all other values")
        self._first = self.nulls // self.page_rows if self.nulls < self.rows else count
        with_null = self._first + (1 if self.nulls % self.page_rows and self._first < count else 0)
        self._least = self._keys_of(least.slice(with_null), "min")
        self._greatest = self._keys_of(greatest.slice(self._first), "max")
        self._with_null = with_null
        self._ends = (least.slice(0, 1), greatest.slice(max(count - 1, 0), 1))
        if not _ascends(self._greatest):
            raise CorruptFile("the greatest values of the pages do not ascend")

    def _keys_of(self, array: pa.Array, what: str) -> Keys:
        if array.null_count:
            raise CorruptFile(f"{what} of a page that has other values than null is null")
        return self.order.keys(array)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keeping this index open costs."""
        return FIXED_BYTES + self._least.nbytes + self._greatest.nbytes

    @property
    def statistics(self) -> Statistics:
        """Counts, and the ends of the stored order."""
        null = pa.scalar(None, self.type)
        ends = [each[0] if len(each) else null for each in self._ends]
        return Statistics(self.rows, self.nulls, self.pages, ends[0], ends[1])

    # -- questions -------------------------------------------------------------------------------

    def search(self, query: ColumnQuery) -> RowIds:
        """Row ids (uint64, ascending, each once) of the rows that answer `query`."""
        self._check_type(query)
        found = self._read_ids(self._row_spans(query))
        if len(found) > 1:
            found.sort()
        return found

    def count(self, query: ColumnQuery) -> int:
        """How many entries answer `query`; entries of rows that were deleted since are among them."""
        self._check_type(query)
        return int(sum(stop - start for start, stop in self._row_spans(query)))

    def estimate(self, query: ColumnQuery) -> int:
        """An upper bound of `count`, from the page lookup alone."""
        self._check_type(query)
        total = self.nulls if query.nulls else 0
        if len(query.values) > FEW_CUTS:
            keys = self.order.many(query.values)
            if keys is not None:
                return min(self.rows, total + len(distinct(self._pages_of(keys))) * self.page_rows)
        touched: list[tuple[int, int]] = []
        for low, high in self._intervals(query):
            start, stop = self._page_of(low), self._page_of(high)
            if low is high or start > stop:
                continue
            first = min(start * self.page_rows, self.rows)  # a value may lie behind the last page
            touched.append((first, min((stop + 1) * self.page_rows, self.rows)))
        return min(self.rows, total + sum(stop - start for start, stop in _united(touched)))

    def find(self, keys: pa.Array) -> tuple[Places, RowIds]:
        """The rows of many keys at once: positions in `keys` (int64) and, beside each, the id (uint64) of a
        row with that value. Nulls find nothing; a key that several rows have comes several times."""
        from tiltyard.index.btree.join import find

        return find(self, keys)

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[pa.Array, RowIds]]:
        """All entries in stored order, or those from row `start` to `stop` of it, in blocks."""
        end = self.rows if stop is None else stop
        for at in range(start, end, ENTRY_ROWS):
            yield self.block(at, min(at + ENTRY_ROWS, end))

    def ids(self) -> Iterator[RowIds]:
        """All row ids in stored order, in blocks."""
        for at in range(0, self.rows, ENTRY_ROWS):
            (array,) = self._read((self._ids,), at, min(at + ENTRY_ROWS, self.rows))
            yield _numbers(array, np.uint64)

    @property
    def first_fragments(self) -> frozenset[int]:
        """The upper halves of the row ids on the first page: fragments, where ids are addresses."""
        return _owners(self._page_ids(0)) if self.rows else frozenset()

    @property
    def fragments(self) -> frozenset[int]:
        """The same of all row ids; the first time, every one of them is read."""
        if self._fragments is None:
            self._fragments = frozenset[int]().union(*map(_owners, self.ids()))
        return self._fragments

    def block(self, start: int, stop: int) -> tuple[pa.Array, RowIds]:
        """Values and row ids of rows `start` to `stop` of the stored order."""
        values, ids = self._read((self._values, self._ids), start, stop)
        return values, _numbers(ids, np.uint64)

    def prewarm(self) -> None:
        """Bring every page into the session's cache, as far as it has room."""
        for page in range(self.pages):
            self._page_keys(page)
            self._page_ids(page)

    # -- rows of a question ----------------------------------------------------------------------

    def _check_type(self, query: ColumnQuery) -> None:
        if query.type != self.type:
            raise InvalidInput(f"a question about {query.type} for an index on {self.type}")

    def _intervals(self, query: ColumnQuery) -> Iterator[Interval]:
        for value in query.values:
            yield from self.order.point(value)
        for span in query.ranges:
            yield from self.order.intervals(span)

    def _row_spans(self, query: ColumnQuery) -> list[tuple[int, int]]:
        """Rows of the stored order, as ascending pieces that do not touch."""
        spans = [(0, self.nulls)] if query.nulls and self.nulls else []
        if len(query.values) > FEW_CUTS:
            keys = self.order.many(query.values)
            if keys is not None:
                spans += self._spans_of(keys)
                query = ColumnQuery(query.path, query.type, query.ranges)
        for low, high in self._intervals(query):
            start = self.place(low)
            stop = start if high is low else self.place(high)
            if start < stop:
                spans.append((start, stop))
        return spans if len(spans) < 2 else _united(spans)

    def _spans_of(self, keys: npt.NDArray[Any]) -> list[tuple[int, int]]:
        """The rows of many ascending keys, page by page."""
        places = [self.places(keys, side) for side in ("left", "right")]
        found = places[0] < places[1]
        return list(zip(places[0][found].tolist(), places[1][found].tolist(), strict=True))

    def places(self, keys: npt.NDArray[Any], side: Any) -> Places:
        """The rows of the stored order that ascending keys stand before (`left`) or after (`right`)."""
        if not len(keys):
            return np.empty(0, np.int64)
        pages = self._first + np.searchsorted(np.asarray(self._greatest), keys, side)
        places = np.full(len(keys), self.rows, np.int64)
        touched, starts = np.unique(pages, return_index=True)
        for page, start, stop in zip(
            touched.tolist(), starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True
        ):
            if page < self.pages:
                within = np.searchsorted(np.asarray(self._page_keys(page)), keys[start:stop], side)
                places[start:stop] = self._begin(page) + within
        return places

    def _pages_of(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        pages = self._first + np.searchsorted(np.asarray(self._greatest), keys, "left")
        after = self._first + np.searchsorted(np.asarray(self._greatest), keys, "right")
        many = after > pages + 1
        extra = [np.arange(a, b) for a, b in zip(pages[many], after[many], strict=True)]
        found = np.concatenate([pages, np.minimum(after, self.pages - 1), *extra])
        return found[found < self.pages]

    def _page_of(self, cut: Cut) -> int:
        """The page that a place lies in or before."""
        if cut.key is None:
            return self.pages if cut.after else self._first
        return self._first + int(self._greatest.searchsorted(cut.key, "right" if cut.after else "left"))

    def place(self, cut: Cut) -> int:
        """The row of the stored order that a place stands before."""
        if cut.key is None:
            return self.rows if cut.after else self.nulls
        side: Any = "right" if cut.after else "left"
        at = int(self._greatest.searchsorted(cut.key, side))
        page = self._first + at
        if page >= self.pages:
            return self.rows
        return self._begin(page) + int(self._page_keys(page).searchsorted(cut.key, side))

    def _begin(self, page: int) -> int:
        """The first row of a page that is not null."""
        return max(page * self.page_rows, self.nulls)

    # -- pages -----------------------------------------------------------------------------------

    def _page_keys(self, page: int) -> Keys:
        """The keys of a page, without its nulls."""
        key = (self._store.identity, self.directory, "btree keys", page)
        found: Keys | None = self._session.cache.get(key)
        if found is None:
            found = self._load_keys(page)
            self._session.cache.put(key, found, found.nbytes)
        return found

    def _load_keys(self, page: int) -> Keys:
        stop = min((page + 1) * self.page_rows, self.rows)
        (array,) = self._read((self._values,), self._begin(page), stop)
        if array.null_count:
            raise self._damaged(page, "holds nulls behind other values")
        keys = self.order.keys(array)
        if not _ascends(keys):
            raise self._damaged(page, "is not in order")
        if _at(keys, -1) != _at(self._greatest, page - self._first):
            raise self._damaged(page, "does not end with the value that the page lookup says")
        if page >= self._with_null and _at(keys, 0) != _at(self._least, page - self._with_null):
            raise self._damaged(page, "does not begin with the value that the page lookup says")
        # What is kept must not keep a whole file's buffers alive.
        return keys if isinstance(keys, Texts) else np.array(keys)

    def _damaged(self, page: int, what: str) -> CorruptFile:
        return CorruptFile(f"page {page} of the index {what}", self._path)

    def _page_ids(self, page: int) -> RowIds:
        key = (self._store.identity, self.directory, "btree ids", page)
        found: RowIds | None = self._session.cache.get(key)
        if found is None:
            start, stop = page * self.page_rows, min((page + 1) * self.page_rows, self.rows)
            (array,) = self._read((self._ids,), start, stop)
            found = np.array(_numbers(array, np.uint64))
            self._session.cache.put(key, found, found.nbytes)
        return found

    def _read_ids(self, spans: Sequence[tuple[int, int]]) -> RowIds:
        """The ids of rows of the stored order, in a new array."""
        parts: list[RowIds] = []
        for start, stop in spans:
            page = start // self.page_rows
            if stop <= (page + 1) * self.page_rows:
                base = page * self.page_rows
                parts.append(self._page_ids(page)[start - base : stop - base])
            else:
                (array,) = self._read((self._ids,), start, stop)
                parts.append(_numbers(array, np.uint64))
        if len(parts) == 1:
            return parts[0].copy()
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def ids_at(self, rows: Places) -> RowIds:
        """The row ids of rows of the stored order, in any order and as often as they are named."""
        if len(rows) <= FEW_CUTS:
            parts = [self._page_ids(row // self.page_rows)[row % self.page_rows] for row in rows.tolist()]
            return np.array(parts, np.uint64)
        low, high = int(rows.min()), int(rows.max()) + 1
        if len(rows) * DENSE_SHARE >= high - low:
            (array,) = self._read((self._ids,), low, high)
            found: RowIds = _numbers(array, np.uint64)[rows - low]
            return found
        file = open_file(self._store, self._path, size=self._size, session=self._session)
        (array,) = file.read((self._ids,), None, rows)
        return np.array(_numbers(array, np.uint64))

    def _read(self, fields: tuple[Field, ...], start: int, stop: int) -> list[pa.Array]:
        file = open_file(self._store, self._path, size=self._size, session=self._session)
        try:
            return file.read(fields, None, slice(start, stop))
        except CorruptFile:
            raise
        except TiltyardError as error:
            raise type(error)(f"{self._path}: {error}") from error


def _owners(ids: RowIds) -> frozenset[int]:
    return frozenset(np.unique(ids >> np.uint64(32)).tolist())


def _page_rows(written: bytes | None) -> int:
    if written is None:
        return DEFAULT_PAGE_ROWS
    try:
        rows = int(written)
    except ValueError:
        rows = 0
    if rows < 1:
        raise CorruptFile(f"{BATCH_SIZE_KEY} must be a positive number, found {written!r}")
    return rows


def _numbers(array: pa.Array, dtype: Any = np.int64) -> npt.NDArray[Any]:
    """A column of whole numbers without nulls."""
    if array.null_count:
        raise CorruptFile("a column of an index that is never null holds nulls")
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return found.astype(dtype, copy=False)


def _ascends(keys: Keys) -> bool:
    if isinstance(keys, Texts):
        return keys.ascends()
    return len(keys) < 2 or bool((keys[1:] >= keys[:-1]).all())


def _at(keys: Keys, row: int) -> Any:
    if isinstance(keys, Texts):
        return keys.at(row if row >= 0 else len(keys) + row)
    return keys[row]


def _united(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pieces in order, those that meet or overlap as one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            if stop > found[-1][1]:
                found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
