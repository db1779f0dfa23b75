"""Scan plans: pure arithmetic over live rows, held against a plain list of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.format.schema import Schema
from tiltyard.table.plan import (
    UNIT_BYTES,
    Picked,
    Piece,
    Unit,
    cut,
    estimated_row_bytes,
    halves,
    part,
    plan_tasks,
    plan_units,
    sliced,
    stream_unit_rows,
)

LIVE = st.lists(st.integers(0, 30), max_size=12)


@settings(max_examples=50, deadline=None)
@given(
    live=LIVE,
    unit_rows=st.one_of(st.none(), st.integers(1, 9)),
    offset=st.integers(0, 60),
    limit=st.one_of(st.none(), st.integers(0, 60)),
    data=st.data(),
)
def test_units_hold_exactly_the_rows_asked_for_in_order(live, unit_rows, offset, limit, data) -> None:
    chosen = data.draw(
        st.one_of(st.none(), st.lists(st.integers(0, len(live) - 1), unique=True) if live else st.none())
    )
    order = range(len(live)) if chosen is None else chosen
    firsts = np.cumsum([0, *live])
    rows = [(f, i, int(firsts[f]) + i) for f in order for i in range(live[f])]
    wanted = rows[offset:] if limit is None else rows[offset : offset + limit]
    units = plan_units(
        np.array(live, np.int64), unit_rows=unit_rows, offset=offset, limit=limit, chosen=chosen
    )
    found = [(u.fragment, i, u.first + i - u.start) for u in units for i in range(u.start, u.stop)]
    assert found == wanted
    assert all(u.rows > 0 and (unit_rows is None or u.rows <= unit_rows) for u in units)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.integers(1, 50), max_size=30), per_task=st.integers(1, 100))
def test_tasks_keep_every_unit_in_order_and_tiny_units_share_one(rows, per_task) -> None:
    units = [Unit(i, 0, n, 0) for i, n in enumerate(rows)]
    tasks = plan_tasks(units, per_task)
    assert [unit for task in tasks for unit in task] == units
    assert all(sum(unit.rows for unit in task[:-1]) < per_task for task in tasks)
    assert all(sum(unit.rows for unit in task) >= per_task for task in tasks[:-1])


def test_halves_of_a_unit_are_the_unit() -> None:
    left, right = halves(Unit(3, 10, 15, 100))
    assert (left, right) == (Unit(3, 10, 12, 100), Unit(3, 12, 15, 102))


def test_units_of_a_stream_are_whole_batches_and_bounded_by_bytes() -> None:
    assert stream_unit_rows(8, 1000) % 1000 == 0
    assert stream_unit_rows(8, 1000) * 8 <= UNIT_BYTES
    assert stream_unit_rows(UNIT_BYTES * 10, 77) == 77


def test_row_bytes_are_guessed_from_types() -> None:
    import pyarrow as pa

    arrow = pa.schema(
        [("a", pa.int64()), ("v", pa.list_(pa.float32(), 4)), ("s", pa.string()), ("b", pa.bool_())]
    )
    assert estimated_row_bytes(Schema.from_arrow(arrow).fields) >= 8 + 16 + 8 + 1
    assert estimated_row_bytes(()) == 1


@settings(max_examples=50, deadline=None)
@given(live=LIVE.filter(any), pieces=st.integers(1, 40))
def test_cut_units_hold_the_same_rows_in_no_more_pieces_than_asked_for(live: list[int], pieces: int) -> None:
    units = plan_units(np.array(live, np.int64), unit_rows=None, offset=1 if sum(live) > 1 else 0)
    found = cut(units, pieces)
    rows = [(unit.fragment, unit.first + i, unit.start + i) for unit in units for i in range(unit.rows)]
    assert [
        (each.fragment, each.first + i, each.start + i) for each in found for i in range(each.rows)
    ] == rows
    assert all(each.rows for each in found)
    assert len(found) < pieces + len(units)
    assert max(each.rows for each in found) <= -(-len(rows) // pieces)


PIECES = [
    Unit(0, 0, 4, 0),
    Picked(1, np.array([2, 5, 9]), np.array([6, 9, 13]), True),
    Unit(2, 3, 8, 17),
]


def _rows(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Fragment and offset of every row."""
    rows = []
    for piece in pieces:
        offsets = piece.offsets.tolist() if isinstance(piece, Picked) else range(piece.start, piece.stop)
        rows += [(piece.fragment, offset) for offset in offsets]
    return rows


@given(offset=st.integers(0, 14), limit=st.none() | st.integers(0, 14))
def test_a_slice_of_pieces_holds_the_rows_of_a_slice(offset: int, limit: int | None) -> None:
    stop = None if limit is None else offset + limit
    kept = sliced(PIECES, offset, limit)
    assert _rows(kept) == _rows(PIECES)[offset:stop]
    assert all(piece.rows for piece in kept)


@given(st.integers(0, 3), st.integers(0, 3))
def test_a_part_of_a_piece_knows_where_its_rows_stand(start: int, length: int) -> None:
    picked = part(PIECES[1], start, start + length)
    assert isinstance(picked, Picked)
    assert picked.offsets.tolist() == [2, 5, 9][start : start + length]
    assert picked.numbers.tolist() == [6, 9, 13][start : start + length]
    unit = part(PIECES[2], 1, 3)
    assert unit == Unit(2, 4, 6, 18)
    left, right = halves(PIECES[2])
    assert _rows([left, right]) == _rows([PIECES[2]])
