"""Sorted scans: the order of every type, in memory and from runs that were put aside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.dataset import ColumnOrdering
from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.session import Session
from tiltyard.session.limits import Limits
from tiltyard.table import sorting
from tiltyard.table.sorting import RowSorter, SortKey

NAN = float("nan")

# -- against a model -------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("f", pa.float64()),
        ("s", pa.string()),
        ("i", pa.int8()),
        ("d", pa.dictionary(pa.int8(), pa.string())),
        ("n", pa.int64()),
    ]
)
VALUES = (
    st.sampled_from([None, NAN, -NAN, math.inf, -math.inf, 0.0, -0.0, 1.5]),
    st.sampled_from([None, "", "a", "aa", "b"]),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.sampled_from([None, "u", "v"]),
)
KEYS = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.booleans()).map(lambda each: SortKey(*each)),
    min_size=1,
    max_size=3,
)


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


def in_order(rows: list[tuple[Any, ...]], keys: Sequence[SortKey]) -> list[tuple[Any, ...]]:
    found = list(rows)
    for key in reversed(keys):
        nulls = [row for row in found if row[key.column] is None]
        rest = [row for row in found if row[key.column] is not None]
        rest.sort(key=lambda row, at=key.column: rank(row[at]), reverse=not key.ascending)
        found = nulls + rest if key.nulls_first else rest + nulls
    return found


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.tuples(*VALUES), max_size=12), max_size=8),
    KEYS,
    st.sampled_from([0, 300, 1 << 20]),
    st.sampled_from([None, 0, 3, 40]),
)
def test_rows_come_in_the_order_of_a_model(
    batches: list[list[tuple[Any, ...]]], keys: list[SortKey], spill_bytes: int, keep: int | None
) -> None:
    sorter = RowSorter(SCHEMA, keys, spill_bytes=spill_bytes, keep=keep)
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        numbered = [(*row, len(rows) + at) for at, row in enumerate(batch)]
        rows += numbered
        columns = [pa.array([row[at] for row in numbered], SCHEMA.field(at).type) for at in range(5)]
        sorter.add(pa.record_batch(columns, schema=SCHEMA))
    assert sorter.is_spilled or spill_bytes or not rows or keep == 0
    found = [number for table in sorter.sorted() for number in table["n"].to_pylist()]
    assert found[:keep] == [row[4] for row in in_order(rows, keys)][:keep]


def test_a_limit_lets_go_of_what_it_cannot_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "TOP_ROWS", 100)
    schema = pa.schema({"a": pa.int64()})
    sorter = RowSorter(schema, [SortKey(0)], spill_bytes=20_000, keep=50)
    for start in range(100_000, 0, -1000):
        sorter.add(pa.record_batch([pa.array(range(start, start + 1000))], schema=schema))
    assert not sorter.is_spilled
    (table,) = sorter.sorted()
    assert table["a"].to_pylist() == list(range(1000, 1050))


def test_a_large_limit_is_not_sorted_with_every_few_rows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_rows = 0

    def counted(columns: Sequence[Any], keys: Sequence[SortKey]) -> Any:
        nonlocal sorted_rows
        sorted_rows += len(columns[0])
        return sort_order(columns, keys)

    sort_order = sorting.sort_order
    monkeypatch.setattr(sorting, "sort_order", counted)
    monkeypatch.setattr(sorting, "TOP_ROWS", 100)
    schema = pa.schema({"a": pa.int64()})
    sorter = RowSorter(schema, [SortKey(0)], spill_bytes=1 << 20, keep=5000)
    for start in range(50_000, 0, -100):  # each batch comes before all others: none is let go at once
        sorter.add(pa.record_batch([pa.array(range(start, start + 100))], schema=schema))
    (table,) = sorter.sorted()
    assert table["a"].to_pylist() == list(range(100, 5100))
    assert sorted_rows < 3 * 50_000


# -- scans -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "i": pa.array(rng.integers(0, 50, 20_000), mask=rng.random(20_000) < 0.1),
            "s": [f"text {n % 977}" if n % 11 else None for n in range(20_000)],
            "st": [{"x": n * 7919 % 20_011, "y": str(n)} for n in range(20_000)],
            "l": [[n] * (n % 4) for n in range(20_000)],
            "d": pa.array([f"word {n % 7}" for n in range(20_000)]).dictionary_encode(),
        }
    )
    where = str(tmp_path_factory.mktemp("sorted") / "t.lance")
    lance.write_dataset(table, where, max_rows_per_file=3000)
    return where


ORDERS: list[dict[str, Any]] = [
    {"order_by": ["i"]},
    {
        "order_by": [ColumnOrdering("i", False, True), ColumnOrdering("s", nulls_first=True)],
        "filter": "i != 3",
    },
    {"order_by": ["st.x"], "columns": ["i", "l"]},
    {"order_by": ["s"], "columns": {"s": "i * 2", "d": "d"}, "limit": 100, "offset": 7},
    {"order_by": [ColumnOrdering("d", False), "_rowid"], "columns": ["l"], "with_row_id": True},
    {"order_by": [ColumnOrdering("st.x", False)], "columns": [], "with_row_id": True, "limit": 5},
    {"order_by": ["i", "i"], "columns": ["s", "d"], "offset": 19_990},
    {"order_by": ["i"], "limit": 0},
]


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_what_is_put_aside_comes_back_in_the_same_order(options: dict[str, Any], place: str) -> None:
    small = lance.dataset(place, session=Session(Limits(spill_bytes=200_000)))
    whole = lance.dataset(place).to_table(**options)
    assert small.to_table(**options).equals(whole)
    batches = list(small.to_batches(**options, batch_size=3000))
    assert [each.num_rows for each in batches[:-1]] == [3000] * (len(batches) - 1)
    assert pa.Table.from_batches(batches, whole.schema).equals(whole)
    if not any("l" in field.name for field in whole.schema):
        return
    bounded = list(small.to_batches(**options, batch_size_bytes=20_000))
    assert all(each.nbytes < 30_000 for each in bounded)


def test_the_order_is_that_of_the_official_package(place: str, peer: Peer) -> None:
    source = """
