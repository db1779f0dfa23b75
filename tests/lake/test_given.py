"""What people give a stream as rows and as keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from tiltyard.errors import InvalidInput, SchemaMismatch
from tiltyard.format.schema import Schema
from tiltyard.lake.given import keys_given, rows_given

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
ONE = Schema.from_arrow(
    pa.schema(
        [pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.float32()), pa.field("s", pa.string())]
    )
)
TWO = Schema.from_arrow(
    pa.schema(
        [
            pa.field("day", pa.int32(), False, KEY),
            pa.field("n", pa.string(), False, KEY),
            pa.field("l", pa.list_(pa.int64())),
        ]
    )
)
BARE = Schema.from_arrow(pa.schema([pa.field("l", pa.list_(pa.int64())), pa.field("a", pa.int64())]))
ROW = {"id": 1, "v": 1.5, "s": "a"}


@pytest.mark.parametrize(
    "data",
    [
        ROW,
        [ROW],
        {"id": [1], "v": [1.5], "s": ["a"]},
        {"s": ["a"], "v": np.array([1.5], np.float32), "id": np.array([1], np.int32)},
        {"id": np.int64(1), "v": 1.5, "s": "a"},
        iter([ROW]),
        pa.table({"s": ["a"], "id": pa.array([1], pa.int16()), "v": pa.array([1.5], pa.float32())}),
        pd.DataFrame({"id": [1], "v": np.array([1.5], np.float32), "s": ["a"]}),
        polars.DataFrame({"id": [1], "v": [1.5], "s": ["a"]}, schema_overrides={"v": polars.Float32}),
        pa.RecordBatch.from_pylist([ROW], ONE.arrow),
    ],
    ids=[
        "a dict",
        "dicts",
        "columns",
        "arrays",
        "a NumPy key",
        "iterator",
        "narrow table",
        "pandas",
        "polars",
        "batch",
    ],
)
def test_rows_of_every_kind_come_out_in_the_tables_types(data: Any) -> None:
    found = rows_given(data, ONE)
    assert found.schema.equals(ONE.arrow)
    assert found.to_pylist() == [ROW]


def test_a_dict_is_a_row_where_its_key_is_single() -> None:
    assert rows_given({"day": 1, "n": "x", "l": [1, 2]}, TWO).to_pylist() == [
        {"day": 1, "n": "x", "l": [1, 2]}
    ]
    assert rows_given({"l": [[1], [2]], "a": [5, 6]}, BARE).num_rows == 2
    with pytest.raises(SchemaMismatch, match=r"column 'l' is missing: a stream replaces whole rows"):
        rows_given({"day": 1, "n": "x"}, TWO)
    with pytest.raises(SchemaMismatch, match="let schema="):
        rows_given(pa.table({"id": [1], "v": [1.5], "s": ["a"]}), ONE)
    assert rows_given(pa.table({"id": [1], "v": [1.5], "s": ["a"]}), ONE, ONE.arrow).to_pylist() == [ROW]
    assert rows_given([], ONE).num_rows == 0


@pytest.mark.parametrize(
    "keys",
    [
        [1, 2],
        (1, 2),
        {1, 2},
        range(1, 3),
        iter([1, 2]),
        np.array([1, 2], np.int32),
        pd.Series([1, 2]),
        polars.Series([1, 2]),
        pa.array([1, 2], pa.int32()),
        pa.chunked_array([[1], [2]]),
        [{"id": 1}, {"id": 2, "v": 1.0}],
        {"id": [1, 2]},
        pa.table({"s": ["a", "b"], "id": [1, 2]}),
        pd.DataFrame({"id": [1, 2], "s": ["a", "b"]}),
    ],
)
def test_keys_of_every_kind(keys: Any) -> None:
    found = keys_given(keys, ONE)
    assert (found.schema.names, found.column(0).type, found.column(0).to_pylist()) == (
        ["id"],
        pa.int64(),
        [1, 2],
    )


@pytest.mark.parametrize("key", [1, np.int64(1), {"id": 1}, ROW])
def test_one_key(key: Any) -> None:
    assert keys_given(key, ONE).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    "keys",
    [
        [(1, "a"), (2, "b")],
        [[1, "a"], [2, "b"]],
        [{"day": 1, "n": "a"}, {"n": "b", "day": 2}],
        {"n": ["a", "b"], "day": [1, 2]},
        pa.table({"n": ["a", "b"], "day": [1, 2]}).cast(pa.schema({"n": pa.string(), "day": pa.int32()})),
        pa.array(
            [{"day": 1, "n": "a"}, {"day": 2, "n": "b"}], pa.struct({"day": pa.int32(), "n": pa.string()})
        ),
    ],
)
def test_keys_of_several_columns(keys: Any) -> None:
    assert keys_given(keys, TWO).to_pylist() == [{"day": 1, "n": "a"}, {"day": 2, "n": "b"}]
    assert keys_given((1, "a"), TWO).to_pylist() == [{"day": 1, "n": "a"}]
    assert keys_given([], TWO).num_rows == 0


@pytest.mark.parametrize(
    ("keys", "schema", "error", "told"),
    [
        (None, ONE, InvalidInput, "found None"),
        ([None], ONE, InvalidInput, "nulls"),
        (["x"], ONE, SchemaMismatch, "no int64"),
        ({"v": [1.0]}, ONE, SchemaMismatch, "lack column 'id'"),
        (pa.table({"v": [1.0]}), ONE, SchemaMismatch, "lack column 'id'"),
        ([1, 2], TWO, InvalidInput, "a tuple of 2 values"),
        ([(1, "a", 3)], TWO, InvalidInput, "a tuple of 2 values"),
        ([{"day": 1}], TWO, SchemaMismatch, "lack column 'n'"),
        ([1], BARE, InvalidInput, "the table has no key"),
    ],
)
def test_what_is_no_key_is_told(keys: Any, schema: Schema, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        keys_given(keys, schema)
