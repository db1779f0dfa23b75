"""Run lengths: values of runs and 8-bit lengths (compression 3.7)."""

from __future__ import annotations

from tiltyard.encoding.program import LEVEL_RLE, VALUE_RLE, P, PageProgram
from tiltyard.errors import UnsupportedFeature
from tiltyard.format.layouts import Rle

READS = (Rle,)
BLOCKS = (Rle,)

#: Files up to 2.2 store run lengths in bytes.
RUN_LENGTH_BITS = 8


def plan(encoding: Rle, program: PageProgram) -> None:
    """Fill in the program."""
    _check(encoding)
    program.row[P.VALUE_CODEC] = VALUE_RLE
    program.row[P.VALUE_BITS] = encoding.value_bits


def block(encoding: Rle) -> tuple[int, int, int]:
    """Codec, word bits and packed bits of a block."""
    _check(encoding)
    return LEVEL_RLE, encoding.value_bits, 0


def _check(encoding: Rle) -> None:
    if encoding.length_bits != RUN_LENGTH_BITS:
        raise UnsupportedFeature(f"run lengths of {encoding.length_bits} bits are not supported (expected 8)")
