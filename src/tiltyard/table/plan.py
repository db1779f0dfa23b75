"""What a scan reads, decided purely: live rows of fragments cut into units, units gathered into tasks.

Positions are live positions (deleted rows do not count), so a plan needs no deletion vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiltyard.format.schema import Field

DEFAULT_BATCH_ROWS = 8192
UNIT_BYTES = 4 * 1024 * 1024  # decoded bytes of a unit of a stream, estimated
PIECE_BYTES = (
    2 * 1024 * 1024
)  # decoded bytes of a piece of a fragment that is read by several tasks, estimated
MAX_UNIT_ROWS = 1 << 20
GUESSED_BYTES = 32  # per value of a type of variable width
GUESSED_ITEMS = 8  # items of a list


@dataclass(frozen=True, slots=True)
class Unit:
    """Live rows `start` to `stop` of the fragment at position `fragment` of the version's list.

    `first` is the position of row `start` in the scan order of the whole table.
    """

    fragment: int
    start: int
    stop: int
    first: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def plan_units(
    live_rows: npt.NDArray[np.int64],
    *,
    unit_rows: int | None,
    offset: int = 0,
    limit: int | None = None,
    chosen: Sequence[int] | None = None,
) -> list[Unit]:
    """Units in scan order that together hold rows `offset` to `offset + limit` of the chosen fragments.

    `live_rows[i]` belongs to fragment i; `chosen` are positions to read, in this order (None: all). No unit
    is empty, spans fragments or, unless `unit_rows` is None, has more than `unit_rows` rows.
    """
    firsts = np.cumsum(live_rows) - live_rows
    units: list[Unit] = []
    left = limit
    skip = offset
    for position in range(len(live_rows)) if chosen is None else chosen:
        rows = int(live_rows[position])
        if skip >= rows:
            skip -= rows
            continue
        start, stop = skip, rows
        skip = 0
        if left is not None:
            stop = min(stop, start + left)
            left -= stop - start
        first = int(firsts[position])
        step = stop - start if unit_rows is None else unit_rows
        while start < stop:
            end = min(stop, start + step)
            units.append(Unit(position, start, end, first + start))
            start = end
        if left == 0:
            break
    return units


def plan_tasks(units: Iterable[Unit], rows_per_task: int) -> list[list[Unit]]:
    """Consecutive units gathered until a task has `rows_per_task` rows, so that tiny fragments share one."""
    tasks: list[list[Unit]] = []
    room = 0
    for unit in units:
        if room <= 0:
            tasks.append([])
            room = rows_per_task
        tasks[-1].append(unit)
        room -= unit.rows
    return tasks


def halves(unit: Unit) -> tuple[Unit, Unit]:
    """The unit cut in the middle; it must have at least two rows."""
    middle = unit.start + unit.rows // 2
    return (
        Unit(unit.fragment, unit.start, middle, unit.first),
        Unit(unit.fragment, middle, unit.stop, unit.first + middle - unit.start),
    )


def cut(units: Sequence[Unit], pieces: int) -> list[Unit]:
    """The same rows in about so many units of like size; `units` must hold rows."""
    rows = -(-sum(unit.rows for unit in units) // pieces)
    return [
        Unit(unit.fragment, start, min(start + rows, unit.stop), unit.first + start - unit.start)
        for unit in units
        for start in range(unit.start, unit.stop, rows)
    ]


def estimated_row_bytes(fields: Iterable[Field]) -> int:
    """Decoded bytes of a row, guessed from the types; at least 1."""
    return max(1, sum(_bytes(field) for field in fields))


def _bytes(field: Field) -> int:
    if field.children:
        inner = sum(_bytes(child) for child in field.children)
        return inner if field.logical_type == "struct" else inner * GUESSED_ITEMS
    try:
        return max(1, int(field.arrow_type.bit_width) // 8)
    except ValueError:
        return GUESSED_BYTES


def stream_unit_rows(row_bytes: int, batch_rows: int) -> int:
    """Rows of a unit of a stream: whole batches, near `UNIT_BYTES`, at least one batch."""
    rows = min(MAX_UNIT_ROWS, UNIT_BYTES // row_bytes)
    return max(1, rows // batch_rows) * batch_rows
