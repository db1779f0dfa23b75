"""The hash that an SSTable's Bloom filter is made of: SipHash-1-3 with key zero, over the parts of a key
(MemWAL, section 4.5).

The official writer hashes int32, int64, utf8 and binary, and nothing of other types: then its filter says
nothing, and is not asked. All rows are hashed at once, eight bytes of each at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.expr.arrays import valid_of, values_of

Words = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_LAST_ROUNDS = 3
_END_OF_TEXT = 0xFF
_MASK = 2**64 - 1

PIECE_ROWS = 1 << 13
"""Rows whose hashes are worked out together."""

FEW_KEYS, FEW_BYTES = 4, 256
"""Keys up to which each is hashed for itself, and their bytes: arrays of so few cost more."""


def is_hashed(kind: Any) -> bool:
    """Whether the filter knows keys of an Arrow type."""
    return bool(kind in (pa.int32(), pa.int64()) or types.is_string(kind) or types.is_binary(kind))


def key_hashes(columns: Sequence[Any], rows: int) -> Words:
    """The hash of each row's key (uint64[rows]), one plain `pa.Array` per key column; without columns that of
    nothing.
    """
    if columns and rows <= FEW_KEYS and sum(each.nbytes for each in columns) <= FEW_BYTES:
        parts = [_parts_of(each) for each in columns]
        return np.array([_siphash13_of(b"".join(each)) for each in zip(*parts, strict=True)], np.uint64)
    if len(columns) == 1 and columns[0].type in (pa.int32(), pa.int64()) and not columns[0].null_count:
        return _hashed(_words_of(values_of(columns[0])))
    starts, ends, data = _messages(columns, rows)
    return siphash13(starts, ends, data)


def siphash13(starts: Places, ends: Places, data: Octets) -> Words:
    """The hashes of the byte strings `data[starts[i]:ends[i]]`."""
    lengths = ends - starts
    if len(lengths) and bool((lengths == lengths[0]).all()) and len(data) == lengths[0] * len(lengths):
        return _siphash13_rows(data.reshape(len(lengths), -1))
    state = [np.full(len(lengths), each, np.uint64) for each in _START]
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    whole = lengths // 8
    for step in range(int(whole.max(initial=-1)) + 1):
        rows = np.flatnonzero(whole >= step)
        at = starts[rows] + 8 * step
        left = np.minimum(lengths[rows] - 8 * step, 8)
        word = np.zeros(len(rows), np.uint64)
        for byte in range(8):
            octet = padded[at + np.minimum(byte, left)].astype(np.uint64)
            word |= np.where(byte < left, octet, np.uint64(0)) << np.uint64(8 * byte)
        last = left < 8
        word[last] |= (lengths[rows][last].astype(np.uint64) & np.uint64(0xFF)) << np.uint64(56)
        _absorb(state, rows, word)
    return _finished(state)


def _siphash13_rows(rows: npt.NDArray[np.uint8]) -> Words:
    """The hash of each row of a matrix of bytes: all of one length."""
    count, length = rows.shape
    padded = np.zeros((count, 8 * (length // 8 + 1)), np.uint8)
    padded[:, :length] = rows
    padded[:, -1] = length & 0xFF
    words = padded.view("<u8").astype(np.uint64, copy=False)
    return _hashed([np.ascontiguousarray(words[:, at]) for at in range(words.shape[1])])


def _words_of(numbers: npt.NDArray[Any]) -> list[Words]:
    """The messages of numbers, of 32 or 64 bits, none of which is null: a zero byte, and then they."""
    if numbers.dtype.itemsize == 4:
        return [numbers.view(np.uint32).astype(np.uint64) << np.uint64(8) | np.uint64(5 << 56)]
    wide = numbers.view(np.uint64)
    return [wide << np.uint64(8), wide >> np.uint64(56) | np.uint64(9 << 56)]


def _hashed(messages: Sequence[Words]) -> Words:
    """The hash of each row's message, given as its words, their padding included; in pieces that stay near
    the processor.
    """
    rows = len(messages[0])
    out = np.empty(rows, np.uint64)
    space = [np.empty(min(rows, PIECE_ROWS), np.uint64) for _ in range(5)]
    for start in range(0, rows, PIECE_ROWS):
        end = min(start + PIECE_ROWS, rows)
        v0, v1, v2, v3, spare = [each[: end - start] for each in space]
        for each, value in zip((v0, v1, v2, v3), _START, strict=True):
            each[:] = value
        for message in messages:
            word = message[start:end]
            v3 ^= word
            _turn(v0, v1, v2, v3, spare)
            v0 ^= word
        v2 ^= np.uint64(0xFF)
        for _ in range(_LAST_ROUNDS):
            _turn(v0, v1, v2, v3, spare)
        np.bitwise_xor(v0, v1, out[start:end])
        out[start:end] ^= v2
        out[start:end] ^= v3
    return out


def _turn(v0: Words, v1: Words, v2: Words, v3: Words, spare: Words) -> None:
    """`_round` in place."""
    v0 += v1
    _rotate(v1, 13, spare)
    v1 ^= v0
    _rotate(v0, 32, spare)
    v2 += v3
    _rotate(v3, 16, spare)
    v3 ^= v2
    v0 += v3
    _rotate(v3, 21, spare)
    v3 ^= v0
    v2 += v1
    _rotate(v1, 17, spare)
    v1 ^= v2
    _rotate(v2, 32, spare)


def _rotate(words: Words, by: int, spare: Words) -> None:
    np.left_shift(words, np.uint64(by), spare)
    words >>= np.uint64(64 - by)
    words |= spare


def _siphash13_of(message: bytes) -> int:
    """The hash of one byte string, without arrays."""
    v0, v1, v2, v3 = _START
    whole = len(message) // 8 * 8
    words = [int.from_bytes(message[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(message[whole:], "little") | (len(message) & 0xFF) << 56)
    for word in words:
        v0, v1, v2, v3 = _round_of(v0, v1, v2, v3 ^ word)
        v0 ^= word
    v2 ^= 0xFF
    for _ in range(_LAST_ROUNDS):
        v0, v1, v2, v3 = _round_of(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _round_of(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
    v0 = (v0 << 32 | v0 >> 32) & _MASK
    v2 = (v2 + v3) & _MASK
    v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
    v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0, v1, v2, v3


def _finished(state: list[Words]) -> Words:
    v0, v1, v2, v3 = state
    v2 = v2 ^ np.uint64(0xFF)
    for _ in range(_LAST_ROUNDS):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _absorb(state: list[Words], rows: Places, word: Words) -> None:
    every = len(rows) == len(state[0])
    v0, v1, v2, v3 = state if every else [each[rows] for each in state]
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    for at, each in enumerate((v0 ^ word, v1, v2, v3)):
        if every:
            state[at] = each
        else:
            state[at][rows] = each


def _rotated(words: Words, by: int) -> Words:
    rotated: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return rotated


def _round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, Words, Words, Words]:
    v0 = v0 + v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = v2 + v3
    v3 = _rotated(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotated(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


# -- what is hashed -----------------------------------------------------------------------------


def _messages(columns: Sequence[Any], rows: int) -> tuple[Places, Places, Octets]:
    """For each row the bytes of its key's parts, one after the other: where they begin and end, and they."""
    parts = [_Part(column) for column in columns]
    lengths = np.zeros(rows, np.int64)
    for part in parts:
        lengths += part.lengths
    ends = np.cumsum(lengths)
    starts = ends - lengths
    data = np.zeros(int(ends[-1]) if rows else 0, np.uint8)
    at = starts.copy()
    for part in parts:
        part.put(data, at)
        at += part.lengths
    return starts, ends, data


