"""How a page is described to the kernels of the reader: one row of numbers, in the order of `P`.

The same names stand in native/decode_page.h.
"""

from __future__ import annotations

from enum import IntEnum


class P(IntEnum):
    """Fields of a page's row; positions are bytes, absolute in the file unless said otherwise."""

    KIND = 0  # MINI_BLOCK, FULL_ZIP, CONSTANT
    LARGE = 1  # chunk sizes are 32-bit
    REP_CODEC = 2
    REP_BITS = 3
    DEF_CODEC = 4
    DEF_BITS = 5
    BUFFERS = 6  # value buffers of a chunk
    VALUE_CODEC = 7
    VALUE_BITS = 8  # bits of a value
    OFFSET_BITS = 9  # 32 or 64 where values vary in width, else 0
    DICT_BASE = 10  # added to each index
    DICT_ITEMS = 11  # 0: no dictionary
    CONTROL_BYTES = 12
    CONTROL_REP_BITS = 13
    CONTROL_DEF_BITS = 14
    VISIBLE = 15  # greatest definition level (page's numbering) that owns a value
    SIDE_POS = 16  # in `side`: symbol table or scalar
    SIDE_LEN = 17
    LUT_POS = 18  # in `side`: page's definition levels to the column's, uint16 each
    LUT_LEN = 19
    REP_POS = 20  # level buffers of a constant page
    REP_SIZE = 21
    DEF_POS = 22
    DEF_SIZE = 23
    LEVELS = 24  # entries of a constant page
    INDEX_POS = 25  # repetition index of a full-zip page
    INDEX_WIDTH = 26
    DATA_POS = 27  # buffer 0 of a full-zip page
    DATA_SIZE = 28
    ROWS = 29
    MAX_REP = 30
    DEFAULT_DEF = 31  # level of every entry where none are stored
    BUFFER = 32  # which value buffer
    STRIDE = 33  # bytes of a full-zip value
    WITHIN = 34  # where in it


FIELDS = len(P)
#: Per chunk: position and bytes in `aux` of repetition levels, definition levels, first value buffer.
CHUNK_STAGED_FIELDS = 6

MINI_BLOCK, FULL_ZIP, CONSTANT = range(3)
LEVEL_NONE, LEVEL_FLAT, LEVEL_INLINE, LEVEL_OUT_OF_LINE, LEVEL_RLE = range(5)
(
    VALUE_NONE,
    VALUE_FLAT,
    VALUE_INLINE,
    VALUE_RLE,
    VALUE_BSS,
    VALUE_VARIABLE,
    VALUE_FSST,
    VALUE_SCALAR,
    VALUE_ONES,
) = range(9)

#: What the value codecs of a program may be for values of varying width.
VARYING = frozenset({VALUE_VARIABLE, VALUE_FSST})
