"""The commit loop under faults: lost answers (O17), crashes at each step, holes in the versions (D14a)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from committing import append, create, deleted_rows, deleting, now, on, paths, transaction
from conflict_operations import SCHEMA, new_fragment
from tiltyard import runtime
from tiltyard.errors import (
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TooMuchContention,
)
from tiltyard.format import names
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.operations import Append, Overwrite
from tiltyard.session import Session
from tiltyard.store import Created, Store, open_store
from tiltyard.table import commit as loop
from tiltyard.table import hole as holes
from tiltyard.table.apply import apply
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, FaultyStore, Plan, Rule, port_installed


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "t"), {"durable": False})
    return open_store(f"memory://{re.sub('[^a-z0-9]', '', str(tmp_path).lower())}")


# -- lost answers (O17) --------------------


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST])
def test_lost_answer_is_unknown_deletes_nothing_and_a_repetition_recognises_itself(
    store: Store, fault: Fault
) -> None:
    base = create(store)
    mine, rows = deleting(base, 0, 1, 2)
    on(base, deleting(base, 0, 7)[0])
    plan = Plan(Rule(fault, "create", path="_versions/*"))
    ours = transaction(mine, base.version)
    with pytest.raises(OutcomeUnknown, match="was lost") as caught:
        commit(FaultyStore(store, plan), ours, session=Session(), base=base, affected=rows)
    assert (caught.value.uuid, caught.value.version) == (ours.uuid, 3)
    assert plan.calls("delete") == 0
    assert plan.calls("create", "_versions/*") == 1
    append(now(store), "later")
    again = commit(store, ours, session=Session(), base=base, affected=rows)
    assert again.transaction().uuid == ours.uuid  # type: ignore[union-attr]
    assert deleted_rows(now(store), 0).tolist() == [1, 2, 7]
    assert now(store).version == (4 if fault is Fault.LOSE_ANSWER else 5) - (fault is Fault.LOSE_REQUEST)
    for snapshot in (open_snapshot(store, Session(), version=v.version) for v in list_versions(store)):
        for fragment in snapshot.fragments:
            if fragment.deletion is not None:
                assert store.exists(fragment.deletion.path(fragment.id))


def test_repeated_creation_recognises_itself(store: Store) -> None:
    ours = transaction(Overwrite((new_fragment("a"),), SCHEMA))
    plan = Plan(Rule(Fault.LOSE_ANSWER, "create"))
    with pytest.raises(OutcomeUnknown):
        commit(FaultyStore(store, plan), ours, session=Session(), base=None, strict=True)
    assert now(store).transaction() == ours


def test_definite_failure_is_said_and_leaves_nothing_of_its_own(store: Store) -> None:
    base = create(store)
    mine, rows = deleting(base, 0, 1)
    on(base, deleting(base, 0, 7)[0])
    before = [stat.path for stat in store.list("")]
    plan = Plan(Rule(Fault.FAIL_BEFORE, "create", path="_versions/*"))
    with pytest.raises(StoreError, match="nothing was committed"):
        commit(FaultyStore(store, plan), transaction(mine, 1), session=Session(), base=base, affected=rows)
    assert [stat.path for stat in store.list("")] == before


def test_lost_slot_is_taken_again_one_higher(store: Store) -> None:
    base = create(store)
    lost: list[int] = []

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        if len(lost) < 3:
            lost.append(version)
            append(base, f"rival{version}")
        return where.create(path, data)

    made = append(base, "mine", publish=publish)
    assert lost == [2, 3, 4]
    assert made.version == 5
    assert len(paths(now(store))) == 6


def test_other_writers_that_always_win_end_in_contention(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_LOST_SLOTS", 5)
    base = create(store)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        append(base, f"rival{version}")
        return where.create(path, data)

    with pytest.raises(TooMuchContention, match="lost 5 versions") as caught:
        append(base, "mine", publish=publish)
    assert caught.value.retryable
    won = caught.value.winner
    assert won is not None
    assert f"the Append of version {won.version} (transaction {won.uuid})" in str(caught.value)
    assert "mine.lance" not in paths(now(store))


def test_large_transaction_is_written_as_a_file_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_INLINE_TRANSACTION_BYTES", 10)
    made = append(create(store), "a")
    name = now(store).manifest.transaction_file
    assert name == f"1-{made.transaction().uuid}.txn"  # type: ignore[union-attr]
    assert now(store).transaction() == made.transaction()
    assert store.exists(names.transaction_path(name))


# -- crashes at each step --------------------


def _crash_points(run: Callable[[Store], Any], start: Callable[[], Store]) -> list[int]:
    plan = Plan()
    run(FaultyStore(start(), plan))
    return list(range(1, len(plan.trace) + 1))


def test_crash_at_each_step_leaves_a_table_that_works(tmp_path: Path) -> None:
    count = 0

    def start() -> Store:
        nonlocal count
        count += 1
        where = open_store(str(tmp_path / str(count)), {"durable": False})
        base = create(where)
        mine, rows = deleting(base, 0, 1, 2)
        on(base, deleting(base, 0, 7)[0])
        plans[where.uri] = (base, transaction(mine, 1), rows)
        return where

    plans: dict[str, Any] = {}

    def run(where: Store) -> None:
        base, ours, rows = plans[where.uri]
        commit(where, ours, session=Session(), base=base, affected=rows)

    for point in _crash_points(run, start):
        for fault in (Fault.CRASH, Fault.CRASH_AFTER):
            where = start()
            with pytest.raises(Crashed):
                run(FaultyStore(where, Plan(Rule(fault, at=point))))
            found = now(where)
            assert deleted_rows(found, 0).tolist() in ([7], [1, 2, 7])
            run(where)  # the same transaction again: done once
            assert deleted_rows(now(where), 0).tolist() == [1, 2, 7]
            assert now(where).version == 3
            assert append(now(where), "next").version == 4


# -- holes (D14a) --------------------


def _others_commit_and_clean(store: Store) -> None:
    """Versions 2 to 5 by others, and a cleanup that keeps the tagged version 1 and the newest."""
    latest = now(store)
    for name in "wxyz":
        latest = append(latest, name)
    store.write_hint(names.HINT_PATH, names.hint_body(5))
    time.sleep(0.02)
    for version in (2, 3, 4):
        store.delete(names.manifest_path(version))


def test_zombie_that_wakes_before_its_publication_looks_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = create(store)
    monkeypatch.setattr(loop, "MAX_LOOK_AGE_SECONDS", 0.05)
    slept = False

    def late(*args: Any, **more: Any) -> Any:
        nonlocal slept
        if not slept:
            slept = True
            _others_commit_and_clean(store)
            time.sleep(0.1)
        return real(*args, **more)

    real = loop.apply
    monkeypatch.setattr(loop, "apply", late)
    with pytest.raises(RetryableConflict, match="was removed"):
        append(base, "zombie")
    assert [location.version for location in list_versions(store)] == [1, 5]


def test_a_machine_that_slept_through_the_time_for_all_rounds_commits_when_nobody_else_did(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = create(store)
    monkeypatch.setattr(loop, "MAX_LOOK_AGE_SECONDS", 0.05)
    pauses = [0.2]

    def late(*args: Any, **more: Any) -> Any:
        if pauses:
            time.sleep(pauses.pop())
        return real(*args, **more)

    real = loop.apply
    monkeypatch.setattr(loop, "apply", late)
    assert append(base, "sleeper", timeout=0.15).version == 2
    pauses += [0.2] * 1000
    with pytest.raises(TooMuchContention):  # but not for ever
        append(base, "slow", timeout=0.15)


@pytest.mark.parametrize("hinted", [True, False])
def test_zombie_that_won_a_version_in_a_hole_takes_it_back(store: Store, hinted: bool) -> None:
    """The content was written before the sleep, the name given after it: `put` sleeps between the two."""
    base = create(store)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        _others_commit_and_clean(store)
        if not hinted:
            store.write_hint(names.HINT_PATH, names.hint_body(1))
        return where.create(path, data)

    plan = Plan()
    with pytest.raises(RetryableConflict, match="below version 5") as caught:
        append(base, "zombie", FaultyStore(store, plan), publish=publish)
    assert caught.value.files_referenced
    taken_back = [call for call, _ in plan.trace if call in ("delete", "sync_dir")]
    assert taken_back == ["delete", "sync_dir"]  # or power loss brings the version back
    assert [location.version for location in list_versions(store)] == [1, 5]
    made = append(now(store), "again")
    assert made.version == 6
    assert paths(made) >= {"w.lance", "z.lance", "again.lance"}


@pytest.mark.parametrize("hinted", [True, False])
def test_zombie_that_slept_between_content_and_name_takes_its_version_back(
    tmp_path: Path, hinted: bool
) -> None:
    rule = Rule(Fault.PAUSE, "link_handle", path="_versions/*")
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)
    with port_installed(FaultyPort(Plan(rule))):
        stopped = open_store(str(tmp_path / "t"), {"durable": False})
    zombie = runtime.spawn(lambda: append(base, "zombie", stopped))
    rule.reached.wait()
    _others_commit_and_clean(store)
    if not hinted:
        store.write_hint(names.HINT_PATH, names.hint_body(1))
    rule.resume.set()
    with pytest.raises(RetryableConflict, match="below version 5"):
        zombie.join()
    assert [location.version for location in list_versions(store)] == [1, 5]


def test_zombie_that_creates_a_table_below_a_cleaned_one_takes_its_version_back(tmp_path: Path) -> None:
    rule = Rule(Fault.PAUSE, "link_handle", path="_versions/*")
    with port_installed(FaultyPort(Plan(rule))):
        stopped = open_store(str(tmp_path / "t"), {"durable": False})
    ours = transaction(Overwrite((new_fragment("zombie"),), SCHEMA))
    zombie = runtime.spawn(lambda: commit(stopped, ours, session=Session(), base=None))
    rule.reached.wait()
    store = open_store(str(tmp_path / "t"), {"durable": False})
    append(append(create(store), "a"), "b")
    time.sleep(0.02)
    for version in (1, 2):
        store.delete(names.manifest_path(version))
    rule.resume.set()
    with pytest.raises(RetryableConflict, match="below version 3"):
        zombie.join()
    assert [location.version for location in list_versions(store)] == [3]


def test_creator_that_slept_after_its_look_takes_its_version_back(store: Store) -> None:
    """Between finding no table and making one, others made it, wrote on, and cleaned version 1 up."""
    slept = False

    class Slow(FaultyStore):
        def dir_stat(self, directory: str) -> int | None:
            nonlocal slept
            try:
                return super().dir_stat(directory)
            finally:
                if not slept:
                    slept = True
                    append(create(store, 0), "a")
                    time.sleep(0.02)
                    store.delete(names.manifest_path(1))

    ours = transaction(Overwrite((new_fragment("zombie"),), SCHEMA))
    with pytest.raises(RetryableConflict, match="below version 2"):
        commit(Slow(store, Plan()), ours, session=Session(), base=None)
    assert [location.version for location in list_versions(store)] == [2]


def test_version_after_ours_that_merely_survived_is_not_taken_for_a_follower(store: Store) -> None:
    base = create(store)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        latest = now(store)
        for name in "wxyz":
            latest = append(latest, name)
        store.write_hint(names.HINT_PATH, names.hint_body(5))
        time.sleep(0.02)
        store.delete(names.manifest_path(2))
        return where.create(path, data)

    with pytest.raises(RetryableConflict, match="below version 5"):
        append(base, "zombie", publish=publish)
    assert [location.version for location in list_versions(store)] == [1, 3, 4, 5]
    assert now(store).version == 5


def test_a_delete_in_the_hole_of_a_cleanup_that_was_written_down_is_taken_back(tmp_path: Path) -> None:
    """Content cannot tell whether the next version was built on ours; what the cleanup wrote down does."""
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": [1, 2, 3, 4]}), path)
    lance.dataset(path).delete("x = 4")
    store = open_store(path)
    base = now(store)
    mine, rows = deleting(base, 0, 1)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        others = lance.dataset(store.uri)
        others.delete("x = 1")
        others.delete("x = 3")
        time.sleep(0.06)  # no manifest younger than that is removed
        others.cleanup_old_versions(timedelta(0))
        assert [location.version for location in list_versions(store)] == [4]
        time.sleep(0.02)
        return where.create(path, data)

    with pytest.raises(RetryableConflict, match="below version 4"):
        on(base, mine, affected=rows, publish=publish)
    assert [location.version for location in list_versions(store)] == [4]
    assert lance.dataset(path).to_table()["x"].to_pylist() == [2]


def test_version_in_a_hole_that_somebody_built_on_stays_with_its_files(store: Store) -> None:
    base = create(store)
    on(base, deleting(base, 0, 7)[0])
    mine, rows = deleting(base, 0, 1)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        latest = now(store)
        for name in "wxyz":
            latest = append(latest, name)
        store.write_hint(names.HINT_PATH, names.hint_body(6))
        time.sleep(0.02)
        for number in (3, 4, 5):
            store.delete(names.manifest_path(number))
        answer = where.create(path, data)
        time.sleep(0.02)
        ours = open_snapshot(store, Session(), version=3)  # as a peer that came by the hint does
        theirs = transaction(Append((new_fragment("follower"),)), 3)
        follower = apply(ours.manifest, theirs, version=4, timestamp_ns=0)
        store.create(names.manifest_path(4), b"".join(encode_manifest(follower, theirs)))
        return answer

    with pytest.raises(RetryableConflict, match="below version 6") as caught:
        on(base, mine, affected=rows, publish=publish)
    assert caught.value.files_referenced
    assert [location.version for location in list_versions(store)] == [1, 2, 3, 4, 6]
    for version in (3, 4):
        assert deleted_rows(open_snapshot(store, Session(), version=version), 0).tolist() == [1, 7]


def test_a_delete_whose_version_was_taken_back_leaves_its_files(tmp_path: Path) -> None:
    """Whoever saw the version may build on it, so that the plan's own deletion files stay, too."""
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": [1, 2, 3, 4]}), path)
    store, slept = open_store(path), False

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        nonlocal slept
        if not slept:
            slept = True
            for value in (5, 6, 7):
                lance.write_dataset(pa.table({"x": [value]}), store.uri, mode="append")
            time.sleep(0.02)
            for number in (2, 3):
                store.delete(names.manifest_path(number))
        return where.create(path, data)

    real = loop.create_manifest
    try:
        loop.commit.__kwdefaults__["publish"] = publish
        assert lance.dataset(path).delete("x = 2") == {"num_deleted_rows": 1}
    finally:
        loop.commit.__kwdefaults__["publish"] = real
    assert lance.dataset(path).to_table()["x"].to_pylist() == [1, 3, 4, 5, 6, 7]
    assert len(store.list_names(names.DELETIONS_DIR)) == 2


