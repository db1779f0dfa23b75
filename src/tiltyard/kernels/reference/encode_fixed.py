"""NumPy reference of native/encode_pack.cpp and of fixed-width dictionaries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

BLOCK = 1024
"""Values in a FastLanes block."""
ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
"""The FastLanes permutation of row groups (compression.md 3.2)."""
RUN_CUT = 4096
"""Values after which statistics count a run anew."""
RUN_MAX = 255
"""Longest run of one entry."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _words(values: U8, bits: int) -> npt.NDArray[np.unsignedinteger[npt.NBitBase]]:
    _require(bits in (8, 16, 32, 64), "word width must be 8, 16, 32 or 64 bits")
    _require(values.size % (bits // 8) == 0, "values are not whole words")
    return np.frombuffer(values.tobytes(), f"<u{bits // 8}")


def _runs(words: npt.NDArray[np.generic]) -> tuple[I64, I64]:
    """Start and length of each run."""
    if words.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = np.concatenate(([0], np.flatnonzero(words[1:] != words[:-1]) + 1)).astype(np.int64)
    return starts, np.diff(np.append(starts, words.size))


def _entries(words: npt.NDArray[np.generic]) -> int:
    return int((-(-_runs(words)[1] // RUN_MAX)).sum())


def fixed_stats(values: U8, bits: int, widths: U8) -> tuple[int, int]:
    """Bit width of each block of 1,024 words into `widths`; returns (run entries, changes of value).

    Entries are exact where run-length coding can win, else a lower bound.
    """
    words = _words(values, bits)
    n = words.size
    _require(widths.size == -(-n // BLOCK), "one width per block of 1024")
    if n == 0:
        return 0, 0
    merged = np.bitwise_or.reduceat(words, np.arange(0, n, BLOCK))
    widths[:] = [int(each).bit_length() for each in merged]
    changes = int((words[1:] != words[:-1]).sum())
    size = bits // 8
    if (changes + 1) * (size + 1) >= n * size:
        return changes + 1, changes
    return sum(_entries(words[at : at + RUN_CUT]) for at in range(0, n, RUN_CUT)), changes


def _pack_block(words: npt.NDArray[np.generic], bits: int, width: int) -> bytes:
    """One FastLanes block of up to 1,024 words, zero-padded: 128 * width bytes."""
    block = np.zeros(BLOCK, words.dtype)
    block[: words.size] = words
    _require(int(np.bitwise_or.reduce(block)).bit_length() <= width, "a value is wider than its block")
    lanes = BLOCK // bits
    out = np.zeros((width + 1, lanes), words.dtype)
    for row in range(bits if width else 0):
        begin = ORDER[row >> 3] * 16 + (row & 7) * 128
        source = block[begin : begin + lanes]
        word, shift = divmod(row * width, bits)
        out[word] |= source << words.dtype.type(shift)
        if shift + width > bits:
            out[word + 1] |= source >> words.dtype.type(bits - shift)
    return out[:width].tobytes()


def pack_inline(values: U8, bits: int, widths: U8, out: U8) -> int:
    """Inline bit packing: per block one word with the width, then 128 * width bytes. Returns the bytes."""
    words = _words(values, bits)
    _require(widths.size == -(-words.size // BLOCK), "one width per block of 1024")
    _require(not widths.size or int(widths.max()) <= bits, "packed width above the word width")
    parts = []
    for block, width in enumerate(widths.tolist()):
        parts.append(width.to_bytes(bits // 8, "little"))
        parts.append(_pack_block(words[block * BLOCK : (block + 1) * BLOCK], bits, width))
    return _emit(b"".join(parts), out)


def _emit(data: bytes, out: U8) -> int:
    _require(len(data) == out.size, "output has the wrong size")
    out[:] = np.frombuffer(data, np.uint8)
    return len(data)


def pack_out_of_line(values: U8, bits: int, ends: I64, width: int, out: U8, out_ends: I64) -> int:
    """Out-of-line bit packing of each chunk on its own (tail rule of compression.md 3.4). `ends` in words.

    `out` may be larger than needed; returns the bytes written, `out_ends` says where each chunk's end.
    """
    words = _words(values, bits)
    per_block = BLOCK * width // bits
    at = begin = 0
    for chunk, end in enumerate(ends.tolist()):
        _require(begin <= end <= words.size, "a chunk ends outside the values")
        for first in range(begin, end, BLOCK):
            part = words[first : min(first + BLOCK, end)]
            packed = part.size == BLOCK or per_block < part.size
            data = _pack_block(part, bits, width) if packed else part.tobytes()
            _require(at + len(data) <= out.size, "output is too small")
            out[at : at + len(data)] = np.frombuffer(data, np.uint8)
            at += len(data)
        out_ends[chunk] = at
        begin = end
    return at


def rle_encode(
    values: U8,
    bits: int,
    max_items: int,
    max_bytes: int,
    out_values: U8,
    out_lengths: U8,
    chunk_items: I64,
    chunk_entries: I64,
) -> tuple[int, int]:
    """Runs of at most 255, in chunks by the rule of compression.md 6.1. Returns (chunks, entries)."""
    words = _words(values, bits)
    size = bits // 8
    budget = max_bytes // (size + 1)
    at = entry = chunk = 0
    while at < words.size:
        left = words.size - at
        take = left
        if left > max_items or _entries(words[at:]) > budget:
            take = 1 << (min(left, max_items).bit_length() - 1)
            while take > 2 and _entries(words[at : at + take]) > budget:
                take //= 2
        starts, lengths = _runs(words[at : at + take])
        pieces = -(-lengths // RUN_MAX)
        runs = np.repeat(words[at + starts], pieces)
        _require((entry + runs.size) * size <= out_values.size, "output is too small")
        out_values[entry * size : (entry + runs.size) * size] = np.frombuffer(runs.tobytes(), np.uint8)
        cut = np.full(runs.size, RUN_MAX, np.int64)
        cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * RUN_MAX
        out_lengths[entry : entry + runs.size] = cut
        chunk_items[chunk], chunk_entries[chunk] = take, runs.size
        entry += runs.size
        chunk += 1
        at += take
    return chunk, entry


def rle_block(values: U16, ends: I64, out: U8, out_ends: I64) -> int:
    """Run-length blocks (compression.md 3.7, role B), one per chunk of levels. Returns the bytes."""
    at = begin = 0
    for chunk, end in enumerate(ends.tolist()):
        _require(begin <= end <= values.size, "a chunk ends outside the levels")
        part = values[begin:end]
        starts, lengths = _runs(part)
        pieces = -(-lengths // RUN_MAX)
        cut = np.full(int(pieces.sum()), RUN_MAX, np.uint8)
        if cut.size:
            cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * RUN_MAX
        runs = np.repeat(part[starts], pieces).tobytes()
        data = len(runs).to_bytes(8, "little") + runs + cut.tobytes()
        _require(at + len(data) <= out.size, "output is too small")
        out[at : at + len(data)] = np.frombuffer(data, np.uint8)
        at += len(data)
        out_ends[chunk] = at
        begin = end
    return at


def rle_block_size(values: U16, ends: I64, limit: int) -> int:
    """Bytes that `rle_block` writes; counting stops after the chunk with which they exceed `limit`."""
    total = begin = 0
    for end in ends.tolist():
        _require(begin <= end <= values.size, "a chunk ends outside the levels")
        total += 8 + 3 * _entries(values[begin:end])
        if total > limit:
            break
        begin = end
    return total


def fill_nulls(values: U8, size: int, nulls: U8) -> None:
    """Give null slots the value before them (the first valid one at the start; zero when all are null).

    `values` of `size` bytes each, changed in place: runs grow, widths never do.
    """
    _require(values.size == nulls.size * size, "one null flag per value")
    valid = np.flatnonzero(nulls == 0)
    if valid.size == 0:
        values[:] = 0
        return
    last = np.where(nulls == 0, np.arange(nulls.size), -1)
    source = np.maximum.accumulate(last)
    source[source < 0] = valid[0]
    rows = values.reshape(nulls.size, size)
    rows[:] = rows[source]


def copy_bits(bits: U8, start: int, count: int, out: U8) -> None:
    """`count` bits from bit `start` on, moved to bit 0; trailing bits zero."""
    _require(start + count <= bits.size * 8, "bits end behind the buffer")
    _require(out.size == -(-count // 8), "output has the wrong size")
    out[:] = np.packbits(np.unpackbits(bits, bitorder="little")[start : start + count], bitorder="little")


def chunk_bits(bits: U8, start: int, counts: I64, out: U8, ends: I64) -> None:
    """Consecutive shares of a bitmap, each moved to a byte of its own; `counts` in bits."""
    at, begin = 0, start
    for chunk, count in enumerate(counts.tolist()):
        size = -(-count // 8)
        copy_bits(bits, begin, count, out[at : at + size])
        at += size
        begin += count
        ends[chunk] = at
    _require(at == out.size, "output has the wrong size")


def dictionary_fixed(values: U8, size: int, indices: U32, first: I64) -> int:
    """Distinct values of `size` bytes in order of appearance: `first` gets the row of each, `indices` the
    entry of every value. Returns the number of entries, -1 when `first` has no room for all.
    """
    _require(size in (1, 2, 4, 8, 16), "dictionaries are made of values of 1, 2, 4, 8 or 16 bytes")
    _require(values.size == indices.size * size, "one index per value")
    raw = values.tobytes()
    seen: dict[bytes, int] = {}
    for row in range(indices.size):
        value = raw[row * size : (row + 1) * size]
        entry = seen.get(value)
        if entry is None:
            entry = len(seen)
            if entry == first.size:
                return -1
            seen[value] = entry
            first[entry] = row
        indices[row] = entry
    return len(seen)
