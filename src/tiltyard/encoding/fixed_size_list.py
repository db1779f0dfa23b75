"""Fixed-size lists of plain values: the items flattened, item validity as bitmaps (compression 3.13)."""

from __future__ import annotations

from tiltyard.encoding.program import P, PageProgram, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import FixedSizeList

READS = (FixedSizeList,)

#: Items of one vector, all levels multiplied.
MAX_ITEMS = 1 << 28


def plan(encoding: FixedSizeList, program: PageProgram) -> None:
    """Fill in the program: a value is the whole vector, after the bitmaps of the levels that have one."""
    if not 0 < encoding.items <= MAX_ITEMS:
        raise CorruptFile(f"a fixed-size list of {encoding.items} items")
    program.dims = (*program.dims, (encoding.items, encoding.has_validity))
    plan_values(encoding.values, program)
    program.row[P.VALUE_BITS] *= encoding.items
    if program.row[P.VALUE_BITS] > MAX_ITEMS * 64:
        raise CorruptFile(f"a fixed-size list of {program.row[P.VALUE_BITS]} bits")
    program.row[P.BUFFER] += encoding.has_validity
