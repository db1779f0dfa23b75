"""Updates: on the newest version, all of SQL, rows moved or columns rewritten, conflicts planned again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    FieldNotFound,
    InvalidExpression,
    InvalidInput,
    TooMuchContention,
    UnsupportedFeature,
    WrongType,
)
from tiltyard.table import row_changes
from tiltyard.table import update as update_module

POINT = pa.struct([("x", pa.int64()), pa.field("label", pa.string())])


def table(rows: int = 20) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "v": pa.array([f"v{i}" for i in range(rows)]),
            "p": pa.array([{"x": i, "label": f"l{i}"} if i % 7 else None for i in range(rows)], POINT),
            "list": pa.array([[i, None] if i % 3 else None for i in range(rows)], pa.list_(pa.int32())),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(range(2 * rows), pa.float32()), 2),
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(table(), path, max_rows_per_file=5, enable_stable_row_ids=request.param)
    return path


def rows(path: str, peer: Peer) -> dict[int, dict[str, Any]]:
    found = lance.dataset(path).to_table().to_pylist()
    assert peer("lance.dataset(p).to_table().to_pylist()", p=path) == found
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def expected(changes: dict[int, dict[str, Any]], count: int = 20) -> dict[int, dict[str, Any]]:
    return {row["id"]: row | changes.get(row["id"], {}) for row in table(count).to_pylist()}


def test_rows_that_match_change_and_others_do_not(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    assert ds.update({"v": "upper(v) || '!'"}, "id BETWEEN 3 AND 6") == {"num_rows_updated": 4}
    assert ds.version == 2
    assert rows(path, peer) == expected({i: {"v": f"V{i}!"} for i in range(3, 7)})


def test_the_transaction_is_the_one_that_the_official_package_writes(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    ds.update({"v": "'q'", "p": "NULL"}, "id < 6")
    source = """
