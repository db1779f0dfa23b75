"""What deletes, updates and merges share: files, fragments, row ids, and what is left after each outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, OutcomeUnknown, RetryableConflict, SchemaMismatch, StoreError
from tiltyard.format.schema import Schema
from tiltyard.session import default_session
from tiltyard.store import open_store
from tiltyard.table import row_changes
from tiltyard.table.row_changes import NewRows, RowChanges
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.write import WriteOptions


def made(path: Path, rows: int = 20, **options: Any) -> str:
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "v": pa.array([f"v{i}" for i in range(rows)])})
    lance.write_dataset(table, str(path), max_rows_per_file=5, **options)
    return str(path)


def newest(path: str) -> Snapshot:
    return open_snapshot(open_store(path), default_session())


def files(path: str) -> set[str]:
    return {str(each.relative_to(path)) for each in Path(path).rglob("*") if each.is_file()}


def u32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def batch(ids: list[int], values: list[str | None]) -> Any:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


def address(fragment: int, *offsets: int) -> np.ndarray:
    return np.array([fragment << 32 | offset for offset in offsets], np.uint64)


def change(path: str, taken: dict[int, np.ndarray], new: Iterable[NewRows]) -> Snapshot:
    with RowChanges(newest(path)) as changes:
        changes.take_away(taken)
        changes.add(new)
        return changes.commit(changes.updating())


def rows(path: str, peer: Peer) -> list[tuple[int, str]]:
    table = lance.dataset(path).to_table()
    found = list(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    theirs = peer("lance.dataset(p).to_table().to_pydict()", p=path)
    assert list(zip(theirs["id"], theirs["v"], strict=True)) == found
    return sorted(found)


@pytest.mark.parametrize("stable", [False, True])
def test_moved_and_inserted_rows_stand_in_new_fragments(stable: bool, tmp_path: Path, peer: Peer) -> None:
    path = made(tmp_path / "t.lance", enable_stable_row_ids=stable)
    snapshot = newest(path)
    with RowChanges(snapshot) as changes:
        changes.take_away({0: u32(1, 3), 2: u32(0, 1, 2, 3, 4)})
        changes.take_away({0: u32(2)})
        assert changes.rows_taken == 8
        changes.add(
            [
                NewRows(batch([3, 1], ["x3", "x1"]), address(0, 3, 1)),
                NewRows(batch([12], ["x12"]), address(2, 2)),
                NewRows(batch([100, 101], ["n", None])),
            ]
        )
        operation = changes.updating(changed_fields=[1])
        assert operation.removed_fragment_ids == (2,)
        assert [f.id for f in operation.updated_fragments] == [0]
        changes.commit(operation)
    expected = {i: f"v{i}" for i in range(20) if i not in (1, 2, 3, 10, 11, 12, 13, 14)}
    expected |= {1: "x1", 3: "x3", 12: "x12", 100: "n"}
    assert rows(path, peer) == sorted([*expected.items(), (101, None)], key=lambda each: each[0])
    if stable:
        columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
        source = f"lance.dataset(p).to_table(columns={columns}).to_pydict()"
        found = lance.dataset(path).to_table(columns=columns).to_pydict()
        assert found == peer(source, p=path)
        assert found["id"][-5:] == [3, 1, 12, 100, 101]
        assert found["_rowid"][-5:] == [3, 1, 12, 20, 21]
        assert found["_row_created_at_version"][-5:] == [1, 1, 1, 2, 2]
        assert set(found["_row_last_updated_at_version"][-5:]) == {2}


def test_row_ids_follow_their_rows_over_several_files(tmp_path: Path, peer: Peer) -> None:
    path = made(tmp_path / "t.lance", enable_stable_row_ids=True)
    with RowChanges(newest(path)) as changes:
        taken = {1: u32(0, 1, 2, 3), 3: u32(2, 3, 4)}
        changes.take_away(taken)
        moved = [
            NewRows(batch([5, 6, 7, 8], ["m"] * 4), address(1, 0, 1, 2, 3)),
            NewRows(batch([17, 18, 19], ["m"] * 3), address(3, 2, 3, 4)),
            NewRows(batch([50], ["n"])),
        ]
        changes.add(moved, options=WriteOptions(max_rows_per_file=3))
        after = changes.commit(changes.updating(changed_fields=[1]))
    assert [f.physical_rows for f in after.fragments][-3:] == [3, 3, 2]
    found = lance.dataset(path).to_table(columns=["id", "_rowid"])
    ids = dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
    assert ids == {i: i for i in range(20)} | {50: 20}
    theirs = peer("lance.dataset(p).to_table(columns=['id', '_rowid']).to_pydict()", p=path)
    assert dict(zip(theirs["id"], theirs["_rowid"], strict=True)) == ids


@pytest.mark.parametrize("stable", [False, True])
def test_columns_are_rewritten_beside_the_others(stable: bool, tmp_path: Path, peer: Peer) -> None:
    path = made(tmp_path / "t.lance", enable_stable_row_ids=stable)
    lance.dataset(path).delete("id = 6")
    snapshot = newest(path)
    column = Schema((snapshot.schema.field("v"),))
    with RowChanges(snapshot) as changes:
        values = pa.record_batch({"v": pa.array(["a", "gone", "b", "v8", "v9"])})
        changes.rewrite(1, column, [values.slice(0, 2), values.slice(2)], u32(0, 2))
        operation = changes.updating()
        assert operation.fields_modified == (1,)
        assert operation.update_mode == 1
        changes.commit(operation)
    expected = {i: f"v{i}" for i in range(20) if i != 6} | {5: "a", 7: "b"}
    assert rows(path, peer) == sorted(expected.items())
    if stable:
        table = lance.dataset(path).to_table(columns=["id", "_row_last_updated_at_version"])
        changed = table.filter(pa.compute.field("_row_last_updated_at_version") == 3)
        assert changed["id"].to_pylist() == [5, 7]
    with pytest.raises(InvalidInput, match="4 rows were given"), RowChanges(newest(path)) as changes:
        changes.rewrite(1, column, [values.slice(1)], u32(0))


def test_bad_rows_leave_no_file(tmp_path: Path) -> None:
    path = made(tmp_path / "t.lance", enable_stable_row_ids=True)
    before = files(path)
    moved = NewRows(batch([1], ["x"]), address(0, 1))
    inserted = NewRows(batch([9], ["y"]))

    def broken() -> Iterator[NewRows]:
        yield moved
        raise RuntimeError("source")

    for bad, error in (
        ([NewRows(pa.record_batch({"other": [1]}))], SchemaMismatch),
        ([inserted, moved], InvalidInput),
        ([NewRows(batch([1, 2], ["x", "y"]), address(0, 1))], InvalidInput),
        ([NewRows(batch([1], ["x"]), address(9, 1))], InvalidInput),
        (broken(), RuntimeError),
    ):
        with pytest.raises(error):
            change(path, {0: u32(1)}, bad)
        assert files(path) == before
    with pytest.raises(InvalidInput, match="no fragment 9"):
        change(path, {9: u32(1)}, [])
    assert files(path) == before


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (StoreError("disk"), False),
        (RetryableConflict("rows"), False),
        (OutcomeUnknown("lost"), True),
        (KeyboardInterrupt(), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_a_definite_failure_removes_the_files(
    error: BaseException, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "t.lance")
    before = files(path)

    def fails(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(row_changes, "commit", fails)
    with pytest.raises(type(error)):
        change(path, {0: u32(1)}, [NewRows(batch([1], ["x"]), address(0, 1))])
    assert (files(path) == before) is not kept


def test_a_deletion_file_that_a_merge_replaced_is_removed(tmp_path: Path, peer: Peer) -> None:
    path = made(tmp_path / "t.lance")
    with RowChanges(newest(path)) as changes:
        changes.take_away({0: u32(1), 1: u32(0)})
        lance.dataset(path).delete("id = 3")
        after = changes.commit(changes.deleting("by hand"))
    assert after.version == 3
    assert [i for i, _ in rows(path, peer)] == [i for i in range(20) if i not in (1, 3, 5)]
    named = {
        fragment.deletion.path(fragment.id)
        for version in (2, 3)
        for fragment in open_snapshot(open_store(path), default_session(), version=version).fragments
        if fragment.deletion is not None
    }
    assert {each for each in files(path) if each.startswith("_deletions")} == named


def test_many_fragments_are_marked_in_one_go(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": pa.array(range(400), pa.int64()), "v": pa.array(["v"] * 400)})
    lance.write_dataset(table, path, max_rows_per_file=4)
    with RowChanges(newest(path)) as changes:
        changes.take_away({id: u32(0, 2) for id in range(99)} | {99: u32(0, 1, 2, 3)})
        changes.commit(changes.deleting("by hand"))
    assert [i for i, _ in rows(path, peer)] == [i for i in range(396) if i % 2]
