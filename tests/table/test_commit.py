"""The commit loop: order of steps, lost answers, crashes at each step, holes, foreign fragments (D14, D14a,
D15).

Data files are named but not written where their content does not matter.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from committing import append, create, deleted_rows, deleting, now, on, paths, queues, transaction
from conflict_operations import SCHEMA, new_fragment, sets
from tiltyard import runtime
from tiltyard.errors import (
    IncompatibleTransaction,
    InvalidInput,
    OutcomeUnknown,
    RetryableConflict,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from tiltyard.format import names
from tiltyard.format.fragment import Fragment
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.operations import (
    Append,
    Clone,
    Delete,
    Overwrite,
    ReserveFragments,
    Restore,
    UnknownOperation,
    UpdateConfig,
)
from tiltyard.session import Session
from tiltyard.store import Created, Store, open_store
from tiltyard.table import hint as hints
from tiltyard.table.commit import commit
from tiltyard.table.versions import list_versions, read_hint
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "t"), {"durable": False})
    return open_store(f"memory://{re.sub('[^a-z0-9]', '', str(tmp_path).lower())}")


# -- creation --------------------


def test_create_append_reopen(store: Store) -> None:
    made = create(store)
    assert (made.version, made.location.naming) == (1, "V2")
    made = append(made, "a")
    opened = now(store)
    assert opened.version == made.version == 2
    assert opened.manifest == made.manifest
    assert opened.transaction() == made.transaction()
    assert paths(opened) == {"first0.lance", "first1.lance", "a.lance"}
    assert read_hint(store) == (2 if queues(store) else None)


def test_second_creation_is_told_so(store: Store) -> None:
    create(store)
    with pytest.raises(TableAlreadyExists, match="already exists"):
        create(store)
    with pytest.raises(TableAlreadyExists):
        commit(store, transaction(Clone(True, None, 1, "/x"), 1), session=Session(), base=None)


def test_only_a_creation_may_begin_a_table(store: Store) -> None:
    with pytest.raises(TableNotFound, match="to commit Append to"):
        commit(store, transaction(Append(()), 1), session=Session(), base=None)
    assert store.list("") == []


def test_old_naming_is_kept(store: Store) -> None:
    made = append(create(store, naming="V1"), "a")
    assert [location.path for location in list_versions(store)] == [
        "_versions/1.manifest",
        "_versions/2.manifest",
    ]
    assert made.location.naming == "V1"


def test_clone_begins_a_root_at_its_source_version(store: Store) -> None:
    source = append(create(store), "a")
    branch = store.at("tree/dev")
    operation = Clone(True, None, 2, store.uri, "dev")
    made = commit(branch, transaction(operation, 2), session=Session(), base=None, source=source)
    assert (made.version, made.manifest.branch) == (2, "dev")
    assert append(made, "b").version == 3
    assert now(store).version == 2


# -- following others --------------------


def test_stale_append_follows(store: Store) -> None:
    stale = create(store)
    append(stale, "a")
    made = append(stale, "b")
    assert made.version == 3
    assert made.transaction() is not None
    assert now(store).transaction().read_version == 1  # type: ignore[union-attr]
    assert paths(now(store)) >= {"a.lance", "b.lance"}


def test_append_after_an_overwrite_is_incompatible_and_says_why(store: Store) -> None:
    stale = create(store)
    on(stale, Overwrite((), SCHEMA))
    with pytest.raises(
        IncompatibleTransaction,
        match="this Append cannot follow the Overwrite of version 2 because it replaced",
    ):
        append(stale, "a")
    assert now(store).version == 2


def test_stale_deletes_of_other_rows_merge(store: Store) -> None:
    """O05 (c): two deletes through two handles of the same version."""
    base = create(store)
    mine, rows = deleting(base, 0, 1, 2)
    theirs, _ = deleting(base, 0, 7)
    on(base, theirs)
    made = on(base, mine, affected=rows)
    assert deleted_rows(made, 0).tolist() == [1, 2, 7]
    assert made.manifest.num_rows == 17
    found = now(store).transaction()
    assert found is not None
    assert found.read_version == 2
    assert made.fragments[0].deletion.read_version == 2
    on(base, deleting(base, 1, 3)[0])  # another fragment, rows unknown: no reason to refuse


def test_stale_deletes_of_one_row_conflict_and_can_be_planned_again(store: Store) -> None:
    base = create(store)
    mine, rows = deleting(base, 0, 1, 2)
    on(base, deleting(base, 0, 2)[0])
    before = {stat.path for stat in store.list(names.DELETIONS_DIR)}
    with pytest.raises(RetryableConflict, match="both change rows of fragment 0, at offsets 2"):
        on(base, mine, affected=rows)
    assert {stat.path for stat in store.list(names.DELETIONS_DIR)} == before
    latest = now(store)
    again, rows = deleting(latest, 0, 1)
    assert on(latest, again, affected=rows).manifest.num_rows == 18


def test_deletion_files_of_an_earlier_round_stay_while_the_transaction_names_them(store: Store) -> None:
    """Rivals change one of our two fragments in each round: the first round's file is needed to the end."""
    base = create(store)
    both, rows = deleting(base, 0, 1)
    other, more = deleting(base, 1, 1)
    mine = Delete((*both.updated_fragments, *other.updated_fragments), (), "x")
    rivals = [0, 1]

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        if rivals:
            latest = now(store)
            on(latest, deleting(latest, rivals.pop(0), 7)[0])
        return where.create(path, data)

    made = on(base, mine, affected={**rows, **more}, publish=publish)
    assert made.version == 4
    assert [deleted_rows(made, number).tolist() for number in (0, 1)] == [[1, 7], [1, 7]]


