"""Sorting values for an index: by numbers of 64 bits at a time, the least word first. Equals stay in the
order they came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.encode import sort_pairs

if TYPE_CHECKING:
    from tiltyard.index.order import Texts

RADIX_ROWS = 1024
RADIX_BYTES = 64
"""So many texts of at most so many bytes are sorted eight bytes at a time, others by comparing them."""

_SIGN = np.uint64(1 << 63)


def along(
    keys: npt.NDArray[Any], ids: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64]]:
    """Whole numbers in order, and ids along with them; both new arrays."""
    signed = keys.dtype.kind == "i"
    words = keys.astype(np.int64 if signed else np.uint64).view(np.uint64)
    if signed:
        words ^= _SIGN
    moved = ids.copy()
    sort_pairs(words, moved, np.empty_like(words), np.empty_like(moved))
    if signed:
        words ^= _SIGN
    return words.view(np.int64).astype(keys.dtype), moved


def by_columns(words: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Positions (int64) that put rows of words (big-endian, [rows, words]) in order: the last column first,
    for each pass keeps the one before."""
    at = np.arange(len(words), dtype=np.uint64)
    rooms = np.empty_like(at), np.empty_like(at)
    for column in range(words.shape[1] - 1, -1, -1):
        sort_pairs(words[at.view(np.int64), column].astype(np.uint64), at, *rooms)
    return at.view(np.int64)


def by_words(texts: Texts, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions that put short texts in order: sorted by their length, then by each eight bytes of them, the
    last ones first. What is shorter is filled up with zeros, and differs from its fellow in length."""
    at = np.arange(len(texts), dtype=np.uint64)
    rooms = np.empty_like(at), np.empty_like(at)
    sort_pairs(lengths.astype(np.uint64), at, *rooms)
    for begin in range((int(lengths.max()) - 1) // 8 * 8, -1, -8):
        sort_pairs(texts.words(begin, lengths)[at.view(np.int64)], at, *rooms)
    return at.view(np.int64)
