"""FSST: strings written with a table of 255 frequent substrings (compression.md 3.6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.write.values import Text, gathered
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

SAMPLE_BYTES = 32 * 1024
SAMPLE_VALUE_BYTES = 512
"""Of a long value only so much goes into the sample, so that many values shape the table."""
TABLE_BYTES = 2312
MIN_BYTES = 32 * 1024
"""Pages with fewer bytes do not pay for a table (the official writer's threshold)."""
GOLDEN = 0.6180339887498949


def train(values: Text) -> tuple[U8, float]:
    """A symbol table and how much of the sample's bytes is left with it."""
    offsets, data = sample(values)
    table = np.empty(TABLE_BYTES, np.uint8)
    kernels.fsst_train(data, offsets, table)
    _, size = compress(table, offsets, data)
    return table, size.size / max(1, data.size)


def sample(values: Text) -> tuple[I64, U8]:
    """Values spread evenly over the page, together about `SAMPLE_BYTES`."""
    lengths = np.minimum(np.diff(values.offsets), SAMPLE_VALUE_BYTES)
    rows = np.flatnonzero(lengths)
    wanted = max(1, int(SAMPLE_BYTES / max(1.0, float(lengths[rows].mean())))) if rows.size else 0
    if wanted < rows.size:
        # A low-discrepancy walk: even coverage without locking onto a period of the data.
        rows = np.unique(rows[((np.arange(wanted) * GOLDEN) % 1.0 * rows.size).astype(np.int64)])
    return gathered(values.data, values.offsets[:-1][rows], lengths[rows])


def compress(table: U8, offsets: I64, data: U8) -> tuple[I64, U8]:
    """Offsets and bytes of the compressed values."""
    out = np.empty(2 * int(offsets[-1] - offsets[0]), np.uint8)
    out_offsets = np.empty(offsets.size, np.int64)
    size = kernels.fsst_encode(table, data, offsets, out, out_offsets)
    return out_offsets, out[:size]
