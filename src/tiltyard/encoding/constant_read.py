"""Constant pages: all null, all empty, or one value for every item (file format 7.4), read side."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding import general
from tiltyard.encoding.program import (
    CONSTANT,
    LEVEL_FLAT,
    LEVEL_NONE,
    LEVEL_OUT_OF_LINE,
    VALUE_NONE,
    VALUE_SCALAR,
    P,
    PageProgram,
    plan_levels,
)
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import NULLABLE_ITEM, ConstantPage
from tiltyard.kernels import decode as kernels

Bytes = npt.NDArray[np.uint8]
_MAX_LEVELS = 1 << 40


def plan(layout: ConstantPage) -> PageProgram:
    """The program of a page, but for what depends on its place and buffers."""
    program = PageProgram()
    row = program.row
    row[P.KIND] = CONSTANT
    row[P.REP_CODEC], row[P.REP_BITS], program.rep_schemes = plan_levels(layout.rep)
    row[P.DEF_CODEC], row[P.DEF_BITS], program.def_schemes = plan_levels(layout.def_)
    return program


def place(
    row: list[int],
    layout: ConstantPage,
    source: Bytes,
    buffers: list[tuple[int, int]],
    rows: int,
    *,
    varying: bool,
) -> bytes:
    """Fill in what depends on the page and return the scalar's bytes (empty where all is null)."""
    scalar = b""
    levels = buffers
    if layout.inline_value is not None:
        scalar = layout.inline_value
        row[P.VALUE_CODEC] = VALUE_SCALAR
    elif len(buffers) in (1, 3):
        at, size = buffers[0]
        scalar = _value(source[at : at + size].tobytes(), varying=varying)
        row[P.VALUE_CODEC] = VALUE_SCALAR
        levels = buffers[1:]
    else:
        row[P.VALUE_CODEC] = VALUE_NONE
    row[P.ROWS] = rows
    if not levels:
        row[P.REP_CODEC] = row[P.DEF_CODEC] = LEVEL_NONE
        all_null = row[P.VALUE_CODEC] == VALUE_NONE and layout.layers == (NULLABLE_ITEM,)
        row[P.DEFAULT_DEF] = 1 if all_null else 0
        row[P.LEVELS] = rows
        return scalar
    if len(levels) != 2:
        raise CorruptFile(f"a constant page has {len(buffers)} buffers; expected 0 to 3")
    (row[P.REP_POS], row[P.REP_SIZE]), (row[P.DEF_POS], row[P.DEF_SIZE]) = levels
    rep = _levels(
        row, P.REP_CODEC, P.REP_BITS, row[P.REP_SIZE], layout.num_rep_values, raw=layout.rep is None
    )
    def_ = _levels(
        row, P.DEF_CODEC, P.DEF_BITS, row[P.DEF_SIZE], layout.num_def_values, raw=layout.def_ is None
    )
    if rep is not None and def_ is not None and rep != def_:
        raise CorruptFile(f"a constant page of {rep} repetition and {def_} definition levels")
    count = rep if rep is not None else def_
    row[P.LEVELS] = rows if count is None else count
    return scalar


def _levels(row: list[int], codec: P, bits: P, size: int, stated: int, *, raw: bool) -> int | None:
    if codec is P.DEF_CODEC and row[codec] == LEVEL_OUT_OF_LINE and row[bits] == 0:
        row[codec] = LEVEL_NONE  # all are zero, which is the default: nothing to read
        return None
    if size == 0:
        row[codec] = LEVEL_NONE
        return None
    if raw:
        row[codec] = LEVEL_FLAT
        return size // 2
    if stated > _MAX_LEVELS:
        raise CorruptFile(f"a constant page of {stated} levels")
    return stated


def _value(data: bytes, *, varying: bool) -> bytes:
    """The scalar in a value buffer: the last of its Arrow buffers."""
    count = int.from_bytes(data[:4], "little")
    head = 4 + 4 * count
    if len(data) < 4 or count != (2 if varying else 1) or len(data) < head:
        raise CorruptFile(f"a scalar of {count} buffers in {len(data)} bytes")
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "little") for i in range(count)]
    if head + sum(sizes) != len(data):
        raise CorruptFile(f"a scalar of {sum(sizes)} bytes in a buffer of {len(data) - head}")
    return data[head + sum(sizes[:-1]) :]


def visible_items(row: list[int], program: PageProgram, source: Bytes) -> int:
    """Items of a page of a column with lists."""
    if row[P.DEF_CODEC] == LEVEL_NONE:
        return row[P.LEVELS]
    at, size, count = row[P.DEF_POS], row[P.DEF_SIZE], row[P.LEVELS]
    data = source[at : at + size]
    if program.def_schemes:
        data = np.frombuffer(general.decompress(program.def_schemes, data), np.uint8)
    if count > 255 * max(len(data), 8):
        raise CorruptFile(f"a constant page of {count} levels in {len(data)} bytes")
    levels = np.empty(count, np.uint16)
    kernels.block_levels(data, row[P.DEF_CODEC], row[P.DEF_BITS], levels)
    return int(np.count_nonzero(levels <= row[P.VISIBLE]))
