"""The arithmetic between live positions and physical offsets, held against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.table.deletions import (
    live_offsets,
    physical_offsets,
    rows_to_read,
    union,
    without_deleted,
)

ROWS = 40
DELETED = st.sets(st.integers(0, ROWS - 1), max_size=ROWS)


@settings(max_examples=50, deadline=None)
@given(deleted=DELETED, data=st.data())
def test_live_positions_map_to_the_offsets_that_are_left(deleted, data) -> None:
    vector = np.array(sorted(deleted), np.uint32)
    left = [i for i in range(ROWS) if i not in deleted]
    start = data.draw(st.integers(0, len(left)))
    stop = data.draw(st.integers(start, len(left)))
    assert live_offsets(vector, start, stop).tolist() == left[start:stop]
    picks = data.draw(st.lists(st.integers(0, len(left) - 1), max_size=8)) if left else []
    assert physical_offsets(vector, np.array(picks, np.int64)).tolist() == [left[i] for i in picks]
    rows = rows_to_read(vector if deleted else None, start, stop)
    read = list(range(ROWS))[rows] if isinstance(rows, slice) else rows.tolist()
    assert read == left[start:stop]
    if not isinstance(rows, slice):
        assert read != list(range(read[0], read[-1] + 1))  # a gapless range is read as a slice


@settings(max_examples=50, deadline=None)
@given(deleted=DELETED, more=DELETED)
def test_deletions_add_up(deleted, more) -> None:
    vector = np.array(sorted(deleted), np.uint32) if deleted else None
    added = np.array(sorted(more), np.uint32)
    assert union(vector, added).tolist() == sorted(deleted | more)
    assert union(vector, added).dtype == np.uint32
    offsets = np.arange(ROWS, dtype=np.int64)
    assert without_deleted(vector, offsets).tolist() == [i not in deleted for i in range(ROWS)]
