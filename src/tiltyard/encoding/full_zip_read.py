"""Full-zip pages: each value with its control word (file format 7.3), read side."""

from __future__ import annotations

from tiltyard.encoding.program import FULL_ZIP, VARYING, P, PageProgram, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import FullZip

INDEX_WIDTHS = (1, 2, 4, 8)
MAX_LEVEL_BITS = 16


def control_bytes(bits: int) -> int:
    """Bytes of a control word of so many level bits."""
    return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4


def plan(layout: FullZip) -> PageProgram:
    """The program of a page, but for what depends on its place."""
    program = PageProgram()
    row = program.row
    row[P.KIND] = FULL_ZIP
    if max(layout.bits_rep, layout.bits_def) > MAX_LEVEL_BITS:
        raise CorruptFile(f"control words of {layout.bits_rep} + {layout.bits_def} bits")
    row[P.CONTROL_REP_BITS] = layout.bits_rep
    row[P.CONTROL_DEF_BITS] = layout.bits_def
    row[P.CONTROL_BYTES] = control_bytes(layout.bits_rep + layout.bits_def)
    plan_values(layout.values, program)
    if layout.variable != (row[P.VALUE_CODEC] in VARYING):
        raise CorruptFile("a full-zip page and its values disagree on whether they vary in width")
    if layout.variable:
        if layout.bits_per_value not in (32, 64):
            raise CorruptFile(
                f"lengths of {layout.bits_per_value} bits in a full-zip page; expected 32 or 64"
            )
        row[P.OFFSET_BITS] = layout.bits_per_value
        return program
    if layout.bits_per_value % 8 or layout.bits_per_value == 0:
        raise CorruptFile(f"values of {layout.bits_per_value} bits in a full-zip page; expected whole bytes")
    row[P.STRIDE] = layout.bits_per_value // 8
    row[P.BUFFER] = 0
    _place_vectors(program)
    return program


def _place_vectors(program: PageProgram) -> None:
    """Bitmaps of nested vectors come before the items."""
    row = program.row
    row[P.WITHIN] = sum(bytes_ for _, bytes_ in bitmap_places(program))
    needed = row[P.WITHIN] + (row[P.VALUE_BITS] + 7) // 8
    if needed != row[P.STRIDE]:
        raise CorruptFile(f"full-zip values of {row[P.STRIDE]} bytes, their encoding needs {needed}")


def bitmap_places(program: PageProgram) -> list[tuple[int, int]]:
    """Bits and bytes of the item bitmap of each nested level that has one, outermost first."""
    places = []
    items = 1
    for dimension, has_validity in program.dims:
        items *= dimension
        if has_validity:
            places.append((items, (items + 7) // 8))
    return places


def place(row: list[int], layout: FullZip, buffers: list[tuple[int, int]], rows: int) -> None:
    """Fill in where a page's buffers lie. Raises `CorruptFile`."""
    if not buffers:
        raise CorruptFile("a full-zip page without buffers")
    row[P.DATA_POS], row[P.DATA_SIZE] = buffers[0]
    row[P.ROWS] = rows
    if not layout.bits_rep and not layout.variable:
        return
    if len(buffers) < 2:
        raise CorruptFile("a full-zip page of lists or strings without its repetition index")
    at, size = buffers[1]
    width = size // (rows + 1)
    if width not in INDEX_WIDTHS or width * (rows + 1) != size:
        raise CorruptFile(f"a repetition index of {size} bytes for {rows} rows")
    row[P.INDEX_POS], row[P.INDEX_WIDTH] = at, width
