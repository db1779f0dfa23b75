"""Fields that lie in several data files of one fragment: a pure layout, and zipping by Arrow arithmetic."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiltyard.errors import CorruptFile
from tiltyard.format.fragment import DataFile
from tiltyard.format.schema import Schema
from tiltyard.session import Session
from tiltyard.table.fragment_columns import complete, layout_of, zip_arrays

SCHEMA = Schema.from_arrow(
    pa.schema(
        [("id", pa.int64()), ("st", pa.struct([("a", pa.int8()), ("b", pa.string())])), ("z", pa.int8())]
    )
)  # ids: id 0, st 1, a 2, b 3, z 4


def file(fields: list[int], columns: list[int] | None = None) -> DataFile:
    indices = tuple(range(len(fields)) if columns is None else columns)
    return DataFile(f"{'-'.join(map(str, fields))}.lance", tuple(fields), indices)


def test_one_file_with_everything_is_read_whole() -> None:
    layout = layout_of([file([0, 2, 3, 4])], SCHEMA.fields)
    assert layout.whole
    assert layout.parts[0].columns == {0: 0, 2: 1, 3: 2, 4: 3}


def test_children_of_one_struct_may_come_from_two_files() -> None:
    layout = layout_of([file([0, 2, 4]), file([3])], SCHEMA.fields)
    assert not layout.whole
    assert [part.file for part in layout.parts] == [0, 1]
    assert layout.pieces == (((0, 0),), ((0, 1), (1, 0)), ((0, 2),))
    assert [leaf.id for leaf in layout.parts[1].fields[0].leaves()] == [3]


def test_tombstones_dropped_columns_system_columns_and_missing_ones_are_not_read() -> None:
    files = [file([0, -2, 3, 99]), file([-3, 2], [0, 1]), file([7])]
    layout = layout_of(files, SCHEMA.fields)
    assert [part.columns for part in layout.parts] == [{0: 0, 3: 2}, {2: 1}]
    assert layout.pieces[2] == ()  # nobody holds z: it is null


def test_a_field_without_a_column_in_the_file_is_not_held_by_it() -> None:
    assert layout_of([file([0, 1], [0, -1])], SCHEMA.fields[:1]).parts[0].columns == {0: 0}
    assert layout_of([file([4], [-1])], SCHEMA.fields[2:]).parts == ()


def test_structs_are_zipped_child_by_child_and_the_first_validity_stands() -> None:
    left = pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int8())]))
    right = pa.array([{"b": "x"}, {"b": "y"}, {"b": None}], pa.struct([("b", pa.string())]))
    both = zip_arrays(left, right)
    both.validate(full=True)
    assert both.to_pylist() == [{"a": 1, "b": "x"}, None, {"a": 3, "b": None}]
    sliced = zip_arrays(left.slice(1), right.slice(1))
    sliced.validate(full=True)
    assert sliced.to_pylist() == [None, {"a": 3, "b": None}]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])
def test_items_of_lists_are_zipped(make) -> None:
    left = pa.array([[{"a": 1}, {"a": 2}], None, [{"a": 5}, {"a": 6}]], make(pa.struct([("a", pa.int8())])))
    right = pa.array([[{"b": 1}, {"b": 2}], None, [{"b": 5}, {"b": 6}]], make(pa.struct([("b", pa.int8())])))
    both = zip_arrays(left, right)
    both.validate(full=True)
    expected = [[{"a": 1, "b": 1}, {"a": 2, "b": 2}], None, [{"a": 5, "b": 5}, {"a": 6, "b": 6}]]
    assert both.to_pylist() == expected
    wider = complete(
        Session(), both, make(pa.struct([("n", pa.string()), ("b", pa.int8()), ("a", pa.int8())]))
    )
    wider.validate(full=True)
    assert wider.to_pylist()[2] == [{"n": None, "b": 5, "a": 5}, {"n": None, "b": 6, "a": 6}]


def test_two_files_with_the_same_leaf_are_damage() -> None:
    with pytest.raises(CorruptFile):
        zip_arrays(pa.array([1]), pa.array([2]))
