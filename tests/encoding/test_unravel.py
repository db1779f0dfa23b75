"""Levels to offsets and validity, against a plain transcription of the specification's other direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.encoding.levels import unravel
from tiltyard.encoding.levels.unravel import Layers
from tiltyard.errors import BatchTooLarge, CorruptFile
from tiltyard.session import Limits, Session

SESSION = Session()


def ravel(rows: list[Any], kinds: list[str]) -> tuple[list[int], list[int]]:
    """Levels of rows by file format 6.5; `kinds` outermost first, every layer in its most general form."""
    next_rep = kinds.count("list")
    next_def = sum(2 if kind == "list" else 1 for kind in kinds)
    slots: list[tuple[int, int, Any, bool]] = [(0, 0, row, False) for row in rows]  # rep, def, value, special
    for kind in kinds:
        top = next_def
        next_def -= 2 if kind == "list" else 1
        found: list[tuple[int, int, Any, bool]] = []
        for rep, def_, value, special in slots:
            if special:
                found.append((rep, def_, value, True))
            elif kind == "item":
                found.append((rep, top if value is None and def_ == 0 else def_, value, False))
            else:
                r = rep or next_rep
                if def_ or value is None or not value:
                    found.append((r, def_ or (top - 1 if value is None else top), None, True))
                else:
                    found.append((r, 0, value[0], False))
                    found += [(0, 0, each, False) for each in value[1:]]
        slots = found
        next_rep -= kind == "list"
    return [slot[0] for slot in slots], [slot[1] for slot in slots]


def build(layers: Layers, rep: np.ndarray, def_: np.ndarray, layer: int, slots: int) -> pa.Array:
    """The array of a layer and all inside it; the leaf's values are all 7."""
    if layers.is_list[layer]:
        offsets, bitmap, nulls, children = unravel.lists(
            SESSION, layers, layer, rep, def_, slots, large=False
        )
        child = build(layers, rep, def_, layer - 1, children)
        return pa.Array.from_buffers(pa.list_(child.type), slots, [bitmap, offsets], nulls, children=[child])
    bitmap, nulls = unravel.validity(SESSION, layers, layer, rep, def_, slots)
    if layer == 0:
        data = pa.py_buffer(np.full(slots, 7, np.int32))
        return pa.Array.from_buffers(pa.int32(), slots, [bitmap, data], nulls)
    child = build(layers, rep, def_, layer - 1, slots)
    return pa.Array.from_buffers(pa.struct([("s", child.type)]), slots, [bitmap], nulls, children=[child])


def as_rows(value: Any, kinds: list[str]) -> Any:
    """The value as Arrow shows it: structs as dicts."""
    if value is None or len(kinds) == 1:
        return value
    if kinds[0] == "list":
        return [as_rows(each, kinds[1:]) for each in value]
    return {"s": as_rows(value, kinds[1:])}


def values(kinds: list[str]) -> st.SearchStrategy[Any]:
    if not kinds:
        return st.just(7)
    inner = values(kinds[1:])
    return st.none() | (st.lists(inner, max_size=3) if kinds[0] == "list" else inner)


KINDS = [
    ["item"],
    ["item", "item"],
    ["list", "item"],
    ["list", "list", "item"],
    ["item", "list", "item"],
    ["list", "item", "list", "item", "item"],
    ["item", "list", "item", "item", "list", "list", "item"],
]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(KINDS).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.lists(values(kinds), min_size=1, max_size=20))
    )
)
def test_any_nesting_of_lists_and_structs_comes_back(case: tuple[list[str], list[Any]]) -> None:
    kinds, rows = case
    rep, def_ = ravel(rows, kinds)
    layers = Layers.of([kind == "list" for kind in reversed(kinds)])
    rep_array = np.array(rep if "list" in kinds else [], np.uint16)
    array = build(layers, rep_array, np.array(def_, np.uint16), len(kinds) - 1, len(rows))
    array.validate(full=True)
    assert array.to_pylist() == [as_rows(row, kinds) for row in rows]


def test_a_page_that_declares_less_is_mapped_to_the_numbers_of_the_column() -> None:
    # file format 6.2: layers [3, 6, 3] have levels 1 null item, 2 null list, 3 empty list, 4 null struct
    layers = Layers.of([False, True, False])
    assert layers.map_page([3, 6, 3])[0].tolist() == [0, 1, 2, 3, 4]
    assert layers.map_page([1, 5, 3])[0].tolist() == [0, 3, 4]
    assert layers.map_page([3, 4, 1])[0].tolist() == [0, 1, 2]
    assert [layers.map_page(each)[1] for each in ([3, 6, 3], [1, 5, 3])] == [1, 0]


@pytest.mark.parametrize("declared", [[3, 6], [6, 3, 3], [3, 3, 3], [3, 1, 3]])
def test_layers_that_do_not_fit_the_field_are_refused(declared: list[int]) -> None:
    with pytest.raises(CorruptFile):
        Layers.of([False, True, False]).map_page(declared)


def test_more_items_than_offsets_reach_are_refused() -> None:
    layers = Layers.of([False, True])
    rep, def_ = np.array([1, 0, 0, 0], np.uint16), np.zeros(4, np.uint16)
    small = Session(Limits(offset_limit=3))
    with pytest.raises(BatchTooLarge, match="read fewer rows"):
        unravel.lists(small, layers, 1, rep, def_, 1, large=False)
    assert unravel.lists(small, layers, 1, rep, def_, 1, large=True)[3] == 4


def test_levels_of_another_number_of_rows_are_refused() -> None:
    layers = Layers.of([False, True])
    rep, def_ = np.array([1, 0, 1], np.uint16), np.zeros(3, np.uint16)
    for slots in (1, 3):
        with pytest.raises((CorruptFile, ValueError)):
            unravel.lists(SESSION, layers, 1, rep, def_, slots, large=False)
