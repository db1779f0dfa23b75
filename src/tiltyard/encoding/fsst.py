"""FSST: strings compressed with a table of up to 255 symbols of up to 8 bytes (compression 3.6)."""

from __future__ import annotations

from tiltyard.encoding.program import VALUE_FSST, VALUE_VARIABLE, P, PageProgram, plan_values
from tiltyard.errors import UnsupportedFeature
from tiltyard.format.layouts import Fsst

READS = (Fsst,)


def plan(encoding: Fsst, program: PageProgram) -> None:
    """Fill in the program; the table goes to `side`."""
    plan_values(encoding.values, program)
    if program.row[P.VALUE_CODEC] != VALUE_VARIABLE:
        raise UnsupportedFeature(f"symbol tables over {type(encoding.values).__name__} are not supported")
    program.row[P.VALUE_CODEC] = VALUE_FSST
    program.side = encoding.symbol_table
