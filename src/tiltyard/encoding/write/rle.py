"""Run-length coding of fixed-width values (compression.md 3.7)."""

from __future__ import annotations

import numpy as np

from tiltyard.encoding.write.chunks import MAX_CHUNK_BYTES, MAX_CHUNK_VALUES, Chunks
from tiltyard.encoding.write.values import Fixed
from tiltyard.format.layouts import Rle
from tiltyard.kernels import encode as kernels

LENGTH_BITS = 8


def rle_chunks(values: Fixed) -> Chunks:
    """Chunks of run values and run lengths; runs end with their chunk."""
    size = values.bits // 8
    runs = np.empty(values.count * size, np.uint8)
    lengths = np.empty(values.count, np.uint8)
    items = np.empty(values.count // 2 + 1, np.int64)
    entries = np.empty_like(items)
    chunks, total = kernels.rle_encode(
        values.data, values.bits, MAX_CHUNK_VALUES, MAX_CHUNK_BYTES, runs, lengths, items, entries
    )
    ends = np.cumsum(entries[:chunks])
    buffers = (runs[: total * size].copy(), lengths[:total].copy())
    return Chunks(Rle(values.bits, LENGTH_BITS), items[:chunks].copy(), buffers, (ends * size, ends))
