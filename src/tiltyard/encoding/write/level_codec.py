"""Repetition and definition levels of a mini-block page: one codec for the page, each chunk encoded alone
(compression.md 4, file-format.md 7.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.write.bitpack import BLOCK, out_of_line_sizes
from tiltyard.encoding.write.chunks import shares
from tiltyard.format.layouts import Encoding, Flat, InlineBitpacking, OutOfLineBitpacking, Rle
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]

LEVEL_BITS = 16


def encode_levels(levels: U16, ends: I64, *, runs: bool) -> tuple[Encoding, U8, I64]:
    """The smallest form of the levels: encoding, bytes, and where each chunk's share ends.

    `ends` says where each chunk's entries end. `runs`: whether run-length coding may be used (2.2).
    """
    raw = levels.view(np.uint8)
    counts = shares(ends)
    sizes = {"flat": 2 * levels.size}
    small = levels.size <= BLOCK
    width = int(np.bitwise_or.reduce(levels)).bit_length() if levels.size else 0
    if small:
        sizes["inline"] = ends.size * (2 + 128 * width)
    elif 0 < width < LEVEL_BITS:
        sizes["packed"] = int(out_of_line_sizes(LEVEL_BITS, width, counts).sum())
    if runs or width == 0:  # 2.1 readers take runs too; for levels that are all zero nothing else is small
        sizes["runs"] = kernels.rle_block_size(levels, ends, min(sizes.values()))
    best = min(sizes, key=lambda name: sizes[name])
    if best == "flat":
        return Flat(LEVEL_BITS), raw, 2 * ends
    out = np.empty(sizes[best], np.uint8)
    out_ends = np.empty(ends.size, np.int64)
    if best == "runs":
        kernels.rle_block(levels, ends, out, out_ends)
        return Rle(LEVEL_BITS, 8), out, out_ends
    if best == "packed":
        kernels.pack_out_of_line(raw, LEVEL_BITS, ends, width, out, out_ends)
        return OutOfLineBitpacking(LEVEL_BITS, width), out, out_ends
    block = 2 + 128 * width
    begin = 0
    for chunk, end in enumerate(ends.tolist()):
        share = out[chunk * block : (chunk + 1) * block]
        kernels.pack_inline(raw[2 * begin : 2 * end], LEVEL_BITS, np.array([width], np.uint8), share)
        begin = end
    return InlineBitpacking(LEVEL_BITS), out, block * np.arange(1, ends.size + 1)