op = lance.dataset(p).read_transaction(v).operation
result = dict(
    removed=op.removed_fragment_ids, modified=op.fields_modified, mode=op.update_mode,
    fields=sorted(op.fields_for_preserving_frag_bitmap), updated=[f.id for f in op.updated_fragments],
    new=[f.physical_rows for f in op.new_fragments],
)
"""
    ours = peer(source, p=path, v=2)
    peer("lance.dataset(p).checkout_version(1).restore()", p=path)
    peer("lance.dataset(p).update(u, where='id < 6') and None", p=path, u={"v": "'q'", "p": "NULL"})
    assert ours == peer(source, p=path, v=4)
    assert ours["removed"] == [0]


def test_all_rows_without_a_condition(path: str, peer: Peer) -> None:
    assert lance.dataset(path).update({"v": "CAST(id * 2 AS string)"}) == {"num_rows_updated": 20}
    assert rows(path, peer) == expected({i: {"v": str(2 * i)} for i in range(20)})


def test_no_match_still_makes_a_version(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    assert ds.update({"v": "'q'"}, "id > 100") == {"num_rows_updated": 0}
    assert ds.version == 2
    assert rows(path, peer) == expected({})


def test_every_kind_of_column_keeps_its_values_when_its_row_moves(path: str, peer: Peer) -> None:
    lance.dataset(path).update({"id": "id + 100"}, "id % 2 = 0")
    moved = {i + 100: row | {"id": i + 100} for i, row in expected({}).items() if i % 2 == 0}
    kept = {i: row for i, row in expected({}).items() if i % 2}
    assert rows(path, peer) == kept | moved


def test_fields_of_structs_and_conditions_as_arrow_expressions(path: str, peer: Peer) -> None:
    done = lance.dataset(path).update({"p.x": "p.x * 10"}, where=pc.field("id") < 3)
    assert done == {"num_rows_updated": 3}
    assert rows(path, peer) == expected({i: {"p": {"x": 10 * i, "label": f"l{i}"}} for i in (1, 2)})


def test_a_stale_handle_updates_what_came_after_it(path: str) -> None:
    """Case T08: long-lived handles see what others did before they change anything."""
    stale = lance.dataset(path)
    old = lance.dataset(path, version=1)
    lance.write_dataset(table(21).slice(20), path, mode="append")
    assert stale.update({"v": "'new'"}, "id = 20") == {"num_rows_updated": 1}
    assert old.update({"v": "'newer'"}, "v = 'new'") == {"num_rows_updated": 1}
    assert lance.dataset(path).to_table(filter="id = 20")["v"].to_pylist() == ["newer"]


def test_updates_of_updates_and_deletes_in_between(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    for turn in range(5):
        ds.update({"v": f"v || '{turn}'"}, "id IN (2, 3, 12)")
    ds.delete("id = 3")
    peer("lance.dataset(p).update({'v': \"v || 'p'\"}, where='id = 2') and None", p=path)
    ds.update({"v": "v || 'o'"}, "id = 2")
    want = expected({2: {"v": "v201234po"}, 12: {"v": "v1201234"}})
    del want[3]
    assert rows(path, peer) == want


def test_lineage_of_moved_rows(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    ds = lance.write_dataset(table(), path, enable_stable_row_ids=True)
    lance.write_dataset(table(22).slice(20), path, mode="append")
    ds.update({"v": "'q'"}, "id IN (5, 21)")
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = ds.to_table(columns=columns, filter="id IN (4, 5, 20, 21)").sort_by("id").to_pydict()
    assert found == {
        "id": [4, 5, 20, 21],
        "_rowid": [4, 5, 20, 21],
        "_row_created_at_version": [1, 1, 2, 2],
        "_row_last_updated_at_version": [1, 3, 2, 3],
    }
    source = f"lance.dataset(p).to_table(columns={columns}, filter='id IN (4, 5, 20, 21)')"
    assert peer(source, p=path).sort_by("id").to_pydict() == found


@pytest.mark.parametrize("stable", [False, True])
def test_columns_are_rewritten_where_that_writes_less(
    stable: bool, tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_module, "COLUMN_REWRITE_ROWS", 10)
    path = str(tmp_path / "t.lance")
    ds = lance.write_dataset(table(), path, max_rows_per_file=10, enable_stable_row_ids=stable)
    ds.delete("id = 13")
    ds.update({"v": "CAST(100 / (id - 13) AS string)"}, "id <> 4")  # division by zero in a deleted row
    operation = ds.read_transaction(3).operation
    assert operation.update_mode == "rewrite_columns"
    assert operation.new_fragments == []
    want = expected({i: {"v": str(int(100 / (i - 13)))} for i in range(20) if i not in (4, 13)})
    del want[13]
    assert rows(path, peer) == want
    if stable:
        versions = ds.to_table(columns=["id", "_row_last_updated_at_version"], filter="id IN (3, 4)")
        assert versions["_row_last_updated_at_version"].to_pylist() == [3, 1]
    ds.update({"p.label": "v"}, "id < 18")
    assert ds.read_transaction(4).operation.update_mode == "rewrite_columns"
    for i, row in want.items():
        if i < 18 and row["p"] is not None:
            row["p"] = row["p"] | {"label": row["v"]}
    assert rows(path, peer) == want


def test_rows_move_where_few_change_or_most_columns_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_module, "COLUMN_REWRITE_ROWS", 10)
    path = str(tmp_path / "t.lance")
    ds = lance.write_dataset(table().select(["id", "v"]), path, max_rows_per_file=10)
    ds.update({"v": "'q'"})
    ds.update({"v": "'q'"}, "id IN (1, 11)")
    assert {ds.read_transaction(v).operation.update_mode for v in (2, 3)} == {"rewrite_rows"}


def test_a_large_update_streams(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    rows = 300_000
    data = pa.table({"id": np.arange(rows), "text": pa.array([f"text {i}" for i in range(rows)])})
    ds = lance.write_dataset(data, path, max_rows_per_file=100_000, data_storage_version="2.1")
    assert ds.update({"text": "text || '.'"}, "id % 3 = 0") == {"num_rows_updated": 100_000}
    found = ds.to_table().sort_by("id")
    wrong = [i for i, t in enumerate(found["text"].to_pylist()) if t != f"text {i}" + "." * (i % 3 == 0)]
    assert wrong == []
    assert peer("lance.dataset(p).count_rows(\"text LIKE '%.'\")", p=path) == 100_000
    assert {f.data_files()[0].file_minor_version for f in ds.get_fragments()} == {1}


def test_bad_updates_change_nothing(path: str) -> None:
    ds = lance.dataset(path)
    before = sorted(Path(path).rglob("*"))
    for updates, where, error in (
        ({}, None, InvalidInput),
        ({"nope": "1"}, None, FieldNotFound),
        ({"v": "nope"}, None, FieldNotFound),
        ({"v": "v +"}, None, InvalidExpression),
        ({"v": "1"}, "id", InvalidExpression),
        ({"v": "1"}, "nope = 1", FieldNotFound),
        ({"list.item": "1"}, None, UnsupportedFeature),
        ({"id": "'x' || v"}, None, InvalidExpression),
        ({"id": "9223372036854775807 + id"}, None, InvalidExpression),
        ({"id": "1 / (id - 19)"}, None, InvalidExpression),
        ({"v": 3}, None, WrongType),
        ("v", None, WrongType),
        ({"v": "1"}, 7, InvalidInput),
    ):
        with pytest.raises(error):
            ds.update(updates, where)  # type: ignore[arg-type]
    for options in (
        {"conflict_retries": -1},
        {"conflict_retries": 1.5},
        {"retry_timeout": -1},
        {"retry_timeout": float("nan")},
        {"data_storage_version": "9.9"},
        {"data_storage_version": "2.0"},
    ):
        with pytest.raises((InvalidInput, UnsupportedFeature)):
            ds.update({"v": "'q'"}, **options)  # type: ignore[arg-type]
    assert sorted(each for each in Path(path).rglob("*") if each.name != "data") == [
        each for each in before if each.name != "data"
    ]
    assert ds.version == 1


def test_null_in_a_column_that_may_not_have_any(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int64())])
    ds = lance.write_dataset(pa.table([[1, 2], [1, None]], schema=schema), path)
    before = set(Path(path).rglob("*"))
    for sql in ("NULL", "v"):
        with pytest.raises(InvalidInput, match="'k'"):
            ds.update({"k": sql})
    assert {each for each in set(Path(path).rglob("*")) - before if each.is_file()} == set()


def test_a_conflict_on_the_same_rows_is_planned_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = row_changes.commit
    races: list[bool] = []

    def raced(store: Any, transaction: Any, **options: Any) -> Any:
        if not races:
            races.append(True)
            lance.dataset(path).update({"v": "v || 'a'"}, "id IN (3, 4)")
        return original(store, transaction, **options)

    monkeypatch.setattr(row_changes, "commit", raced)
    assert lance.dataset(path).update({"v": "v || 'b'"}, "id IN (4, 5)") == {"num_rows_updated": 2}
    found = lance.dataset(path).to_table(filter="id IN (3, 4, 5)").sort_by("id")
    assert found["v"].to_pylist() == ["v3a", "v4ab", "v5b"]


def test_disjoint_rows_of_one_fragment_are_merged_without_planning_again(
    path: str, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = row_changes.commit
    commits: list[str] = []

    def raced(store: Any, transaction: Any, **options: Any) -> Any:
        commits.append(transaction.uuid)
        if len(commits) == 1:
            lance.dataset(path).delete("id = 1")
            peer("lance.dataset(p).update({'v': \"'p'\"}, where='id = 2') and None", p=path)
            lance.write_dataset(table(21).slice(20), path, mode="append")
        return original(store, transaction, **options)

    monkeypatch.setattr(row_changes, "commit", raced)
    lance.dataset(path).update({"v": "'ours'"}, "id = 3")
    assert len(commits) == 2  # the update and the delete: no second update
    want = expected({2: {"v": "p"}, 3: {"v": "ours"}}, 21)
    del want[1]
    assert rows(path, peer) == want


def test_a_spent_budget_names_the_winner(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = row_changes.commit

    def raced(store: Any, transaction: Any, **options: Any) -> Any:
        with monkeypatch.context() as quiet:
            quiet.setattr(row_changes, "commit", original)
            lance.dataset(path).update({"v": "v || 'a'"}, "id = 4")
        return original(store, transaction, **options)

    monkeypatch.setattr(row_changes, "commit", raced)
    with pytest.raises(TooMuchContention, match=r"the Update of version 3 .*conflict_retries") as found:
        lance.dataset(path).update({"v": "v || 'b'"}, "id = 4", conflict_retries=1)
    newest = lance.dataset(path)
    assert found.value.winner is not None
    assert found.value.winner.uuid == newest.read_transaction(3).uuid
    assert newest.version == 3


def test_threads_that_count_lose_no_update(path: str) -> None:
    lance.dataset(path).update({"id": "0"}, "id = 0")
    errors: list[BaseException] = []

    def count() -> None:
        try:
            for _ in range(5):
                lance.dataset(path).update({"vec": "vec", "id": "id + 1000"}, "id % 1000 = 0", 100)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert lance.dataset(path).to_table(filter="id % 1000 = 0")["id"].to_pylist() == [20_000]
