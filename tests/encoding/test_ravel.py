"""Arrow structure to levels, against the worked examples of the format description and a slow model."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.encoding.levels.ravel import Leaf, ravel
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.schema import Schema


def leaves(array: pa.Array, field: pa.Field | None = None) -> list[Leaf]:
    return ravel(array, Schema.from_arrow(pa.schema([field or pa.field("c", array.type)])).fields[0])


def levels(array: pa.Array) -> list[tuple[Any, Any, tuple[int, ...], list[Any]]]:
    """(rep, def, layers, values) of each leaf."""
    found = []
    for leaf in leaves(array):
        rep, def_ = (None if each is None else each.tolist() for each in (leaf.levels.rep, leaf.levels.def_))
        found.append((rep, def_, leaf.levels.layers, leaf.array.to_pylist()))
    return found


def test_lists_null_and_empty() -> None:
    # file-format.md 10.5
    array = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32()))
    assert levels(array) == [([1, 0, 1, 1, 1], [0, 0, 1, 2, 0], (1, 6), [1, 2, 3])]


def test_structs_share_their_nulls() -> None:
    # file-format.md 10.6
    array = pa.array(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}], pa.struct([("a", pa.int32()), ("b", pa.string())])
    )
    first, second = levels(array)
    assert first[:3] == (None, [0, 2, 1], (3, 3))
    assert second[:3] == (None, [0, 2, 0], (3, 3))


def test_what_is_below_a_null_struct_is_declared_nullable_down_to_the_next_list() -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), ("l", pa.list_(pa.int32()))])
    array = pa.array([{"s": {"x": 1, "l": [1]}}, None], pa.struct([("s", inner)]))
    assert [each[2] for each in levels(array)] == [(3, 3, 3), (1, 4, 3, 3)]
    assert [each[2] for each in levels(array.slice(0, 1))] == [(1, 1, 1), (1, 2, 1, 1)]
    items = pa.array([[{"x": 1}, None], None], pa.list_(pa.struct([("x", pa.int32())])))
    assert [each[2] for each in levels(items)] == [(3, 3, 4)]


def test_only_empty_lists() -> None:
    # file-format.md 10.9
    array = pa.array([[], [], []], pa.list_(pa.int32()))
    assert levels(array) == [([1, 1, 1], [1, 1, 1], (1, 5), [])]


def test_children_of_null_lists_and_of_lists_under_null_structs_are_dropped() -> None:
    items = pa.array([1, 2, 3, 4, 5, 6])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6]), items, mask=pa.array([False, True, False]))
    array = pa.StructArray.from_arrays([lists], ["l"], mask=pa.array([False, False, True]))
    assert levels(array) == [([1, 0, 1, 1], [0, 0, 1, 2], (1, 4, 3), [1, 2])]


def test_a_slice_starts_where_it_should() -> None:
    array = pa.array([[9], [1, None], None, [2]], pa.list_(pa.int32())).slice(1)
    assert levels(array) == [([1, 0, 1, 1], [0, 1, 2, 0], (3, 4), [1, None, 2])]


def test_null_items_of_a_dictionary_become_null_rows() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), pa.array(["a", None, "c"]))
    (leaf,) = leaves(array)
    assert leaf.levels.def_ is not None
    assert leaf.levels.def_.tolist() == [0, 1, 1, 0]
    assert leaf.array.to_pylist() == ["a", None, None, "c"]
    assert leaf.array.dictionary.null_count == 0


def test_a_null_where_none_may_be_is_refused_with_the_column() -> None:
    field = pa.field("c", pa.list_(pa.field("item", pa.int32(), nullable=False)))
    leaves(pa.array([None, [1]], pa.list_(pa.int32())), field)
    with pytest.raises(InvalidInput, match=r"c\.item"):
        leaves(pa.array([[None]], pa.list_(pa.int32())), field)


def test_a_child_may_be_null_below_a_null_struct_only() -> None:
    kind = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    child = pa.array([1, None], pa.int32())
    leaves(
        pa.StructArray.from_arrays([child], fields=list(kind), mask=pa.array([False, True])),
        pa.field("c", kind),
    )
    with pytest.raises(InvalidInput, match=r"c\.a"):
        leaves(pa.StructArray.from_arrays([child], fields=list(kind)), pa.field("c", kind))


def test_vectors_of_structs_around_lists_are_refused() -> None:
    kind = pa.list_(pa.struct([("l", pa.list_(pa.int32()))]), 2)
    with pytest.raises(UnsupportedFeature, match="fixed-size list of structs"):
        leaves(pa.array([[{"l": [1]}, {"l": []}]], kind))


rows = st.lists(
    st.one_of(
        st.none(),
        st.lists(
            st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3)), max_size=3
        ),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=50, deadline=None)
@given(rows, st.data())
def test_levels_describe_the_rows(values: list[Any], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(values) - 1))
    array = pa.array(values, pa.list_(pa.list_(pa.int8()))).slice(begin)
    ((rep, def_, layers, items),) = levels(array)
    assert rebuilt(rep, def_ or [0] * len(rep), layers, items) == values[begin:]


def rebuilt(rep: list[int], def_: list[int], layers: tuple[int, ...], items: list[Any]) -> list[Any]:
    """Rows of list<list<item>> from levels, entry by entry."""
    meaning: list[str] = ["item"]
    for depth, kind in enumerate(layers):
        if kind in (3, 4, 6):
            meaning.append(f"null {depth}")
        if kind in (5, 6):
            meaning.append(f"empty {depth}")
    out: list[Any] = []
    queue = iter(items)
    for r, d in zip(rep, def_, strict=True):
        what = meaning[d]
        if r == 2:
            out.append({"null 2": None}.get(what, []))
        if what in ("null 2", "empty 2"):
            continue
        if r >= 1:
            out[-1].append({"null 1": None}.get(what, []))
        if what in ("null 1", "empty 1"):
            continue
        out[-1][-1].append(next(queue))
    return out
