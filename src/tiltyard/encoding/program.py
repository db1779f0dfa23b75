"""A page as the kernels see it: one row of int64 numbers, and what the reader must do beside them.

The layout modules fill a `PageProgram` from a page's layout; each leaf encoding's `plan` adds its part. The
numbers stand in native/decode_page.h under the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.layouts import Encoding


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


@dataclass(slots=True)
class PageProgram:
    """The row of a page, and the parts that are not numbers.

    `*_schemes`: decompressions of the buffer, outermost first, that must happen before a kernel sees it.
    `side`: bytes that SIDE_POS will point at. `dims`: (items, has validity) of nested fixed-size lists,
    outermost first. `packed`: widths in bits of the fields of a packed row.
    """

    row: list[int] = field(default_factory=lambda: [0] * FIELDS)
    side: bytes = b""
    value_schemes: tuple[str, ...] = ()
    rep_schemes: tuple[str, ...] = ()
    def_schemes: tuple[str, ...] = ()
    dims: tuple[tuple[int, bool], ...] = ()
    packed: tuple[int, ...] = ()
    packed_fields: tuple[object, ...] = ()

    @property
    def staged(self) -> bool:
        """Whether buffers must be decompressed first."""
        return bool(self.value_schemes or self.rep_schemes or self.def_schemes)


def plan_values(encoding: Encoding, program: PageProgram) -> None:
    """Fill in the value part of a program. Raises `UnsupportedFeature` for encodings that hold no values."""
    from tiltyard.encoding import (
        bitpack,
        byte_stream_split,
        fixed_size_list,
        flat,
        fsst,
        general,
        packed_struct,
        rle,
        variable,
    )

    for module in (
        flat,
        bitpack,
        variable,
        fsst,
        rle,
        general,
        fixed_size_list,
        byte_stream_split,
        packed_struct,
    ):
        if isinstance(encoding, module.READS):
            module.plan(encoding, program)
            return
    raise UnsupportedFeature(f"page values encoded as {type(encoding).__name__} are not supported")


def plan_levels(encoding: Encoding | None) -> tuple[int, int, tuple[str, ...]]:
    """Codec, packed bits and decompressions of a level buffer. Levels are 16-bit words."""
    from tiltyard.encoding import bitpack, flat, general, rle

    schemes: list[str] = []
    while isinstance(encoding, general.READS):
        schemes.append(encoding.scheme)
        encoding = encoding.values
    if encoding is None:
        return LEVEL_NONE, 0, ()
    for module in (flat, bitpack, rle):
        if isinstance(encoding, module.BLOCKS):
            codec, word, width = module.block(encoding)
            if word != 16:
                raise CorruptFile(f"levels are 16-bit words, the page says {word} bits")
            return codec, width, tuple(schemes)
    raise UnsupportedFeature(f"levels encoded as {type(encoding).__name__} are not supported")
