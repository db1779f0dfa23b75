"""Bit packing in the transposed order of FastLanes, straight from its formula."""

from __future__ import annotations

import numpy as np

BLOCK = 1024


def pack(values: np.ndarray, width: int) -> np.ndarray:
    """A FastLanes block (compression 3.2), bit by bit from the formula of the specification."""
    bits = values.dtype.itemsize * 8
    lanes = BLOCK // bits
    order = [0, 4, 2, 6, 1, 5, 3, 7]
    words = [0] * (width * lanes)
    for row in range(bits):
        for lane in range(lanes):
            value = int(values[order[row // 8] * 16 + (row % 8) * 128 + lane])
            word, shift = divmod(row * width, bits)
            whole = value << shift
            if width:
                words[word * lanes + lane] |= whole & ((1 << bits) - 1)
                if shift + width > bits:
                    words[(word + 1) * lanes + lane] |= whole >> bits
    return np.array(words, values.dtype).view(np.uint8)
