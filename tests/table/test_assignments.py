"""`SET column = expression`: what a column takes, what it refuses, and fields within structs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltyard.errors import FieldNotFound, InvalidExpression, InvalidInput, UnsupportedFeature
from tiltyard.format.schema import Schema
from tiltyard.table.assignments import bind

POINT = pa.struct([("x", pa.int64()), pa.field("label", pa.string())])
BATCH = pa.record_batch(
    {
        "i": pa.array([1, 2, 3], pa.int32()),
        "tiny": pa.array([1, 2, 3], pa.int8()),
        "u": pa.array([1, 1, 1], pa.uint64()),
        "f": pa.array([1.5, -2.5, None], pa.float32()),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "s": pa.array(["a", "b", None]),
        "big": pa.array(["a", "b", "c"], pa.large_string()),
        "point": pa.array([{"x": 1, "label": "p"}, {"x": 2, "label": None}, None], POINT),
        "day": pa.array([dt.date(2020, 1, 1)] * 3),
        "at": pa.array([dt.datetime(2020, 1, 1)] * 3, pa.timestamp("us")),
        "zoned": pa.array([dt.datetime(2020, 1, 1)] * 3, pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.00")] * 3, pa.decimal128(10, 2)),
        "flag": pa.array([True, False, None]),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "vector": pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)),
        "raw": pa.array([b"x"] * 3),
    }
)
SCHEMA = Schema.from_arrow(BATCH.schema)


def applied(updates: dict[str, str]) -> dict[str, Any]:
    before = dict(zip(BATCH.schema.names, BATCH.columns, strict=True))
    changed = bind(SCHEMA, updates).apply(before, BATCH)
    for name, array in changed.items():
        assert array.type == BATCH.schema.field(name).type
        array.validate(full=True)
    return {name: array.to_pylist() for name, array in changed.items()}


@pytest.mark.parametrize(
    ("column", "sql", "expected"),
    [
        ("i", "i + 10", [11, 12, 13]),
        ("i", "f", [1, -2, None]),
        ("i", "1.9", [1, 1, 1]),
        ("i", "-1.9", [-1, -1, -1]),
        ("i", "'12'", [12, 12, 12]),
        ("i", "i = 2", [0, 1, 0]),
        ("s", "i", ["1", "2", "3"]),
        ("s", "NULL", [None, None, None]),
        ("s", "upper(s) || 'x'", ["Ax", "Bx", None]),
        ("s", "CASE WHEN i = 1 THEN 'one' ELSE s END", ["one", "b", None]),
        ("big", "s", ["a", "b", None]),
        ("half", "f", [1.5, -2.5, None]),
        ("price", "f", [Decimal("1.50"), Decimal("-2.50"), None]),
        ("price", "1.255", [Decimal("1.26")] * 3),
        ("day", "'2021-02-03'", [dt.date(2021, 2, 3)] * 3),
        ("day", "at", [dt.date(2020, 1, 1)] * 3),
        ("at", "TIMESTAMP '2021-01-01 10:00:00'", [dt.datetime(2021, 1, 1, 10)] * 3),
        ("flag", "i > 1", [False, True, True]),
        ("kind", "'z'", ["z", "z", "z"]),
        ("kind", "s", ["a", "b", None]),
        ("vector", "NULL", [None, None, None]),
        ("vector", "vector", [[1.0, 2.0]] * 3),
        ("raw", "X'0102'", [b"\x01\x02"] * 3),
    ],
)
def test_a_value_takes_the_type_of_its_column(column: str, sql: str, expected: list[Any]) -> None:
    assert applied({column: sql}) == {column: expected}


def test_text_without_a_zone_is_utc_in_a_zoned_column() -> None:
    [first, *_] = applied({"zoned": "'2021-01-01 10:00:00'"})["zoned"]
    assert first == dt.datetime(2021, 1, 1, 10, tzinfo=dt.UTC)


def test_every_expression_sees_the_row_as_it_was() -> None:
    assert applied({"i": "tiny * 2", "tiny": "i + 1"}) == {"i": [2, 4, 6], "tiny": [2, 3, 4]}


def test_fields_of_a_struct_are_set_and_the_others_stay() -> None:
    changed = applied({"point.x": "point.x + i", "point.label": "'q'"})
    assert changed == {"point": [{"x": 2, "label": "q"}, {"x": 4, "label": "q"}, None]}


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("tiny", "1000"),
        ("tiny", "i * 100"),
        ("i", "3000000000"),
        ("i", "i * 2000000000"),
        ("i", "1e20"),
        ("i", "1e999999999"),
        ("i", "f * 1e20"),
        ("i", "'xx'"),
        ("i", "i / 0"),
        ("u", "-1"),
        ("u", "i - 5"),
        ("price", "1e20"),
        ("point", "s"),
        ("i", "i +"),
        ("i", "(SELECT 1)"),
        ("i", "nope + 1"),
        ("i", "_rowid"),
    ],
)
def test_what_does_not_fit_is_refused_and_names_the_column(column: str, sql: str) -> None:
    with pytest.raises((InvalidExpression, FieldNotFound, InvalidInput), match=f"'{column}'|No field named"):
        applied({column: sql})


def test_targets_are_checked_before_any_row_is_read() -> None:
    with pytest.raises(FieldNotFound, match="'I'"):
        bind(SCHEMA, {"I": "1"})
    with pytest.raises(InvalidInput, match="No updates"):
        bind(SCHEMA, {})
    with pytest.raises(InvalidInput, match="same field"):
        bind(SCHEMA, {"point.x": "1", "point": "NULL"})
    with pytest.raises(FieldNotFound, match="_rowid"):
        bind(SCHEMA, {"_rowid": "1"})
    lists = Schema.from_arrow(pa.schema([("l", pa.list_(POINT))]))
    with pytest.raises((UnsupportedFeature, FieldNotFound), match="l"):
        bind(lists, {"l.item.x": "1"})


def test_null_is_refused_where_it_may_not_be() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int64())])
    strict = Schema.from_arrow(schema)
    with pytest.raises(InvalidInput, match="'k' is not nullable"):
        bind(strict, {"k": "NULL"})
    batch = pa.record_batch([pa.array([1, 2]), pa.array([1, None])], schema=schema)
    with pytest.raises(InvalidInput, match="'k'"):
        bind(strict, {"k": "v"}).apply({}, batch)


def test_ids_and_columns_of_what_is_set() -> None:
    found = bind(SCHEMA, {"point.x": "i", "s": "'q'"})
    assert found.field_ids == (SCHEMA.field("point.x").id, SCHEMA.field("s").id)
    assert [field.name for field in found.columns] == ["s", "point"]
    whole = bind(SCHEMA, {"point": "NULL"})
    assert set(whole.field_ids) == {f.id for f in SCHEMA.field("point").walk()}
