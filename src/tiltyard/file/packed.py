"""Packed structs: rows taken apart into fields (file format 7.8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.encoding import general
from tiltyard.encoding.program import FIELDS, VALUE_FSST, P
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.file import walked
from tiltyard.file.column import ColumnTable, Items
from tiltyard.format.layouts import FixedSizeList, Flat, Fsst, General, PackedField, Variable
from tiltyard.kernels import decode as kernels
from tiltyard.session import Session

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def split(rows: Bytes, bits: tuple[int, ...], arrow: Any, n: int) -> list[Any]:
    """Fields of rows of fixed width, as arrays without nulls."""
    if len(bits) != arrow.num_fields:
        raise CorruptFile(f"a packed struct of {len(bits)} fields, its schema has {arrow.num_fields}")
    table = rows[: n * sum(bits) // 8].reshape(n, -1)
    children, at = [], 0
    for field, width in zip(arrow, bits, strict=True):
        end = at + width // 8
        data = np.ascontiguousarray(table[:, at:end]).reshape(-1)
        children.append(_plain(field.type, n, width, data))
        at = end
    return children


def _plain(arrow: Any, n: int, bits: int, data: Bytes) -> Any:
    if types.is_fixed_size_list(arrow):
        if bits % arrow.list_size:
            raise CorruptFile(f"a packed vector of {bits} bits for {arrow}")
        child = _plain(arrow.value_type, n * arrow.list_size, bits // arrow.list_size, data)
        return pa.Array.from_buffers(arrow, n, [None], 0, children=[child])
    if types.is_nested(arrow) or getattr(arrow, "bit_width", 0) != bits or bits % 8:
        raise UnsupportedFeature(f"a packed field of {bits} bits for {arrow} is not supported")
    return pa.Array.from_buffers(arrow, n, [None, pa.py_buffer(data)], 0)


def walked_children(session: Session, table: ColumnTable, arrow: Any, items: Items) -> list[Any]:
    """Fields of rows of which some vary in width; null rows get null fields."""
    walk = items.walked
    assert walk is not None
    present = np.flatnonzero(walk.length)
    position, page = walk.position[present], walk.page[present]
    end = position + walk.length[present]
    layouts = {tuple(program.packed_fields) for program in table.programs if program.packed_fields}
    numbers = sorted(set(page.tolist()))
    if len(layouts) > 1:
        # Symbol tables differ from page to page: take the rows of each page apart on their own.
        parts = [
            _fields(session, table, arrow, number, position[page == number], end[page == number])
            for number in numbers
        ]
        columns = [pa.concat_arrays(list(each)) for each in zip(*parts, strict=True)]
    elif numbers:
        columns = _fields(session, table, arrow, numbers[0], position, end)
    else:
        columns = [pa.array([], field.type) for field in arrow]
    if len(present) == items.slots and (np.diff(page) >= 0).all():
        return columns
    order = np.argsort(page, kind="stable")
    slot = np.empty(len(present), np.int64)
    slot[order] = np.arange(len(present))
    index = np.zeros(items.slots, np.int64)
    index[present] = slot
    missing = np.ones(items.slots, bool)
    missing[present] = False
    picked = pa.array(index, mask=missing)
    return [column.take(picked) for column in columns]


def _fields(
    session: Session, table: ColumnTable, arrow: Any, page: int, position: I64, end: I64
) -> list[Any]:
    fields = table.programs[page].packed_fields
    if len(fields) != arrow.num_fields:
        raise CorruptFile(f"a packed struct of {len(fields)} fields, its schema has {arrow.num_fields}")
    cursor = position
    children = []
    for described, field in zip(fields, arrow, strict=True):
        assert isinstance(described, PackedField)
        if described.variable:
            width = described.bits // 8
            length = _lengths(table.source, cursor, end, width)
            cursor = cursor + width
            children.append(_strings(session, table.source, cursor, length, described, field.type))
            cursor = cursor + length
        else:
            width = described.bits // 8
            if (cursor + width > end).any():
                raise CorruptFile("a packed row is shorter than its fields")
            children.append(_values(table.source, cursor, described, field.type))
            cursor = cursor + width
        if (cursor > end).any():
            raise CorruptFile("a packed row is shorter than its fields")
    return children


def _lengths(source: Bytes, cursor: I64, end: I64, width: int) -> I64:
    if width not in (4, 8) or (cursor + width > end).any():
        raise CorruptFile("a packed row ends before the length of a field")
    raw = np.empty(len(cursor) * width, np.uint8)
    kernels.gather_fixed(source, cursor, width, raw)
    length = raw.view(f"<u{width}")
    if (length > (end - cursor - width).astype(np.uint64)).any():
        raise CorruptFile("a field reaches past its packed row")
    return length.astype(np.int64)


def _values(source: Bytes, cursor: I64, described: PackedField, arrow: Any) -> Any:
    encoding: Any = described.value
    while isinstance(encoding, FixedSizeList):
        if encoding.has_validity:
            raise UnsupportedFeature("null items of vectors in packed structs are not supported")
        encoding = encoding.values
    if not isinstance(encoding, Flat) or described.bits == 0 or described.bits % 8:
        raise UnsupportedFeature(f"packed fields encoded as {type(encoding).__name__} are not supported")
    data = np.empty(len(cursor) * described.bits // 8, np.uint8)
    kernels.gather_fixed(source, cursor, described.bits // 8, data)
    return _plain(arrow, len(cursor), described.bits, data)


def _strings(
    session: Session, source: Bytes, cursor: I64, length: I64, described: PackedField, arrow: Any
) -> Any:
    encoding: Any = described.value
    schemes: list[str] = []
    facts = np.zeros(FIELDS, np.int64)
    side = np.empty(0, np.uint8)
    page = np.zeros(len(cursor), np.int64)
    while not isinstance(encoding, Variable):
        if isinstance(encoding, General):
            schemes.append(encoding.scheme)
        elif isinstance(encoding, Fsst):
            side = np.frombuffer(encoding.symbol_table, np.uint8)
            facts[P.VALUE_CODEC], facts[P.SIDE_LEN] = VALUE_FSST, len(side)
        else:
            raise UnsupportedFeature(f"packed fields encoded as {type(encoding).__name__} are not supported")
        encoding = encoding.values
    if schemes:
        parts = [
            general.decompress(schemes, source[a : a + n])
            for a, n in zip(cursor.tolist(), length.tolist(), strict=True)
        ]
        length = np.array([len(part) for part in parts], np.int64)
        source, cursor = np.frombuffer(b"".join(parts), np.uint8), np.cumsum(length) - length
    large = types.is_large_string(arrow) or types.is_large_binary(arrow)
    if not large and not (types.is_string(arrow) or types.is_binary(arrow)):
        raise CorruptFile(f"a packed field of varying width for {arrow}")
    offsets, data = walked.gather(session, source, cursor, length, page, side, facts, large=bool(large))
    return pa.Array.from_buffers(arrow, len(cursor), [None, offsets, data], 0)
