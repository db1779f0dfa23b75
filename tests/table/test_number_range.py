"""Ranges of whole numbers, tested while a column is unpacked: the rows are those of plain comparisons."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from tiltyard.expr import bind_predicate
from tiltyard.format.schema import Schema
from tiltyard.table.number_range import arc_of
from tiltyard.table.projection import for_expression

KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]
CONDITIONS = ["{c} {op} {x}", "{c} >= {y} AND {c} < {x}", "{c} BETWEEN {y} AND {x}", "NOT ({c} {op} {x})"]


def values_of(kind: pa.DataType) -> pa.Array:
    """Values near both ends of the type, near zero, and in between; some chunks are of small numbers."""
    info = np.iinfo(kind.to_pandas_dtype())
    rng = np.random.default_rng(info.bits + (info.min < 0))
    spread = rng.integers(info.min, info.max, 700, dtype=info.dtype, endpoint=True)
    small = rng.integers(0, 100, 4000, dtype=info.dtype)
    ends = np.array([info.min, info.max, 0, 1, 99, 100], info.dtype)
    return pa.array(np.concatenate([small, spread, ends, small]))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, pa.Table]:
    columns = {str(kind): values_of(kind) for kind in KINDS}
    columns["nulls"] = pa.array(
        np.arange(len(columns["int8"])), mask=np.arange(len(columns["int8"])) % 3 == 0
    )
    made = pa.table(columns)
    path = tmp_path_factory.mktemp("ranges") / "t"
    dataset = lance.write_dataset(made, str(path), max_rows_per_file=3000)
    dataset.delete("uint8 = 7")
    keep = pa.array(columns["uint8"].to_numpy() != 7)
    return dataset, made.filter(keep)


def expected(column: pa.ChunkedArray, condition: str, op: str, x: int, y: int) -> int:
    tests = {"<": lambda v: v < x, "<=": lambda v: v <= x, "=": lambda v: v == x}
    tests |= {">": lambda v: v > x, ">=": lambda v: v >= x}
    known = [value for value in column.to_pylist() if value is not None]
    if "BETWEEN" in condition:
        return sum(y <= value <= x for value in known)
    if "AND" in condition:
        return sum(y <= value < x for value in known)
    return sum(tests[op](value) != condition.startswith("NOT") for value in known)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([*map(str, KINDS), "nulls"]),
    st.sampled_from(CONDITIONS),
    st.sampled_from(["<", "<=", "=", ">", ">="]),
    st.one_of(
        st.integers(-3, 130), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, -(2**31), 2**15])
    ),
    st.integers(-3, 130),
)
def test_rows_in_a_range_are_those_that_compare_so(
    table: tuple[lance.LanceDataset, pa.Table], name: str, condition: str, op: str, x: int, y: int
) -> None:
    dataset, rows = table
    where = condition.format(c=name, op=op, x=x, y=y)
    found = expected(rows[name], condition, op, x, y)
    assert dataset.count_rows(where) == found
    assert dataset.to_table(columns=["int64"], filter=where).num_rows == found
    assert dataset.to_table(columns=[name], filter=where).num_rows == found


@pytest.mark.parametrize(
    ("condition", "arc"),
    [
        ("a < 10", (1 << 63, (1 << 63) + 9)),
        ("a = -1", ((1 << 64) - 1, 0)),
        ("a >= 5 and a <= 5.5", (5, 0)),
        ("d < date '1970-01-11'", (1 << 31, (1 << 31) + 9)),
        ("a != 3", None),
        ("a < 3 or a > 5", None),
        ("a is null or a < 3", None),
        ("a is not null", None),
        ("f < 3", None),
        ("a < 3 and d < date '1970-01-11'", None),
        ("a + 1 < 3", None),
        ("a in (1, 2)", None),
        ("a > 9 and a < 9", None),
    ],
)
def test_one_range_of_one_column_of_whole_numbers_is_an_arc_of_words(
    condition: str, arc: tuple[int, int] | None
) -> None:
    arrow = pa.schema([("a", pa.int64()), ("f", pa.float64()), ("d", pa.date32())])
    schema = Schema.from_arrow(arrow)
    predicate = bind_predicate(condition, arrow)
    assert arc_of(predicate, for_expression(schema, predicate)) == arc


def test_dates_and_instants_are_tested_in_their_own_unit(tmp_path: Path) -> None:
    days = [datetime.date(1960, 1, 1) + datetime.timedelta(days=37 * i) for i in range(500)]
    instants = [datetime.datetime(day.year, day.month, day.day, 12) for day in days]
    made = pa.table({"day": days, "at": pa.array(instants, pa.timestamp("us"))})
    dataset = lance.write_dataset(made, str(tmp_path / "t"))
    limit = datetime.date(1971, 3, 5)
    before = sum(day < limit for day in days)
    assert dataset.count_rows("day < date '1971-03-05'") == before
    assert dataset.count_rows("at < timestamp '1971-03-05 00:00:00'") == before
    assert dataset.count_rows("at >= timestamp '1971-03-05 00:00:00'") == len(days) - before
