"""Flat: values of one width back to back (compression 3.1)."""

from __future__ import annotations

from tiltyard.encoding.program import LEVEL_FLAT, VALUE_FLAT, VALUE_NONE, P, PageProgram
from tiltyard.format.layouts import ConstantValue, Flat

READS = (Flat, ConstantValue)
BLOCKS = (Flat,)


def plan(encoding: Flat | ConstantValue, program: PageProgram) -> None:
    """Fill in the program; a constant without value is where nothing is stored because all is null."""
    if isinstance(encoding, ConstantValue):
        program.row[P.VALUE_CODEC] = VALUE_NONE
        return
    program.row[P.VALUE_CODEC] = VALUE_FLAT
    program.row[P.VALUE_BITS] = encoding.bits


def block(encoding: Flat) -> tuple[int, int, int]:
    """Codec, word bits and packed bits of a block."""
    return LEVEL_FLAT, encoding.bits, encoding.bits
