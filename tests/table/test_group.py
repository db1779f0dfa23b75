"""Group commit of appends among threads (D16): shared versions, own answers, repetition recognised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from committing import create, now, on, paths, transaction
from conflict_operations import SCHEMA, new_fragment
from tiltyard.errors import IncompatibleTransaction, InvalidInput, OutcomeUnknown, TiltyardError
from tiltyard.format.operations import Append, Overwrite
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table import group
from tiltyard.table.commit import commit
from tiltyard.table.group import Member, commit_append
from tiltyard.table.versions import list_versions
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "t"), {"durable": False})


def member(store: Store, base: Any, *names: str, **more: Any) -> Member:
    operation = Append(tuple(new_fragment(name) for name in names))
    return Member(store, Session(), transaction(operation, base.version), base, **more)


def test_members_share_a_version_and_each_is_recognised_in_it(store: Store) -> None:
    base = create(store, 0)
    members = [member(store, base, f"m{number}") for number in range(3)]
    answers = group._round(members)
    assert [answer.version for answer in answers] == [2, 2, 2]  # type: ignore[union-attr]
    assert paths(now(store)) == {"m0.lance", "m1.lance", "m2.lance"}
    for each in members:
        again = commit(store, each.transaction, session=Session(), base=base)
        assert again.version == 2
    assert now(store).version == 2


@pytest.mark.parametrize("first", ["moved", "here"])
def test_members_whose_directory_was_moved_away_share_nothing_with_those_of_the_one_that_took_its_path(
    first: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    moved = open_store(uri, {"durable": False})
    there = create(moved, 0)
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    here = open_store(uri, {"durable": False})
    base = create(here, 0)
    members = [member(moved, there, "moved"), member(here, base, "here"), member(here, base, "too")]
    answers = group._round(members if first == "moved" else members[::-1])
    assert all(not isinstance(answer, BaseException) for answer in answers)
    assert paths(now(moved)) == {"moved.lance"}
    assert paths(now(here)) == {"here.lance", "too.lance"}


def test_a_first_member_whose_table_is_gone_answers_for_itself_only(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    gone = open_store(uri, {"durable": False})
    there = create(gone, 0)
    gone.delete_tree("")
    here = open_store(uri, {"durable": False})
    base = create(here, 0)
    answers = group._round([member(gone, there, "gone"), member(here, base, "here")])
    assert isinstance(answers[0], TiltyardError)
    assert not isinstance(answers[1], BaseException)
    assert paths(now(here)) == {"here.lance"}


def test_failing_member_leaves_with_its_own_error(store: Store) -> None:
    stale = create(store, 0)
    fresh = on(stale, Overwrite((), SCHEMA))
    old = member(store, stale, "old")
    broken = member(store, fresh, "gone", foreign_fragments=True)
    good = [member(store, fresh, f"good{number}") for number in range(2)]
    answers = group._round([good[0], old, broken, good[1]])
    assert [type(answer) for answer in answers[1:3]] == [IncompatibleTransaction, InvalidInput]
    assert answers[0].version == answers[3].version == 3  # type: ignore[union-attr]
    assert paths(now(store)) == {"good0.lance", "good1.lance"}


def test_group_that_fails_as_a_whole_is_tried_one_by_one(store: Store) -> None:
    base = create(store, 0)
    empty = member(store, base)
    odd = replace(empty, transaction=transaction(Append((new_fragment("odd", rows=0),)), 1))
    answers = group._round([member(store, base, "a"), odd, member(store, base, "b")])
    assert isinstance(answers[1], InvalidInput)
    assert paths(now(store)) == {"a.lance", "b.lance"}
    assert now(store).version == 3


def test_lost_answer_is_unknown_to_every_member(store: Store) -> None:
    base = create(store, 0)
    faulty = FaultyStore(store, Plan(Rule(Fault.LOSE_ANSWER, "create", path="_versions/*")))
    members = [member(faulty, base, f"m{number}") for number in range(2)]
    answers = group._round(members)
    for each, answer in zip(members, answers, strict=True):
        assert isinstance(answer, OutcomeUnknown)
        assert answer.uuid == each.transaction.uuid
        assert commit(store, each.transaction, session=Session(), base=base).version == 2


def test_threads_of_one_session_all_land(store: Store) -> None:
    create(store, 0)
    session, failures = Session(), []
    lock = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            lock.wait()
            for count in range(10):
                base = now(store)
                mine = transaction(Append((new_fragment(f"t{number}-{count}"),)), base.version)
                made = commit_append(store, mine, session=session, base=base)
                assert f"t{number}-{count}.lance" in paths(made)
        except BaseException as error:
            failures.append(error)

    _run([lambda number=number: work(number) for number in range(8)])
    assert failures == []
    found = now(store)
    assert len(found.fragments) == len(paths(found)) == 80
    assert found.version <= 81
    assert [location.version for location in list_versions(store)] == list(range(1, found.version + 1))


def test_append_with_a_message_of_its_own_is_not_grouped(store: Store) -> None:
    base = create(store, 0)
    mine = transaction(Append((new_fragment("a"),)), 1, properties={"__lance_commit_message": "hello"})
    made = commit_append(store, mine, session=Session(), base=base)
    assert made.transaction() == mine


def test_error_of_a_lone_append_is_raised(store: Store) -> None:
    stale = create(store, 0)
    on(stale, Overwrite((), SCHEMA))
    with pytest.raises(TiltyardError):
        commit_append(store, transaction(Append((new_fragment("a"),)), 1), session=Session(), base=stale)


def _run(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