def test_merged_delete_that_empties_a_fragment_removes_it(store: Store) -> None:
    base = create(store)
    mine, rows = deleting(base, 0, *range(5))
    on(base, deleting(base, 0, *range(5, 10))[0])
    made = on(base, mine, affected=rows)
    assert made.fragments.ids.tolist() == [1]


def test_raw_delete_without_known_rows_conflicts(store: Store) -> None:
    base = create(store)
    mine, _ = deleting(base, 0, 1)
    on(base, deleting(base, 0, 7)[0])
    with pytest.raises(RetryableConflict, match="not known"):
        on(base, mine)


def test_raw_commit_finds_its_base_by_read_version(store: Store) -> None:
    """A plan made at version 1 is checked against all since, whatever handle commits it (O04)."""
    base = create(store)
    mine, rows = deleting(base, 0, 1)
    on(base, deleting(base, 0, 1)[0])
    fresh = append(now(store), "a")
    for handle in (None, fresh):
        with pytest.raises(RetryableConflict, match="both change rows of fragment 0"):
            commit(store, transaction(mine, 1), session=Session(), base=handle, affected=rows)
    with pytest.raises(VersionNotFound, match="planned on version 99"):
        commit(store, transaction(Append(()), 99), session=Session(), base=None)
    with pytest.raises(InvalidInput, match="read_version"):
        commit(store, transaction(Append(())), session=Session(), base=None)


def test_overwrite_without_read_version_takes_the_latest(store: Store) -> None:
    append(create(store), "a")
    made = commit(store, transaction(Overwrite((), SCHEMA)), session=Session(), base=None)
    assert (made.version, len(made.fragments)) == (3, 0)


def test_version_without_transaction_cannot_be_followed_blindly(store: Store) -> None:
    base = create(store)
    manifest = replace(base.manifest, version=2)
    store.put(names.manifest_path(2), b"".join(encode_manifest(manifest, None)))
    with pytest.raises(IncompatibleTransaction, match="does not record its transaction"):
        append(base, "a")
    assert append(now(store), "a").version == 3


def test_unknown_operation_cannot_be_followed_blindly(store: Store) -> None:
    base = create(store)
    theirs = transaction(UnknownOperation(116, b"\xa2\x07\x00"), 1)
    store.put(names.manifest_path(2), b"".join(encode_manifest(replace(base.manifest, version=2), theirs)))
    with pytest.raises(IncompatibleTransaction, match="number 116"):
        append(base, "a")


