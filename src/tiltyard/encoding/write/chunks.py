"""Values cut into the chunks of a mini-block page (compression.md 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiltyard.format.layouts import Encoding

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

MAX_CHUNK_VALUES = 4096
MAX_CHUNK_BYTES = 8186
"""Values of a chunk stay below this many bytes, as in the official writer, so that one value costs little to
read.
"""


@dataclass(frozen=True, slots=True)
class Chunks:
    """`items[c]` values in chunk c; `ends[b][c]` says where its share of value buffer b ends (bytes)."""

    encoding: Encoding
    items: I64
    buffers: tuple[U8, ...]
    ends: tuple[I64, ...]

    @property
    def nbytes(self) -> int:
        return sum(each.size for each in self.buffers)


def shares(ends: I64) -> I64:
    """What each chunk holds, from where each ends."""
    out = ends.copy()
    out[1:] -= ends[:-1]
    return out


def even_items(count: int, per_chunk: int) -> I64:
    """Chunks of `per_chunk` values and a rest."""
    chunks = -(-count // per_chunk)
    items = np.full(chunks, per_chunk, np.int64)
    if chunks:
        items[-1] = count - (chunks - 1) * per_chunk
    return items


def even_ends(count: int, per_chunk: int, size: int) -> I64:
    """Ends (bytes) of the shares of `even_items` for values of `size` bytes."""
    return np.cumsum(even_items(count, per_chunk)) * size


def values_per_chunk(bits: int) -> int:
    """The largest power of two of values that stays below `MAX_CHUNK_BYTES` (at least 2, at least 8 for odd
    widths).
    """
    count = 2 if bits % 8 == 0 else 8
    while count * 2 <= MAX_CHUNK_VALUES and bits * count * 2 < MAX_CHUNK_BYTES * 8:
        count *= 2
    return count
