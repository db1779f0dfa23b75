"""Case O03: of two upserts of one new key the second finds the row of the first, in all eight settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import TooMuchContention
from tiltyard.table.merge import MergeJob

SETTINGS = [
    pytest.param(declared, indexed, partial, id=f"{a}-{b}-{c}")
    for (declared, a), (indexed, b), (partial, c) in itertools.product(
        ((True, "declared"), (False, "undeclared")),
        ((True, "btree"), (False, "no index")),
        ((True, "partial"), (False, "full")),
    )
]

HOLES = {
    # The official writer neither records the keys that it inserts nor compares ours with anything, unless
    # the key is declared and has no index: after our commit it inserts the key again (docs/support.md).
    (True, True, True): "declared key with an index, partial columns",
    (True, True, False): "declared key with an index, all columns",
    (False, True, True): "undeclared key with an index, partial columns",
    (False, True, False): "undeclared key with an index, all columns",
    (False, False, True): "undeclared key, partial columns",
    (False, False, False): "undeclared key, all columns",
}

UPSERT = """
h = kept.pop("handle")
h.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
result = lance.dataset(p).to_table().to_pylist()
"""


def _table(tmp_path: Path, declared: bool, indexed: bool) -> Any:
    metadata = {"lance-schema:unenforced-primary-key": "true"} if declared else None
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=not declared, metadata=metadata),
            pa.field("a", pa.int64()),
            pa.field("b", pa.string()),
        ]
    )
    rows = pa.table({"id": [1, 2, 3], "a": [1, 2, 3], "b": ["x", "y", "z"]}, schema=schema)
    ds = lance.write_dataset(rows, str(tmp_path / "t"))
    if indexed:
        ds.create_scalar_index("id", "BTREE")
    return ds


def _rows(ds: Any, partial: bool, a: int) -> pa.Table:
    rows = pa.table({"id": pa.array([7], ds.schema.field("id").type), "a": [a], "b": ["new"]})
    return rows.select(["id", "a"]) if partial else rows


def _upsert(ds: Any) -> Any:
    return ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()


def _between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Have `act` happen once, after the next merge of ours is planned and before it commits."""
    write = MergeJob.write
    waiting = [act]

    def written(self: MergeJob, changes: Any, planned: Any) -> Any:
        operation = write(self, changes, planned)
        if waiting:
            waiting.pop()()
        return operation

    monkeypatch.setattr(MergeJob, "write", written)


def _values(ds: Any) -> list[int]:
    table = lance.dataset(ds.uri).to_table()
    return [row["a"] for row in table.to_pylist() if row["id"] in (7, "7")]


@pytest.mark.parametrize(("declared", "indexed", "partial"), SETTINGS)
def test_the_second_of_our_upserts_of_a_new_key_updates_the_row_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: bool, indexed: bool, partial: bool
) -> None:
    """O03."""
    ds = _table(tmp_path, declared, indexed)
    other = lance.dataset(ds.uri)
    _between(monkeypatch, lambda: _upsert(other).execute(_rows(ds, partial, 100)))
    counts = _upsert(ds).execute(_rows(ds, partial, 200))
    assert counts == {"num_inserted_rows": 0, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert _values(ds) == [200]


@pytest.mark.parametrize("key", [pa.int64(), pa.string(), pa.int16(), pa.float64(), pa.date32()])
def test_keys_of_any_type_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: pa.DataType
) -> None:
    """O03 with keys that the official writer does not hash."""
    ds = lance.write_dataset(pa.table({"id": _keys([1, 2], key), "a": [1, 2]}), str(tmp_path / "t"))
    rows = pa.table({"id": _keys([7], key), "a": [0]})
    other = lance.dataset(ds.uri)
    _between(monkeypatch, lambda: _upsert(other).execute(rows))
    assert _upsert(ds).execute(rows)["num_updated_rows"] == 1
    assert lance.dataset(ds.uri).count_rows() == 3


def _keys(values: list[int], kind: pa.DataType) -> pa.Array:
    plain = [str(value) for value in values] if kind == pa.string() else values
    return pa.array(plain, kind)


@pytest.mark.parametrize(("declared", "indexed", "partial"), SETTINGS)
def test_an_upsert_of_ours_that_commits_second_finds_the_row_of_the_official_writer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peer: Peer,
    declared: bool,
    indexed: bool,
    partial: bool,
) -> None:
    """O03, the official writer first."""
    ds = _table(tmp_path, declared, indexed)
    peer("kept.__setitem__('handle', lance.dataset(p))", p=ds.uri)
    _between(monkeypatch, lambda: peer(UPSERT, p=ds.uri, rows=_rows(ds, partial, 100)))
    assert _upsert(ds).execute(_rows(ds, partial, 200))["num_updated_rows"] == 1
    assert _values(ds) == [200]


