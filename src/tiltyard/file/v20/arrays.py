"""Arrow arrays from the array encodings of one page of a file of version 2.0 (file format 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiltyard.encoding.program import FIELDS, VALUE_FSST, P
from tiltyard.encoding.v20.bits import bitmap, both
from tiltyard.encoding.v20.ends import Spans, spans
from tiltyard.encoding.v20.fixed import cut, fixed, flat, numbers
from tiltyard.encoding.v20.page import I64, Bytes, Page, Selection
from tiltyard.errors import BatchTooLarge, CorruptFile, UnsupportedFeature
from tiltyard.file import packed, walked
from tiltyard.file.nulls import null_array, null_bytes
from tiltyard.file.values import check_offsets, is_large, is_varying, storage_bits
from tiltyard.format.array_encodings import (
    ArrayEncoding,
    DictionaryArray,
    FlatArray,
    FsstArray,
    ListOffsets,
    NullableArray,
    PackedRows,
    StructHeader,
    VectorArray,
)
from tiltyard.session import Session

NO_PAGES: I64 = np.empty(0, np.int64)
NO_SIDE: Bytes = np.empty(0, np.uint8)
#: Bytes to whose multiples Arrow wants values aligned at most.
MOST_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Decoder:
    """Reads pages of one column. `name` is the column's, for messages."""

    session: Session
    name: str
    page: Page

    def read(
        self, encoding: ArrayEncoding, arrow: Any, chosen: Selection, entries: int, valid: Bytes | None = None
    ) -> Any:
        """The chosen ones of `entries` entries as a `pa.Array` that begins at its offset 0; a 0 in the bitmap
        `valid` makes an entry null.

        Raises `CorruptFile`, `UnsupportedFeature`, `BatchTooLarge`.
        """
        if isinstance(encoding, NullableArray):
            if encoding.values is None:
                return self._nulls(arrow, chosen.count)
            if encoding.validity is not None:
                valid = both(valid, bitmap(encoding.validity, self.page, chosen, entries))
            return self.read(encoding.values, arrow, chosen, entries, valid)
        if isinstance(encoding, ListOffsets | StructHeader):
            raise CorruptFile(f"a page of {_name(encoding)} in a column of {arrow}")
        if isinstance(encoding, DictionaryArray):
            return self._dictionary(encoding, arrow, chosen, entries, valid)
        if types.is_struct(arrow):
            return self._packed(encoding, arrow, chosen, entries, valid)
        if types.is_fixed_size_list(arrow):
            return self._vectors(encoding, arrow, chosen, entries, valid)
        if is_varying(arrow):
            return self._texts(encoding, arrow, chosen, entries, valid)
        if types.is_nested(arrow) or types.is_null(arrow) or types.is_dictionary(arrow):
            raise CorruptFile(f"a page of {_name(encoding)} in a column of {arrow}")
        if types.is_boolean(arrow):
            bits = bitmap(encoding, self.page, chosen, entries)
            return pa.Array.from_buffers(arrow, chosen.count, [_bitmap(valid), pa.py_buffer(bits)])
        width = storage_bits(arrow)
        data = fixed(encoding, self.page, chosen, entries, width)
        return pa.Array.from_buffers(arrow, chosen.count, [_bitmap(valid), _aligned(data, width // 8)])

    def _nulls(self, arrow: Any, count: int) -> Any:
        """Nulls that no buffer bounds in number."""
        most = self.session.limits.null_bytes
        if count * max(null_bytes(arrow), 1) > most:
            raise BatchTooLarge(f"{count} nulls take more than {most} bytes: read fewer rows at a time")
        return null_array(self.session, count, arrow, self.name)

    # -- varying width ---------------------------------------------------------------------------

    def _texts(
        self, encoding: ArrayEncoding, arrow: Any, chosen: Selection, entries: int, valid: Bytes | None
    ) -> Any:
        table = b""
        if isinstance(encoding, FsstArray):
            table = encoding.symbol_table
            encoding = encoding.binary
        found = spans(encoding, self.page, chosen, entries)
        valid = both(valid, found.valid)
        if chosen.rows is None and not table:
            offsets, data = self._in_place(found, large=is_large(arrow))
        else:
            offsets, data = self._gathered(found, table, large=is_large(arrow))
        return pa.Array.from_buffers(arrow, chosen.count, [_bitmap(valid), offsets, data])

    def _in_place(self, found: Spans, *, large: bool) -> tuple[Any, Any]:
        """Offsets and bytes of values that lie one behind the other."""
        n = len(found.begin)
        if not n:
            return pa.py_buffer(bytes(8 if large else 4)), pa.py_buffer(b"")
        start = int(found.begin[0])
        stop = int(found.begin[-1] + found.length[-1])
        check_offsets(self.session, stop - start, n, large=large)
        offsets = np.empty(n + 1, np.int64 if large else np.int32)
        np.subtract(found.begin, start, out=offsets[:n], casting="unsafe")
        offsets[n] = stop - start
        return pa.py_buffer(offsets), pa.py_buffer(found.data[start:stop])

    def _gathered(self, found: Spans, table: bytes, *, large: bool) -> tuple[Any, Any]:
        """Offsets and bytes of values at any places, compressed with a table of symbols if there is one."""
        if not table:
            return walked.gather(
                self.session, found.data, found.begin, found.length, NO_PAGES, NO_SIDE, NO_PAGES, large=large
            )
        program = np.zeros(FIELDS, np.int64)
        program[P.VALUE_CODEC], program[P.SIDE_LEN] = VALUE_FSST, len(table)
        return walked.gather(
            self.session,
            found.data,
            found.begin,
            found.length,
            np.zeros(len(found.begin), np.int64),
            np.frombuffer(table, np.uint8),
            program,
            large=large,
        )

    # -- dictionaries ----------------------------------------------------------------------------

    def _dictionary(
        self, encoding: DictionaryArray, arrow: Any, chosen: Selection, entries: int, valid: Bytes | None
    ) -> Any:
        declared = types.is_dictionary(arrow)
        value = arrow.value_type if declared else arrow
        items = self._items(encoding, value)
        bits = storage_bits(arrow) if declared else 0
        index = numbers(encoding.indices, self.page, chosen, entries, bits)
        missing = (
            None
            if valid is None
            else ~np.unpackbits(valid, count=chosen.count, bitorder="little").view(np.bool_)
        )
        if declared:
            return self._numbered(items, index, missing, arrow)
        # A writer that chose the dictionary on its own numbers its items from 1: 0 is null.
        is_null = index == 0
        if len(index) and int(index.max()) > len(items):
            raise CorruptFile(f"item {int(index.max())} of a dictionary of {len(items)}")
        if missing is not None:
            is_null |= missing
        where = np.where(is_null, 0, index.astype(np.int64) - 1)
        if is_varying(value) and not is_large(value) and len(items):
            widths = np.diff(np.frombuffer(items.buffers()[1], np.int32)[: len(items) + 1])
            total = int(widths[where].sum(where=~is_null, dtype=np.int64))
            check_offsets(self.session, total, len(index), large=False)
        return items.take(pa.array(where, mask=is_null))

    def _items(self, encoding: DictionaryArray, value: Any) -> Any:
        def make() -> tuple[Any, int]:
            found = self.read(encoding.items, value, Selection(0, encoding.num_items), encoding.num_items)
            return found, found.nbytes

        return self.page.kept(("items", str(value)), make)

    def _numbered(self, items: Any, index: Any, missing: Any, arrow: Any) -> Any:
        """A dictionary array; nulls, which are items in the file, become nulls of the array."""
        if types.is_signed_integer(arrow.index_type):
            negative = index.view(index.dtype.str.replace("u", "i")) < 0
            if negative.any():
                raise CorruptFile("a negative index into a dictionary")
        if len(index) and int(index.max()) >= len(items):
            raise CorruptFile(f"item {int(index.max())} of a dictionary of {len(items)}, counted from 0")
        if items.null_count:
            there = np.asarray(items.is_valid())
            missing = ~there[index] if missing is None else missing | ~there[index]
            renumbered = np.cumsum(there) - 1
            index = np.where(missing, 0, renumbered[index]).astype(index.dtype)
            items = items.drop_null()
        numbers_ = pa.Array.from_buffers(
            arrow.index_type,
            len(index),
            [
                None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little")),
                _aligned(index.view(np.uint8), index.itemsize),
            ],
        )
        return pa.DictionaryArray.from_arrays(numbers_, items, ordered=arrow.ordered, safe=False)

    # -- vectors and structs ---------------------------------------------------------------------

    def _vectors(
        self, encoding: ArrayEncoding, arrow: Any, chosen: Selection, entries: int, valid: Bytes | None
    ) -> Any:
        if not isinstance(encoding, VectorArray):
            raise CorruptFile(f"a page of {_name(encoding)} in a column of {arrow}")
        if encoding.dimension != arrow.list_size:
            raise CorruptFile(f"vectors of {encoding.dimension} values where the schema has {arrow}")
        items = self._whole_vectors(encoding, arrow, chosen, entries)
        if items is None:
            items = self._items_of_vectors(encoding.items, arrow, chosen, entries)
        return pa.Array.from_buffers(arrow, chosen.count, [_bitmap(valid)], children=[items])

    def _items_of_vectors(self, items: ArrayEncoding, arrow: Any, chosen: Selection, entries: int) -> Any:
        dimension = arrow.list_size
        if isinstance(items, NullableArray) and items.values is None:
            return self._nulls(arrow.value_type, chosen.count * dimension)
        if entries * dimension > 8 * self.page.file_bytes:
            raise CorruptFile(f"{entries} vectors of {dimension} values in a file of fewer bits")
        return self.read(items, arrow.value_type, chosen.scaled(dimension), entries * dimension)

    def _whole_vectors(self, encoding: VectorArray, arrow: Any, chosen: Selection, entries: int) -> Any:
        """The items of vectors of whole bytes that are nowhere null, taken vector by vector; else None."""
        inner: ArrayEncoding | None = encoding
        kinds = [arrow]
        per_row = 1
        while isinstance(inner, VectorArray) and types.is_fixed_size_list(kinds[-1]):
            if inner.dimension != kinds[-1].list_size:
                return None
            per_row *= inner.dimension
            kinds.append(kinds[-1].value_type)
            inner = inner.items
            while isinstance(inner, NullableArray) and inner.validity is None:
                inner = inner.values
        kind = kinds.pop()
        bits = 0 if types.is_nested(kind) else storage_bits(kind)
        if not isinstance(inner, FlatArray) or not bits or bits % 8 or inner.bits != bits:
            return None
        vectors = FlatArray(bits * per_row, inner.buffer, inner.scheme)
        data = flat(vectors, self.page, chosen, entries, bits * per_row)
        count = chosen.count * per_row
        array = pa.Array.from_buffers(kind, count, [None, _aligned(data, bits // 8)], 0)
        while len(kinds) > 1:
            count //= kinds[-1].list_size
            array = pa.Array.from_buffers(kinds.pop(), count, [None], 0, children=[array])
        return array

    def _packed(
        self, encoding: ArrayEncoding, arrow: Any, chosen: Selection, entries: int, valid: Bytes | None
    ) -> Any:
        if not isinstance(encoding, PackedRows):
            raise CorruptFile(f"a page of {_name(encoding)} in a column of packed structs")
        bits = tuple([storage_bits(field.type) for field in arrow])
        if not bits or not all(bits) or any(each % 8 for each in bits):
            raise UnsupportedFeature(f"packed rows of {arrow} are not supported")
        if encoding.fields != len(bits):
            raise CorruptFile(f"packed rows of {encoding.fields} fields, the schema has {len(bits)}")
        data = cut(self.page.buffer(encoding.buffer, ""), chosen, entries, sum(bits) // 8)
        children = packed.split(data, bits, arrow, chosen.count)
        return pa.Array.from_buffers(arrow, chosen.count, [_bitmap(valid)], children=children)


def _name(encoding: ArrayEncoding) -> str:
    return type(encoding).__name__


def _bitmap(valid: Bytes | None) -> Any:
    return None if valid is None else pa.py_buffer(valid)


def _aligned(data: Bytes, width: int) -> Any:
    """The Arrow buffer of values of `width` bytes; a copy where they do not lie as a machine reads them, as
    in files of the first writers.
    """
    unit = min(width & -width, MOST_ALIGNMENT)
    if unit > 1 and data.ctypes.data % unit:
        data = data.copy()
    return pa.py_buffer(data)
