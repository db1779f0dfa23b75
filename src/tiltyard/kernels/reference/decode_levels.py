"""Repetition and definition levels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.page_program import (
    FULL_ZIP,
    LEVEL_FLAT,
    LEVEL_INLINE,
    LEVEL_NONE,
    LEVEL_OUT_OF_LINE,
    LEVEL_RLE,
    P,
)
from tiltyard.kernels.reference.decode_page import (
    BLOCK,
    I64,
    Bytes,
    Chunk,
    Column,
    cut,
    expand_runs,
    inline_block,
    packed_blocks,
    require,
    split_runs,
)

U16 = npt.NDArray[np.uint16]
MAX_RUN = 255
MAX_CHUNK_LEVELS = 0xFFFF  # what the header of a chunk can say
WORD = 16


def check_level_count(codec: int, bits: int, data: Bytes, count: int) -> None:
    """A count that the bytes cannot hold would be an allocation bomb."""
    limits = {
        LEVEL_NONE: count,
        LEVEL_FLAT: len(data) // 2,
        LEVEL_INLINE: BLOCK,
        # Of width 0: all are zero, and no byte is needed to say so.
        LEVEL_OUT_OF_LINE: len(data) * 8 if bits else MAX_CHUNK_LEVELS,
        LEVEL_RLE: MAX_RUN * (len(data) + 1) - 1,
    }
    require(codec in limits, "unknown level encoding")
    require(0 <= count <= limits[codec], "levels cut short")


def _decode(codec: int, bits: int, data: Bytes, count: int) -> U16:
    check_level_count(codec, bits, data, count)
    if count == 0:
        return np.empty(0, np.uint16)
    if codec == LEVEL_FLAT:
        return data[: 2 * count].view("<u2")
    if codec == LEVEL_INLINE:
        return inline_block(WORD, data, count).view("<u2")
    if codec == LEVEL_OUT_OF_LINE:
        return packed_blocks(data, WORD, bits, count).view("<u2")
    require(codec == LEVEL_RLE, "unknown level encoding")
    return expand_runs(*split_runs(data), WORD, count).view("<u2")


def block_levels(data: Bytes, codec: int, width: int, out: U16) -> None:
    """See `kernels.decode`."""
    out[:] = _decode(codec, width, data, len(out))


def _mapped(column: Column, p: I64, levels: U16) -> U16:
    lut = cut(column.side, int(p[P.LUT_POS]), int(p[P.LUT_LEN]), "level map outside of its table").view("<u2")
    require(not len(levels) or int(levels.max()) < len(lut), "level that no layer of the page has")
    return lut[levels]


def definition(
    src: Bytes,
    aux: Bytes,
    staged: I64,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    start: I64,
    count: I64,
    out: U16,
) -> None:
    """See `kernels.decode`."""
    column = Column(src, aux, staged, side, pages, first, chunks)
    for chunk, low, n, at in column.pieces(start, count):
        require(n <= len(out) - at, "output smaller than the items that were asked for")
        p = column.page(chunk.page)
        if p[P.KIND] == FULL_ZIP and p[P.CONTROL_BYTES] > 0:
            levels = _control_levels(column, p, low, n)
        elif p[P.DEF_CODEC] == LEVEL_NONE or p[P.KIND] == FULL_ZIP:
            levels = np.full(n, p[P.DEFAULT_DEF], np.uint16)
        else:
            require(low + n <= chunk.levels, "levels outside of their chunk")
            whole = _decode(int(p[P.DEF_CODEC]), int(p[P.DEF_BITS]), chunk.def_, chunk.levels)
            levels = whole[low : low + n]
        out[at : at + n] = _mapped(column, p, levels)


def _control_levels(column: Column, p: I64, low: int, n: int) -> U16:
    control, bits, stride = int(p[P.CONTROL_BYTES]), int(p[P.CONTROL_DEF_BITS]), int(p[P.STRIDE])
    require(control <= 4 and 0 <= bits <= 16 and stride > 0, "control words out of bounds")
    data = cut(column.src, int(p[P.DATA_POS]), int(p[P.DATA_SIZE]), "page buffer outside of the file")
    stride += control
    require(low + n <= len(data) // stride, "full-zip page cut short")
    words = np.zeros((n, 4), np.uint8)
    words[:, :control] = data[low * stride : (low + n) * stride].reshape(n, stride)[:, :control]
    mask = np.uint32((1 << bits) - 1)
    return (words.view("<u4").reshape(-1) & mask).astype(np.uint16)


def _chunk_levels(column: Column, chunk: Chunk) -> tuple[U16, U16]:
    p = column.page(chunk.page)
    require(p[P.REP_CODEC] != LEVEL_NONE, "page of lists without repetition levels")
    rep = _decode(int(p[P.REP_CODEC]), int(p[P.REP_BITS]), chunk.rep, chunk.levels)
    if p[P.DEF_CODEC] == LEVEL_NONE:
        return rep, np.full(chunk.levels, p[P.DEFAULT_DEF], np.uint16)
    return rep, _decode(int(p[P.DEF_CODEC]), int(p[P.DEF_BITS]), chunk.def_, chunk.levels)


def level_bound(
    src: Bytes,
    aux: Bytes,
    staged: I64,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    low: int,
    high: int,
) -> int:
    """See `kernels.decode`."""
    column = Column(src, aux, staged, side, pages, first, chunks)
    require(low >= 0 and high <= len(column.chunks), "chunks outside of the column")
    total = 0
    for number in range(low, high):
        chunk = column.open(number)
        p = column.page(chunk.page)
        check_level_count(int(p[P.REP_CODEC]), int(p[P.REP_BITS]), chunk.rep, chunk.levels)
        total += chunk.levels
    return total


def rows(
    src: Bytes,
    aux: Bytes,
    staged: I64,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    started: I64,
    start: I64,
    count: I64,
    rep: U16,
    def_: U16,
    item_start: I64,
    item_count: I64,
) -> int:
    """See `kernels.decode`."""
    column = Column(src, aux, staged, side, pages, first, chunks)
    require(len(started) == len(column.chunks) + 1, "row table: wrong size")
    require(len(rep) == len(def_), "outputs of levels differ in size")
    require(min(len(item_start), len(item_count)) >= len(start), "outputs of item ranges are too small")
    at = 0
    for s in range(len(start)):
        r, n = int(start[s]), int(count[s]) if len(count) else 1
        require(r >= 0 and n >= 0 and r + n <= int(started[-1]), "rows outside of the column")
        item_start[s] = item_count[s] = 0
        if n:
            found = _row_entries(column, started, r, n)
            item_start[s], item_count[s] = found[2], found[3]
            size = len(found[0])
            if at + size <= len(rep):
                rep[at : at + size] = found[0]
                def_[at : at + size] = found[1]
            at += size
    return at


def _row_entries(column: Column, started: I64, row: int, n: int) -> tuple[U16, U16, int, int]:
    """Levels of consecutive rows, their first item and their number of items."""
    c = int(np.searchsorted(started, row, "right")) - 1
    require(0 <= c < len(column.chunks), "row that no chunk starts")
    reps, defs = [], []
    first_item, items, stop, begun, page = 0, 0, row + n, False, -1
    while c < len(column.chunks):
        if begun and column.chunks[c, 2] != page and int(started[c]) >= stop:
            break
        chunk = column.open(c)
        page = chunk.page
        p = column.page(page)
        rep, def_ = _chunk_levels(column, chunk)
        starts = np.flatnonzero(rep == p[P.MAX_REP])
        visible = def_ <= p[P.VISIBLE]
        low, high = 0, len(rep)
        if not begun:
            require(row - int(started[c]) < len(starts), "repetition index and levels disagree")
            low = int(starts[row - int(started[c])])
            first_item = int(column.first[c]) + int(np.count_nonzero(visible[:low]))
            begun = True
        ahead = stop - int(started[c])
        if (ahead < len(starts) and started[c + 1] > stop) or (ahead == 0 and len(starts)):
            high = int(starts[ahead])
        reps.append(rep[low:high])
        defs.append(_mapped(column, p, def_[low:high]))
        items += int(np.count_nonzero(visible[low:high]))
        if high < len(rep):
            break
        c += 1
    return np.concatenate(reps), np.concatenate(defs), first_item, items


def unravel_items(
    rep: U16, def_: U16, depth: int, cut_: int, level: int, stride: int, bitmap: Bytes
) -> tuple[int, int]:
    """See `kernels.decode`."""
    require(len(rep) in (0, len(def_)), "repetition and definition levels differ in number")
    require(stride > 0, "stride of a fixed-size list must be positive")
    kept = def_
    if len(rep) or stride > 1:
        own = def_ <= cut_
        if len(rep):
            own &= rep >= depth
        kept = def_[own][::stride]
    require(len(kept) <= 8 * len(bitmap), "bitmap smaller than its layer")
    valid = kept < level
    packed = np.packbits(valid, bitorder="little")
    bitmap[: len(packed)] = packed
    return len(kept), len(kept) - int(np.count_nonzero(valid))


def unravel_lists(
    rep: U16,
    def_: U16,
    depth: int,
    cut_: int,
    inner: int,
    level: int,
    offsets: npt.NDArray[np.signedinteger],
    bitmap: Bytes,
) -> tuple[int, int, int]:
    """See `kernels.decode`."""
    require(len(rep) == len(def_), "repetition and definition levels differ in number")
    room = min(len(offsets) - 1, 8 * len(bitmap))
    require(room >= 0, "no room for offsets")
    lists = (rep >= depth) & (def_ <= cut_)
    child = (rep >= depth - 1) & (def_ <= inner)
    n, children = int(np.count_nonzero(lists)), int(np.count_nonzero(child))
    require(n <= room, "more lists than their parent has")
    before: I64 = np.cumsum(child) - child
    offsets[:n] = before[lists].astype(offsets.dtype)
    offsets[n] = np.int64(children).astype(offsets.dtype)
    own = def_[lists]
    valid = (own < level) | (own == level + 1)
    packed = np.packbits(valid, bitorder="little")
    bitmap[: len(packed)] = packed
    return n, n - int(np.count_nonzero(valid)), children