class _Part:
    """One column's part of every key: whether it is null, then its value."""

    def __init__(self, column: Any) -> None:
        rows = len(column)
        valid = valid_of(column)
        self._valid = np.ones(rows, np.bool_) if valid is None else valid
        kind = column.type
        self._before, self._after = 0, 0
        self._fixed: Octets | None = None
        self._starts = np.zeros(rows, np.int64)
        self._data: Octets = np.zeros(0, np.uint8)
        sizes = np.zeros(rows, np.int64)
        if kind in (pa.int32(), pa.int64()):
            numbers = np.ascontiguousarray(values_of(column))
            self._fixed = numbers.view(np.uint8).reshape(rows, numbers.dtype.itemsize)
            sizes[:] = numbers.dtype.itemsize
        elif types.is_string(kind) or types.is_binary(kind):
            self._before, self._after = (8, 0) if types.is_binary(kind) else (0, 1)
            self._starts, sizes, self._data = _text(column)
        self._sizes = sizes
        hashed = is_hashed(kind)
        self.lengths = 1 + np.where(self._valid & hashed, sizes + self._before + self._after, 0)

    def put(self, data: Octets, at: Places) -> None:
        """Write the part of every row at its place."""
        data[at] = np.where(self._valid, 0, 1)
        rows = np.flatnonzero(self.lengths > 1)
        first = at[rows] + 1
        if self._fixed is not None:
            width = self._fixed.shape[1]
            if len(data) == (1 + width) * len(at):  # the only part, of every row
                data.reshape(len(at), 1 + width)[:, 1:] = self._fixed
            else:
                data[first[:, None] + np.arange(width)] = self._fixed[rows]
            return
        sizes = self._sizes[rows]
        if self._before:
            data[first[:, None] + np.arange(8)] = sizes.astype("<u8").view(np.uint8).reshape(-1, 8)
            first = first + 8
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        data[np.repeat(first, sizes) + within] = self._data[np.repeat(self._starts[rows], sizes) + within]
        if self._after:
            data[first + sizes] = _END_OF_TEXT


def _parts_of(column: Any) -> list[bytes]:
    """One column's part of each key, as `_Part` has it."""
    kind = column.type
    found = []
    for value in column.to_pylist():
        if value is None:
            found.append(b"\1")
        elif not is_hashed(kind):
            found.append(b"\0")
        elif types.is_string(kind):
            found.append(b"\0" + value.encode() + bytes([_END_OF_TEXT]))
        elif types.is_binary(kind):
            found.append(b"\0" + len(value).to_bytes(8, "little") + value)
        else:
            found.append(b"\0" + value.to_bytes(kind.bit_width // 8, "little", signed=True))
    return found


def _text(column: Any) -> tuple[Places, Places, Octets]:
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(len(column), np.int64), np.zeros(len(column), np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    octets = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bounds[:-1], np.diff(bounds), octets
