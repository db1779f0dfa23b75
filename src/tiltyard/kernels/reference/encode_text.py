"""NumPy reference of native/encode_text.cpp and of string dictionaries."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

FSST_TABLE_BYTES = 2312
FSST_SYMBOLS = 255
FSST_ROUNDS = 5
FSST_SHARES, FSST_SHARE_OF = (1, 3, 5, 7, 8), 8  # values of each eight that a round looks at
FSST_ESCAPE = 255
FSST_SLOTS_SHIFT = 20
"""A symbol of three or more bytes lives in one of 4,096 slots: the top 12 bits of a 32-bit product."""
FSST_MAGIC = 0x46535354 << 32 | 1 << 24
PAD = 0x48


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _check_offsets(offsets: I64, size: int) -> None:
    _require(offsets.size > 0 and int(offsets[0]) >= 0, "offsets must start at or above zero")
    _require(not (np.diff(offsets) < 0).any(), "offsets must not decrease")
    _require(int(offsets[-1]) <= size, "offsets end behind the data")


def invalid_text(data: U8, offsets: I64) -> int:
    """The first value that is not UTF-8; -1 when all are."""
    _check_offsets(offsets, data.size)
    body = data.tobytes()
    for at, (begin, end) in enumerate(itertools.pairwise(offsets.tolist())):
        try:
            body[begin:end].decode()
        except UnicodeDecodeError:
            return at
    return -1


def variable_chunks(offsets: I64, width: int, target: int, max_items: int, chunk_items: I64) -> int:
    """Values per chunk by the rule of compression.md 6.1 into `chunk_items`; returns the number of chunks."""
    o = offsets.tolist()
    n = len(o) - 1
    at = chunk = 0

    def size(m: int) -> int:
        return int(o[at + m] - o[at] + (m + 1) * width)

    while at < n:
        left = n - at
        take = left
        if left > 1:
            take, grown = 2, 4
            while True:
                if grown > left:
                    take = left if size(left) <= target else take
                    break
                if size(grown) > target or 2 * grown > max_items:
                    break
                take, grown = grown, 2 * grown
            take = min(take, left)
        _require(chunk < chunk_items.size, "too few chunk slots")
        chunk_items[chunk] = take
        chunk += 1
        at += take
    return chunk


def variable_encode(data: U8, offsets: I64, width: int, chunk_items: I64, out: U8, ends: I64) -> int:
    """Chunk bytes of `Variable` (compression.md 3.5): offsets from the chunk's start, bytes, padding."""
    _require(width in (4, 8), "offsets have 4 or 8 bytes")
    _check_offsets(offsets, data.size)
    at = to = 0
    for chunk, items in enumerate(chunk_items.tolist()):
        _require(0 <= items <= offsets.size - 1 - at, "chunks hold more values than there are")
        own = offsets[at : at + items + 1]
        head = (items + 1) * width
        body = (own - own[0] + head).astype(f"<u{width}").tobytes() + data[own[0] : own[-1]].tobytes()
        body += bytes([PAD]) * (-len(body) % width)
        _require(to + len(body) <= out.size, "output is too small")
        out[to : to + len(body)] = np.frombuffer(body, np.uint8)
        to += len(body)
        at += items
        ends[chunk] = to
    _require(at == offsets.size - 1 and to == out.size, "output has the wrong size")
    return to


def copy_variable(data: U8, starts: I64, out_offsets: I64, out: U8) -> None:
    """Copy value i from `data[starts[i]:]` to `out[out_offsets[i]:out_offsets[i + 1]]`."""
    _require(out_offsets.size == starts.size + 1, "one output offset more than values")
    _check_offsets(out_offsets, out.size)
    sizes = np.diff(out_offsets)
    _require(
        not ((starts < 0) | (starts + sizes > data.size)).any() if starts.size else True,
        "a value outside the data",
    )
    shift = np.repeat(starts - out_offsets[:-1], sizes)
    if shift.size:
        begin = int(out_offsets[0])
        out[begin : begin + shift.size] = data[shift + np.arange(begin, begin + shift.size)]


class _Matcher:
    """Greedy matcher; a slot for longer symbols keeps the first that comes, as in the compiled one."""

    def __init__(self) -> None:
        self.slots: dict[int, tuple[bytes, int]] = {}
        self.short: dict[bytes, int] = {}
        self.symbols: list[bytes] = []

    def add(self, symbol: bytes) -> bool:
        code = len(self.symbols)
        if len(symbol) >= 3:
            slot = _slot(symbol)
            if slot in self.slots:
                return False
            self.slots[slot] = symbol, code
        else:
            self.short[symbol] = code
        self.symbols.append(symbol)
        return True

    def match(self, data: bytes, at: int, end: int, readable: int) -> tuple[int, int]:
        """(length, code); a byte without symbol has code 256 + byte."""
        found = self.slots.get(_slot(data[at : min(at + 3, readable)]))
        if found is not None and data[at : min(at + len(found[0]), end)] == found[0]:
            return len(found[0]), found[1]
        code = self.short.get(data[at : at + 2]) if at + 2 <= end else None
        if code is not None:
            return 2, code
        code = self.short.get(data[at : at + 1])
        return (1, 256 + data[at]) if code is None else (1, code)


