"""Columns of a file of version 2.0: rows looked up in its pages, whatever pages they lie in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.encoding.v20.ends import ends
from tiltyard.encoding.v20.page import I64, Bytes, Page, Selection
from tiltyard.errors import BatchTooLarge, CorruptFile, TiltyardError
from tiltyard.file.column import Rows, expanded
from tiltyard.file.v20.arrays import Decoder
from tiltyard.file.values import check_offsets
from tiltyard.format.array_encodings import ArrayEncoding, ListOffsets
from tiltyard.format.container import ColumnPages
from tiltyard.session import Session


class Column:
    """The pages of one column. Its rows are entries: items, where the column lies below a list."""

    def __init__(self, source: Bytes, pages: ColumnPages, name: str, arrow: Any) -> None:
        self.name = name
        self.type = arrow
        self.num_rows = pages.num_rows
        self._source = source
        self._pages = pages
        self._first = np.append(pages.first_row, pages.num_rows)

    def encoding(self, page: int) -> Any:
        """The encoding of a page."""
        return self._pages.layout(page)

    def page(self, number: int, session: Session) -> Page:
        """One page, whose buffers are kept decompressed by the session."""
        return Page(self._source, self._pages.buffers(number), number, self, session.cache)

    def entries(self, number: int) -> int:
        """Entries of one page."""
        return int(self._pages.rows[number])

    def split(self, rows: Rows) -> tuple[list[tuple[int, Selection]], I64 | None]:
        """The rows page by page; and, unless they come so, where in that order each of them stands."""
        if len(rows.start) == 1 and len(rows.count):
            return self._range(int(rows.start[0]), int(rows.start[0]) + rows.total), None
        wanted = expanded(rows)
        page = np.searchsorted(self._first, wanted, "right") - 1
        order = None
        if len(page) and bool((page[1:] < page[:-1]).any()):
            by_page = np.argsort(page, kind="stable")
            order = np.empty(len(page), np.int64)
            order[by_page] = np.arange(len(page))
            wanted, page = wanted[by_page], page[by_page]
        cuts = np.flatnonzero(page[1:] != page[:-1]) + 1
        bounds = [0, *cuts.tolist(), len(page)]
        found = []
        for low, high in pairwise(bounds):
            if high > low:
                number = int(page[low])
                found.append((number, Selection.of(wanted[low:high] - self._first[number])))
        return found, order

    def _range(self, start: int, stop: int) -> list[tuple[int, Selection]]:
        found = []
        number = int(np.searchsorted(self._first, start, "right")) - 1
        while start < stop:
            first, end = int(self._first[number]), int(self._first[number + 1])
            high = min(stop, end)
            if high > start:
                found.append((number, Selection(start - first, high - first)))
            start, number = high, number + 1
        return found

    def named(self, error: Exception) -> TiltyardError:
        """An error of a read with the name of the column that it is about."""
        kind = type(error) if isinstance(error, TiltyardError) else CorruptFile
        return kind(f"column {self.name!r}: {error}")


class Values(Column):
    """A column of values."""

    def read(self, session: Session, rows: Rows) -> Any:
        """The values of some entries as one `pa.Array`."""
        try:
            return self._read(session, rows)
        except (TiltyardError, ValueError, OverflowError) as error:
            raise self.named(error) from error

    def _read(self, session: Session, rows: Rows) -> Any:
        found, order = self.split(rows)
        if not found:
            return pa.array([], self.type)
        parts = []
        for number, chosen in found:
            decoder = Decoder(session, self.name, self.page(number, session))
            parts.append(decoder.read(self.encoding(number), self.type, chosen, self.entries(number)))
        array = parts[0] if len(parts) == 1 else self._joined(session, parts)
        return array if order is None else array.take(pa.array(order))

    def _joined(self, session: Session, parts: list[Any]) -> Any:
        if pa.types.is_string(self.type) or pa.types.is_binary(self.type):
            total = sum(int(part.buffers()[2].size) for part in parts if part.buffers()[2] is not None)
            check_offsets(session, total, sum(map(len, parts)), large=False)
        if not pa.types.is_dictionary(self.type):
            return pa.concat_arrays(parts)
        try:
            return pa.concat_arrays(parts)
        except pa.ArrowInvalid as error:
            raise BatchTooLarge(
                f"the pages of these rows hold more dictionary items than {self.type.index_type} can number "
                f"({error}): read fewer rows at a time, or write the column with a wider index"
            ) from error


class Lists(Column):
    """The ends of lists. `num_items`: of all its pages, which is what the column of items must hold."""

    def __init__(self, source: Bytes, pages: ColumnPages, name: str, arrow: Any) -> None:
        super().__init__(source, pages, name, arrow)
        counts = [self._offsets(pages.layout(page)).num_items for page in range(len(pages))]
        self.num_items = sum(counts)
        base = 0
        self._base = []
        for count in counts:
            self._base.append(base)
            base += count

    def _offsets(self, encoding: ArrayEncoding) -> ListOffsets:
        if not isinstance(encoding, ListOffsets):
            raise CorruptFile(f"a page of {type(encoding).__name__} where ends of lists are expected")
        return encoding

    def read(self, session: Session, rows: Rows, *, large: bool) -> tuple[Any, Any, Rows]:
        """Offsets and validity of some lists as Arrow buffers, and the items that are in them."""
        try:
            return self._read(session, rows, large=large)
        except (TiltyardError, ValueError, OverflowError) as error:
            raise self.named(error) from error

    def _read(self, session: Session, rows: Rows, *, large: bool) -> tuple[Any, Any, Rows]:
        found, order = self.split(rows)
        begins, lengths, valid = [], [], []
        any_null = False
        for number, chosen in found:
            encoding = self._offsets(self.encoding(number))
            begin, length, bits = ends(
                encoding.offsets,
                self.page(number, session),
                chosen,
                self.entries(number),
                encoding.null_adjustment,
                encoding.num_items,
            )
            begins.append(begin + self._base[number])
            lengths.append(length)
            any_null |= bits is not None
            valid.append(
                np.ones(chosen.count, np.uint8)
                if bits is None
                else np.unpackbits(bits, count=chosen.count, bitorder="little")
            )
        begin, length, there = _joined(begins), _joined(lengths), _joined(valid)
        if order is not None:
            begin, length, there = begin[order], length[order], there[order]
        offsets = np.zeros(len(length) + 1, np.int64)
        np.cumsum(length, out=offsets[1:])
        check_offsets(session, int(offsets[-1]), len(length), large=large)
        stored = offsets if large else offsets.astype(np.int32)
        bitmap = pa.py_buffer(np.packbits(there, bitorder="little")) if any_null else None
        return pa.py_buffer(stored), bitmap, self._items(session, begin, length, int(offsets[-1]))

    def _items(self, session: Session, begin: I64, length: I64, total: int) -> Rows:
        kept = length > 0
        if not kept.all():
            begin, length = begin[kept], length[kept]
        if not len(begin):
            return Rows.range(0, 0)
        if bool((begin[1:] == begin[:-1] + length[:-1]).all()):
            return Rows.range(int(begin[0]), int(begin[0]) + total)
        if total > session.limits.null_bytes:
            raise BatchTooLarge(f"{len(begin)} lists hold {total} items: read fewer rows at a time")
        return Rows(begin, length, total)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
