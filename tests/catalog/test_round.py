"""Rounds of changes: who is told what, what is written, and what races and failures leave."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog import round as module
from tiltyard.catalog.names import REGISTER
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.catalog.settings import Settings
from tiltyard.errors import (
    CatalogThrottled,
    NamespaceAlreadyExists,
    OutcomeUnknown,
    StoreError,
    UnsupportedFeature,
)
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Created, Store, open_store
from tiltyard.table.versions import RACY_NS, read_hint
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

PUBLISH = f"{REGISTER}/_versions/*.manifest"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def fresh(root: str) -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties={"storage.durable": "false"}, session=Session())


def faulty(root: str, plan: Plan) -> Catalog:
    return Catalog(FaultyStore(open_store(root, {"durable": False}), plan), Settings(), Session())


def add(name: str) -> Callable[[Draft], str]:
    """A change that makes a namespace row, or refuses."""

    def change(draft: Draft) -> str:
        if draft.rows.find(name) is not None:
            raise NamespaceAlreadyExists(name)
        draft.put(Row(name, NAMESPACE))
        return name

    return change


def ids(root: str) -> list[str]:
    return sorted(fresh(root).register().rows.ids)


def version(root: str) -> int:
    return fresh(root).register().version


def data_files(root: str) -> list[str]:
    return sorted(os.listdir(f"{root}/{REGISTER}/data"))


def publishing(catalog: Catalog, publish: Callable[..., Created]) -> Catalog:
    catalog._table.publish = publish
    return catalog


# -- drafts --------------------------------------------------------------------------------------


def test_a_draft_shows_what_was_done_to_it(root: str) -> None:
    catalog = fresh(root)
    for each in ("a", "a$x", "b"):
        catalog.mutate(add(each))

    def change(draft: Draft) -> Any:
        rows = draft.rows
        draft.remove("a$x")
        draft.remove("nothing")
        draft.put(Row("a$t", TABLE, "place"))
        draft.put(Row("b", NAMESPACE, metadata="{}"))
        seen = (
            rows.find("a$x"),
            rows.all("a$t"),
            rows.children(("a",), NAMESPACE),
            rows.children(("a",), TABLE),
        )
        return *seen, [row.object_id for row in rows.below("a")], rows.by_location("place"), len(list(rows))

    table = Row("a$t", TABLE, "place")
    assert catalog.mutate(change) == (None, (table,), [], ["t"], ["a$t"], [table], 3)
    assert [row.object_id for row in fresh(root).register().rows] == ["a", "a$t", "b"]


def test_a_change_that_raises_is_left_out_whole(root: str) -> None:
    catalog = fresh(root)
    catalog.mutate(add("a"))
    before = version(root)

    def change(draft: Draft) -> None:
        draft.put(Row("b", NAMESPACE))
        draft.put(Row("a", NAMESPACE, metadata="{}"))
        draft.remove("a")
        draft.metadata["k"] = "v"
        raise NamespaceAlreadyExists("so")

    with pytest.raises(NamespaceAlreadyExists, match="so"):
        catalog.mutate(change)
    assert (version(root), ids(root)) == (before, ["a"])
    with pytest.raises(ZeroDivisionError):
        catalog.mutate(lambda draft: 1 // 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda draft: None,
        lambda draft: draft.put(Row("a", NAMESPACE)),
        lambda draft: draft.remove("zz"),
        lambda draft: (draft.put(Row("n", NAMESPACE)), draft.remove("n")),
        lambda draft: draft.metadata.pop("zz", None),
        lambda draft: (draft.metadata.update(k="v"), draft.metadata.pop("k")),
    ],
)
def test_where_nothing_changes_nothing_is_written(root: str, change: Callable[[Draft], Any]) -> None:
    catalog = fresh(root)
    catalog.mutate(add("a"))
    catalog.mutate(change)
    assert version(root) == 2


def test_metadata_is_changed_with_rows_or_alone(root: str) -> None:
    catalog = fresh(root)
    catalog.mutate(lambda draft: draft.metadata.update(a="1", b="2"))
    catalog.mutate(lambda draft: (draft.metadata.pop("a"), add("n")(draft)))
    register = fresh(root).register()
    assert (dict(register.metadata), register.rows.ids) == ({"b": "2"}, ["n"])


def test_a_catalog_without_register_takes_no_change(root: str) -> None:
    catalog = open_catalog(root, properties={"manifest_enabled": "false"})
    with pytest.raises(UnsupportedFeature, match="manifest mode"):
        catalog.mutate(add("a"))
    with pytest.raises(UnsupportedFeature, match="manifest mode"):
        catalog.register()


# -- rounds --------------------------------------------------------------------------------------


def test_threads_share_rewrites_and_each_has_its_own_answer(root: str) -> None:
    """Every name is asked for by two threads, on two catalog objects of one session."""
    session, told = Session(), dict[int, object]()
    catalogs = [open_catalog(root, properties={"storage.durable": "0"}, session=session) for _ in range(2)]
    gate = threading.Barrier(16)

    def run(number: int) -> None:
        gate.wait()
        try:
            told[number] = catalogs[number % 2].mutate(add(f"n{number // 2}"))
        except NamespaceAlreadyExists:
            told[number] = None

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(root) == [f"n{number}" for number in range(8)]
    for number in range(8):
        assert {told[2 * number], told[2 * number + 1]} == {f"n{number}", None}
    assert len(data_files(root)) == version(root) - 1 <= 8


def test_a_round_looks_after_it_was_asked(root: str) -> None:
    """A change is decided on what others have committed before it was asked for."""
    ours, theirs = fresh(root), fresh(root)
    ours.mutate(add("a"))
    for number in range(10):
        theirs.mutate(add(f"t{number}"))
        with pytest.raises(NamespaceAlreadyExists):
            ours.mutate(add(f"t{number}"))


def test_a_change_runs_again_on_the_version_that_was_there_first(root: str) -> None:
    rival, seen = fresh(root), list[int]()
    rival.mutate(add("a"))

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        if len(seen) < 3:
            rival.mutate(add(f"rival{len(seen)}"))
        return store.create(path, data)

    def change(draft: Draft) -> None:
        seen.append(draft.register.version)
        add("mine")(draft)

    publishing(fresh(root), publish).mutate(change)
    assert seen == [2, 3, 4]
    assert "mine" in ids(root)
    assert len(data_files(root)) == version(root) - 1  # what was written in vain is gone


def test_who_loses_the_name_is_told_so_by_the_version_that_won(root: str) -> None:
    rival = fresh(root)
    rival.mutate(add("a"))

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        with suppress(NamespaceAlreadyExists):
            rival.mutate(add("same"))
        return store.create(path, data)

    with pytest.raises(NamespaceAlreadyExists):
        publishing(fresh(root), publish).mutate(add("same"))
    assert ids(root) == ["a", "same"]
    assert len(data_files(root)) == version(root) - 1


def test_two_processes_may_make_the_register_at_once(root: str) -> None:
    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        if version == 1:
            fresh(root).mutate(add("rival"))
        return store.create(path, data)

    publishing(fresh(root), publish).mutate(add("mine"))
    assert ids(root) == ["mine", "rival"]
    assert len(os.listdir(f"{root}/{REGISTER}/_transactions")) == 1


def test_a_change_that_never_gets_its_turn_is_throttled(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUDGET_SECONDS", 0.05)
    rival, count = fresh(root), iter(range(10**6))
    rival.mutate(add("a"))

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        rival.mutate(add(f"rival{next(count)}"))
        return store.create(path, data)

    with pytest.raises(CatalogThrottled, match="nothing was changed") as caught:
        publishing(fresh(root), publish).mutate(add("mine"))
    assert caught.value.retryable
    assert "mine" not in ids(root)
    assert len(data_files(root)) == version(root) - 1


def test_the_hint_follows(root: str) -> None:
    catalog = fresh(root)
    for number in range(3):
        catalog.mutate(add(f"n{number}"))
        assert read_hint(catalog.register_store) == version(root)


def test_a_catalog_in_memory_works_alike() -> None:
    catalog = open_catalog("memory://catalog-rounds")
    for name in ("a", "b"):
        catalog.mutate(add(name))
    with pytest.raises(NamespaceAlreadyExists):
        open_catalog("memory://catalog-rounds", session=Session()).mutate(add("a"))
    assert catalog.register().rows.ids == ["a", "b"]


def test_a_root_that_was_renamed_and_its_successor_are_apart(root: str) -> None:
    """Catalogs of one session and name, each on the directory that it was opened on."""
    session = Session()
    before = open_catalog(root, session=session)
    before.mutate(add("old"))
    os.rename(root, f"{root}-moved")
    after = open_catalog(root, session=session)
    after.mutate(add("new"))
    time.sleep(2 * RACY_NS / 1e9)  # beyond what two directories that change in one tick look like
    before.mutate(add("older"))
    assert ids(root) == ["new"]
    assert ids(f"{root}-moved") == ["old", "older"]


# -- failures ------------------------------------------------------------------------------------


def test_a_lost_answer_is_found_in_the_next_version(root: str) -> None:
    fresh(root).mutate(add("a"))
    catalog = faulty(root, Plan(Rule(Fault.LOSE_ANSWER, "create", path=PUBLISH)))
    assert catalog.mutate(add("b")) == "b"
    assert (ids(root), version(root)) == (["a", "b"], 3)


def test_a_lost_request_leaves_the_outcome_open_and_every_file(root: str) -> None:
    fresh(root).mutate(add("a"))
    catalog = faulty(root, Plan(Rule(Fault.LOSE_REQUEST, "create", path=PUBLISH)))
    with pytest.raises(OutcomeUnknown) as caught:
        catalog.mutate(add("b"))
    assert caught.value.version == 3
    assert len(data_files(root)) == 2
    assert catalog.mutate(add("b")) == "b"


def test_a_lost_answer_behind_a_version_of_others_is_a_lost_version(root: str) -> None:
    """What stands there shows that ours never will; that file stays, for it may be named for a moment."""
    rival = fresh(root)
    rival.mutate(add("a"))
    lost: list[int] = []

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        if not lost:
            lost.append(version)
            rival.mutate(add("rival"))
            return Created.UNKNOWN
        return store.create(path, data)

    assert publishing(fresh(root), publish).mutate(add("b")) == "b"
    assert ids(root) == ["a", "b", "rival"]


@pytest.mark.parametrize("call", ["create", "writer", "writer.commit"])
def test_a_definite_failure_leaves_nothing(root: str, call: str) -> None:
    fresh(root).mutate(add("a"))
    before = data_files(root), version(root)
    with pytest.raises(StoreError):
        faulty(root, Plan(Rule(Fault.FAIL_BEFORE, call, path=f"{REGISTER}/*"))).mutate(add("b"))
    assert (data_files(root), version(root)) == before


def test_answers_that_rest_on_what_did_not_come_to_stand_are_not_given(root: str) -> None:
    """In one round: a refusal from before the round, a change, and a refusal because of that change."""
    fresh(root).mutate(add("a"))
    catalog = faulty(root, Plan(Rule(Fault.FAIL_BEFORE, "create", path=PUBLISH)))
    changes = [module.Change(catalog._table, add(name)) for name in ("a", "b", "b")]
    first, second, third = module._served(changes)
    assert isinstance(first, NamespaceAlreadyExists)
    assert isinstance(second, StoreError)
    assert isinstance(third, StoreError)
    assert second is not third
    first, second, third = module._served(changes)
    assert isinstance(first, NamespaceAlreadyExists)
    assert second == "b"
    assert isinstance(third, NamespaceAlreadyExists)


def test_a_version_in_a_hole_is_taken_back_and_made_again_on_top(root: str) -> None:
    """A writer that sleeps through commits of others and their cleanup: case C25 of the decisions."""
    rival, slept = fresh(root), list[int]()
    rival.mutate(add("a"))

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        if not slept:
            slept.append(version)
            for number in range(3):
                rival.mutate(add(f"rival{number}"))
            store.delete(names.manifest_path(version))
            store.delete(names.manifest_path(version + 1))
        return store.create(path, data)

    catalog = publishing(fresh(root), publish)
    assert catalog.mutate(add("mine")) == "mine"
    assert ids(root) == ["a", "mine", "rival0", "rival1", "rival2"]
    assert not os.path.exists(f"{root}/{REGISTER}/{names.manifest_path(slept[0])}")


@pytest.mark.parametrize("first", [True, False])
def test_a_crash_anywhere_leaves_the_change_done_or_not(root: str, first: bool) -> None:
    if not first:
        fresh(root).mutate(add("a"))
    plan = Plan()
    probe = f"{root}-probe"
    if not first:
        fresh(probe).mutate(add("a"))
    faulty(probe, plan).mutate(add("b"))
    calls = len(plan.trace)
    assert calls > 10
    for at in range(1, calls + 1):
        for fault in (Fault.CRASH, Fault.CRASH_AFTER):
            place = f"{root}-{at}-{fault.name}"
            if not first:
                fresh(place).mutate(add("a"))
            with suppress(Crashed):
                faulty(place, Plan(Rule(fault, at=at))).mutate(add("b"))
            stands = ids(place)
            assert stands in (["a"] if not first else [], ["a", "b"] if not first else ["b"])
            if "b" in stands:
                with pytest.raises(NamespaceAlreadyExists):
                    fresh(place).mutate(add("b"))
            else:
                fresh(place).mutate(add("b"))
            fresh(place).mutate(add("c"))
            assert ids(place) == sorted({*stands, "b", "c"})


@pytest.mark.parametrize(
    "fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LOSE_ANSWER, Fault.LOSE_REQUEST]
)
def test_a_failure_anywhere_is_told_as_it_is(root: str, fault: Fault) -> None:
    """Done when it says done, not done when it says that nothing was changed."""
    probe, plan = f"{root}-probe", Plan()
    fresh(probe).mutate(add("a"))
    faulty(probe, plan).mutate(add("b"))
    for at in range(1, len(plan.trace) + 1):
        place = f"{root}-{at}"
        fresh(place).mutate(add("a"))
        try:
            faulty(place, Plan(Rule(fault, at=at))).mutate(add("b"))
            expected = [["a", "b"]]
        except OutcomeUnknown:
            expected = [["a"], ["a", "b"]]
        except StoreError:
            expected = [["a"]]
        assert ids(place) in expected, (at, plan.trace[at - 1])