from lance.dataset import ColumnOrdering
keys = [ColumnOrdering(*key) for key in keys]
result = lance.dataset(p).to_table(order_by=keys, columns=["i", "s", "st"]).to_pylist()
"""
    for keys in (
        [("i", True, False), ("st.x", True, False)],
        [("i", False, True), ("s", True, True), ("st.x", False, False)],
    ):
        ours = lance.dataset(place).to_table(
            ["i", "s", "st"], order_by=[ColumnOrdering(*key) for key in keys]
        )
        assert ours.to_pylist() == peer(source, p=place, keys=keys)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, NAN, None, -math.inf, -NAN, 0.0], pa.float16()),
        pa.array([1.5, NAN, None, -math.inf, -NAN, 0.0], pa.float32()),
        pa.array([True, None, False]),
        pa.array([None, None], pa.null()),
        pa.array([b"b", None, b"a", b""], pa.large_binary()),
        pa.array([Decimal("1.5"), None, Decimal("-2")], pa.decimal256(50, 1)),
        pa.array([3, None, -1], pa.duration("ms")),
        pa.array([3, None, 1], pa.time32("s")),
        pa.array([b"zz", None, b"aa"], pa.binary(2)),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("ascending", [True, False])
def test_every_plain_type_has_an_order(values: pa.Array, ascending: bool) -> None:
    ds = lance.write_dataset({"v": values, "n": range(len(values))}, "memory://sorts", mode="overwrite")
    found = ds.to_table(["n"], order_by=[ColumnOrdering("v", ascending)])["n"].to_pylist()
    rows = [(value, number) for number, value in enumerate(values.to_pylist())]
    rows = [(float(a) if isinstance(a, np.floating) else a, n) for a, n in rows]
    assert found == [row[1] for row in in_order(rows, [SortKey(0, ascending)])]


def test_what_has_no_order_or_does_not_go_together_is_refused_before_anything_is_read(place: str) -> None:
    ds = lance.dataset(place)
    for name in ("l", "st"):
        with pytest.raises(UnsupportedFeature, match=f"order_by: the values of column '{name}'"):
            ds.scanner(order_by=[name])
    with pytest.raises(FieldNotFound):
        ds.scanner(order_by=["nothing"])
    with pytest.raises(InvalidInput, match="batch_size_bytes cannot be combined"):
        ds.scanner(batch_size_bytes=1, strict_batch_size=True)
    with pytest.raises(InvalidInput, match="batch_size_bytes must be positive"):
        ds.scanner(batch_size_bytes=0)
    told = ds.scanner(order_by=[ColumnOrdering("i", False, True), "s"], batch_size_bytes=99).explain_plan(
        True
    )
    assert "order by: i desc nulls first, s asc nulls last" in told
    assert "batch bytes: 99" in told


# -- bytes of batches, and when columns are read ---------------------------------------------------------


def test_batches_have_about_so_many_bytes_at_most(tmp_path: Path) -> None:
    table = pa.table({"a": range(100_000), "s": [str(n) * (n % 5) for n in range(100_000)]})
    ds = lance.write_dataset(table, tmp_path, max_rows_per_file=30_000)
    for options in ({}, {"filter": "a % 3 = 0"}, {"batch_size": 500}, {"limit": 50_000}):
        whole = ds.to_table(**options)
        batches = list(ds.to_batches(**options, batch_size_bytes=20_000))
        assert pa.Table.from_batches(batches) == whole
        assert max(each.nbytes for each in batches) < 25_000
        assert max(each.num_rows for each in batches) <= options.get("batch_size", 8192)
    assert all(each.num_rows == 1 for each in ds.to_batches(batch_size_bytes=1, limit=5))


@pytest.mark.parametrize("late", [None, True, False, ["s", "l"], ["nothing"]])
@pytest.mark.parametrize("condition", ["i < 2", "i < 45", "i >= 0", "st.x < 300"])
def test_when_columns_are_read_changes_no_row(late: Any, condition: str, place: str) -> None:
    ds = lance.dataset(place)
    whole = ds.to_table()
    import pyarrow.compute as pc

    keep = {
        "i < 2": pc.less(whole["i"], 2),
        "i < 45": pc.less(whole["i"], 45),
        "i >= 0": pc.greater_equal(whole["i"], 0),
        "st.x < 300": pc.less(pc.struct_field(whole["st"], "x"), 300),
    }[condition]
    assert ds.to_table(filter=condition, late_materialization=late).equals(whole.filter(keep))


def test_the_plan_tells_which_columns_are_read_late(place: str) -> None:
    ds = lance.dataset(place)

    def read(**options: Any) -> str:
        plan = ds.scanner(["i", "s", "d"], **options).explain_plan(True)
        return plan.partition("projection=")[2].partition("\\n")[0]

    assert read() == "[i, s, d]"
    assert read(filter="i > 1") == read(filter="i > 1", late_materialization=True) == "[i, (s), (d)]"
    assert read(filter="i > 1", late_materialization=False) == "[i, s, d]"
    assert read(filter="i > 1", late_materialization=["d"]) == "[i, s, (d)]"
    assert "output_rows=1," in ds.scanner(filter="i > 1").analyze_plan(count_rows=True)
    with pytest.raises(InvalidInput, match="late_materialization"):
        ds.scanner(late_materialization=5)
