"""Values of varying width, in NumPy and plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.page_program import (
    FIELDS,
    MINI_BLOCK,
    VALUE_FSST,
    VALUE_NONE,
    VALUE_SCALAR,
    VALUE_VARIABLE,
    P,
)
from tiltyard.kernels.reference.decode_fixed import ColumnTables
from tiltyard.kernels.reference.decode_page import I64, Bytes, Column, cut, require

Offsets = npt.NDArray[np.signedinteger]
ESCAPE = 255
HEAD_BYTES = 8
_FSST = 0x46535354


class Symbols:
    """A symbol table; `symbols` is None where the strings are stored raw."""

    def __init__(self, table: Bytes) -> None:
        require(len(table) >= HEAD_BYTES, "symbol table without its header")
        head = int.from_bytes(table[:HEAD_BYTES].tobytes(), "little")
        require(head >> 32 == _FSST, "symbol table without its magic")
        self.symbols: list[bytes] | None = None
        if not (head >> 24) & 0xFF:
            return
        n = head & 0xFF
        require(len(table) >= HEAD_BYTES + 9 * n, "symbol table cut short")
        raw = table.tobytes()
        lengths = raw[HEAD_BYTES + 8 * n : HEAD_BYTES + 9 * n]
        require(all(1 <= size <= 8 for size in lengths), "symbol of an impossible length")
        self.symbols = [raw[HEAD_BYTES + 8 * i : HEAD_BYTES + 8 * i + size] for i, size in enumerate(lengths)]

    def decode(self, data: bytes) -> bytes:
        """One value."""
        if self.symbols is None:
            return data
        out, i = [], 0
        while i < len(data):
            code = data[i]
            if code == ESCAPE:
                require(i + 1 < len(data), "compressed value ends in an escape")
                out.append(data[i + 1 : i + 2])
                i += 2
                continue
            require(code < len(self.symbols), "compressed value uses a code without symbol")
            out.append(self.symbols[code])
            i += 1
        return b"".join(out)


def _finish(parts: Sequence[bytes], offsets: Offsets, out: Bytes) -> int:
    """Offsets of the parts, and the bytes as far as there is room."""
    sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    offsets[0] = 0
    offsets[1 : len(parts) + 1] = ends.astype(offsets.dtype)
    body = np.frombuffer(b"".join(parts), np.uint8)
    n = min(len(body), len(out))
    out[:n] = body[:n]
    return len(body)


def variable(
    src: Bytes,
    aux: Bytes,
    staged: I64,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    start: I64,
    count: I64,
    offsets: Offsets,
    out: Bytes,
) -> int:
    """See `kernels.decode`."""
    require(len(offsets) >= 1, "no room for offsets")
    column = Column(src, aux, staged, side, pages, first, chunks)
    return _finish(_strings(column, start, count, len(offsets) - 1), offsets, out)


def variable_columns(
    tables: tuple[ColumnTables, ...], start: I64, count: I64, offsets: Offsets, out: Bytes
) -> int:
    """See `kernels.decode`."""
    require(len(start) == len(count) == len(tables), "segments and columns differ in number")
    require(len(offsets) >= 1, "no room for offsets")
    parts: list[bytes] = []
    for i, table in enumerate(tables):
        column = Column(*table.arrays)
        parts += _strings(column, start[i : i + 1], count[i : i + 1], len(offsets) - 1 - len(parts))
    return _finish(parts, offsets, out)


def _strings(column: Column, start: I64, count: I64, slots: int) -> list[bytes]:
    parts: list[bytes] = []
    for chunk, low, n, at in column.pieces(start, count):
        require(n <= slots - at, "output smaller than the items that were asked for")
        p = column.page(chunk.page)
        codec = int(p[P.VALUE_CODEC])
        if codec == VALUE_NONE:
            parts += [b""] * n
            continue
        if codec == VALUE_SCALAR:
            value = cut(column.side, int(p[P.SIDE_POS]), int(p[P.SIDE_LEN]), "scalar outside of its table")
            parts += [value.tobytes()] * n
            continue
        require(codec in (VALUE_VARIABLE, VALUE_FSST), "value encoding that has no varying width")
        require(p[P.KIND] == MINI_BLOCK and p[P.BUFFERS] >= 1, "strings in a page without value buffer")
        found = _chunk_strings(chunk.values[0], chunk.items, int(p[P.OFFSET_BITS]) // 8, low, n)
        if codec == VALUE_FSST:
            symbols = Symbols(cut(column.side, int(p[P.SIDE_POS]), int(p[P.SIDE_LEN]), "symbol table"))
            found = [symbols.decode(each) for each in found]
        parts += found
    return parts


def _chunk_strings(data: Bytes, items: int, width: int, low: int, n: int) -> list[bytes]:
    width = 8 if width == 8 else 4
    require(items < len(data) // width, "offsets cut short")
    places = data[low * width : (low + n + 1) * width].view(f"<u{width}").tolist()
    require(all(a <= b for a, b in pairwise(places)), "offsets decrease")
    require(places[-1] <= len(data), "offsets outside of their chunk")
    raw = data.tobytes()
    return [raw[a:b] for a, b in pairwise(places)]


def gather_variable(
    src: Bytes,
    position: I64,
    length: I64,
    page: I64,
    side: Bytes,
    pages: I64,
    offsets: Offsets,
    out: Bytes,
) -> int:
    """See `kernels.decode`."""
    n = len(position)
    require(len(length) == n and len(page) in (0, n), "positions and lengths differ in number")
    require(len(offsets) > n, "no room for offsets")
    facts = pages.reshape(-1, FIELDS)
    parts = []
    tables: dict[int, Symbols] = {}
    for i, (at, size) in enumerate(zip(position.tolist(), length.tolist(), strict=True)):
        value = cut(src, at, size, "value outside of the file").tobytes() if size else b""
        if len(page) and size:
            number = int(page[i])
            require(0 <= number < len(facts), "value of a page that does not exist")
            if facts[number, P.VALUE_CODEC] == VALUE_FSST:
                if number not in tables:
                    span = facts[number, P.SIDE_POS], facts[number, P.SIDE_LEN]
                    tables[number] = Symbols(cut(side, int(span[0]), int(span[1]), "symbol table"))
                value = tables[number].decode(value)
        parts.append(value)
    return _finish(parts, offsets, out)


def gather_strings(
    index: npt.NDArray[np.uint32], dict_offsets: I64, dictionary: Bytes, offsets: Offsets, out: Bytes
) -> int:
    """See `kernels.decode`."""
    items = len(dict_offsets) - 1
    require(items >= 0 and len(offsets) > len(index), "no room for offsets")
    ordered = not items or (np.diff(dict_offsets) >= 0).all()
    inside = int(dict_offsets[0]) >= 0 and int(dict_offsets[-1]) <= len(dictionary)
    require(ordered and inside, "dictionary offsets out of bounds")
    require(not len(index) or int(index.max()) < items, "dictionary index outside of its dictionary")
    raw, places = dictionary.tobytes(), dict_offsets.tolist()
    return _finish([raw[places[i] : places[i + 1]] for i in index.tolist()], offsets, out)
