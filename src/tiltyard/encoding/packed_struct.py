"""Packed structs: rows of fields side by side (compression 3.12)."""

from __future__ import annotations

from tiltyard.encoding.program import VALUE_VARIABLE, P, PageProgram, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import PackedStruct, VariablePackedStruct

READS = (PackedStruct, VariablePackedStruct)


def plan(encoding: PackedStruct | VariablePackedStruct, program: PageProgram) -> None:
    """Fill in the program: a row is one value, taken apart after it is read."""
    if isinstance(encoding, VariablePackedStruct):
        program.row[P.VALUE_CODEC] = VALUE_VARIABLE
        program.packed_fields = encoding.fields
        return
    plan_values(encoding.values, program)
    if sum(encoding.bits) != program.row[P.VALUE_BITS] or any(bits % 8 for bits in encoding.bits):
        raise CorruptFile(
            f"a packed struct of fields of {encoding.bits} bits stored in {program.row[P.VALUE_BITS]}"
        )
    program.packed = encoding.bits
