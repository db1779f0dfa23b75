"""A column as the reference sees it: pages, chunks, buffers of a chunk, pieces of what is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.page_program import CHUNK_STAGED_FIELDS, FIELDS, MINI_BLOCK, P

Bytes = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

BLOCK = 1024
MAX_BUFFERS = 16
_ORDER = np.array([0, 4, 2, 6, 1, 5, 3, 7])
NOTHING: Bytes = np.empty(0, np.uint8)


def require(holds: object, what: str) -> None:
    """Raise ValueError unless `holds`."""
    if not holds:
        raise ValueError(what)


def cut(whole: Bytes, position: int, size: int, what: str) -> Bytes:
    """A span of a buffer, checked."""
    require(0 <= position <= len(whole) and 0 <= size <= len(whole) - position, what)
    return whole[position : position + size]


@dataclass(slots=True)
class Chunk:
    """Buffers of one chunk."""

    number: int
    page: int
    items: int
    levels: int = 0
    rep: Bytes = field(default_factory=lambda: NOTHING)
    def_: Bytes = field(default_factory=lambda: NOTHING)
    values: list[Bytes] = field(default_factory=list)


class Column:
    """The seven arrays of a column."""

    def __init__(
        self, src: Bytes, aux: Bytes, staged: I64, side: Bytes, pages: I64, first: I64, chunks: I64
    ) -> None:
        require(len(pages) % FIELDS == 0 and len(chunks) % 3 == 0, "tables of a wrong size")
        self.src, self.aux, self.side, self.first = src, aux, side, first
        self.pages = pages.reshape(-1, FIELDS)
        self.chunks = chunks.reshape(-1, 3)
        require(len(first) == len(self.chunks) + 1, "first items and chunks differ in number")
        require(len(staged) in (0, CHUNK_STAGED_FIELDS * len(self.chunks)), "staged table: wrong size")
        self.staged = staged.reshape(-1, CHUNK_STAGED_FIELDS) if len(staged) else None

    def page(self, number: int) -> I64:
        require(0 <= number < len(self.pages), "chunk names a page that does not exist")
        return self.pages[number]

    def open(self, number: int) -> Chunk:
        """The chunk's buffers. Raises ValueError where one lies outside."""
        require(0 <= number < len(self.chunks), "chunk outside of the column")
        position, size, page = self.chunks[number].tolist()
        p = self.page(page)
        chunk = Chunk(number, page, int(self.first[number + 1] - self.first[number]))
        require(chunk.items >= 0, "chunk table: items decrease")
        if p[P.KIND] == MINI_BLOCK:
            self._open_mini(chunk, p, cut(self.src, position, size, "chunk outside of the file"))
        else:
            chunk.levels = int(p[P.LEVELS])
            if p[P.REP_CODEC]:
                chunk.rep = cut(self.src, int(p[P.REP_POS]), int(p[P.REP_SIZE]), "levels outside of the file")
            if p[P.DEF_CODEC]:
                chunk.def_ = cut(
                    self.src, int(p[P.DEF_POS]), int(p[P.DEF_SIZE]), "levels outside of the file"
                )
        if self.staged is not None:
            s = self.staged[number].tolist()
            if s[0] >= 0:
                chunk.rep = cut(self.aux, s[0], s[1], "staged repetition levels")
            if s[2] >= 0:
                chunk.def_ = cut(self.aux, s[2], s[3], "staged definition levels")
            if s[4] >= 0:
                chunk.values[:1] = [cut(self.aux, s[4], s[5], "staged values")]
        return chunk

    def _open_mini(self, chunk: Chunk, p: I64, data: Bytes) -> None:
        buffers, wide = int(p[P.BUFFERS]), 4 if p[P.LARGE] else 2
        require(0 <= buffers <= MAX_BUFFERS, "too many value buffers in a chunk")
        widths = [2] + [2] * (bool(p[P.REP_CODEC]) + bool(p[P.DEF_CODEC])) + [wide] * buffers
        require(sum(widths) <= len(data), "chunk shorter than its header")
        sizes, at = [], 0
        for width in widths:
            sizes.append(int.from_bytes(data[at : at + width].tobytes(), "little"))
            at += width
        at = -(-at // 8) * 8
        chunk.levels = sizes.pop(0)
        spans = []
        for size in sizes:
            spans.append(cut(data, at, size, "chunk buffer outside of its chunk"))
            at += -(-size // 8) * 8
        if p[P.REP_CODEC]:
            chunk.rep = spans.pop(0)
        if p[P.DEF_CODEC]:
            chunk.def_ = spans.pop(0)
        chunk.values = spans

    def pieces(self, start: I64, count: I64) -> Iterator[tuple[Chunk, int, int, int]]:
        """(chunk, first item in it, items, place in the output) for each part that lies in one chunk."""
        total, at = int(self.first[-1]), 0
        chunk: Chunk | None = None
        for s in range(len(start)):
            i, n = int(start[s]), int(count[s]) if len(count) else 1
            require(i >= 0 and n >= 0 and i + n <= total, "items outside of the column")
            while n > 0:
                number = int(np.searchsorted(self.first, i, "right")) - 1
                if chunk is None or chunk.number != number:
                    chunk = self.open(number)
                low = i - int(self.first[number])
                m = min(n, chunk.items - low)
                yield chunk, low, m, at
                at, i, n = at + m, i + m, n - m


def _block_index(bits: int) -> npt.NDArray[np.int64]:
    """Logical index of (row, lane) of a FastLanes block."""
    lanes = BLOCK // bits
    row = np.arange(bits)
    return (_ORDER[row // 8] * 16 + (row % 8) * 128)[:, None] + np.arange(lanes)[None, :]


def unpack(bits: int, packed: Bytes, width: int) -> npt.NDArray[np.unsignedinteger]:
    """The 1,024 values of a FastLanes block of `128 * width` bytes."""
    require(bits in (8, 16, 32, 64), "bit packing of a word that is not 8, 16, 32 or 64 bits wide")
    dtype = np.dtype(f"<u{bits // 8}")
    out = np.zeros(BLOCK, dtype)
    if width == 0:
        return out
    lanes = BLOCK // bits
    words = packed[: 128 * width].view(dtype).reshape(width, lanes)
    mask = dtype.type((1 << width) - 1)
    index = _block_index(bits)
    for row in range(bits):
        word, shift = divmod(row * width, bits)
        value = words[word] >> dtype.type(shift)
        if shift + width > bits:
            value = value | (words[word + 1] << dtype.type(bits - shift))
        out[index[row]] = value & mask
    return out


def inline_block(bits: int, data: Bytes, items: int) -> Bytes:
    """Values of a block with its width in front, as bytes."""
    word = bits // 8
    require(bits in (8, 16, 32, 64), "bit packing of a width that is no word")
    require(items <= BLOCK and len(data) >= word, "bit packed chunk of a wrong size")
    width = int.from_bytes(data[:word].tobytes(), "little")
    require(width <= bits and len(data) >= word + 128 * width, "bit packed chunk cut short")
    return unpack(bits, data[word:], width)[:items].view(np.uint8)


def expand_runs(values: Bytes, lengths: Bytes, bits: int, items: int) -> Bytes:
    """Values of runs, as bytes."""
    require(bits in (8, 16, 32, 64), "run length encoding of a width that is no word")
    require(len(lengths) <= len(values) // (bits // 8), "fewer run values than run lengths")
    dtype = np.dtype(f"<u{bits // 8}")
    each = values[: len(lengths) * (bits // 8)].view(dtype)
    found = np.repeat(each, lengths)[:items]
    require(len(found) == items, "runs do not fill their chunk")
    return found.view(np.uint8)


def split_runs(data: Bytes) -> tuple[Bytes, Bytes]:
    """Values and lengths of a block of runs."""
    require(len(data) >= 8, "run length block without its header")
    size = int.from_bytes(data[:8].tobytes(), "little")
    require(size <= len(data) - 8, "run length block cut short")
    return data[8 : 8 + size], data[8 + size :]


def packed_blocks(data: Bytes, bits: int, width: int, n: int) -> Bytes:
    """Values of blocks of one width for all, with a packed or raw tail, as bytes."""
    require(bits in (8, 16, 32, 64) and 0 <= width <= bits, "packed block of an impossible width")
    if width == 0:
        return np.zeros(n * (bits // 8), np.uint8)
    full, tail = divmod(n, BLOCK)
    size, word = 128 * width, bits // 8
    require(full <= len(data) // size, "bit packed block cut short")
    rest = data[full * size :]
    parts = [unpack(bits, data[b * size :], width) for b in range(full)]
    if tail:
        if len(rest) == tail * word:
            parts.append(rest.view(f"<u{word}"))
        else:
            require(len(rest) >= size, "bit packed block cut short")
            parts.append(unpack(bits, rest, width)[:tail])
    return np.concatenate(parts).view(np.uint8) if parts else NOTHING


PLACE_FIELDS = 9
MAX_COUNT = 1 << 48


def index_chunks(src: Bytes, places: I64, first: I64, started: I64, chunks: I64) -> int:
    """See `kernels.decode`."""
    require(len(places) % PLACE_FIELDS == 0, "place table: wrong size")
    room = len(chunks) // 3
    require(min(len(first), len(started)) > room, "chunk outputs differ in size")
    parts: list[tuple[I64, I64, I64, I64]] = []
    one = np.zeros(1, np.int64)
    for page, place in enumerate(places.reshape(-1, PLACE_FIELDS).tolist()):
        items, rows = place[5], place[6]
        require(0 <= items <= MAX_COUNT and 0 <= rows <= MAX_COUNT, "page of more items than any file holds")
        if place[2] == 0:
            sizes, position, count, starts = one, one, np.array([items]), np.array([rows])
        else:
            sizes, position, count, starts = _page_chunks(src, place)
        table = np.stack([position, sizes, np.full(len(sizes), page)], axis=1)
        parts.append((table.astype(np.int64), count, starts, one))
    total = sum(len(part[0]) for part in parts)
    require(total <= room, "more chunks than there is room for")
    first[0] = started[0] = 0
    if parts:
        chunks[: 3 * total] = np.concatenate([part[0] for part in parts]).reshape(-1)
        first[1 : total + 1] = np.cumsum(np.concatenate([part[1] for part in parts]))
        started[1 : total + 1] = np.cumsum(np.concatenate([part[2] for part in parts]))
    return total


def _page_chunks(src: Bytes, place: list[int]) -> tuple[I64, I64, I64, I64]:
    """Sizes, positions, items and started rows of the chunks of a mini-block page."""
    width, items, rows = place[2], place[5], place[6]
    require(width in (2, 4), "chunk words of an impossible width")
    data = cut(src, place[0], place[1], "chunk words outside of the file")
    require(len(data) > 0 and len(data) % width == 0, "chunk words cut short")
    words = data.view(f"<u{width}").astype(np.int64)
    cut(src, place[3], place[4], "chunks outside of the file")
    sizes = ((words >> 4) + 1) * 8
    require(int(sizes.sum()) <= place[4], "chunks longer than their buffer")
    count = np.left_shift(np.int64(1), words & 15)
    count[-1] = items - int(count[:-1].sum())
    require(count[-1] >= 0, "chunks of more items than their page")
    position = np.cumsum(sizes) - sizes + place[3]
    if place[7] < 0:
        require(items == rows, "a page without lists of other items than rows")
        return sizes, position, count, count
    index = cut(src, place[7], place[8], "repetition index outside of the file")
    require(len(index) == 16 * len(words), "repetition index and chunks differ in number")
    pairs = index.view("<u8").reshape(-1, 2)
    require((pairs[:, 0] <= np.uint64(rows)).all(), "repetition index of more rows than its page")
    ended = np.cumsum(pairs[:, 0].astype(np.int64))
    over = (pairs[:, 1] > 0).astype(np.int64)
    require(ended[-1] == rows and not over[-1], "repetition index of other rows than its page")
    starts = np.diff(ended + over, prepend=np.int64(0))
    require(int(starts.min()) >= 0, "repetition index in which a row never ends")
    return sizes, position, count, starts
