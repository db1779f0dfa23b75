"""Flat values: as they are (compression.md 3.1), and transposed byte by byte (3.8)."""

from __future__ import annotations

import numpy as np

from tiltyard.encoding.write.chunks import Chunks, even_ends, even_items, values_per_chunk
from tiltyard.encoding.write.values import Fixed
from tiltyard.format.layouts import ByteStreamSplit, Flat

SPLIT_CHUNK_BYTES = 4096


def flat_chunks(values: Fixed) -> Chunks:
    """Chunks of plain values."""
    per_chunk = values_per_chunk(values.bits)
    items = even_items(values.count, per_chunk)
    if values.bits == 1:
        ends = (np.cumsum(items) + 7) // 8
    else:
        ends = even_ends(values.count, per_chunk, values.bits // 8)
    return Chunks(Flat(values.bits), items, (values.data,), (ends,))


def split_chunks(values: Fixed) -> Chunks:
    """Chunks in which all first bytes come first, then all second bytes, ... (32 and 64 bits)."""
    size = values.bits // 8
    per_chunk = SPLIT_CHUNK_BYTES // size
    whole = values.count // per_chunk * per_chunk
    out = np.empty_like(values.data)
    body = values.data[: whole * size].reshape(-1, per_chunk, size)
    out[: whole * size].reshape(-1, size, per_chunk)[:] = body.transpose(0, 2, 1)
    out[whole * size :] = values.data[whole * size :].reshape(-1, size).T.ravel()
    items = even_items(values.count, per_chunk)
    return Chunks(ByteStreamSplit(values.bits), items, (out,), (even_ends(values.count, per_chunk, size),))
