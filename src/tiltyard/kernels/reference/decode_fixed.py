"""Values of constant width, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.page_program import (
    FULL_ZIP,
    LEVEL_FLAT,
    LEVEL_INLINE,
    LEVEL_OUT_OF_LINE,
    LEVEL_RLE,
    MINI_BLOCK,
    VALUE_BSS,
    VALUE_FLAT,
    VALUE_INLINE,
    VALUE_NONE,
    VALUE_ONES,
    VALUE_RLE,
    VALUE_SCALAR,
    P,
)
from tiltyard.kernels.reference.decode_page import (
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

MAX_VALUE_BITS = 1 << 32
JOB_FIELDS = 4
FILTER_ANY, FILTER_MARK = np.uint8(1), np.uint8(0x80)


def fixed(
    src: Bytes,
    aux: Bytes,
    staged: I64,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    start: I64,
    count: I64,
    bits: int,
    out: Bytes,
) -> None:
    """See `kernels.decode`."""
    column = Column(src, aux, staged, side, pages, first, chunks)
    require(0 < bits <= MAX_VALUE_BITS, "value width out of bounds")
    room = len(out) // (bits // 8) if bits % 8 == 0 else len(out) * 8 // bits
    loose: list[Bytes] = []
    for chunk, low, n, at in column.pieces(start, count):
        require(n <= room - at, "output smaller than the items that were asked for")
        p = column.page(chunk.page)
        codec, have = int(p[P.VALUE_CODEC]), int(p[P.VALUE_BITS])
        if codec in (VALUE_NONE, VALUE_ONES):
            have = bits
        if have != bits:
            require(
                p[P.DICT_ITEMS] > 0 and have % 8 == 0 and 0 < have < bits <= 64 and bits % 8 == 0,
                "pages of different value widths",
            )
        piece = _piece(column, chunk, have, low, n)
        if have != bits:
            piece = piece.view(f"<u{have // 8}").astype(f"<u{bits // 8}").view(np.uint8)
        if p[P.DICT_ITEMS] > 0 and codec != VALUE_NONE:
            require(bits in (8, 16, 32, 64), "dictionary index of a width that is no word")
            index = piece.view(f"<u{bits // 8}")
            require(not n or int(index.max()) < p[P.DICT_ITEMS], "dictionary index outside of its dictionary")
            piece = (index + index.dtype.type(int(p[P.DICT_BASE]))).view(np.uint8)
        if bits % 8:
            loose.append(piece)
        else:
            out[at * (bits // 8) : (at + n) * (bits // 8)] = piece
    if loose:
        packed = np.packbits(np.concatenate(loose), bitorder="little")
        out[: len(packed)] = packed


class ColumnTables:
    """See `kernels.decode`."""

    def __init__(self, src: Bytes, side: Bytes, pages: I64, first: I64, chunks: I64) -> None:
        self.arrays = (src, np.empty(0, np.uint8), np.empty(0, np.int64), side, pages, first, chunks)
        Column(*self.arrays)


def fixed_columns(tables: tuple[ColumnTables, ...], start: I64, count: I64, jobs: I64, out: Bytes) -> None:
    """See `kernels.decode`."""
    require(len(jobs) == JOB_FIELDS * len(tables), "jobs and columns differ in number")
    require(len(count) in (0, len(start)), "segments: starts and counts differ in number")
    for table, job in zip(tables, jobs.reshape(-1, JOB_FIELDS).tolist(), strict=True):
        low, high, bits, at = job
        require(0 <= at <= len(out), "job outside of the output")
        require(0 <= low <= high <= len(start), "job outside of the segments")
        if len(count) and low == high:
            continue
        fixed(*table.arrays, start[low:high], count[low:high], bits, out[at:])


def within(table: ColumnTables, start: I64, count: I64, bits: int, low: int, span: int, out: Bytes) -> None:
    """See `kernels.decode`."""
    require(bits in (8, 16, 32, 64), "test of values of a width that is no word")
    require(not low >> bits and not span >> bits, "bounds wider than the values")
    column = Column(*table.arrays)
    dtype = np.dtype(f"<u{bits // 8}")
    for chunk, first, n, at in column.pieces(start, count):
        require(n <= len(out) - at, "output smaller than the items that were asked for")
        values = _testable(column, chunk, bits, first, n).view(dtype)
        out[at : at + n] = values - dtype.type(low) <= dtype.type(span)


def among(
    table: ColumnTables,
    start: I64,
    count: I64,
    bits: int,
    is_signed: bool,
    low: int,
    span: int,
    multiplier: int,
    shift: int,
    filter: Bytes,
    positions: I64,
    words: npt.NDArray[np.uint64],
) -> int:
    """See `kernels.decode`."""
    require(bits in (8, 16, 32, 64), "test of values of a width that is no word")
    possible = 7 <= shift < 64 and (multiplier != 1 or span < (1 << 64) - 1)
    require(possible, "filter of an impossible size")
    last = span + 1 if multiplier == 1 else ((1 << 64) - 1) >> shift
    require(last < len(filter), "filter of fewer bytes than places")
    column = Column(*table.arrays)
    dtype = np.dtype(f"<{'i' if is_signed else 'u'}{bits // 8}")
    found = 0
    for chunk, first, n, at in column.pieces(start, count):
        require(
            n <= min(len(positions), len(words)) - at, "output smaller than the items that were asked for"
        )
        values = _testable(column, chunk, bits, first, n).view(dtype)
        wide = (values.astype(np.int64) if is_signed else values).astype(np.uint64)
        away = wide - np.uint64(low)
        if multiplier == 1:
            hit = filter[np.minimum(away, np.uint64(span + 1))] == FILTER_ANY
        else:
            product = wide * np.uint64(multiplier)
            known = filter[product >> np.uint64(shift)]
            mark = (product >> np.uint64(shift - 7) & np.uint64(0x7F)).astype(np.uint8) | FILTER_MARK
            hit = (known == FILTER_ANY) | (known == mark)
        passed = np.flatnonzero(hit & (away <= np.uint64(span)))
        positions[found : found + len(passed)] = passed + at
        words[found : found + len(passed)] = wide[passed]
        found += len(passed)
    return found


def _testable(column: Column, chunk: Chunk, bits: int, low: int, n: int) -> Bytes:
    p = column.page(chunk.page)
    require(p[P.DICT_ITEMS] <= 0, "test of values in a dictionary")
    same = p[P.VALUE_BITS] == bits or int(p[P.VALUE_CODEC]) in (VALUE_NONE, VALUE_ONES)
    require(same, "pages of different value widths")
    return _piece(column, chunk, bits, low, n)


def _piece(column: Column, chunk: Chunk, bits: int, low: int, n: int) -> Bytes:
    """`n` values as bytes, or as one byte per bit where the width is no whole number of bytes."""
    p = column.page(chunk.page)
    codec, word = int(p[P.VALUE_CODEC]), bits // 8
    whole = bits % 8 == 0
    if codec in (VALUE_NONE, VALUE_ONES):
        ones = codec == VALUE_ONES
        return np.full(n * (word if whole else bits), (0xFF if whole else 1) if ones else 0, np.uint8)
    if codec == VALUE_SCALAR:
        value = cut(column.side, int(p[P.SIDE_POS]), int(p[P.SIDE_LEN]), "scalar outside of its table")
        if not whole:
            require(bits == 1 and len(value) >= 1, "scalar of a width that is neither bytes nor one bit")
            return np.full(n, value[0] & 1, np.uint8)
        require(len(value) == word, "scalar of the wrong width")
        return np.tile(value, n)
    if p[P.KIND] == FULL_ZIP:
        return _zip_piece(column, p, bits, low, n)
    buffer = int(p[P.BUFFER])
    require(0 <= buffer < p[P.BUFFERS], "value buffer that the page does not have")
    data = chunk.values[buffer]
    if codec == VALUE_FLAT:
        require(low + n <= len(data) * 8 // bits, "flat chunk cut short")
        if whole:
            return data[low * word : (low + n) * word]
        return np.unpackbits(data, bitorder="little")[low * bits : (low + n) * bits]
    require(whole, "value encoding of a width that is no whole number of bytes")
    if codec == VALUE_INLINE:
        return inline_block(bits, data, chunk.items)[low * word : (low + n) * word]
    if codec == VALUE_RLE:
        require(p[P.BUFFERS] >= 2, "run length page without run lengths")
        return expand_runs(data, chunk.values[1], bits, low + n)[low * word :]
    require(codec == VALUE_BSS and bits in (16, 32, 64), "value encoding that has no fixed width")
    require(chunk.items <= len(data) // word, "byte stream split chunk cut short")
    streams = data[: chunk.items * word].reshape(word, chunk.items)
    return np.ascontiguousarray(streams[:, low : low + n].T).reshape(-1)


def _zip_piece(column: Column, p: I64, bits: int, low: int, n: int) -> Bytes:
    control, stride, within = int(p[P.CONTROL_BYTES]), int(p[P.STRIDE]), int(p[P.WITHIN])
    size = (bits + 7) // 8
    require(0 <= control <= 4, "control word wider than 4 bytes")
    require(stride > 0 and 0 <= within <= stride and size <= stride - within, "value wider than its stride")
    data = cut(column.src, int(p[P.DATA_POS]), int(p[P.DATA_SIZE]), "page buffer outside of the file")
    stride += control
    require(low + n <= len(data) // stride, "full-zip page cut short")
    table = data[low * stride : (low + n) * stride].reshape(n, stride)
    each = np.ascontiguousarray(table[:, control + within : control + within + size])
    if bits % 8 == 0:
        return each.reshape(-1)
    return np.unpackbits(each, axis=1, count=bits, bitorder="little").reshape(-1)


def block_fixed(data: Bytes, codec: int, bits: int, width: int, n: int, out: Bytes) -> None:
    """See `kernels.decode`."""
    require(n >= 0 and 0 < bits <= MAX_VALUE_BITS, "block width out of bounds")
    word = bits // 8
    require(word > 0 and n <= len(out) // word, "output smaller than the block")
    if n == 0:
        return
    if codec == LEVEL_FLAT:
        require(bits % 8 == 0 and n <= len(data) // word, "flat block cut short")
        found = data[: n * word]
    elif codec == LEVEL_INLINE:
        found = inline_block(bits, data, n)
    elif codec == LEVEL_RLE:
        found = expand_runs(*split_runs(data), bits, n)
    else:
        require(codec == LEVEL_OUT_OF_LINE, "unknown block encoding")
        found = packed_blocks(data, bits, width, n)
    out[: n * word] = found


def gather_fixed(src: Bytes, position: I64, width: int, out: Bytes) -> None:
    """See `kernels.decode`."""
    n = len(position)
    require(width > 0 and n <= len(out) // width, "output smaller than the items that were asked for")
    if n:
        inside = int(position.min()) >= 0 and int(position.max()) <= len(src) - width
        require(inside, "value outside of the file")
        out[: n * width] = src[(position[:, None] + np.arange(width)[None, :]).reshape(-1)]


def chunk_buffers(
    src: Bytes,
    side: Bytes,
    pages: I64,
    first: I64,
    chunks: I64,
    wanted: I64,
    buffers: int,
    out: I64,
) -> None:
    """See `kernels.decode`."""
    none: Bytes = np.empty(0, np.uint8)
    column = Column(src, none, np.empty(0, np.int64), side, pages, first, chunks)
    fields = 1 + 2 * (2 + buffers)
    require(len(wanted) * fields <= len(out), "output smaller than the chunks that were asked for")
    base = src.__array_interface__["data"][0]
    for i, number in enumerate(wanted.tolist()):
        chunk = column.open(number)
        row = out[i * fields : (i + 1) * fields]
        row[0] = chunk.levels
        p = column.page(chunk.page)
        mini = p[P.KIND] == MINI_BLOCK
        present = [bool(p[P.REP_CODEC]), bool(p[P.DEF_CODEC])]
        present += [mini and b < p[P.BUFFERS] for b in range(buffers)]
        spans = [chunk.rep, chunk.def_, *chunk.values[:buffers]]
        spans += [none] * (2 + buffers - len(spans))
        for slot, (there, span) in enumerate(zip(present, spans, strict=True)):
            row[1 + 2 * slot] = span.__array_interface__["data"][0] - base if there else -1
            row[2 + 2 * slot] = len(span) if there else 0