def test_unknown_writer_flag_refuses_every_commit(store: Store) -> None:
    base = create(store)
    odd = replace(base.manifest, version=2, writer_flags=1 << 40)
    store.put(names.manifest_path(2), b"".join(encode_manifest(odd, transaction(Append(()), 1))))
    for old in (base, now(store)):
        with pytest.raises(UnsupportedFeature, match="40"):
            append(old, "a")


def test_removed_intermediate_version_asks_for_another_plan(store: Store) -> None:
    stale = create(store)
    append(append(append(stale, "a"), "b"), "c")
    store.delete(names.manifest_path(3))
    with pytest.raises(RetryableConflict, match=r"version 3 of .* was removed"):
        append(stale, "d")


def test_a_table_made_anew_under_a_commit_asks_for_another_plan(store: Store) -> None:
    base = append(append(create(store), "a"), "b")
    store.delete_tree("_versions")
    again = create(store)
    with pytest.raises(RetryableConflict, match=r"version 3 of .* was removed"):
        append(base, "mine")
    assert now(store).version == again.version


# -- strict --------------------


def test_strict_follows_its_base_or_fails(store: Store) -> None:
    base = create(store)
    made = on(base, Overwrite((), SCHEMA), strict=True)
    assert made.version == 2
    with pytest.raises(RetryableConflict, match="Commit conflict for version 2"):
        on(base, Append(()), strict=True)
    assert now(store).version == 2


def test_strict_commit_repeated_after_a_lost_answer_recognises_itself(store: Store) -> None:
    base = create(store)
    ours = transaction(Overwrite((), SCHEMA), 1)
    faulty = FaultyStore(store, Plan(Rule(Fault.LOSE_ANSWER, "create", path="_versions/*")))
    with pytest.raises(OutcomeUnknown):
        commit(faulty, ours, session=Session(), base=base, strict=True)
    append(now(store), "later")
    assert commit(store, ours, session=Session(), base=base, strict=True).version == 2
    assert now(store).version == 3


@pytest.mark.parametrize("operation", [Overwrite((), SCHEMA), Restore(1)], ids=["overwrite", "restore"])
def test_commit_without_a_read_version_repeated_after_a_lost_answer_recognises_itself(
    store: Store, operation: Any
) -> None:
    create(store)
    ours = transaction(operation)
    faulty = FaultyStore(store, Plan(Rule(Fault.LOSE_ANSWER, "create", path="_versions/*")))
    with pytest.raises(OutcomeUnknown):
        commit(faulty, ours, session=Session(), base=None)
    append(append(now(store), "a"), "b")
    unsafe = FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "sync_dir", path="_versions")))
    with pytest.raises(OutcomeUnknown, match="power loss"):  # seen is not yet safe
        commit(unsafe, ours, session=Session(), base=None)
    assert commit(store, ours, session=Session(), base=None).version == 2
    assert paths(now(store)) >= {"a.lance", "b.lance"}


def test_creation_repeated_after_a_lost_answer_recognises_itself(store: Store) -> None:
    ours = transaction(Overwrite((new_fragment("a"),), SCHEMA))
    faulty = FaultyStore(store, Plan(Rule(Fault.LOSE_ANSWER, "create")))
    with pytest.raises(OutcomeUnknown):
        commit(faulty, ours, session=Session(), base=None, strict=True)
    append(now(store), "later")
    assert commit(store, ours, session=Session(), base=None, strict=True).version == 1
    assert now(store).version == 2


def test_loser_that_cannot_read_the_winner_does_not_say_that_it_lost(store: Store) -> None:
    """The version that stands there may be its own, of an attempt whose answer was lost."""

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        create(store)
        assert isinstance(where, FaultyStore)
        where.plan.rules.append(Rule(Fault.FAIL_BEFORE, "stat", path="_versions/*"))
        return where.create(path, data)

    ours = transaction(Overwrite((new_fragment("a"),), SCHEMA))
    with pytest.raises(OutcomeUnknown, match="cannot be told"):
        commit(FaultyStore(store, Plan()), ours, session=Session(), base=None, strict=True, publish=publish)


# -- restore (O16) --------------------


