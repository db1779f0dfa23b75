"""What can be written: Python values, frames, iterators; and what is refused instead of being lost."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.dataset import source
from tiltyard.errors import InvalidInput, SchemaMismatch

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("delay", pa.float64()),
        pa.field("route", pa.struct([("origin", pa.string()), ("gates", pa.list_(pa.int32()))])),
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("at", pa.timestamp("ms")),
    ]
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def rows(table: ty.Table, *columns: str) -> list[dict[str, Any]]:
    return table.scan(columns=list(columns) or None).to_arrow().to_pylist()


# -- dicts --------------------------------------------------------------------------------------


def test_rows_are_united_over_all_their_keys_in_order_of_appearance(path: str) -> None:
    table = ty.create_table(path, [{"b": 1}, {"a": "x", "b": 2}, {"c": True}])
    assert table.schema.names == ["b", "a", "c"]
    assert rows(table)[1:] == [{"b": 2, "a": "x", "c": None}, {"b": None, "a": None, "c": True}]


def test_python_values_take_the_types_of_the_table(path: str) -> None:
    table = ty.create_table(path, SCHEMA)
    table.append([{"id": 1, "delay": 5, "vector": [1, 2], "at": dt.datetime(2026, 1, 2)}, {"id": 2}])
    table.append({"id": [3, 4], "delay": [None, 7], "route": [{"gates": [1]}, None]})
    table.append({"id": np.array([5], np.int16), "vector": np.ones((1, 2))})
    assert [row["delay"] for row in rows(table)] == [5.0, None, None, 7.0, None]
    assert rows(table, "route")[2] == {"route": {"origin": None, "gates": [1]}}
    assert [row["vector"] for row in rows(table, "vector")] == [[1, 2], None, None, None, [1, 1]]
    table.append([])
    assert table.count() == 5


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": 1, "dealy": 5.0}, "'dealy'.*nearest: delay"),
        ({"id": 1.5}, "'id'"),
        ({"id": "one"}, "'id'"),
        ({"delay": 1.0}, "'id' is missing"),
        ({"id": 1, "route": {"origin": "x", "gate": 1}}, r"route\.gate"),
        ({"id": 1, "route": {"gates": [1.5]}}, r"route\.gates\[\]"),
        ({"id": 1, "vector": [1e300, 0]}, "vector"),
        ({"id": 1, "vector": [1.0]}, "vector"),
        ({"id": 1, "at": dt.datetime(2026, 1, 1, 0, 0, 0, 5)}, "'at'"),
        ({"id": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "time zone"),
        ({"id": 1, "at": 5}, "give datetime values"),
    ],
)
def test_values_that_would_be_lost_are_refused_naming_the_column(
    row: dict[str, Any], told: str, path: str
) -> None:
    table = ty.create_table(path, SCHEMA)
    with pytest.raises(SchemaMismatch, match=told):
        table.append([row])
    with pytest.raises(SchemaMismatch, match=told):
        table.append({key: [value] for key, value in row.items()})
    assert table.count() == 0


def test_a_row_without_a_field_that_may_not_be_null_is_refused(path: str) -> None:
    table = ty.create_table(path, SCHEMA)
    with pytest.raises(InvalidInput, match="'id' has 1 null"):
        table.append([{"id": 1}, {"delay": 1.0}])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"id": 1}, r"single value 1; .*\{'id': \[1\]\}"),
        ({"id": "text"}, "single value 'text'"),
        ({"id": [1, 2], "x": [1]}, "'id' has 2, 'x' has 1"),
        ({1: [1]}, "named by text"),
        ([{"id": 1}, 2], "list of dict is no data|row 1 is of type int"),
        ({"id": [1, "a"]}, "column 'id' have no common type"),
        ([], "no schema"),
        (iter([]), "no schema"),
        (np.zeros(3), "NumPy array"),
        (pd.Series([1]), "pandas Series"),
        (pl.Series([1]), "polars Series"),
        (pa.array([1]), "one column"),
        ("rows.csv", "the text 'rows.csv'"),
        (Path("rows.csv"), "the path 'rows.csv'"),
        (5, "type int is no data"),
        ([1, 2], "a list of int is no data"),
        (object(), "type object is no data"),
    ],
)
def test_what_is_no_data_is_told_what_to_give_instead(data: Any, told: str, path: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        ty.create_table(path, data)


def test_json_text_of_dicts_is_stored_as_json(path: str) -> None:
    json = pa.field("j", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    table = ty.create_table(path, pa.schema([json]))
    table.append([{"j": '{"a": 1}'}])
    assert table.to_arrow()["j"].to_pylist() == ['{"a":1}']
    with pytest.raises(InvalidInput, match=r"column 'j': .* is no JSON"):
        table.append([{"j": "{"}])


# -- schema= ------------------------------------------------------------------------------------

GIVEN = pa.schema([("id", pa.int64()), ("dd", pa.float64())])


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [1], "dx": [5.0]}),
        pa.record_batch({"id": [1], "dx": [5.0]}),
        pa.table({"id": [1], "dx": [5.0]}).to_reader(),
        [{"id": 1, "dx": 5.0}],
        {"id": [1], "dx": [5.0]},
        pd.DataFrame({"id": [1], "dx": [5.0]}),
        pl.DataFrame({"id": [1], "dx": [5.0]}),
        [pa.record_batch({"id": [1], "dx": [5.0]})],
        [pa.record_batch({"id": [1]}), pa.record_batch({"id": [1], "dx": [5.0]})],
    ],
    ids=lambda data: type(data).__name__,
)
def test_columns_that_a_given_schema_lacks_are_refused_in_every_form(data: Any, path: str) -> None:
    table = ty.create_table(path, GIVEN)
    with pytest.raises(SchemaMismatch, match=r"'dx'.*nearest: "):
        table.append(data, schema=GIVEN)
    assert table.count() == 0


def test_a_given_schema_orders_casts_and_fills(path: str) -> None:
    table = ty.create_table(path, pa.table({"id": pa.array([1], pa.int8())}), schema=GIVEN)
    assert table.schema == GIVEN
    assert rows(table) == [{"id": 1, "dd": None}]
    with pytest.raises(InvalidInput, match=r"must be a pyarrow\.Schema"):
        table.append([{"id": 1}], schema={"id": "int64"})  # type: ignore[arg-type]


# -- iterators ----------------------------------------------------------------------------------


def test_iterators_of_batches_tables_and_rows_are_appended_without_a_schema(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "ROWS_AT_ONCE", 2)
    table = ty.create_table(path, GIVEN)
    table.append(pa.record_batch({"id": [i]}) for i in range(3))
    table.append([pa.table({"id": [3]}), pa.table({"dd": [0.5], "id": [4]})])
    table.append({"id": i, "dd": i} for i in range(5, 8))
    table.append(iter([{"id": [8, 9]}, {"id": [10]}]))  # a list where the table has one value: columns
    table.append(iter([]))
    assert [row["id"] for row in rows(table)] == list(range(11))
    with pytest.raises(SchemaMismatch, match="'late'"):
        table.append({"id": 1} if i < 3 else {"late": 1} for i in range(4))
    assert table.count() == 11


def test_a_table_is_made_of_an_iterator(path: str) -> None:
    assert ty.create_table(path, (pa.record_batch({"id": [i]}) for i in range(3))).count() == 3
    assert ty.create_table(path + "2", ({"id": i} for i in range(3))).count() == 3


def test_a_table_and_a_scan_are_data(path: str) -> None:
    table = ty.create_table(path, {"id": [1, 2]})
    assert ty.create_table(path + "2", table).count() == 2
    assert ty.create_table(path + "3", table.scan(where="id > 1")).count() == 1


# -- pandas -------------------------------------------------------------------------------------


def test_only_indexes_with_a_name_become_columns(path: str) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    table = ty.create_table(path, frame[frame.a > 1])
    assert table.schema.names == ["a"]
    table.append(frame.sort_values("a", ascending=False))
    assert [row["a"] for row in rows(table)] == [2, 3, 3, 2, 1]
    named = ty.create_table(path + "2", frame.set_index(pd.Index([7, 9, 8], name="key")))
    assert named.schema.names == ["a", "key"]
    evenly = frame.set_index(pd.RangeIndex(7, 10, name="key"))
    table_of_labels = ty.create_table(path + "4", evenly)
    assert table_of_labels.schema.names == ["a", "key"]
    table_of_labels.append(evenly)
    assert [row["key"] for row in rows(table_of_labels)] == [7, 8, 9, 7, 8, 9]
    levels = frame.set_index(pd.MultiIndex.from_arrays([[1, 2, 3], [4, 5, 6]], names=["key", None]))
    assert ty.create_table(path + "3", levels).schema.names == ["a", "key"]