def _slot(head: bytes) -> int:
    return ((int.from_bytes(head[:3], "little") * 0x9E3779B1) & 0xFFFFFFFF) >> FSST_SLOTS_SHIFT


def fsst_train(data: U8, offsets: I64, table: U8) -> int:
    """Learn a symbol table (2,312 bytes, compression.md 3.6) from sample values; returns its symbols."""
    _require(table.size == FSST_TABLE_BYTES, "a symbol table has 2312 bytes")
    _check_offsets(offsets, data.size)
    raw, bounds = data.tobytes(), offsets.tolist()
    matcher = _Matcher()
    for turn in range(FSST_ROUNDS):
        counts: dict[bytes, int] = {}
        for row, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if row % FSST_SHARE_OF >= FSST_SHARES[turn]:
                continue
            _count(matcher, raw, begin, end, turn + 1 < FSST_ROUNDS, counts)
        scored = [(n * (8 if len(s) == 1 else len(s)), s) for s, n in counts.items()]
        scored.sort(key=lambda each: (-each[0], -len(each[1]), int.from_bytes(each[1], "little")))
        matcher = _Matcher()
        for _, symbol in scored:
            if len(matcher.symbols) == FSST_SYMBOLS:
                break
            matcher.add(symbol)
    count = len(matcher.symbols)
    body = (FSST_MAGIC | count).to_bytes(8, "little")
    body += b"".join(symbol.ljust(8, b"\0") for symbol in matcher.symbols)
    body += bytes(len(symbol) for symbol in matcher.symbols)
    table[:] = np.frombuffer(body.ljust(FSST_TABLE_BYTES, b"\0"), np.uint8)
    return count


def _count(matcher: _Matcher, raw: bytes, at: int, end: int, pairs: bool, counts: dict[bytes, int]) -> None:
    previous = b""
    while at < end:
        length, _ = matcher.match(raw, at, end, len(raw))
        symbol = raw[at : at + length]
        counts[symbol] = counts.get(symbol, 0) + 1
        if length > 1:
            counts[symbol[:1]] = counts.get(symbol[:1], 0) + 1
        if pairs and previous:
            joined = (previous + symbol)[:8]
            counts[joined] = counts.get(joined, 0) + 1
        previous = symbol
        at += length


def fsst_encode(table: U8, data: U8, offsets: I64, out: U8, out_offsets: I64) -> int:
    """Compress every value with the table; `out` needs twice the bytes. Returns the bytes written."""
    _require(table.size == FSST_TABLE_BYTES, "a symbol table has 2312 bytes")
    _require(offsets.size > 0 and out_offsets.size == offsets.size, "one output offset per offset")
    _check_offsets(offsets, data.size)
    _require(out.size // 2 >= int(offsets[-1] - offsets[0]), "output must have room for twice the input")
    matcher = _Matcher()
    count = int(table[0])
    for index in range(count):
        length = int(table[8 + 8 * count + index])
        _require(1 <= length <= 8, "a symbol has 1 to 8 bytes")
        symbol = table[8 + 8 * index : 8 + 8 * index + length].tobytes()
        _require(matcher.add(symbol), "two symbols share a slot")
    raw, bounds = data.tobytes(), offsets.tolist()
    parts = bytearray()
    out_offsets[0] = 0
    for row in range(len(bounds) - 1):
        at, end = bounds[row], bounds[row + 1]
        while at < end:
            length, code = matcher.match(raw, at, end, len(raw))
            parts += bytes((FSST_ESCAPE, code - 256)) if code >= 256 else bytes((code,))
            at += length
        out_offsets[row + 1] = len(parts)
    out[: len(parts)] = np.frombuffer(bytes(parts), np.uint8)
    return len(parts)


def dictionary_variable(data: U8, offsets: I64, nulls: U8, max_bytes: int, indices: U32, first: I64) -> int:
    """Distinct values in order of appearance; a null takes the index before it (0 at the start).

    Returns the number of entries, or -1 when `first` has no room for all or they exceed `max_bytes` bytes.
    """
    _require(offsets.size == indices.size + 1, "one index per value")
    _require(nulls.size in (0, indices.size), "one null flag per value")
    raw, bounds = data.tobytes(), offsets.tolist()
    absent = nulls.tolist() if nulls.size else [0] * indices.size
    seen: dict[bytes, int] = {}
    last = total = 0
    for row, null in enumerate(absent):
        if not null:
            _require(0 <= bounds[row] <= bounds[row + 1] <= len(raw), "offsets outside the data")
            value = raw[bounds[row] : bounds[row + 1]]
            entry = seen.get(value)
            if entry is None:
                entry = len(seen)
                total += len(value)
                if entry == first.size or total > max_bytes:
                    return -1
                seen[value] = entry
                first[entry] = row
            last = entry
        indices[row] = last
    return len(seen)
