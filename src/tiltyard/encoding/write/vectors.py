"""Fixed-size lists of plain values (compression.md 3.13)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.levels.ravel import Levels
from tiltyard.encoding.write.chunks import MAX_CHUNK_BYTES, MAX_CHUNK_VALUES, Chunks, even_items
from tiltyard.encoding.write.full_zip import fixed_page
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.encoding.write.values import Fixed, Vectors
from tiltyard.format.layouts import ConstantValue, Encoding, FixedSizeList, Flat
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

ODD_CHUNK_ROWS = 8
"""Chunks of rows that end inside a byte hold a multiple of so many."""


def row_bytes(values: Vectors) -> int:
    """Bytes of the items of one row."""
    return -(-values.per_row * values.items.bits // 8)


def all_items_null(values: Vectors) -> bool:
    """Whether no item of any row is valid."""
    bits = values.valid[-1]
    return bits is not None and values.count > 0 and not bits.any()


def must_be_chunked(values: Vectors) -> bool:
    """Whether the items of a row end inside a byte, and the fewest rows of a chunk fit one."""
    row_bits = values.per_row * values.items.bits
    return row_bits % 8 != 0 and ODD_CHUNK_ROWS * row_bytes(values) < MAX_CHUNK_BYTES


def encoding_of(values: Vectors, leaf: Encoding) -> Encoding:
    """The nest of fixed-size lists around `leaf`."""
    for size, bits in zip(reversed(values.sizes), reversed(values.valid), strict=True):
        leaf = FixedSizeList(size, leaf, bits is not None)
    return leaf


def vector_chunks(values: Vectors) -> Chunks:
    """Chunks of whole rows: a bitmap per level that has nulls, then the items."""
    row_bits = values.per_row * values.items.bits
    whole = row_bits % 8 == 0
    per_chunk = 2 if whole else ODD_CHUNK_ROWS
    across = np.cumprod(values.sizes).tolist()
    bitmaps = [(n, bits) for n, bits in zip(across, values.valid, strict=True) if bits is not None]
    per_row = sum(-(-n // 8) for n, _ in bitmaps) + row_bits / 8
    while per_chunk * 2 <= MAX_CHUNK_VALUES and per_row * per_chunk * 2 < MAX_CHUNK_BYTES:
        per_chunk *= 2
    items = even_items(values.count, per_chunk)
    buffers, ends = [], []
    for n, bits in bitmaps:
        counts = items * n
        out = np.empty(int((-(-counts // 8)).sum()), np.uint8)
        out_ends = np.empty(items.size, np.int64)
        kernels.chunk_bits(bits, 0, counts, out, out_ends)
        buffers.append(out)
        ends.append(out_ends)
    buffers.append(values.items.data)
    ends.append(-(-np.cumsum(items) * row_bits // 8))
    return Chunks(encoding_of(values, Flat(values.items.bits)), items, tuple(buffers), tuple(ends))


def vector_page(levels: Levels, values: Vectors) -> EncodedPage:
    """A full-zip page: per row the bitmaps of each level, then the items; bitmaps alone when all items are
    null.
    """
    bare = all_items_null(values)
    leaf: Encoding = ConstantValue(None) if bare else Flat(values.items.bits)
    columns: list[U8] = []
    for n, bits in zip(np.cumprod(values.sizes).tolist(), values.valid, strict=True):
        if bits is not None:
            columns.append(bit_rows(bits, values.count, n))
    if not bare:
        if values.items.bits == 1:
            columns.append(bit_rows(values.items.data, values.count, values.per_row))
        else:
            columns.append(values.items.data.reshape(values.count, -1))
    if len(columns) == 1:
        data = columns[0]
    else:
        data = np.concatenate(columns, axis=1)
    return fixed_page(levels, data.reshape(-1), 8 * data.shape[1], encoding_of(values, leaf), values.count)


def bit_rows(bits: U8, rows: int, per_row: int) -> U8:
    """A bitmap cut into rows that each start at a byte: shape (rows, bytes)."""
    if per_row % 8 == 0:
        return bits[: rows * per_row // 8].reshape(rows, -1)
    flags = np.unpackbits(bits, count=rows * per_row, bitorder="little").reshape(rows, per_row)
    return np.packbits(flags, axis=1, bitorder="little")


def is_narrow(values: Fixed | Vectors, limit: int) -> bool:
    """Whether one value has fewer bytes than `limit`."""
    return (row_bytes(values) if isinstance(values, Vectors) else -(-values.bits // 8)) < limit
