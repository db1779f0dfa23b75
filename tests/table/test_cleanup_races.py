"""Cleanups beside taggers, committers and readers: of any two one sees the other (cases K05, K07, K10)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tiltyard import runtime
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import FilesRemoved, TiltyardError, VersionNotFound
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table import refs
from tiltyard.table.cleanup import intents
from tiltyard.table.cleanup.run import Cleaned, clean
from tiltyard.table.cleanup.select import Policy
from tiltyard.table.cleanup.survey import place_of
from tiltyard.table.restore import restore
from tiltyard.table.scan import Scan
from tiltyard.table.snapshot import open_snapshot, read_snapshot
from tiltyard.table.tagging import create_tag, move_tag
from tiltyard.table.versions import list_versions
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

HARD = Policy(older_than_ns=0, delete_unverified=True, refuse_tagged=False)
MADE = count(1)
WAIT = 20.0


def table(versions: int = 4) -> Store:
    uri = f"memory://races-{next(MADE)}"
    for n in range(versions):
        write_dataset(pa.table({"a": [n]}), uri, mode="overwrite" if n else "create")
    return open_store(uri)


def opened(store: Store, version: int | None = None) -> Any:
    return open_snapshot(store, Session(), version=version)


def cleaned(store: Store) -> Cleaned:
    newest = opened(store)
    return clean(place_of(newest), newest.version, HARD)


def all_read(store: Store) -> list[int]:
    """The versions that are listed; every one, and every tag, can be read."""
    found = list_versions(store)
    for each in found:
        Scan(read_snapshot(store, Session(), each)).table()
    for tag in refs.every_tag(store):
        opened(store, tag.version)
    return [each.version for each in found]


def calls_of(store: Store, act: Callable[[Store], Any]) -> int:
    plan = Plan()
    act(FaultyStore(store, plan))
    return len(plan.trace)


def beside(paused: Callable[[Store], Any], other: Callable[[Store], Any], at: int) -> tuple[Store, Any, Any]:
    """Both on one table: `paused` stands still before its `at`-th call while `other` does all it does."""
    store = table()
    rule = Rule(Fault.PAUSE, at=at)
    task = runtime.spawn(lambda: _answer(paused, FaultyStore(store, Plan(rule))))
    rule.reached.wait(deadline=runtime.monotonic() + WAIT)
    theirs = _answer(other, store)
    rule.resume.set()
    return store, task.join(deadline=runtime.monotonic() + WAIT), theirs


def _answer(act: Callable[[Store], Any], store: Store) -> Any:
    try:
        return act(store)
    except TiltyardError as error:
        return error


def tagging(store: Store) -> Any:
    return create_tag(store, "gold", opened(store, 2))


def moving(store: Store) -> Any:
    return move_tag(store, "silver", opened(store, 2))


def restoring(store: Store) -> Any:
    return restore(opened(store, 2)).snapshot


def appending(store: Store) -> Any:
    handle = LanceDataset._made(opened(store))
    handle.insert(pa.table({"a": [77]}))
    return handle._held


def test_of_a_tagger_and_a_cleanup_one_sees_the_other_wherever_the_cleanup_stands() -> None:
    kept = refused = 0
    for at in range(1, calls_of(table(), cleaned) + 1):
        store, _, tag = beside(cleaned, tagging, at)
        versions = all_read(store)
        assert (2 in versions) == (not isinstance(tag, TiltyardError)), at
        kept += 2 in versions
        refused += 2 not in versions
    assert kept
    assert refused


def test_of_a_tagger_and_a_cleanup_one_sees_the_other_wherever_the_tagger_stands() -> None:
    for at in range(1, calls_of(table(), tagging) + 1):
        store, tag, _ = beside(tagging, cleaned, at)
        versions = all_read(store)
        assert (2 in versions) == (not isinstance(tag, TiltyardError)), at
        if isinstance(tag, TiltyardError):
            assert isinstance(tag, VersionNotFound | OSError), tag


def test_a_tag_that_is_moved_to_a_version_that_goes_stays_where_it_was() -> None:
    for at in range(1, 12):
        store = table()
        create_tag(store, "silver", opened(store, 3))
        rule = Rule(Fault.PAUSE, at=at)
        task = runtime.spawn(lambda: _answer(moving, FaultyStore(store, Plan(rule))))  # noqa: B023
        rule.reached.wait(deadline=runtime.monotonic() + 0.2)
        cleaned(store)
        rule.resume.set()
        answer = task.join(deadline=runtime.monotonic() + WAIT)
        versions = all_read(store)
        where = refs.read_tag(store, "silver").version
        assert where in versions
        assert where == (3 if isinstance(answer, TiltyardError) else 2)


def test_a_tag_that_is_led_back_names_no_version_that_another_cleanup_took_meanwhile() -> None:
    led_back = removed = 0
    for at in range(1, 20):
        store = table()
        create_tag(store, "silver", opened(store, 3))
        intents.announce(store, [2], (), ())  # of a cleanup that has read the tags, and is about to go on
        rule = Rule(Fault.PAUSE, at=at)
        task = runtime.spawn(lambda: _answer(moving, FaultyStore(store, Plan(rule))))  # noqa: B023
        rule.reached.wait(deadline=runtime.monotonic() + 0.2)
        cleaned(store)
        rule.resume.set()
        answer = task.join(deadline=runtime.monotonic() + WAIT)
        assert isinstance(answer, VersionNotFound | OSError), answer
        tags = {tag.name: tag.version for tag in refs.every_tag(store)}
        assert not set(tags.values()) - set(all_read(store)), at
        assert ("was left on version 3" in str(answer)) <= ("silver" in tags), answer
        led_back += "silver" in tags
        removed += "silver" not in tags
    assert led_back
    assert removed


@pytest.mark.parametrize("act", [restoring, appending])
def test_no_version_names_a_file_that_went_wherever_the_cleanup_stands(act: Callable[[Store], Any]) -> None:
    for at in range(1, calls_of(table(), cleaned) + 1, 2):
        store, done, answer = beside(cleaned, act, at)
        versions = all_read(store)
        if isinstance(answer, TiltyardError):
            assert isinstance(answer, VersionNotFound | FilesRemoved | OSError), answer
        else:
            assert answer.version in versions
        assert isinstance(done, Cleaned), done


@pytest.mark.parametrize("act", [restoring, appending])
def test_no_version_names_a_file_that_went_wherever_the_committer_stands(act: Callable[[Store], Any]) -> None:
    refused = 0
    for at in range(1, calls_of(table(), act) + 1):
        store, answer, _ = beside(act, cleaned, at)
        versions = all_read(store)
        if isinstance(answer, TiltyardError):
            refused += isinstance(answer, FilesRemoved | VersionNotFound)
        else:
            assert answer.version in versions
    assert refused


def test_an_append_whose_version_was_compacted_away_and_cleaned_at_once_was_done() -> None:
    def maintained(store: Store) -> None:
        LanceDataset._made(opened(store)).optimize.compact_files()
        cleaned(store)

    done = 0
    for at in range(1, calls_of(table(), appending) + 1):
        store, answer, _ = beside(appending, maintained, at)
        rows = Scan(opened(store)).table()["a"].to_pylist()
        assert rows.count(77) == (not isinstance(answer, TiltyardError)), (at, answer)
        done += 77 in rows
        all_read(store)
    assert done


def test_commits_tags_and_branch_records_made_after_the_look_stay() -> None:
    store = table()
    rule = Rule(Fault.PAUSE, "create", path="_tiltyard/*")
    task = runtime.spawn(lambda: cleaned(FaultyStore(store, Plan(rule))))
    rule.reached.wait(deadline=runtime.monotonic() + WAIT)
    appending(store)
    appending(store)
    tagging(store)
    record = b'{"parentBranch": null, "parentVersion": 3, "createAt": 1, "metadata": {}}'
    store.put(f"{names.BRANCHES_DIR}/dev.json", record)
    rule.resume.set()
    task.join(deadline=runtime.monotonic() + WAIT)
    assert all_read(store) == [2, 3, 4, 5, 6]
    assert set(refs.list_tags(store)) == {"gold"}


def test_two_cleanups_at_once_leave_what_one_leaves() -> None:
    for at in range(1, calls_of(table(), cleaned) + 1, 2):
        store, one, other = beside(cleaned, cleaned, at)
        assert all_read(store) == [4]
        assert len(store.list("data")) == 1
        assert isinstance(one, Cleaned)
        assert isinstance(other, Cleaned)