@pytest.mark.parametrize(("declared", "indexed", "partial"), SETTINGS)
def test_the_official_writer_that_commits_second_finds_ours_where_it_records_keys(
    tmp_path: Path, peer: Peer, declared: bool, indexed: bool, partial: bool
) -> None:
    """O03, ours first. Where the official writer does not look, both rows stand: the holes, by name."""
    ds = _table(tmp_path, declared, indexed)
    peer("kept.__setitem__('handle', lance.dataset(p))", p=ds.uri)
    _upsert(ds).execute(_rows(ds, partial, 100))
    peer(UPSERT, p=ds.uri, rows=_rows(ds, partial, 200))
    hole = HOLES.get((declared, indexed, partial))
    assert sorted(_values(ds)) == ([200] if hole is None else [100, 200]), hole


def test_upserts_that_join_on_different_columns_cannot_both_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G13: keys of different columns cannot be compared, so that the second plans again."""
    ds = lance.write_dataset(pa.table({"id": [1], "name": ["a"]}), str(tmp_path / "t"))
    other = lance.dataset(ds.uri)
    rows = pa.table({"id": [7], "name": ["seven"]})
    upsert = other.merge_insert("name").when_matched_update_all().when_not_matched_insert_all()
    _between(monkeypatch, lambda: upsert.execute(rows))
    assert _upsert(ds).execute(rows)["num_updated_rows"] == 1
    assert lance.dataset(ds.uri).count_rows() == 2


def test_an_append_between_plan_and_commit_makes_an_upsert_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lance.write_dataset(pa.table({"id": [1], "a": [1]}), str(tmp_path / "t"))
    rows = pa.table({"id": [7], "a": [0]})
    _between(monkeypatch, lambda: lance.write_dataset(rows, ds.uri, mode="append"))
    assert _upsert(ds).execute(rows)["num_updated_rows"] == 1
    assert lance.dataset(ds.uri).count_rows() == 2


@pytest.mark.parametrize("who", ["append of ours", "upsert of ours", "append of the other", "update"])
def test_other_keys_that_came_between_cost_no_new_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer, who: str
) -> None:
    """The rows that the other commit added are looked at, where a filter could not tell."""
    ds = lance.write_dataset(pa.table({"id": [1], "a": [1]}), str(tmp_path / "t"))
    rows = pa.table({"id": list(range(100, 400)), "a": [0] * 300})  # enough for the filters to meet
    other = lance.dataset(ds.uri)
    acts: dict[str, Callable[[], Any]] = {
        "append of ours": lambda: lance.write_dataset(rows, ds.uri, mode="append"),
        "upsert of ours": lambda: _upsert(other).execute(rows),
        "append of the other": lambda: peer("lance.write_dataset(r, p, mode='append')", p=ds.uri, r=rows),
        "update": lambda: other.update({"a": "5"}, where="id = 1"),
    }
    _between(monkeypatch, acts[who])
    mine = pa.table({"id": list(range(500, 800)), "a": [0] * 300})
    assert _upsert(ds).conflict_retries(0).execute(mine)["num_inserted_rows"] == 300
    table = lance.dataset(ds.uri).to_table()
    assert len(set(table["id"].to_pylist())) == table.num_rows == (301 if who == "update" else 601)


def test_rows_that_came_between_and_are_gone_again_make_an_upsert_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lance.write_dataset(pa.table({"id": [1], "a": [1]}), str(tmp_path / "t"))

    def append_and_compact() -> None:
        lance.write_dataset(pa.table({"id": [7], "a": [0]}), ds.uri, mode="append")
        after = lance.dataset(ds.uri)
        after.optimize.compact_files()
        after.cleanup_old_versions(older_than=timedelta(0))

    _between(monkeypatch, append_and_compact)
    assert _upsert(ds).execute(pa.table({"id": [7], "a": [5]}))["num_updated_rows"] == 1
    assert _values(ds) == [5]


def test_an_update_of_rows_that_are_there_does_not_mind_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lance.write_dataset(pa.table({"id": [1], "a": [1]}), str(tmp_path / "t"))
    rows = pa.table({"id": [7], "a": [0]})
    _between(monkeypatch, lambda: lance.write_dataset(rows, ds.uri, mode="append"))
    merge = ds.merge_insert("id").when_matched_update_all().conflict_retries(0)
    assert merge.execute(pa.table({"id": [1], "a": [5]}))["num_updated_rows"] == 1
    assert sorted(lance.dataset(ds.uri).to_table()["a"].to_pylist()) == [0, 5]


def test_a_spent_budget_says_who_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = lance.write_dataset(pa.table({"id": [1], "a": [1]}), str(tmp_path / "t"))
    other = lance.dataset(ds.uri)
    rows = pa.table({"id": [7], "a": [0]})
    _between(monkeypatch, lambda: _upsert(other).execute(rows))
    files = set((tmp_path / "t" / "data").iterdir())
    with pytest.raises(TooMuchContention, match=r"Update .*version 2|version 2.*Update"):
        _upsert(ds).conflict_retries(0).execute(rows)
    left = set((tmp_path / "t" / "data").iterdir()) - files
    assert len(left) == 1  # the other's: ours were removed
