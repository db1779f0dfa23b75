"""NumPy reference of native/encode_page.cpp, encode_hash.cpp, encode_crc.cpp: page assembly, hashes, sums."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

PAD = 0xFE
MASK64 = 2**64 - 1
PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
FILTER_BLOCK_BYTES = 32


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _padded(data: bytes) -> bytes:
    return data + bytes([PAD]) * (-len(data) % 8)


def mini_block(
    levels: I64,
    rep: U8,
    rep_ends: I64,
    def_: U8,
    def_ends: I64,
    values: Sequence[U8],
    value_ends: Sequence[I64],
    logs: U8,
    large: bool,
    words: U8,
    out: U8,
) -> int:
    """Chunk table and chunks of a mini-block page (file-format.md 7.2).

    `levels[c]` entries in chunk c; `*_ends` say where each chunk's share of a buffer ends (empty for levels
    that the page has not); `logs` the low bits of the table words; `large` 32-bit words and sizes.
    """
    word = 4 if large else 2
    parts = [(rep, rep_ends, 2)] if rep_ends.size else []
    parts += [(def_, def_ends, 2)] if def_ends.size else []
    parts += [(data, ends, word) for data, ends in zip(values, value_ends, strict=True)]
    at = 0
    begins = [0] * len(parts)
    for chunk in range(levels.size):
        head = int(levels[chunk])
        _require(0 <= head <= 0xFFFF, "a chunk has more levels than its header can say")
        header, body = head.to_bytes(2, "little"), b""
        for number, (data, ends, width) in enumerate(parts):
            end = int(ends[chunk])
            _require(begins[number] <= end <= data.size, "a chunk's share ends outside its buffer")
            share = data[begins[number] : end].tobytes()
            _require(len(share) < 1 << (8 * width), "a chunk buffer is too large for its size field")
            header += len(share).to_bytes(width, "little")
            body += _padded(share)
            begins[number] = end
        whole = _padded(header) + body
        _require(len(whole) <= 8 << (28 if large else 12), "a chunk is too large for its table word")
        _require(at + len(whole) <= out.size, "output is too small")
        entry = (len(whole) // 8 - 1) << 4 | int(logs[chunk])
        words[chunk * word : (chunk + 1) * word] = np.frombuffer(entry.to_bytes(word, "little"), np.uint8)
        out[at : at + len(whole)] = np.frombuffer(whole, np.uint8)
        at += len(whole)
    _require(at == out.size, "output has the wrong size")
    return at


def scatter_fixed(values: U8, size: int, positions: I64, out: U8) -> None:
    """Copy value i (`size` bytes) to byte `positions[i]` of `out`."""
    _require(values.size == positions.size * size, "one position per value")
    if positions.size:
        inside = int(positions.min()) >= 0 and int(positions.max()) + size <= out.size
        _require(inside, "a position outside the output")
        out[positions[:, None] + np.arange(size)] = values.reshape(-1, size)


def scatter_variable(data: U8, offsets: I64, positions: I64, length_size: int, out: U8) -> None:
    """Copy value i, led by its length in `length_size` bytes (4 or 8), to byte `positions[i]` of `out`."""
    _require(offsets.size == positions.size + 1, "one position per value")
    _require(length_size in (4, 8), "a length has 4 or 8 bytes")
    bounds = offsets.tolist()
    for row, at in enumerate(positions.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        _require(0 <= begin <= end <= data.size, "offsets outside the data")
        _require(at >= 0 and at + length_size + end - begin <= out.size, "a position outside the output")
        length = np.frombuffer((end - begin).to_bytes(length_size, "little"), np.uint8)
        out[at : at + length_size] = length
        out[at + length_size : at + length_size + end - begin] = data[begin:end]


def _turn(lane: int, word: int) -> int:
    return _rotl((lane + word * PRIMES[1]) & MASK64, 31) * PRIMES[0] & MASK64


def _rotl(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & MASK64


def _hash(data: bytes, seed: int) -> int:
    p1, p2, p3, p4, p5 = PRIMES
    at = 0
    if len(data) >= 32:
        lanes = [(seed + p1 + p2) & MASK64, (seed + p2) & MASK64, seed, (seed - p1) & MASK64]
        while len(data) - at >= 32:
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = _turn(lanes[lane], word)
            at += 32
        h = sum(map(_rotl, lanes, (1, 7, 12, 18))) & MASK64
        for each in lanes:
            h = ((h ^ _turn(0, each)) * p1 + p4) & MASK64
    else:
        h = (seed + p5) & MASK64
    h = (h + len(data)) & MASK64
    while len(data) - at >= 8:
        h = (_rotl(h ^ _turn(0, int.from_bytes(data[at : at + 8], "little")), 27) * p1 + p4) & MASK64
        at += 8
    if len(data) - at >= 4:
        h = (_rotl(h ^ (int.from_bytes(data[at : at + 4], "little") * p1 & MASK64), 23) * p2 + p3) & MASK64
        at += 4
    for byte in data[at:]:
        h = _rotl(h ^ (byte * p5 & MASK64), 11) * p1 & MASK64
    h = (h ^ h >> 33) * p2 & MASK64
    h = (h ^ h >> 29) * p3 & MASK64
    return h ^ h >> 32


def xxhash64(data: U8, offsets: I64, seed: int, out: U64) -> None:
    """xxHash64 of each value `data[offsets[i]:offsets[i + 1]]`."""
    _require(offsets.size == out.size + 1, "one hash per value")
    raw, bounds = data.tobytes(), offsets.tolist()
    for row in range(out.size):
        _require(0 <= bounds[row] <= bounds[row + 1] <= len(raw), "offsets outside the data")
        out[row] = _hash(raw[bounds[row] : bounds[row + 1]], seed)


def bloom_insert(hashes: U64, bitmap: U8) -> None:
    """Set the bits of each hash in a split-block filter (transactions.md 9), in place."""
    _require(
        bitmap.size > 0 and bitmap.size % FILTER_BLOCK_BYTES == 0,
        "the filter must be whole blocks of 32 bytes",
    )
    low = np.uint64(0xFFFFFFFF)
    blocks = np.uint64(bitmap.size // FILTER_BLOCK_BYTES)
    base = (((hashes >> np.uint64(32)) * blocks) >> np.uint64(32)).astype(np.int64) * FILTER_BLOCK_BYTES
    every = np.unpackbits(bitmap, bitorder="little")
    for word, salt in enumerate(SALT):
        bit = (((hashes & low) * np.uint64(salt)) & low) >> np.uint64(27)
        every[8 * (base + 4 * word) + bit.astype(np.int64)] = 1
    bitmap[:] = np.packbits(every, bitorder="little")


def crc32(data: U8, start: int) -> int:
    """CRC-32 of zlib over the data, continuing from `start`."""
    return zlib.crc32(data.data, start)