def test_successor_that_was_quick_is_no_hole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits on our version before we look: perhaps in the same tick of the clock."""
    base = create(store)
    monkeypatch.setattr(holes, "HOLE_CHECK_SECONDS", -1.0)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        answer = where.create(path, data)
        append(now(store), "quick")
        return answer

    made = append(base, "mine", publish=publish)
    assert made.version == 2
    assert now(store).version == 3
    assert paths(now(store)) >= {"mine.lance", "quick.lance"}


def test_successor_with_an_older_name_than_ours_is_told_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a temporary name is removed after the link, our own name looks younger than it is."""
    monkeypatch.setattr(holes, "HOLE_CHECK_SECONDS", -1.0)
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        answer = where.create(path, data)
        append(now(store), "quick")
        time.sleep(0.02)
        (tmp_path / "t" / path).chmod(0o644)  # moves the link time, as the removal of another name does
        return answer

    assert append(base, "mine", publish=publish).version == 2
    assert paths(now(store)) >= {"mine.lance", "quick.lance"}


def test_failing_look_after_the_win_leaves_the_outcome_open(store: Store) -> None:
    create(store)
    for call in ("list_names", "stat"):
        rule = Rule(Fault.FAIL_BEFORE, call)

        def publish(where: Store, version: int, path: str, data: Any, rule: Rule = rule) -> Created:
            answer = where.create(path, data)
            append(now(store), f"follower-{version}")
            time.sleep(0.02)
            assert isinstance(where, FaultyStore)
            where.plan.rules.append(rule)
            return answer

        latest = now(store)
        with pytest.raises(OutcomeUnknown) as caught:
            append(latest, f"mine-{call}", FaultyStore(store, Plan()), publish=publish)
        assert caught.value.version == latest.version + 1
        assert f"mine-{call}.lance" in paths(now(store))
