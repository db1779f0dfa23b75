"""FastLanes bit packing: each block with its own width, or one width for all (compression 3.2 to 3.4)."""

from __future__ import annotations

from tiltyard.encoding.program import LEVEL_INLINE, LEVEL_OUT_OF_LINE, VALUE_INLINE, P, PageProgram
from tiltyard.format.layouts import InlineBitpacking, OutOfLineBitpacking

READS = (InlineBitpacking,)
BLOCKS = (InlineBitpacking, OutOfLineBitpacking)


def plan(encoding: InlineBitpacking, program: PageProgram) -> None:
    """Fill in the program."""
    program.row[P.VALUE_CODEC] = VALUE_INLINE
    program.row[P.VALUE_BITS] = encoding.bits


def block(encoding: InlineBitpacking | OutOfLineBitpacking) -> tuple[int, int, int]:
    """Codec, word bits and packed bits of a block."""
    if isinstance(encoding, InlineBitpacking):
        return LEVEL_INLINE, encoding.bits, 0
    return LEVEL_OUT_OF_LINE, encoding.bits, encoding.packed_bits
