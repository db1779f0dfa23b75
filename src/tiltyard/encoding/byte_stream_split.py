"""Byte stream split: the first bytes of all values, then the second ones (compression 3.8)."""

from __future__ import annotations

from tiltyard.encoding.program import VALUE_BSS, P, PageProgram
from tiltyard.format.layouts import ByteStreamSplit

READS = (ByteStreamSplit,)


def plan(encoding: ByteStreamSplit, program: PageProgram) -> None:
    """Fill in the program."""
    program.row[P.VALUE_CODEC] = VALUE_BSS
    program.row[P.VALUE_BITS] = encoding.bits
