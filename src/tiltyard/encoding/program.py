"""A page as the kernels see it: one row of int64 numbers, and what the reader must do beside them.

The layout modules fill a `PageProgram` from a page's layout; each leaf encoding's `plan` adds its part. The
numbers stand in `kernels.page_program`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.layouts import Encoding
from tiltyard.kernels.page_program import (
    CHUNK_STAGED_FIELDS,
    CONSTANT,
    FIELDS,
    FULL_ZIP,
    LEVEL_FLAT,
    LEVEL_INLINE,
    LEVEL_NONE,
    LEVEL_OUT_OF_LINE,
    LEVEL_RLE,
    MINI_BLOCK,
    VALUE_BSS,
    VALUE_FLAT,
    VALUE_FSST,
    VALUE_INLINE,
    VALUE_NONE,
    VALUE_ONES,
    VALUE_RLE,
    VALUE_SCALAR,
    VALUE_VARIABLE,
    VARYING,
    P,
)

__all__ = [
    "CHUNK_STAGED_FIELDS",
    "CONSTANT",
    "FIELDS",
    "FULL_ZIP",
    "LEVEL_FLAT",
    "LEVEL_INLINE",
    "LEVEL_NONE",
    "LEVEL_OUT_OF_LINE",
    "LEVEL_RLE",
    "MINI_BLOCK",
    "VALUE_BSS",
    "VALUE_FLAT",
    "VALUE_FSST",
    "VALUE_INLINE",
    "VALUE_NONE",
    "VALUE_ONES",
    "VALUE_RLE",
    "VALUE_SCALAR",
    "VALUE_VARIABLE",
    "VARYING",
    "P",
    "PageProgram",
    "plan_levels",
    "plan_values",
]


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
