"""The 64-bit xxHash (seed 0) of many byte strings at once, in NumPy: what key filters are made of.

Strings of one length are hashed together, a column of bytes at a time. The algorithm is the published one
(xxHash specification, XXH64); the constants are its five primes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
STRIPE = 32
"""Bytes that the four lanes take at once."""

GATHERED_BYTES = 8 << 20
"""Bytes of strings brought together at once."""

Words = npt.NDArray[np.uint64]
Matrix = npt.NDArray[np.uint8]


def xxh64_words(values: Words) -> Words:
    """The hashes of values of 8 bytes each, little-endian (uint64[n])."""
    return xxh64_rows(np.ascontiguousarray(values).astype("<u8", copy=False).view(np.uint8).reshape(-1, 8))


def xxh64_rows(rows: Matrix) -> Words:
    """The hash of each row of a matrix of bytes (uint8[n, length] -> uint64[n])."""
    count, length = rows.shape
    with np.errstate(over="ignore"):
        at = 0
        if length >= STRIPE:
            lanes = [np.full(count, seed, np.uint64) for seed in (_P1 + _P2, _P2, np.uint64(0), -_P1)]
            while at + STRIPE <= length:
                for i in range(4):
                    lanes[i] = _round(lanes[i], _read(rows, at + 8 * i, 8))
                at += STRIPE
            hashed = np.zeros(count, np.uint64)
            for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
                hashed = hashed + _rotated(lane, by)
            for lane in lanes:
                hashed = (hashed ^ _round(_zero(), lane)) * _P1 + _P4
        else:
            hashed = np.full(count, _P5, np.uint64)
        hashed = hashed + np.uint64(length)
        while at + 8 <= length:
            hashed = _rotated(hashed ^ _round(_zero(), _read(rows, at, 8)), 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            hashed = _rotated(hashed ^ (_read(rows, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        for rest in range(at, length):
            hashed = _rotated(hashed ^ (rows[:, rest].astype(np.uint64) * _P5), 11) * _P1
        hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
        return hashed ^ (hashed >> np.uint64(32))


def xxh64_strings(array: Any) -> Words:
    """The hash of each value of a `pa.Array` of (large) strings or binary; of a null, that of no bytes."""
    starts, lengths, data = _places(array)
    hashed = np.empty(len(starts), np.uint64)
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
    first = 0
    for end in ends.tolist():
        length = int(lengths[order[first]])
        step = max(1, GATHERED_BYTES // max(8 * length, 1))
        for at in range(first, end, step):
            rows = order[at : min(at + step, end)]
            hashed[rows] = xxh64_rows(data[starts[rows][:, None] + np.arange(length)])
        first = end
    return hashed


def _places(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Matrix]:
    """Where each value begins, how long it is (0 for a null), and the bytes of all."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    dtype: Any = np.int64 if wide else np.int32
    if offsets is None or not len(array):
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)
    bounds = bounds.astype(np.int64)
    lengths = np.diff(bounds)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_valid()), lengths, 0)
    return bounds[:-1], lengths, np.frombuffer(b"" if data is None else data, np.uint8)


def _zero() -> np.uint64:
    return np.uint64(0)


def _read(rows: Matrix, at: int, width: int) -> Words:
    """`width` bytes of each row as little-endian numbers."""
    part = np.ascontiguousarray(rows[:, at : at + width])
    return part.view(f"<u{width}")[:, 0].astype(np.uint64)


def _rotated(words: Words, by: int) -> Words:
    rotated: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return rotated


def _round(lane: Words | np.uint64, word: Words) -> Words:
    return _rotated(lane + word * _P2, 31) * _P1
