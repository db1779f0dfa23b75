"""Variable-width values in chunks, and as one block for a dictionary (compression.md 3.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.write.chunks import MAX_CHUNK_VALUES, Chunks
from tiltyard.format.layouts import Variable
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

CHUNK_TARGET_BYTES = 4096


def variable_chunks(offsets: I64, data: U8, width: int, target: int = CHUNK_TARGET_BYTES) -> Chunks:
    """Chunks of offsets and bytes; `target` bytes are aimed at for each."""
    count = offsets.size - 1
    items = np.empty(count // 2 + 1, np.int64)
    items = items[: kernels.variable_chunks(offsets, width, target, MAX_CHUNK_VALUES, items)].copy()
    stops = np.cumsum(items)
    bounds = offsets[np.concatenate((np.zeros(1, np.int64), stops))]
    sizes = (items + 1) * width + np.diff(bounds)
    sizes = -(-sizes // width) * width
    out = np.empty(int(sizes.sum()), np.uint8)
    ends = np.empty(items.size, np.int64)
    kernels.variable_encode(data, offsets, width, items, out, ends)
    return Chunks(Variable(8 * width), items, (out,), (ends,))


def variable_size(count: int, nbytes: int, width: int) -> int:
    """Estimate of the bytes of such chunks without padding."""
    return nbytes + (count + 1) * width


def variable_block(offsets: I64, data: U8, width: int) -> U8:
    """All values as one block: bits of an offset, where the bytes start, offsets from there, bytes."""
    count = offsets.size - 1
    start = 2 * width + width * (count + 1)
    kind = np.dtype(f"<u{width}")
    head = np.empty(2 + count + 1, kind)
    head[0], head[1] = 8 * width, start
    head[2:] = offsets - offsets[0]
    return np.concatenate((head.view(np.uint8), data[int(offsets[0]) : int(offsets[-1])]))
