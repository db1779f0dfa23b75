"""FSST: strings written with a table of 255 frequent substrings (compression.md 3.6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.write.values import Text, gathered
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

SAMPLE_BYTES = 32 * 1024
SAMPLE_SHARE = 16
"""Of a page with less than this many times `SAMPLE_BYTES` one byte in so many is enough: training on more
would take longer than writing the page."""
SAMPLE_MIN_BYTES = 8 * 1024
SAMPLE_VALUE_BYTES = 512
"""Of a long value only so much goes into the sample, so that many values shape the table."""
SAMPLE_ROWS = 8192
"""So many values are looked at for the sample before those without bytes are left out."""
TABLE_BYTES = 2312
GOLDEN = 0.6180339887498949


def train(values: Text) -> tuple[U8, float]:
    """A symbol table and how much of the sample's bytes is left with it."""
    offsets, data = sample(values)
    table = np.empty(TABLE_BYTES, np.uint8)
    kernels.fsst_train(data, offsets, table)
    _, size = compress(table, offsets, data)
    return table, size.size / max(1, data.size)


def sample(values: Text) -> tuple[I64, U8]:
    """Values spread evenly over the page, together about `SAMPLE_BYTES`, fewer of a small page."""
    most = min(SAMPLE_BYTES, max(SAMPLE_MIN_BYTES, values.nbytes // SAMPLE_SHARE))
    rows = _walk(values.count, min(values.count, SAMPLE_ROWS))
    found = _up_to(values, rows, most)
    if found.size < rows.size or rows.size == values.count:
        return _sampled(values, found)
    # Mostly empty values: those alone that have bytes.
    filled = np.flatnonzero(np.diff(values.offsets))
    return _sampled(values, _up_to(values, filled[_walk(filled.size, min(filled.size, most))], most))


def _walk(count: int, steps: int) -> I64:
    """Steps of a low-discrepancy walk over `count` places: even coverage without locking onto a period of the
    data. All places in order when there are as many steps.
    """
    if steps == count:
        return np.arange(count)
    return ((np.arange(steps) * GOLDEN) % 1.0 * count).astype(np.int64)


def _up_to(values: Text, rows: I64, most: int) -> I64:
    """The first of the rows, until they have `most` bytes together; all of them when they have less."""
    sizes = np.minimum(values.offsets[rows + 1] - values.offsets[rows], SAMPLE_VALUE_BYTES)
    return rows[: int(np.searchsorted(np.cumsum(sizes), most)) + 1]


def _sampled(values: Text, rows: I64) -> tuple[I64, U8]:
    rows = np.sort(rows)
    sizes = np.minimum(values.offsets[rows + 1] - values.offsets[rows], SAMPLE_VALUE_BYTES)
    return gathered(values.data, values.offsets[rows], sizes)


def compress(table: U8, offsets: I64, data: U8) -> tuple[I64, U8]:
    """Offsets and bytes of the compressed values."""
    out = np.empty(2 * int(offsets[-1] - offsets[0]), np.uint8)
    out_offsets = np.empty(offsets.size, np.int64)
    size = kernels.fsst_encode(table, data, offsets, out, out_offsets)
    return out_offsets, out[:size]
