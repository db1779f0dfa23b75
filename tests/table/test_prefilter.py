"""Indices as a pre-filter: the answer is that of the full scan, whatever happened to the table since."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from tiltyard.expr import parse_predicate
from tiltyard.table import prefilter as prefilter_module
from tiltyard.table.prefilter import counted, prefilter
from tiltyard.table.take import Taker
from tiltyard.table.unit_reader import UnitReader

ATOMS = (
    "a < 3",
    "a = 5",
    "a != 5",
    "a IN (1, 4, NULL)",
    "a NOT IN (1, 4)",
    "a IS NULL",
    "a IS NOT NULL",
    "a BETWEEN 2 AND 6",
    "f > 0",
    "f <= 0.0",
    "f = -0.0",
    "f < 1.5",
    "f IS NULL",
    "NOT (f > 0)",
    "s LIKE 'b%'",
    "s LIKE 'a_'",
    "s = 'ab'",
    "s >= 'b'",
    "s IN ('a', 'bb')",
    "n % 2 = 0",
    "n < 20",
)


def _rows(random: np.random.Generator, start: int, count: int) -> pa.Table:
    def holes(values: list[Any]) -> list[Any]:
        return [None if random.random() < 0.15 else value for value in values]

    floats = np.array([np.nan, -np.nan, 0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf])
    texts = ["", "a", "ab", "b", "ba", "bb", "c"]
    return pa.table(
        {
            "n": pa.array(range(start, start + count), pa.int64()),
            "a": pa.array(holes(random.integers(0, 8, count).tolist()), pa.int32()),
            "f": pa.array(holes(random.choice(floats, count).tolist()), pa.float64()),
            "s": pa.array(holes(random.choice(texts, count).tolist())),
        }
    )


def _predicate(random: np.random.Generator, depth: int = 2) -> str:
    if depth == 0 or random.random() < 0.3:
        return str(random.choice(ATOMS))
    match random.integers(0, 4):
        case 0:
            return f"NOT ({_predicate(random, depth - 1)})"
        case 1:
            return f"({_predicate(random, depth - 1)}) OR ({_predicate(random, depth - 1)})"
        case _:
            return f"({_predicate(random, depth - 1)}) AND ({_predicate(random, depth - 1)})"


def _changed(random: np.random.Generator, ds: Any, uri: str, start: int) -> tuple[Any, int]:
    """One random change of the table: rows come, go, or change, or the indices are made anew."""
    match random.integers(0, 6):
        case 0:
            ds.delete(str(random.choice(ATOMS)))
        case 1:
            ds.update({"a": "a + 1"}, where=f"n % 3 = {random.integers(0, 3)}")
        case 2:
            ds.update({"f": "f * 2"})
        case 3:
            ds.create_scalar_index(str(random.choice(["a", "f", "s"])), "BTREE", replace=True)
        case _:
            count = int(random.integers(1, 30))
            ds = lance.write_dataset(_rows(random, start, count), uri, mode="append")
            start += count
    return ds, start


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30), stable=st.booleans())
def test_the_answer_is_that_of_the_full_scan(seed: int, stable: bool, tmp_path_factory: Any) -> None:
    random = np.random.default_rng(seed)
    uri = str(tmp_path_factory.mktemp("t"))
    options = {"max_rows_per_file": 15, "enable_stable_row_ids": stable}
    ds = lance.write_dataset(_rows(random, 0, 40), uri, **options)
    for column in random.choice(["a", "f", "s"], int(random.integers(1, 4)), replace=False).tolist():
        ds.create_scalar_index(column, "BTREE")
    start = 40
    for _ in range(int(random.integers(0, 5))):
        ds, start = _changed(random, ds, uri, start)
    ds = lance.dataset(uri)
    for _ in range(12):
        where = _predicate(random)
        _assert_same(random, ds, where)


def _assert_same(random: np.random.Generator, ds: Any, where: str) -> None:
    options: dict[str, Any] = {
        "with_row_id": True,
        "with_row_address": True,
        "columns": ["s", "n", "_rowoffset"],
    }
    if random.random() < 0.3:
        fragments = ds.get_fragments()
        options["fragments"] = [each for each in fragments if random.random() < 0.5] or fragments[:1]
    full = ds.to_table(filter=where, use_scalar_index=False, **options)
    assert ds.to_table(filter=where, **options).to_pylist() == full.to_pylist(), where
    assert ds.scanner(
        [], where, **({"fragments": options["fragments"]} if "fragments" in options else {})
    ).count_rows() == len(full)
    batches = list(ds.to_batches(filter=where, batch_size=7, **options))
    assert pa.Table.from_batches(batches, full.schema).to_pylist() == full.to_pylist()
    assert all(0 < batch.num_rows <= 7 for batch in batches)
    limit, offset = int(random.integers(0, 10)), int(random.integers(0, 10))
    cut = ds.to_table(filter=where, limit=limit, offset=offset, **options)
    assert cut.to_pylist() == full.to_pylist()[offset : offset + limit]
    ordered = ds.to_table(filter=where, order_by=["n"], **options)
    assert sorted(ordered.to_pylist(), key=lambda row: row["n"]) == ordered.to_pylist()
    assert ordered.num_rows == full.num_rows


@pytest.fixture
def indexed(tmp_path: Path) -> Any:
    """Four fragments of 25 rows, the last one without index; n has no index."""
    uri = str(tmp_path / "t")
    table = pa.table({"n": range(75), "a": [i % 10 for i in range(75)], "b": [i // 10 for i in range(75)]})
    ds = lance.write_dataset(table, uri, max_rows_per_file=25)
    ds.create_scalar_index("a", "BTREE")
    ds.create_scalar_index("b", "BTREE")
    more = pa.table({"n": range(75, 100), "a": [i % 10 for i in range(75, 100)], "b": [0] * 25})
    return lance.write_dataset(more, uri, mode="append")


def _found(ds: Any, where: str, fragments: list[int] | None = None) -> Any:
    return prefilter(ds._snapshot, parse_predicate(where, ds.schema), fragments)


def test_fragments_that_no_index_knows_are_named(indexed: Any) -> None:
    found = _found(indexed, "a = 3")
    assert {id: rows.tolist() for id, rows in found.rows.items()} == {
        0: [3, 13, 23],
        1: [8, 18],
        2: [3, 13, 23],
    }
    assert found.unindexed == {3}
    assert found.is_exact
    assert found.names == ("a_idx",)
    assert set(_found(indexed, "a = 3", [1, 2]).rows) == {1, 2}
    assert _found(indexed, "a = 3", [1]).unindexed == frozenset()


def test_deleted_rows_are_left_out(indexed: Any) -> None:
    indexed.delete("n = 13")
    assert _found(indexed, "a = 3").rows[0].tolist() == [3, 23]


def test_conditions_on_several_columns(indexed: Any) -> None:
    both = _found(indexed, "a = 3 AND b = 1")
    assert both.is_exact
    assert {id: rows.tolist() for id, rows in both.rows.items()} == {0: [13]}
    either = _found(indexed, "a = 3 OR b = 1")
    assert either.is_exact
    assert sum(map(len, either.rows.values())) == 17
    part = _found(indexed, "a = 3 AND n < 50")
    assert not part.is_exact
    assert sum(map(len, part.rows.values())) == 8
    assert _found(indexed, "a = 3 OR n < 50") is None
    assert _found(indexed, "n < 50") is None


def test_an_unselective_condition_beside_a_selective_one_is_tested_on_the_rows_found(
    monkeypatch: pytest.MonkeyPatch, indexed: Any
) -> None:
    estimates = {"a": 10, "b": 1000}
    original = prefilter_module._estimate

    def told(query: Any, columns: Any) -> int:
        return estimates[query.path[0]] if hasattr(query, "path") else original(query, columns)

    monkeypatch.setattr(prefilter_module, "_estimate", told)
    found = _found(indexed, "a = 3 AND b >= 0")
    assert found.names == ("a_idx",)
    assert not found.is_exact


def test_an_index_that_would_leave_much_is_given_up(monkeypatch: pytest.MonkeyPatch, indexed: Any) -> None:
    monkeypatch.setattr(prefilter_module, "SELECTIVE_ROWS", 10)
    assert _found(indexed, "a >= 0") is None
    assert indexed.count_rows("a >= 0") == 100
    plan = indexed.scanner(filter="a >= 0").explain_plan()
    assert "index a_idx left out" in plan


def test_the_plan_tells_of_the_index(indexed: Any) -> None:
    plan = indexed.scanner(filter="a = 3 AND n < 5").explain_plan(verbose=True)
    assert "index a_idx (BTree)" in plan
    assert "fragments without index, scanned: 1" in plan
    assert "tested again" in plan
    assert "index" not in indexed.scanner(filter="a = 3", use_scalar_index=False).explain_plan()
    assert "index" not in indexed.scanner(filter="n = 3").explain_plan()
    assert "rows: 10, " in indexed.scanner(filter="a = 3").analyze_plan()


def test_an_index_alone_counts_where_it_knows_every_row(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, 1, None, 3] * 10)})
    ds = lance.write_dataset(table, tmp_path / "t", max_rows_per_file=16)
    ds.create_scalar_index("a", "BTREE")

    def told(where: str) -> int | None:
        return counted(ds._snapshot, parse_predicate(where, ds.schema))

    assert told("a = 1") == 20
    assert told("a != 1") == 10
    assert told("a IS NULL") == 10
    assert told("a = 1 AND a IS NOT NULL") == 20
    assert told("a BETWEEN 2 AND 3") == 10
    assert told("a = 1 AND a + 1 = 2") is None
    ds.delete("a = 3")
    assert told("a = 1") is None
    assert ds.count_rows("a = 1") == 20
    assert ds.count_rows("a = 3") == 0


def test_an_index_alone_does_not_count_rows_of_fragments_it_no_longer_covers(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"a": range(20)}), tmp_path / "t", max_rows_per_file=10)
    ds.create_scalar_index("a", "BTREE")
    ds.delete("a < 10")  # the whole first fragment: it leaves, its entries stay in the index
    assert len(ds.get_fragments()) == 1
    assert ds.count_rows("a >= 0") == 10
    assert counted(ds._snapshot, parse_predicate("a >= 0", ds.schema)) is None


def test_little_is_read_for_a_limit(monkeypatch: pytest.MonkeyPatch, indexed: Any) -> None:
    read: list[int] = []
    original = UnitReader._read

    def spy(self: UnitReader, unit: Any) -> Any:
        read.append(unit.rows)
        return original(self, unit)

    monkeypatch.setattr(UnitReader, "_read", spy)
    found = indexed.to_table(filter="a = 3", limit=2, offset=1, fragments=indexed.get_fragments()[:3])
    assert found["n"].to_pylist() == [13, 23]
    assert read == [2]


def _damage(ds: Any, how: str) -> None:
    (directory,) = (Path(ds.uri) / "_indices").iterdir()
    match how:
        case "gone":
            shutil.rmtree(directory)
        case "cut":
            path = directory / "page_data.lance"
            path.write_bytes(path.read_bytes()[:-20])
        case "lookup":
            (directory / "page_lookup.lance").write_bytes(b"nothing of the kind")


@pytest.mark.parametrize("how", ["gone", "cut", "lookup"])
def test_a_damaged_index_is_left_out_and_named(how: str, tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"a": range(100)}), tmp_path / "t")
    ds.create_scalar_index("a", "BTREE")
    _damage(ds, how)
    again = lance.dataset(ds.uri)
    again = lance.LanceDataset(ds.uri, session=lance.Session()) if hasattr(lance, "Session") else again
    with pytest.warns(RuntimeWarning, match="a_idx"):
        assert again.to_table(filter="a = 3")["a"].to_pylist() == [3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert again.count_rows("a < 10") == 10
        assert again.scanner(filter="a = 3").explain_plan().count("a_idx") >= 1
        again.delete("a = 3")
        assert again.count_rows() == 99
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.to_table(filter="a = 4", use_scalar_index=False)["a"].to_pylist() == [4]


def test_a_delete_reads_only_what_the_index_finds(monkeypatch: pytest.MonkeyPatch, indexed: Any) -> None:
    used: list[Any] = []
    original = prefilter_module.prefilter

    def spy(*args: Any) -> Any:
        used.append(original(*args))
        return used[-1]

    monkeypatch.setattr(prefilter_module, "prefilter", spy)
    indexed.delete("a = 3")
    assert any(each is not None for each in used)
    assert indexed.count_rows() == 90
    assert indexed.count_rows("a = 3") == 0


def test_a_search_looks_only_at_the_rows_that_the_index_finds(tmp_path: Path) -> None:
    matrix = np.random.default_rng(5).standard_normal((60, 3), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 3)
    ds = lance.write_dataset(pa.table({"a": range(60), "v": vectors}), tmp_path / "t", max_rows_per_file=25)
    ds.create_scalar_index("a", "BTREE")
    near = {"column": "v", "q": [0, 0, 0], "k": 4}
    options = {"nearest": near, "filter": "a IN (3, 30, 31, 58, 59)", "prefilter": True}
    assert "index a_idx (BTree)" in ds.scanner(**options).explain_plan()
    found = ds.to_table(**options)
    assert found == ds.to_table(use_scalar_index=False, **options)
    wanted = sorted([3, 30, 31, 58, 59], key=lambda row: float((matrix[row].astype(float) ** 2).sum()))
    assert found["a"].to_pylist() == wanted[:4]


def test_what_is_kept_for_the_next_scan_keeps_no_old_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ds = lance.write_dataset(pa.table({"a": range(10)}), uri)
    ds.create_scalar_index("a", "BTREE")
    for number in range(3):
        ds = lance.write_dataset(pa.table({"a": [number]}), uri, mode="append")
        assert ds.to_table(filter="a = 1").num_rows >= 1
        assert ds.take([0]).num_rows == 1
    cached = ds.session().cache._entries
    own = {key: entry[0] for key, entry in cached.items() if key[0] == ds._snapshot.store.identity}
    readers = [each for key, each in own.items() if isinstance(each, UnitReader) and "('a',)" not in str(key)]
    takers = [each[0] for key, each in own.items() if key[1] == "taker"]
    for (kept,) in (readers, takers):
        assert isinstance(kept, UnitReader | Taker)
        assert kept.snapshot.version == ds.version


def test_several_segments_count_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ds = lance.write_dataset(pa.table({"a": range(20)}), uri, max_rows_per_file=10)
    ds.create_scalar_index("a", "BTREE")
    ds = lance.write_dataset(pa.table({"a": range(10, 30)}), uri, mode="append")
    assert counted(ds._snapshot, parse_predicate("a < 15", ds.schema)) is None
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    ds = lance.dataset(uri)
    assert len(ds._snapshot.manifest.indices) == 2
    assert counted(ds._snapshot, parse_predicate("a < 15", ds.schema)) == 20
    assert ds.count_rows("a < 15") == ds.count_rows("a < 15 AND a IS NOT NULL") == 20
    assert ds.to_table(filter="a IN (12, 25)")["a"].to_pylist() == [12, 12, 25]
