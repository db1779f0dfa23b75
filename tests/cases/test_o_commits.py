"""Public bug reports about commits, tried on us (cases O05, O07, O08, O12 to O17; O01 and O09 are in `races`,
because they take processes).
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer, PeerError
from tiltyard.errors import CommitConflict, FieldNotFound, OutcomeUnknown, SchemaMismatch, TiltyardError
from tiltyard.lance.fragment import write_fragments
from tiltyard.table import row_changes
from tiltyard.testing.faults import Fault, FaultyPort, Plan, Rule, port_installed, refusing


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def ids(path: str) -> list[int]:
    return lance.dataset(path).to_table()["id"].to_pylist()


def test_o05_two_stale_handles_delete_the_same_row_and_the_count_drops_by_one(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": list(range(10))}), path)
    first, second = lance.dataset(path), lance.dataset(path)
    first.delete("id = 4")
    second.delete("id = 4")
    assert ids(path) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert peer("lance.dataset(p).count_rows()", p=path) == 9


def test_o05_overlapping_deletes_through_stale_handles_are_merged(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": list(range(100))}), path, max_rows_per_file=40)
    handles = [lance.dataset(path) for _ in range(4)]
    for number, handle in enumerate(handles):
        handle.delete(f"id >= {20 * number} AND id < {20 * number + 30}")
    assert ids(path) == list(range(90, 100))
    assert peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path) == list(range(90, 100))


def test_o07_fragments_committed_twice_do_not_double_the_rows(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    append = lance.LanceOperation.Append(write_fragments(pa.table({"id": [2]}), path))
    lance.LanceDataset.commit(path, append, read_version=1)
    with pytest.raises(TiltyardError, match="data file"):
        lance.LanceDataset.commit(path, append, read_version=1)
    with pytest.raises(TiltyardError, match="data file"):
        lance.LanceDataset.commit(path, append, read_version=2)
    assert ids(path) == [1, 2] == peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path)


def test_o07_fragments_compacted_away_since_cannot_be_committed_again(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    append = lance.LanceOperation.Append(write_fragments(pa.table({"id": [2]}), path))
    lance.LanceDataset.commit(path, append, read_version=1)
    peer("result = lance.dataset(p).optimize.compact_files() and None", p=path)
    with pytest.raises(TiltyardError, match="data file"):
        lance.LanceDataset.commit(path, append, read_version=1)
    assert sorted(ids(path)) == [1, 2]


def test_o08_fragments_whose_file_was_removed_are_refused_and_the_table_reads_on(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    before = set(os.listdir(os.path.join(path, "data")))
    append = lance.LanceOperation.Append(write_fragments(pa.table({"id": [2]}), path))
    (new,) = set(os.listdir(os.path.join(path, "data"))) - before
    os.unlink(os.path.join(path, "data", new))
    with pytest.raises(TiltyardError, match=new):
        lance.LanceDataset.commit(path, append, read_version=1)
    assert lance.dataset(path).version == 1
    assert ids(path) == [1]


def test_o12_temporary_files_of_other_writers_do_not_disturb_an_open(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    versions = os.path.join(path, "_versions")
    (name,) = (n for n in os.listdir(versions) if n.endswith(".manifest"))
    stop = threading.Event()

    def churn() -> None:
        foreign = [
            f".tmp_{name}_77",
            f"{name}-1b3c",
            f"{name}.tmp",
            "9.manifest#1",
            "00000000000000000009.manifest.part",
        ]
        while not stop.is_set():
            for other in foreign:
                with open(os.path.join(versions, other), "wb") as file:
                    file.write(b"half a mani")
            for other in foreign:
                os.unlink(os.path.join(versions, other))

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    try:
        for _ in range(300):
            assert lance.dataset(path).version == 1
            assert len(lance.dataset(path).versions()) == 1
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "refused", [("link_handle",), ("link_handle", "link"), ("link_handle", "link", "rename_noreplace")]
)
def test_o13_a_file_system_without_links_is_written_all_the_same(
    refused: tuple[str, ...], path: str, peer: Peer
) -> None:
    plan = refusing(**dict.fromkeys(refused, errno.EPERM))
    with port_installed(FaultyPort(plan)):
        lance.write_dataset(pa.table({"id": [1]}), path)
        lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
        lance.dataset(path).delete("id = 1")
        with pytest.raises(TiltyardError):
            lance.write_dataset(pa.table({"id": [3]}), path, mode="create")
    assert plan.calls("link_handle") > 0
    assert ids(path) == [2] == peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path)
    assert not [f.name for f in Path(path).rglob(".tmp*")]


def referenced_files_exist(path: str) -> None:
    """Every version opens and reads, so no file that a manifest names is gone."""
    for version in lance.dataset(path).versions():
        lance.dataset(path, version=version["version"]).to_table()


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER], ids=lambda f: f.name)
@pytest.mark.parametrize("action", ["append", "delete"])
def test_o17_no_error_path_deletes_a_file_that_a_version_names(
    action: str, fault: Fault, tmp_path: Path
) -> None:
    """Every call to the file system that a commit makes fails once; what the error says must be true."""

    def act(path: str) -> None:
        if action == "append":
            lance.write_dataset(pa.table({"id": [3]}), path, mode="append")
        else:
            lance.dataset(path).delete("id = 1")

    def prepared(name: str) -> str:
        path = str(tmp_path / name)
        lance.write_dataset(pa.table({"id": [1, 2]}), path)
        return path

    learn = Plan()
    path = prepared("learn.lance")
    with port_installed(FaultyPort(learn)):
        act(path)
    done = sorted(ids(path))
    kinds = sorted({call for call, _ in learn.trace})
    unknown = 0
    for kind in kinds:
        for at in range(1, learn.calls(kind) + 1):
            path = prepared(f"{kind}-{at}.lance")
            plan = Plan(Rule(fault, kind, at=at))
            outcome = "done"
            with port_installed(FaultyPort(plan)):
                try:
                    act(path)
                except OutcomeUnknown:
                    outcome = "unknown"
                    unknown += 1
                except (TiltyardError, OSError):
                    outcome = "failed"
            found = sorted(ids(path))
            referenced_files_exist(path)
            if outcome == "done":
                assert found == done, f"{kind} {at}: reported as done"
            elif outcome == "failed":
                assert found == [1, 2], f"{kind} {at}: reported as failed"
            act(path)  # and the table goes on working
            referenced_files_exist(path)
    assert unknown > 0  # a directory that cannot be synced leaves the outcome open


def test_o16_a_restore_through_a_stale_handle_names_the_append_that_it_leaves_behind(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    stale = lance.dataset(path)
    lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
    with pytest.raises(CommitConflict, match=r"version 2 committed since"):
        stale.restore(expected_latest=1)
    assert ids(path) == [1, 2]
    assert stale.restore() == {"version": 3, "restored_version": 1, "superseded_versions": [2]}
    assert ids(path) == [1]
    assert lance.dataset(path, version=2).to_table()["id"].to_pylist() == [1, 2]


def test_o14_a_column_dropped_before_a_stale_handle_updates_it_is_not_there(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": [1, 2], "v": [3, 4]}), path)
    stale = lance.dataset(path)
    peer("lance.dataset(p).drop_columns(['v'])", p=path)
    with pytest.raises(FieldNotFound, match="'v'"):
        stale.update({"v": "7"})
    assert lance.dataset(path).to_table().to_pydict() == {"id": [1, 2]}


def test_o14_a_column_dropped_while_it_is_updated_stays_dropped(
    path: str, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is "update, then drop": no stray field, and everybody reads the table."""
    lance.write_dataset(pa.table({"id": [1, 2], "v": [3, 4]}), path)
    original = row_changes.commit

    def dropped(*args: Any, **options: Any) -> Any:
        peer("lance.dataset(p).drop_columns(['v'])", p=path)
        return original(*args, **options)

    monkeypatch.setattr(row_changes, "commit", dropped)
    lance.dataset(path).update({"v": "7"}, "id = 1")
    read = "lance.dataset(p).to_table().to_pydict()"
    assert lance.dataset(path).to_table().to_pydict() == {"id": [2, 1]} == peer(read, p=path)
    assert lance.dataset(path).schema.names == ["id"]
    lance.write_dataset(pa.table({"id": [3]}), path, mode="append")
    assert peer(read, p=path) == {"id": [2, 1, 3]}


