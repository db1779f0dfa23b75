"""Mini-block pages: many chunks of a few thousand values (file format 7.1 and 7.2), read side.

The chunk words become arrays of positions once per column (`kernels.index_chunks`); chunk headers are read by
the kernels, every time.
"""

from __future__ import annotations

from tiltyard.encoding.program import MINI_BLOCK, P, PageProgram, plan_levels, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import MiniBlock

#: Value buffers that a chunk may have (nested fixed-size lists have one a level).
MAX_BUFFERS = 16


def plan(layout: MiniBlock) -> PageProgram:
    """The program of a page, but for what depends on its place."""
    program = PageProgram()
    row = program.row
    row[P.KIND] = MINI_BLOCK
    row[P.LARGE] = layout.large_chunks
    row[P.REP_CODEC], row[P.REP_BITS], program.rep_schemes = plan_levels(layout.rep)
    row[P.DEF_CODEC], row[P.DEF_BITS], program.def_schemes = plan_levels(layout.def_)
    if layout.num_buffers > MAX_BUFFERS:
        raise CorruptFile(f"chunks of {layout.num_buffers} value buffers; at most {MAX_BUFFERS} are known")
    row[P.BUFFERS] = layout.num_buffers
    plan_values(layout.values, program)
    return program
