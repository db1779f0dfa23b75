"""Packed structs: rows of several fields together (compression.md 3.12)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.levels.ravel import Levels
from tiltyard.encoding.write.chunks import Chunks
from tiltyard.encoding.write.flat import flat_chunks
from tiltyard.encoding.write.full_zip import variable_page
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.encoding.write.values import Fixed, Packed, Text
from tiltyard.encoding.write.vectors import encoding_of, row_bytes
from tiltyard.format.layouts import Flat, PackedField, PackedStruct, Variable, VariablePackedStruct
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

MAX_32BIT_PAGE = 2**32 - 1


def packed_chunks(values: Packed) -> Chunks:
    """Rows of fixed-width fields back to back."""
    columns = [each.data.reshape(values.count, -1) for each in values.fields if isinstance(each, Fixed)]
    rows = np.concatenate(columns, axis=1)
    bits = tuple(each.bits for each in values.fields if isinstance(each, Fixed))
    chunks = flat_chunks(Fixed(sum(bits), rows.reshape(-1), values.count))
    return Chunks(PackedStruct(bits, chunks.encoding), chunks.items, chunks.buffers, chunks.ends)


def packed_page(levels: Levels, values: Packed, nulls: U8) -> EncodedPage:
    """Rows with fields of varying width: each row is one value of a full-zip page."""
    sizes = np.zeros(values.count, np.int64)
    for each in values.fields:
        sizes += np.diff(each.offsets) + each.width if isinstance(each, Text) else _fixed_size(each)
    offsets = np.zeros(values.count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    fields = []
    for each in values.fields:
        if isinstance(each, Text):
            kernels.scatter_variable(each.data, each.offsets, at, each.width, out)
            at += np.diff(each.offsets) + each.width
            fields.append(PackedField(Variable(8 * each.width), 8 * each.width, True))
            continue
        size = _fixed_size(each)
        data = each.data if isinstance(each, Fixed) else each.items.data
        kernels.scatter_fixed(data, size, at, out)
        at += size
        encoding = Flat(each.bits) if isinstance(each, Fixed) else encoding_of(each, Flat(each.items.bits))
        fields.append(PackedField(encoding, 8 * size, False))
    offsets, out = _without_nulls(offsets, out, nulls)
    width = 4 if out.size <= MAX_32BIT_PAGE else 8
    return variable_page(levels, offsets, out, nulls, width, VariablePackedStruct(tuple(fields)))


def _fixed_size(values: object) -> int:
    if isinstance(values, Fixed):
        return values.bits // 8
    return row_bytes(values)  # type: ignore[arg-type]


def _without_nulls(offsets: I64, data: U8, nulls: U8) -> tuple[I64, U8]:
    if not nulls.size:
        return offsets, data
    lengths = np.where(nulls == 0, np.diff(offsets), 0)
    kept = np.zeros(offsets.size, np.int64)
    np.cumsum(lengths, out=kept[1:])
    out = np.empty(int(kept[-1]), np.uint8)
    kernels.copy_variable(data, np.ascontiguousarray(offsets[:-1]), kept, out)
    return kept, out
