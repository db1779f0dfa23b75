"""The second day's load: frames whose types differ from the table's, but whose values do not."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard import lance
from tiltyard.errors import InvalidInput, SchemaMismatch, WrongType

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

US = pa.timestamp("us")
DAY = datetime(2026, 1, 31)
WORDS = pa.dictionary(pa.int8(), pa.string())
VECTOR = pa.list_(pa.float32(), 2)


def _column(array: Any) -> Any:
    return pa.table({"a": array})


@pytest.mark.parametrize(
    ("kind", "data", "values"),
    [
        (pa.float64(), pd.DataFrame({"a": [1, 2]}), [1.0, 2.0]),
        (pa.float64(), pl.DataFrame({"a": [1, 2]}), [1.0, 2.0]),
        (pa.float32(), _column(pa.array([2**24, -1])), [2.0**24, -1.0]),
        (pa.string(), pd.DataFrame({"a": [None, None]}, dtype="float64"), [None, None]),
        (pa.string(), pd.DataFrame({"a": [None, None]}), [None, None]),
        (pa.int64(), pd.DataFrame({"a": [np.nan, np.nan]}), [None, None]),
        (WORDS, pd.DataFrame({"a": [np.nan]}), [None]),
        (pa.struct([("x", pa.int8())]), pd.DataFrame({"a": [np.nan]}), [None]),
        (pa.timestamp("us", "UTC"), pd.DataFrame({"a": [pd.NaT]}), [None]),
        (US, pd.DataFrame({"a": [pd.NaT]}), [None]),
        (US, pd.DataFrame({"a": [DAY.date(), None]}), [DAY, None]),
        (VECTOR, pl.DataFrame({"a": [None, None]}, schema={"a": pl.Int8}), [None, None]),
        (US, pd.DataFrame({"a": np.array([DAY], "datetime64[ns]")}), [DAY]),
        (US, pl.DataFrame({"a": [DAY.date()]}), [DAY]),
        (US, _column(pa.array([DAY.date(), None], pa.date64())), [DAY, None]),
        (US, {"a": [DAY.date(), None, DAY]}, [DAY, None, DAY]),
        (pa.duration("s"), _column(pa.array([1000], pa.duration("ms"))).slice(0, 0), []),
        (
            pa.time32("s"),
            _column(pa.array([1_000_000], pa.time64("us"))),
            [datetime(1, 1, 1, 0, 0, 1).time()],
        ),
        (WORDS, pd.DataFrame({"a": ["x", "y", None]}), ["x", "y", None]),
        (WORDS, pl.DataFrame({"a": ["x", "y"]}, schema={"a": pl.Categorical}), ["x", "y"]),
        (WORDS, _column(pa.chunked_array([["x"], ["y", "x"]])), ["x", "y", "x"]),
        (VECTOR, pd.DataFrame({"a": list(np.eye(2, dtype=np.float32))}), [[1.0, 0.0], [0.0, 1.0]]),
        (
            VECTOR,
            _column(pa.array([[9, 9], None, [1, 2]], pa.large_list(pa.int64()))[1:]),
            [None, [1.0, 2.0]],
        ),
        (VECTOR, {"a": np.eye(2)}, [[1.0, 0.0], [0.0, 1.0]]),
        (pa.list_(pa.float32()), {"a": np.eye(1)}, [[1.0]]),
        (pa.list_(pa.float32()), _column(pa.array([[1, 2]], VECTOR)), [[1.0, 2.0]]),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, pa.DataType) else "",
)
def test_values_that_come_out_equal_are_appended(
    kind: Any, data: Any, values: list[Any], tmp_path: Path
) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.schema([("a", kind)]))
    table.append(data)
    assert table.to_arrow()["a"].to_pylist() == values
    assert table.schema.field("a").type == kind


def test_fields_of_structs_are_looked_at_where_the_struct_is_no_null(tmp_path: Path) -> None:
    kind = pa.struct([("x", pa.float64()), ("v", VECTOR)])
    table = ty.create_table(tmp_path / "t.lance", pa.schema([("a", kind)]))
    rows = [{"x": 1, "v": [1, 2]}, None, {"x": None, "v": None}]
    table.append(_column(pa.array(rows)))
    assert table.to_arrow()["a"].to_pylist() == rows
    with pytest.raises(SchemaMismatch, match="expected size"):
        table.append(_column(pa.array([{"x": 1, "v": [1]}])))


def test_the_same_instants_of_another_zone_are_appended(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.schema([("a", pa.timestamp("us", "UTC"))]))
    table.append(pd.DataFrame({"a": pd.to_datetime(["2026-01-31 12:00"]).tz_localize("Europe/Berlin")}))
    assert table.to_arrow()["a"].cast(pa.int64()).to_pylist() == [1769857200 * 10**6]


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (pa.float64(), _column(pa.array([1, 2**53 + 1])), "without loss"),
        (pa.float16(), _column(pa.array([1])), "schema="),
        (pa.int32(), _column(pa.array([1])), "schema=table.schema"),
        (pa.int64(), _column(pa.array([1.0])), "schema=table.schema"),
        (pa.string(), _column(pa.array([1.0, None])), "schema=table.schema"),
        (US, _column(pa.array([1001], pa.timestamp("ns"))), "without loss"),
        (US, _column(pa.array(["2026-01-31"])), "schema=table.schema"),
        (US, {"a": ["2026-01-31"]}, "text is no timestamp.*fromisoformat"),
        (US, _column(pa.array([DAY], pa.timestamp("us", "UTC"))), "take the time zone off"),
        (pa.timestamp("us", "UTC"), _column(pa.array([DAY])), "which zone.*tz_localize\\('UTC'\\)"),
        (pa.timestamp("us", "UTC"), pl.DataFrame({"a": [DAY.date()]}), "which zone"),
        (pa.timestamp("us", "UTC"), {"a": [DAY.date()]}, "midnight differs by zone"),
        (pa.timestamp("ns"), _column(pa.array([date(2500, 1, 1)])), "out of bounds"),
        (pa.time32("s"), _column(pa.array([1], pa.time64("us"))), "without loss"),
        (WORDS, _column(pa.array([str(each) for each in range(200)])), "without loss"),
        (VECTOR, _column(pa.array([[1.0, 2.0]])), "schema=table.schema"),
        (VECTOR, _column(pa.array([[1.0], [1.0, 2.0]], pa.list_(pa.float32()))), "expected size"),
        (VECTOR, _column(pa.array([[2**24 + 1, 0]])), "without loss"),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, (pa.DataType, str)) else "",
)
def test_values_that_would_change_are_refused_and_nothing_stays(
    kind: Any, data: Any, told: str, tmp_path: Path
) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.schema([("a", kind)]))
    with pytest.raises(SchemaMismatch, match=told):
        table.append(data)
    assert (table.version, table.count()) == (1, 0)
    assert [each for each in (tmp_path / "t.lance").rglob("*.lance") if each.is_file()] == []


def test_one_rule_for_append_upsert_and_the_official_names(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", {"id": [1.5, 2.0], "at": pa.array([DAY, DAY], US)})
    assert table.upsert(_column(pa.array([2, 3])).rename_columns(["id"]), on="id") == {
        "inserted": 1,
        "updated": 1,
    }
    day = pa.table({"id": [4], "at": pa.array([DAY.date()])})
    lance.write_dataset(day, table.uri, mode="append")
    assert table.scan(order_by="id").to_arrow()["id"].to_pylist() == [1.5, 2.0, 3.0, 4.0]
    assert table.count(f"at = timestamp '{DAY}'") == 3


def test_a_misspelt_column_of_a_frame_is_told_what_is_like_it(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", {"id": [1], "amount": [1.0]})
    for data in (pd.DataFrame({"id": [2], "amout": [2.0]}), pa.table({"id": [2], "amout": [2.0]})):
        with pytest.raises(SchemaMismatch, match=r"'amout' is not in the table .nearest: amount"):
            table.append(data)
        with pytest.raises(SchemaMismatch, match=r"'amout' is not in the table .nearest: amount"):
            table.upsert(data, on="id")


def test_a_matrix_is_a_column_of_vectors_and_lists_are_told_how_to_become_one(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", {"id": [1, 2], "v": np.eye(2, dtype=np.float32)})
    assert table.schema.field("v").type == VECTOR
    assert table.search([0.0, 1.0], k=1).to_arrow()["id"].to_pylist() == [2]
    lists = ty.create_table(tmp_path / "l.lance", {"v": [[1.0, 0.0]]})
    with pytest.raises(InvalidInput, match=r"none. v: .*schema=.*2-D array"):
        lists.search([0.0, 1.0])
    with pytest.raises(WrongType, match=r"schema=.*2-D array"):
        lists.search([0.0, 1.0], "v").to_arrow()
    lists.overwrite(lists.to_arrow(), schema=pa.schema([("v", VECTOR)]))
    assert lists.search([0.0, 1.0]).count() == 1
