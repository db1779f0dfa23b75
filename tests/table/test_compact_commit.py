"""Compaction beside other writers: deletes and updates are carried over, fragments that others took are lost,
files of what failed are gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard import runtime
from tiltyard.errors import InvalidInput, OutcomeUnknown, RetryableConflict, StoreError, TooMuchContention
from tiltyard.lance.optimize import Compaction, CompactionMetrics, RewriteResult
from tiltyard.store import Created
from tiltyard.table import commit as commit_module
from tiltyard.table.compact import compact, run
from tiltyard.table.compact.moves import GroupMoves, Moves


def make(path: Path, fragments: int = 6, **options: Any) -> lance.LanceDataset:
    for number in range(fragments):
        ds = lance.write_dataset(
            pa.table({"id": range(10 * number, 10 * number + 10), "v": [number] * 10}),
            path,
            mode="append" if number else "create",
            **options,
        )
    return ds


def rewritten(path: Path, **options: Any) -> list[RewriteResult]:
    ds = lance.dataset(path)
    return [task.execute(ds) for task in Compaction.plan(ds, options).tasks]  # type: ignore[arg-type]


def ids(path: Path, where: str | None = None) -> list[int]:
    found: list[int] = lance.dataset(path).to_table(columns=["id"], filter=where)["id"].to_pylist()
    return found


def data_files(path: Path) -> set[str]:
    return {
        str(each.relative_to(path))
        for folder in ("data", "_deletions", "_indices")
        for each in (path / folder).rglob("*")
        if each.is_file()
    }


# -- others meanwhile --------------------------------------------------------------------------------


def test_an_append_and_a_compaction_both_succeed(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    lance.write_dataset(pa.table({"id": [100], "v": [9]}), tmp_path, mode="append")
    ds = lance.dataset(tmp_path, version=6)
    assert Compaction.commit(ds, results) == CompactionMetrics(6, 1, 6, 1)
    assert sorted(ids(tmp_path)) == [*range(60), 100]
    assert sorted(peer("lance.dataset(p).to_table()['id'].to_pylist()", p=str(tmp_path))) == [*range(60), 100]


@pytest.mark.parametrize("who", ["ours", "theirs"])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_rows_deleted_and_moved_meanwhile_are_gone_from_the_new_fragments(
    tmp_path: Path, peer: Peer, who: str, stable: bool, indexed: bool
) -> None:
    """Case O05 (b), the other way round, and with whole fragments emptied."""
    ds = make(tmp_path, enable_stable_row_ids=stable)
    if indexed:
        ds.create_scalar_index("id", "BTREE")
    ds.delete("id in (3, 14)")
    results = rewritten(tmp_path, target_rows_per_fragment=25)
    assert len(results) == 2
    if who == "ours":
        ds.delete("id in (4, 15, 59)")
        ds.delete("id >= 20 and id < 30")  # all of fragment 2
        ds.update({"v": "100"}, where="id in (7, 33)")
    else:
        peer(
            "ds = lance.dataset(p)\n"
            "ds.delete('id in (4, 15, 59)')\n"
            "ds.delete('id >= 20 and id < 30')\n"
            "ds.update({'v': '100'}, where='id in (7, 33)')",
            p=str(tmp_path),
        )
    expected = sorted(set(range(60)) - {3, 14, 4, 15, 59} - set(range(20, 30)))
    Compaction.commit(lance.dataset(tmp_path), results)
    assert sorted(ids(tmp_path)) == expected
    assert sorted(ids(tmp_path, "v = 100")) == [7, 33]
    assert sorted(peer("lance.dataset(p).to_table()['id'].to_pylist()", p=str(tmp_path))) == expected
    peer("lance.dataset(p).validate()", p=str(tmp_path))
    for where in ("id = 4", "id = 7", "id = 25", "id = 41", "id > 55"):
        wanted = sorted(each for each in expected if eval(where.replace(" = ", " == "), {"id": each}))
        assert sorted(ids(tmp_path, where)) == wanted
        assert (
            sorted(peer("lance.dataset(p).to_table(filter=w)['id'].to_pylist()", p=str(tmp_path), w=where))
            == wanted
        )


def test_a_delete_through_a_handle_that_missed_the_compaction_succeeds(tmp_path: Path) -> None:
    """Case O05 (a)."""
    stale = make(tmp_path)
    lance.dataset(tmp_path).optimize.compact_files()
    assert stale.delete("id = 5") == {"num_deleted_rows": 1}
    assert 5 not in ids(tmp_path)


def test_a_new_fragment_whose_rows_all_went_meanwhile_is_left_out(tmp_path: Path) -> None:
    ds = make(tmp_path, 4)
    results = rewritten(tmp_path, target_rows_per_fragment=20)
    ds.delete("id < 20")
    assert Compaction.commit(lance.dataset(tmp_path), results).fragments_added == 1
    assert ids(tmp_path) == list(range(20, 40))


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_of_two_compactions_the_second_is_told_and_leaves_no_file(
    tmp_path: Path, peer: Peer, who: str
) -> None:
    make(tmp_path)
    before = data_files(tmp_path)
    results = rewritten(tmp_path)
    ours = data_files(tmp_path) - before
    if who == "ours":
        lance.dataset(tmp_path).optimize.compact_files()
    else:
        peer("ds = lance.dataset(p)\nds.optimize.compact_files()", p=str(tmp_path))
    with pytest.raises(RetryableConflict, match=r"rewritten or removed meanwhile; plan the compaction again"):
        Compaction.commit(lance.dataset(tmp_path), results)
    assert not data_files(tmp_path) & ours
    assert ids(tmp_path) == list(range(60))
    assert lance.dataset(tmp_path).optimize.compact_files() == CompactionMetrics()


def test_columns_rewritten_meanwhile_are_planned_again(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    peer("lance.dataset(p).add_columns({'w': 'id + 1'})", p=str(tmp_path))
    with pytest.raises(RetryableConflict, match="columns of fragment 0 were rewritten meanwhile"):
        Compaction.commit(lance.dataset(tmp_path), results)
    lance.dataset(tmp_path).optimize.compact_files()
    assert lance.dataset(tmp_path).to_table()["w"].to_pylist() == list(range(1, 61))


def test_an_overwrite_meanwhile_stands(tmp_path: Path) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    lance.write_dataset(pa.table({"id": [1], "v": [1]}), tmp_path, mode="overwrite")
    with pytest.raises(RetryableConflict):
        Compaction.commit(lance.dataset(tmp_path), results)
    assert ids(tmp_path) == [1]


def test_an_index_built_meanwhile_follows(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    lance.dataset(tmp_path).create_scalar_index("id", "BTREE")
    Compaction.commit(lance.dataset(tmp_path), results)
    (index,) = lance.dataset(tmp_path).describe_indices()
    (segment,) = index.segments
    assert sorted(segment.fragment_ids) == [f.fragment_id for f in lance.dataset(tmp_path).get_fragments()]
    assert peer("lance.dataset(p).to_table(filter='id = 33')['id'].to_pylist()", p=str(tmp_path)) == [33]


def test_an_index_that_cannot_follow_built_meanwhile_stops_the_commit(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    peer("lance.dataset(p).create_scalar_index('v', 'BITMAP')", p=str(tmp_path))
    with pytest.raises(RetryableConflict, match="an index that cannot follow"):
        Compaction.commit(lance.dataset(tmp_path), results)
    assert peer("lance.dataset(p).count_rows('v = 3')", p=str(tmp_path)) == 10


def test_the_groups_that_nobody_took_are_committed_and_the_rest_is_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = make(tmp_path)
    real, calls = run.commit_rewrites, []

    def late(store: Any, session: Any, rewrites: Any, **options: Any) -> Any:
        calls.append(len(rewrites))
        if len(calls) == 1:
            other = lance.dataset(tmp_path)
            Compaction.execute(other, {"excluded_fragment_ids": [0, 1, 4, 5], "target_rows_per_fragment": 20})
        return real(store, session, rewrites, **options)

    monkeypatch.setattr(run, "commit_rewrites", late)
    ds.optimize.compact_files(target_rows_per_fragment=20)
    assert calls == [3, 1]  # the other compaction went through here, too; nothing was left to plan again
    assert sorted(ids(tmp_path)) == list(range(60))
    assert len(ds.get_fragments()) == 3


def test_a_compaction_that_always_loses_gives_up_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = make(tmp_path)
    before = data_files(tmp_path)

    def lost(store: Any, session: Any, rewrites: Any, **options: Any) -> Any:
        run.remove_rewritten(store, rewrites)
        raise RetryableConflict("taken")

    monkeypatch.setattr(run, "commit_rewrites", lost)
    with pytest.raises(TooMuchContention, match=r"planned 5 times.*taken"):
        ds.optimize.compact_files()
    assert data_files(tmp_path) == before


def test_a_deferred_compaction_and_an_upkeep_of_indices_from_an_older_version(
    tmp_path: Path, peer: Peer
) -> None:
    """Case D04: one of the two is planned again, and indices can be listed afterwards."""
    ds = make(tmp_path, 2)
    ds.create_scalar_index("id", "BTREE")
    lance.write_dataset(pa.table({"id": range(20, 30), "v": [2] * 10}), tmp_path, mode="append")
    stale = lance.dataset(tmp_path)
    lance.write_dataset(pa.table({"id": range(30, 40), "v": [3] * 10}), tmp_path, mode="append")
    lance.dataset(tmp_path).optimize.compact_files(defer_index_remap=True)
    stale.optimize.optimize_indices()
    assert {each.name for each in stale.describe_indices()} >= {"id_idx"}
    assert peer("len(lance.dataset(p).list_indices()) > 0", p=str(tmp_path))
    for where in ("id = 5", "id = 25", "id >= 35"):
        found = peer("lance.dataset(p).to_table(filter=w)['id'].to_pylist()", p=str(tmp_path), w=where)
        assert sorted(found) == sorted(ids(tmp_path, where))
        assert sorted(found) == [i for i in range(40) if eval(where.replace(" = ", " == "), {"id": i})]


def test_two_deferred_compactions_do_not_lose_each_others_notes(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path, 4)
    ds.create_scalar_index("id", "BTREE")
    plan = Compaction.plan(ds, {"defer_index_remap": True, "target_rows_per_fragment": 20})
    first, second = (task.execute(ds) for task in plan.tasks)
    options: Any = {"defer_index_remap": True}
    Compaction.commit(lance.dataset(tmp_path), [first], options)
    Compaction.commit(lance.dataset(tmp_path), [second], options)
    for where in ("id = 5", "id = 35"):
        assert peer("lance.dataset(p).to_table(filter=w)['id'].to_pylist()", p=str(tmp_path), w=where) == ids(
            tmp_path, where
        )
    assert lance.dataset(tmp_path).remap_row_addrs(pa.array([5, (3 << 32) + 5], pa.uint64())).to_pylist() == [
        (4 << 32) + 5,
        (5 << 32) + 15,
    ]


def test_a_rewrite_is_committed_once(tmp_path: Path) -> None:
    make(tmp_path)
    results = rewritten(tmp_path)
    with pytest.raises(InvalidInput, match="in two of the rewrites"):
        Compaction.commit(lance.dataset(tmp_path), [results[0], results[0]])


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Created.NOT_DONE, Created.UNKNOWN])
def test_files_go_after_a_definite_failure_and_stay_after_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Created
) -> None:
    ds = make(tmp_path)
    ds.create_scalar_index("id", "BTREE")
    before = data_files(tmp_path)
    real = commit_module.create_manifest
    calls: list[int] = []

    def failing(self: Any, manifest: Any, location: Any) -> Any:
        calls.append(location.version)
        if len(calls) == 1:
            return put(self, manifest, location)  # the reserved ids
        if answer is Created.NOT_DONE:
            raise StoreError("the disk is full")
        raise OutcomeUnknown("lost", uuid=self.transaction.uuid, version=location.version)

    put = commit_module._Commit._put
    monkeypatch.setattr(commit_module._Commit, "_put", failing)
    with pytest.raises((StoreError, OutcomeUnknown)):
        ds.optimize.compact_files()
    assert real is not None
    left = data_files(tmp_path) - before
    if answer is Created.NOT_DONE:
        assert not left
    else:
        assert len(left) == 3  # one data file, two of the index
    monkeypatch.undo()
    assert ids(tmp_path) == list(range(60))
    ds.optimize.compact_files()
    assert ids(tmp_path) == list(range(60))


def test_files_of_all_tasks_go_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = make(tmp_path)
    before = data_files(tmp_path)
    real, calls = run.execute, []

    def failing(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise StoreError("the disk is full")
        return real(*arguments, **named)

    monkeypatch.setattr(run, "execute", failing)
    with pytest.raises(StoreError):
        ds.optimize.compact_files(target_rows_per_fragment=20)
    assert data_files(tmp_path) == before
    calls.clear()
    with pytest.raises(StoreError):
        ds.optimize.compact_files(target_rows_per_fragment=20, num_threads=3)
    assert data_files(tmp_path) == before


# -- many at once ------------------------------------------------------------------------------------


def test_compactions_beside_deletes_and_appends_lose_and_double_nothing(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path, 12)
    ds.create_scalar_index("id", "BTREE")
    errors: list[BaseException] = []

    def deleting() -> None:
        for id in range(0, 120, 7):
            lance.dataset(tmp_path).delete(f"id = {id}")

    def appending() -> None:
        for number in range(8):
            table = pa.table({"id": [1000 + number], "v": [0]})
            lance.write_dataset(table, tmp_path, mode="append")

    def compacting() -> None:
        for target in (30, 60, 30, 1000):
            opened = lance.dataset(tmp_path)
            compact(opened._store, opened._session, {"target_rows_per_fragment": target})

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    tasks = [runtime.spawn(guarded, work) for work in (deleting, appending, compacting, compacting)]
    for task in tasks:
        task.join(deadline=runtime.monotonic() + 120)
    assert not errors
    expected = sorted(set(range(120)) - set(range(0, 120, 7)) | set(range(1000, 1008)))
    assert sorted(ids(tmp_path)) == expected
    assert sorted(peer("lance.dataset(p).to_table()['id'].to_pylist()", p=str(tmp_path))) == expected
    for where in ("id = 14", "id = 15", "id >= 1003"):
        assert sorted(ids(tmp_path, where)) == [
            i for i in expected if eval(where.replace(" = ", " == "), {"id": i})
        ]


# -- the row map -------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sets(st.integers(0, 29), max_size=10)), min_size=1, max_size=5),
    st.integers(1, 40),
)
@settings(max_examples=50, deadline=None)
def test_rows_move_as_a_list_of_them_says(fragments: list[tuple[int, set[int]]], size: int) -> None:
    old = [
        (10 + 3 * at, rows, np.array(sorted(each for each in gone if each < rows), np.uint32))
        for at, (rows, gone) in enumerate(fragments)
    ]
    survivors = [
        (id << 32) + offset
        for id, rows, gone in old
        for offset in range(rows)
        if offset not in set(gone.tolist())
    ]
    counts = [min(size, len(survivors) - start) for start in range(0, len(survivors), size)]
    new = [(100 + at, count) for at, count in enumerate(counts)]
    places = [(id << 32) + offset for id, count in new for offset in range(count)]
    moves = GroupMoves(old, new)
    known = dict(zip(survivors, places, strict=True))
    asked = [(id << 32) + offset for id in range(8, 30) for offset in range(32)]
    found, now = Moves([moves], {id: 0 for id, _, _ in old}).moved(np.array(asked, np.uint64))
    assert found.tolist() == [each in known for each in asked]
    assert now.tolist() == [known[each] for each in asked if each in known]
    assert moves.survivors().tolist() == survivors
