"""FastLanes bit packing: inline (a width per block) and out of line (one width) (compression.md 3.2-3.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.write.chunks import Chunks, even_items
from tiltyard.encoding.write.values import Fixed
from tiltyard.format.layouts import Encoding, InlineBitpacking, OutOfLineBitpacking
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

BLOCK = 1024
PACKABLE = (8, 16, 32, 64)


def inline_size(bits: int, widths: U8) -> int:
    """Bytes of all blocks."""
    return widths.size * (bits // 8) + 128 * int(widths.sum(dtype=np.int64))


def inline_chunks(values: Fixed, widths: U8) -> Chunks:
    """One block per chunk; `widths` from `fixed_stats`."""
    sizes = 128 * widths.astype(np.int64) + values.bits // 8
    out = np.empty(int(sizes.sum()), np.uint8)
    kernels.pack_inline(values.data, values.bits, widths, out)
    items = even_items(values.count, BLOCK)
    return Chunks(InlineBitpacking(values.bits), items, (out,), (np.cumsum(sizes),))


def packed_block(values: Fixed) -> tuple[Encoding, U8] | None:
    """Dictionary items as one block; None when packing does not help."""
    if values.bits not in PACKABLE or values.count == 0:
        return None
    widths = np.empty(-(-values.count // BLOCK), np.uint8)
    kernels.fixed_stats(values.data, values.bits, widths)
    if values.count <= BLOCK:
        out = np.empty(inline_size(values.bits, widths), np.uint8)
        if out.size >= values.nbytes:
            return None
        kernels.pack_inline(values.data, values.bits, widths, out)
        return InlineBitpacking(values.bits), out
    width = int(widths.max())
    ends = np.array([values.count], np.int64)
    size = int(out_of_line_sizes(values.bits, width, ends)[0])
    if width >= values.bits or size >= values.nbytes or width == 0:
        return None
    out = np.empty(size, np.uint8)
    kernels.pack_out_of_line(values.data, values.bits, ends, width, out, np.empty(1, np.int64))
    return OutOfLineBitpacking(values.bits, width), out


def out_of_line_sizes(bits: int, width: int, counts: I64) -> I64:
    """Bytes of each chunk of `counts` words packed on its own (tail rule of compression.md 3.4)."""
    words = BLOCK * width // bits
    full, tail = np.divmod(counts, BLOCK)
    return (full * words + np.where(words < tail, words, tail)) * (bits // 8)