def test_a_restore_goes_on_top_of_whatever_others_committed(store: Store) -> None:
    stale = append(create(store), "a")
    append(append(stale, "b"), "c")
    made = on(stale, Restore(1))
    assert (made.version, paths(made)) == (5, {"first0.lance", "first1.lance"})
    assert commit(store, transaction(Restore(1), 1), session=Session(), base=None).version == 6


def test_restore_of_a_removed_version_says_so(store: Store) -> None:
    latest = append(append(create(store), "a"), "b")
    store.delete(names.manifest_path(1))
    with pytest.raises(VersionNotFound, match="removed"):
        on(latest, Restore(1))


# -- the hint --------------------


def test_hint_only_rises_and_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)
    append(base, "a")
    assert read_hint(store) == 2
    store.write_hint(names.HINT_PATH, names.hint_body(9))
    append(base, "b")
    assert read_hint(store) == 9
    store.write_hint(names.HINT_PATH, b"")
    monkeypatch.setattr(hints, "MAX_HINT_DELAY_SECONDS", -1.0)
    append(base, "c")
    assert read_hint(store) is None


def test_hint_written_after_a_pause_is_raised_again(tmp_path: Path) -> None:
    """Between its look and its write others committed 3 and 4, whose hint it pulls down."""
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)
    rule = Rule(Fault.PAUSE, "write_hint")
    slow = runtime.spawn(lambda: append(base, "slow", FaultyStore(store, Plan(rule))))
    rule.reached.wait()
    append(append(now(store), "a"), "b")
    store.write_hint(names.HINT_PATH, names.hint_body(4))
    runtime.sleep(2 * hints.MAX_UNCHECKED_SECONDS)
    rule.resume.set()
    assert slow.join().version == 2
    assert read_hint(store) == 4


def test_hint_that_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)
    store.write_hint(names.HINT_PATH, names.hint_body(9))
    plan = Plan(Rule(Fault.FAIL_BEFORE, "read", path=names.HINT_PATH, times=None))
    assert append(base, "a", FaultyStore(store, plan)).version == 2
    assert plan.calls("write_hint") == 0


def test_no_hint_is_left_where_nobody_can_queue() -> None:
    store = open_store("memory://nobodyqueues")
    append(create(store), "a")
    assert queues(store) or read_hint(store) is None


def test_failing_hint_does_not_fail_the_commit(store: Store) -> None:
    base = create(store)
    plan = Plan(Rule(Fault.FAIL_BEFORE, "write_hint"))
    assert append(base, "a", FaultyStore(store, plan)).version == 2


