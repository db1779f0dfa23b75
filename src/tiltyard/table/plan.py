"""What a scan reads, decided purely: live rows of fragments cut into units, units gathered into tasks.

Positions are live positions (deleted rows do not count), so a plan needs no deletion vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.format.schema import Field

DEFAULT_BATCH_ROWS = 8192
UNIT_BYTES = 4 * 1024 * 1024  # decoded bytes of a unit that is tested or counted, estimated
STREAM_BYTES = 3 * 1024 * 1024  # decoded bytes of a unit of a stream: a few of them are held at a time
PIECE_BYTES = (
    2 * 1024 * 1024
)  # decoded bytes of a piece of a fragment that is read by several tasks, estimated
FITS = 1.125  # units of a stream may be this much larger than `STREAM_BYTES` before they are made smaller
PROBE_SHARE = 8  # the first read of a stream is this part of a unit
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


@dataclass(frozen=True, slots=True)
class Picked:
    """Live rows of the fragment at position `fragment` of the version's list that an index found.

    `offsets`: their physical offsets, int64, ascending, not empty. `numbers`: their positions in the scan
    order of the whole table (int64), where somebody asks for those. `is_certain`: whether all of them pass
    the filter, so that it need not be run.
    """

    fragment: int
    offsets: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    is_certain: bool

    @property
    def rows(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> Picked:
        """Some of the rows, by position among them."""
        return Picked(self.fragment, self.offsets[start:stop], self.numbers[start:stop], self.is_certain)


Piece = Unit | Picked
"""What one read takes: consecutive rows, or rows that an index found."""


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


def sliced(pieces: Iterable[Piece], offset: int, limit: int | None) -> list[Piece]:
    """Rows `offset` to `offset + limit` of the pieces, all rows of which are in the result."""
    kept: list[Piece] = []
    left = limit
    for piece in pieces:
        if left == 0:
            break
        start = min(offset, piece.rows)
        offset -= start
        stop = piece.rows if left is None else min(piece.rows, start + left)
        if stop > start:
            kept.append(piece if stop - start == piece.rows else part(piece, start, stop))
        left = None if left is None else left - (stop - start)
    return kept


def part(piece: Piece, start: int, stop: int) -> Piece:
    """Some rows of a piece, by position among its rows."""
    if isinstance(piece, Picked):
        return piece.part(start, stop)
    return Unit(piece.fragment, piece.start + start, piece.start + stop, piece.first + start)


def plan_tasks(units: Iterable[Piece], rows_per_task: int) -> list[list[Piece]]:
    """Consecutive units gathered until a task has `rows_per_task` rows, so that tiny fragments share one."""
    tasks: list[list[Piece]] = []
    room = 0
    for unit in units:
        if room <= 0:
            tasks.append([])
            room = rows_per_task
        tasks[-1].append(unit)
        room -= unit.rows
    return tasks


def fitting_rows(rows: int, nbytes: int, batch_rows: int) -> int:
    """How many rows come to about `STREAM_BYTES` where `rows` came to so many bytes: whole batches, at least
    one.
    """
    return max(1, rows * STREAM_BYTES // max(nbytes, 1) // batch_rows) * batch_rows


def cut_tasks(tasks: Iterable[list[Piece]], rows: int) -> list[list[Piece]]:
    """The same rows in the same order in tasks of about so many rows at most."""
    pieces = [
        part(piece, start, min(start + rows, piece.rows))
        for task in tasks
        for piece in task
        for start in range(0, piece.rows, rows)
    ]
    return plan_tasks(pieces, rows)


def task_rows(task: Iterable[Piece]) -> int:
    """Rows of a task."""
    return sum(piece.rows for piece in task)


def probe(task: list[Piece], batch_rows: int) -> tuple[list[Piece], list[Piece]]:
    """A few batches of a task, to be read first, and the rest of it; a task of few batches is left whole."""
    rows = task[0].rows // PROBE_SHARE // batch_rows * batch_rows
    if not rows:
        return task, []
    first = task[0]
    return [part(first, 0, rows)], [part(first, rows, first.rows), *task[1:]]


def halves(piece: Piece) -> tuple[Piece, Piece]:
    """The piece cut in the middle; it must have at least two rows."""
    middle = piece.rows // 2
    return part(piece, 0, middle), part(piece, middle, piece.rows)


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
    kind, values = field.arrow_type, 1
    while pa.types.is_fixed_size_list(kind):
        kind, values = kind.value_type, values * kind.list_size
    try:
        return max(1, values * int(kind.bit_width) // 8)
    except ValueError:
        return values * GUESSED_BYTES


def stream_unit_rows(row_bytes: int, batch_rows: int, unit_bytes: int | None = None) -> int:
    """Rows of a unit: whole batches, near `unit_bytes` (`UNIT_BYTES`), at least one batch."""
    rows = min(MAX_UNIT_ROWS, (UNIT_BYTES if unit_bytes is None else unit_bytes) // row_bytes)
    return max(1, rows // batch_rows) * batch_rows