def test_o15_an_append_by_an_old_name_lands_in_the_renamed_column(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": [1], "v": [3]}), path)
    stale = lance.dataset(path)
    peer("lance.dataset(p).alter_columns({'path': 'v', 'name': 'vv'})", p=path)
    lance.write_dataset(pa.table({"id": [2], "v": [4]}), stale, mode="append")
    expected = {"id": [1, 2], "vv": [3, 4]}
    assert lance.dataset(path).to_table().to_pydict() == expected
    assert peer("lance.dataset(p).to_table().to_pydict()", p=path) == expected
    with pytest.raises(SchemaMismatch):  # whoever sees the new name has no old one
        lance.write_dataset(pa.table({"id": [2], "v": [4]}), path, mode="append")
    with pytest.raises(SchemaMismatch):
        stale.insert(pa.table({"id": [2], "v": [4], "vv": [5]}))


def test_o15_an_append_that_lacks_a_column_added_meanwhile_is_null_there(path: str, peer: Peer) -> None:
    lance.write_dataset(pa.table({"id": [1], "v": [3]}), path)
    stale = lance.dataset(path)
    peer("lance.dataset(p).add_columns({'w': 'id + 10'})", p=path)
    stale.insert(pa.table({"id": [2], "v": [4]}))
    expected = {"id": [1, 2], "v": [3, 4], "w": [11, None]}
    assert lance.dataset(path).to_table().to_pydict() == expected
    assert peer("lance.dataset(p).to_table().to_pydict()", p=path) == expected


def test_o15_an_append_with_a_column_dropped_meanwhile_is_refused(path: str, peer: Peer) -> None:
    """Taken, its values would vanish without a word."""
    lance.write_dataset(pa.table({"id": [1], "v": [3]}), path)
    stale = lance.dataset(path)
    peer("lance.dataset(p).drop_columns(['v'])", p=path)
    with pytest.raises(SchemaMismatch, match="'v'"):
        stale.insert(pa.table({"id": [2], "v": [4]}))


def test_o05_a_delete_or_update_through_a_stale_handle_follows_a_compaction(path: str, peer: Peer) -> None:
    for start in range(0, 12, 3):
        data = pa.table({"id": list(range(start, start + 3)), "v": [0] * 3})
        lance.write_dataset(data, path, mode="append")
    stale, other = lance.dataset(path), lance.dataset(path)
    peer("lance.dataset(p).optimize.compact_files() and None", p=path)
    stale.delete("id = 4")
    other.update({"v": "1"}, "id = 5")
    expected = [i for i in range(12) if i != 4]
    assert sorted(ids(path)) == expected
    assert peer("sorted(lance.dataset(p).to_table()['id'].to_pylist())", p=path) == expected
    assert peer("lance.dataset(p).to_table(filter='v = 1')['id'].to_pylist()", p=path) == [5]


@pytest.mark.parametrize("change", ["delete", "update"])
def test_o05_a_compaction_committed_while_rows_change_makes_the_change_plan_again(
    change: str, path: str, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 12, 3):
        data = pa.table({"id": list(range(start, start + 3)), "v": [0] * 3})
        lance.write_dataset(data, path, mode="append")
    original = row_changes.commit
    commits: list[bool] = []

    def compacted(*args: Any, **options: Any) -> Any:
        commits.append(True)
        if len(commits) == 1:
            peer("lance.dataset(p).optimize.compact_files() and None", p=path)
        return original(*args, **options)

    monkeypatch.setattr(row_changes, "commit", compacted)
    if change == "delete":
        assert lance.dataset(path).delete("id = 4") == {"num_deleted_rows": 1}
    else:
        assert lance.dataset(path).update({"v": "1"}, "id = 4") == {"num_rows_updated": 1}
    assert len(commits) == 2
    left = peer("lance.dataset(p).to_table(filter='v = 0')['id'].to_pylist()", p=path)
    assert sorted(left) == [i for i in range(12) if i != 4]


def test_o05_a_stale_compaction_of_the_official_package_does_not_bring_deleted_rows_back(
    path: str, peer: Peer
) -> None:
    for start in range(0, 12, 3):
        lance.write_dataset(pa.table({"id": list(range(start, start + 3))}), path, mode="append")
    lance.dataset(path).delete("id = 4")
    with pytest.raises(PeerError, match="conflict"):
        peer("lance.dataset(p, version=4).optimize.compact_files() and None", p=path)
    assert sorted(ids(path)) == [i for i in range(12) if i != 4]