def test_stalled_holder_of_the_turnstile_delays_but_does_not_stop(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = create(store)
    with store.turnstile(names.VERSIONS_DIR, 1.0) as ours:
        assert ours
        assert append(base, "a").version == 2


def test_only_the_first_of_many_commits_waits_for_a_stalled_turnstile(tmp_path: Path) -> None:
    store, session = open_store(str(tmp_path / "t"), {"durable": False}), Session()
    latest, plan = create(store), Plan()
    asked: list[int] = []
    with store.turnstile(names.VERSIONS_DIR, 1.0) as ours:
        assert ours
        for number in range(5):
            mine = transaction(Append((new_fragment(f"a{number}"),)), latest.version)
            latest = commit(FaultyStore(store, plan), mine, session=session, base=latest)
            asked.append(plan.calls("turnstile"))
    assert asked[0] > 0
    assert set(asked) == {asked[0]}


def test_a_turnstile_that_changes_hands_is_waited_for(tmp_path: Path) -> None:
    """Its holders raise the hint; here one does so again and again, until it leaves."""
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base, plan, rises = create(store), Plan(), 4

    class Busy(FaultyStore):
        def turnstile(self, directory: str, seconds: float) -> Any:
            store.write_hint(names.HINT_PATH, names.hint_body(100 + self.plan.calls("turnstile")))
            if self.plan.calls("turnstile") == rises:
                holder.close()
            return super().turnstile(directory, seconds)

    holder = ExitStack()
    with holder:
        assert holder.enter_context(store.turnstile(names.VERSIONS_DIR, 1.0))
        assert append(base, "a", Busy(store, plan)).version == 2
    assert plan.calls("turnstile") == rises + 1


def test_a_lost_version_makes_a_commit_queue_again(tmp_path: Path) -> None:
    store, session = open_store(str(tmp_path / "t"), {"durable": False}), Session()
    base, plan, rivals = create(store), Plan(), ["a", "b"]
    asked: list[int] = []

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        asked.append(plan.calls("turnstile"))
        if rivals:
            append(now(store), rivals.pop())
        return where.create(path, data)

    with store.turnstile(names.VERSIONS_DIR, 1.0) as ours:
        assert ours
        mine = transaction(Append((new_fragment("mine"),)), 1)
        made = commit(FaultyStore(store, plan), mine, session=session, base=base, publish=publish)
    assert made.version == 4
    assert len(set(asked)) == 3  # it went there before each attempt


def test_failing_turnstile_does_not_fail_the_commit(store: Store) -> None:
    base = create(store)
    plan = Plan(Rule(Fault.FAIL_BEFORE, "turnstile"))
    assert append(base, "a", FaultyStore(store, plan)).version == 2


# -- fragments from elsewhere (D15) --------------------


def written(store: Store, name: str) -> Fragment:
    store.put(names.data_path(f"{name}.lance"), b"x")
    return new_fragment(name)


def test_fragments_committed_twice_are_refused(store: Store) -> None:
    """O07."""
    base = create(store)
    operation = Append((written(store, "a"),))
    made = on(base, operation, foreign_fragments=True)
    for handle in (base, made):
        with pytest.raises(InvalidInput, match=r"a\.lance .*already"):
            on(handle, operation, foreign_fragments=True)
    assert now(store).version == 2


def test_fragments_committed_and_compacted_away_are_refused(store: Store) -> None:
    base = create(store)
    operation = Append((written(store, "a"),))
    made = on(base, operation, foreign_fragments=True)
    on(made, Delete((), (2,), "x"))
    with pytest.raises(InvalidInput, match=r"a\.lance was already committed in version 2"):
        on(base, operation, foreign_fragments=True)


def test_fragments_named_twice_in_one_commit_are_refused(store: Store) -> None:
    fragment = written(store, "a")
    with pytest.raises(InvalidInput, match=r"names data file a\.lance twice"):
        on(create(store), Append((fragment, fragment)), foreign_fragments=True)


def test_fragments_whose_files_are_gone_are_refused(store: Store) -> None:
    """O08."""
    base = create(store)
    operation = Append((written(store, "a"),))
    store.delete(names.data_path("a.lance"))
    with pytest.raises(InvalidInput, match=r"data/a\.lance does not exist"):
        on(base, operation, foreign_fragments=True)
    assert now(store).version == 1
    other = open_store(f"{store.uri}-other" if "memory" in store.uri else f"{store.uri}/other", {})
    with pytest.raises(InvalidInput, match=r"data/b\.lance does not exist"):
        commit(
            other,
            transaction(Overwrite((new_fragment("b"),), SCHEMA)),
            session=Session(),
            base=None,
            foreign_fragments=True,
        )
    assert other.list("") == []


def test_overwrite_may_bring_back_fragments_of_the_table(store: Store) -> None:
    made = on(create(store, 0), Append((written(store, "a"),)), foreign_fragments=True)
    kept = tuple(made.fragments)
    again = on(made, Overwrite(kept, SCHEMA), foreign_fragments=True)
    assert paths(again) == {"a.lance"}


# -- threads --------------------


def test_threads_that_append_at_once_all_land(store: Store) -> None:
    base = create(store)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in range(8):
                append(base, f"t{number}-{count}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = now(store)
    assert found.version == 1 + 48
    assert len(paths(found)) == 2 + 48
    assert [location.version for location in list_versions(store)] == list(range(1, 50))


def test_config_changes_of_other_keys_follow_each_other(store: Store) -> None:
    base = create(store)
    on(base, UpdateConfig(sets(a="1")))
    made = on(base, UpdateConfig(sets(b="1")))
    assert made.manifest.config == {"a": "1", "b": "1"}
    with pytest.raises(IncompatibleTransaction, match="config key a"):
        on(base, UpdateConfig(sets(a="2")))
    assert on(base, ReserveFragments(5)).manifest.max_fragment_id == 6
