"""Batches over several tables: all or nothing, whatever happens on the way."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from catalog_damage import put_rows
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.batch import (
    CreateVersion,
    DeclareTable,
    DeleteVersions,
    DeregisterTable,
    Member,
    commit_batch,
    finish_pending,
)
from tiltyard.catalog.batch_intents import pending, read_intent
from tiltyard.catalog.batch_walk import Walk
from tiltyard.catalog.check import check
from tiltyard.catalog.names import Id
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.repair import plan_repair, repair, undo
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.tables import table_exists
from tiltyard.errors import (
    BatchTorn,
    CleanupRefused,
    IncompatibleTransaction,
    InvalidInput,
    NamespaceNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedFeature,
)
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

ROW = pa.table({"x": [1]})
A, B, C = ("n", "a"), ("n", "b"), ("c",)
NEW = ("n", "new")


def lake_at(root: Path) -> Catalog:
    lake = ty.connect(root)
    for name in ("n.a", "n.b", "c"):
        lake.create_table(name, ROW)
    return fresh(lake.catalog)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return lake_at(tmp_path / "lake")


def fresh(catalog: Catalog, *rules: Rule) -> Catalog:
    """The same catalog in another process, whose store may have faults."""
    store = open_store(catalog.uri)
    return Catalog(FaultyStore(store, Plan(*rules)) if rules else store, catalog.settings, Session())


def stage(catalog: Catalog, id: Id, change: Callable[[Any], Any] | None = None) -> CreateVersion:
    """A version as a client stages it: written in full, its manifest beside its place."""
    dataset = opened(fresh(catalog), id)
    hint = Path(dataset.uri, "_versions", "latest_version_hint.json")
    before = hint.read_bytes() if hint.exists() else None
    (change or (lambda ds: ds.insert(ROW)))(dataset)
    place = Path(dataset.uri, "_versions", f"{2**64 - 1 - dataset.version:020d}.manifest")
    staged = Path(f"{place}-{uuid.uuid4()}")
    place.rename(staged)
    if before is not None:
        hint.write_bytes(before)
    return CreateVersion(id, dataset.version, str(staged).lstrip("/"))


def foreign(catalog: Catalog, id: Id, change: Callable[[Any], Any] | None = None) -> None:
    """Another writer's commit."""
    (change or (lambda ds: ds.insert(ROW)))(opened(fresh(catalog), id))


def overwrite(dataset: Any) -> None:
    ty.open_table(dataset.uri).overwrite({"y": [1, 2, 3]})


def rows(catalog: Catalog, *ids: Id) -> list[int]:
    return [opened(fresh(catalog), id).count_rows() for id in ids]


def left(catalog: Catalog) -> list[str]:
    """What batches left: intents and torn ones, and staged manifests."""
    root = Path(catalog.uri)
    return [each.name for each in (*root.glob("_tiltyard/batch/*"), *root.glob("*/_versions/*manifest-*"))]


# -- the register --------------------------------------------------------------------------------


def test_declare_and_deregister_are_one_rewrite(catalog: Catalog) -> None:
    before = catalog.register().version
    declared, gone, root = commit_batch(
        catalog, [DeclareTable(NEW, properties={"k": "v"}), DeregisterTable(A), DeclareTable(("d",))]
    )
    assert catalog.register().version == before + 1
    assert declared.location.endswith("_n$new")
    assert declared.properties == {"k": "v"}
    assert gone.location.endswith("_n$a")
    assert root.location == "d.lance"
    there = fresh(catalog)
    assert [table_exists(there, id) for id in (NEW, A, ("d",))] == [True, False, True]
    assert Path(catalog.uri, gone.location, "_versions").exists()
    assert not check(catalog, grace_seconds=0).damaged


def test_a_root_table_that_is_deregistered_is_hidden(catalog: Catalog) -> None:
    commit_batch(catalog, [DeregisterTable(C), DeregisterTable(A)])
    assert ty.connect(catalog.uri).tables() == ["n.b"]
    assert Path(catalog.uri, "c.lance", ".lance-deregistered").exists()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (DeclareTable(A), TableAlreadyExists),
        (DeclareTable(("n",)), TableAlreadyExists),
        (DeclareTable(("m", "x")), NamespaceNotFound),
        (DeclareTable(("n", "a$b")), InvalidInput),
        (DeclareTable(("e",), location="elsewhere"), InvalidInput),
        (DeregisterTable(("n", "zz")), TableNotFound),
        (DeclareTable(NEW), TableAlreadyExists),
    ],
)
def test_one_refused_member_refuses_all_and_leaves_nothing(
    bad: Member, error: type[Exception], catalog: Catalog
) -> None:
    before, names = catalog.register().version, sorted(Path(catalog.uri).iterdir())
    with pytest.raises(error):
        commit_batch(catalog, [DeclareTable(NEW), DeclareTable(("d",)), DeregisterTable(B), bad])
    assert catalog.register().version == before
    assert sorted(Path(catalog.uri).iterdir()) == names


def test_a_member_refused_in_the_rewrite_takes_the_reservations_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltyard.catalog import batch_rows

    change = batch_rows.change

    def late(*args: Any) -> None:
        ty.connect(catalog.uri).drop("n.a")
        change(*args)

    monkeypatch.setattr(batch_rows, "change", late)
    with pytest.raises(TableNotFound):
        commit_batch(catalog, [DeclareTable(("d",)), DeregisterTable(A)])
    assert ty.connect(catalog.uri).tables() == ["c", "n.b"]
    assert not Path(catalog.uri, "d.lance", ".lance-reserved").exists()


# -- versions ------------------------------------------------------------------------------------


def test_versions_of_several_tables_stand_together(catalog: Catalog) -> None:
    members = [stage(catalog, A), stage(catalog, B), stage(catalog, C)]
    done = commit_batch(catalog, members)
    assert [each.version for each in done] == [2, 2, 2]
    assert all((Path(catalog.uri) / each.location / each.manifest).exists() for each in done)
    assert rows(catalog, A, B, C) == [2, 2, 2]
    assert left(catalog) == []


def test_versions_declarations_and_removals_in_one_batch(catalog: Catalog) -> None:
    done = commit_batch(
        catalog,
        [
            DeleteVersions(B, [(1, 2)]),
            stage(catalog, B),
            DeclareTable(NEW),
            stage(catalog, A),
            DeregisterTable(C),
        ],
    )
    assert [each.deleted for each in done] == [1, 0, 0, 0, 0]
    assert rows(catalog, A, B) == [2, 2]
    assert ty.connect(catalog.uri).tables(declared=True) == ["n.a", "n.b", "n.new"]
    assert left(catalog) == []


@pytest.mark.parametrize("newest", [(1, -1), (2, 3), (1, 100)])
def test_the_newest_version_cannot_go_and_nothing_of_the_batch_is_done(
    catalog: Catalog, newest: tuple[int, int]
) -> None:
    """A request that makes no sense is refused before anything is written: no version of another table goes,
    and there is no word of a torn batch.
    """
    foreign(catalog, A)
    foreign(catalog, B)
    before = sorted(map(str, Path(catalog.uri).rglob("*")))
    with pytest.raises(InvalidInput, match="is the newest of table id"):
        commit_batch(catalog, [DeleteVersions(B, [(1, 2)]), DeleteVersions(A, [newest])])
    assert sorted(map(str, Path(catalog.uri).rglob("*"))) == before
    assert not check(catalog).findings


def test_the_newest_version_is_the_one_that_the_batch_makes(catalog: Catalog) -> None:
    version = stage(catalog, A)
    with pytest.raises(InvalidInput, match="version 2 is the newest"):
        commit_batch(catalog, [version, DeleteVersions(A, [(1, 3)])])
    assert [each.deleted for each in commit_batch(catalog, [version, DeleteVersions(A, [(1, 2)])])] == [0, 1]
    assert rows(catalog, A) == [2]


def test_a_version_that_a_tag_holds_refuses_all(catalog: Catalog) -> None:
    foreign(catalog, A)
    foreign(catalog, B)
    opened(fresh(catalog), A).tags.create("kept", 1)
    with pytest.raises(CleanupRefused, match="is held by"):
        commit_batch(catalog, [DeleteVersions(B, [(1, 2)]), DeleteVersions(A, [(1, 2)])])
    assert [each["version"] for each in opened(fresh(catalog), B).versions()] == [1, 2]
    assert left(catalog) == []


def test_versions_of_a_table_that_the_batch_deregisters_cannot_go(catalog: Catalog) -> None:
    foreign(catalog, A)
    with pytest.raises(InvalidInput, match="do the one before the other"):
        commit_batch(catalog, [DeregisterTable(A), DeleteVersions(A, [(1, 2)])])
    assert table_exists(catalog, A)


def test_a_version_that_is_not_the_next_refuses_all(catalog: Catalog) -> None:
    members = [stage(catalog, A), stage(catalog, B)]
    foreign(catalog, B)
    with pytest.raises(RetryableConflict, match="requested 2, expected 3"):
        commit_batch(catalog, members)
    assert rows(catalog, A, B) == [1, 2]
    assert len(left(catalog)) == 2  # the client's


def before_publishing(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Let something happen right before a batch publishes its version number `number` (from 0)."""
    publish, count = Walk._publish, [0]

    def acting(self: Walk, staged: Any, *, first: bool) -> Any:
        count[0] += 1
        if count[0] == number + 1:
            act()
        return publish(self, staged, first=first)

    monkeypatch.setattr(Walk, "_publish", acting)


def in_order(catalog: Catalog, *ids: Id) -> list[Id]:
    """The ids in the order in which their versions are published."""
    return sorted(ids, key=lambda id: opened(fresh(catalog), id).uri)


def test_the_first_version_lost_means_nothing_happened(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, second), stage(catalog, first), DeclareTable(("d",))]
    before_publishing(monkeypatch, 0, lambda: foreign(catalog, first))
    with pytest.raises(RetryableConflict, match="made by another commit"):
        commit_batch(catalog, members)
    assert rows(catalog, first, second) == [2, 1]
    assert not table_exists(fresh(catalog), ("d",))
    assert all("manifest-" in each for each in left(catalog))


def test_a_later_version_goes_on_top_of_a_commit_that_it_goes_together_with(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, first), stage(catalog, second)]
    before_publishing(monkeypatch, 1, lambda: foreign(catalog, second))
    done = commit_batch(catalog, members)
    assert [each.version for each in done] == [2, 3]
    assert rows(catalog, first, second) == [2, 3]
    assert left(catalog) == []


def test_a_later_version_refused_takes_the_earlier_ones_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, first), stage(catalog, second), DeclareTable(NEW)]
    before_publishing(monkeypatch, 1, lambda: foreign(catalog, second, overwrite))
    with pytest.raises(IncompatibleTransaction):
        commit_batch(catalog, members)
    assert rows(catalog, first, second) == [1, 3]
    assert opened(fresh(catalog), first).version == 3  # made, and taken back by a version on top
    assert not table_exists(fresh(catalog), NEW)
    assert all("manifest-" in each for each in left(catalog))


def test_what_was_built_on_cannot_be_taken_back_and_is_named(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, first), stage(catalog, second)]

    def act() -> None:
        foreign(catalog, first)
        foreign(catalog, second, overwrite)

    before_publishing(monkeypatch, 1, act)
    with pytest.raises(BatchTorn, match=r"version 2 of 'n\$[ab]' \(.*\) stand"):
        commit_batch(catalog, members)
    assert rows(catalog, first, second) == [3, 3]
    (found,) = [each for each in check(catalog).findings if each.kind == "torn-batch"]
    assert found.damage
    assert "neither finished" in found.text
    create_namespace(catalog, ("more",))  # and nothing else is held up by it


def test_an_id_taken_before_the_rewrite_takes_the_versions_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [stage(catalog, A), stage(catalog, B), DeclareTable(NEW)]
    # As a program does that knows no batches: it finishes none.
    theirs = Row("n$new", TABLE, "00000000_n$new")
    before_publishing(monkeypatch, 1, lambda: ignored(put_rows(catalog.uri, theirs)))
    with pytest.raises(TableAlreadyExists):
        commit_batch(catalog, members)
    assert rows(catalog, A, B) == [1, 1]
    assert fresh(catalog).register().rows.all("n$new") == (theirs,)


def test_a_change_of_ours_meanwhile_helps_the_batch_through(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [stage(catalog, A), stage(catalog, B), DeclareTable(NEW)]
    before_publishing(monkeypatch, 1, lambda: ignored(ty.connect(catalog.uri).create_table("n.new", ROW)))
    commit_batch(catalog, members)
    assert rows(catalog, A, B, NEW) == [2, 2, 1]  # declared by the batch, then filled
    assert left(catalog) == []


def ignored(value: object) -> None:
    """What is done for its effect."""


def test_whoever_walks_through_an_intent_again_changes_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, first), stage(catalog, second), DeclareTable(NEW)]
    before_publishing(monkeypatch, 0, lambda: kept.extend(intents(catalog)))
    kept: list[Any] = []
    commit_batch(catalog, members)
    version = catalog.register().version
    for _ in range(2):
        Walk(fresh(catalog), kept[0]).run()
    assert rows(catalog, first, second) == [2, 2]
    assert catalog.register().version == version


def intents(catalog: Catalog) -> list[Any]:
    store = open_store(catalog.uri)
    return [read_intent(store, path) for path in pending(store)]


def test_a_sleeper_that_finds_its_batch_long_over_does_not_call_it_torn(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = in_order(catalog, A, B)
    members = [stage(catalog, first), stage(catalog, second)]
    kept: list[Any] = []

    def act() -> None:
        kept.extend(intents(catalog))
        foreign(catalog, second, overwrite)

    before_publishing(monkeypatch, 1, act)
    with pytest.raises(IncompatibleTransaction):
        commit_batch(catalog, members)
    foreign(catalog, first)
    dataset = opened(fresh(catalog), first)
    Path(dataset.uri, "_versions", f"{2**64 - 1 - 3:020d}.manifest").unlink()  # what took it back
    with pytest.raises(OutcomeUnknown):
        Walk(fresh(catalog), kept[0]).run()
    assert all("manifest-" in each for each in left(catalog))


# -- crashes, lost answers -----------------------------------------------------------------------


def outcome(catalog: Catalog) -> list[Any]:
    """What stands of the batch of `copies`: all values are equal if it is all or nothing."""
    there = fresh(catalog)
    return [count > 1 for count in rows(catalog, A, B)] + [
        table_exists(there, NEW),
        not table_exists(there, C),
    ]


class Copies:
    """Copies of one lake with one batch that is ready to be committed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staged = [stage(lake_at(root / "first"), A), stage(open_catalog(root / "first"), B)]

    def __getitem__(self, name: object) -> tuple[Catalog, list[Member]]:
        copy = self._root / str(name)
        shutil.copytree(self._root / "first", copy)
        here = [
            replace(each, manifest_path=each.manifest_path.replace("/first/", f"/{name}/"))
            for each in self._staged
        ]
        return open_catalog(copy, session=Session()), [*here, DeclareTable(NEW), DeregisterTable(C)]


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    monkeypatch.setenv("TILTYARD_DURABLE", "0")  # it is processes that die here
    return Copies(tmp_path)


def test_after_a_crash_at_any_call_the_next_change_finishes_or_takes_back(copies: Copies) -> None:
    at, seen = 1, set()
    while True:
        catalog, members = copies[at]
        try:
            commit_batch(fresh(catalog, Rule(Fault.CRASH, "*", at=at)), members)
            break
        except Crashed:
            pass
        create_namespace(fresh(catalog), ("next",))
        (all_or_nothing,) = set(outcome(catalog))
        seen.add(all_or_nothing)
        assert not list(Path(catalog.uri).glob("_tiltyard/batch/*.json"))
        damage = [each for each in check(catalog, grace_seconds=0).findings if each.damage]
        assert damage == []
        at += 1
    assert seen == {True, False}
    assert set(outcome(catalog)) == {True}


def test_a_foreign_commit_after_a_crash_keeps_it_all_or_nothing(copies: Copies) -> None:
    at = 1
    while True:
        catalog, members = copies[at]
        try:
            commit_batch(fresh(catalog, Rule(Fault.CRASH, "*", at=at)), members)
            break
        except Crashed:
            pass
        stood = [opened(fresh(catalog), id).version == 2 for id in (A, B)]
        for id, stands in zip((A, B), stood, strict=True):
            if not stands:
                foreign(catalog, id, overwrite)
        finish_pending(fresh(catalog))
        made = [opened(fresh(catalog), id).schema.names == ["x"] for id in (A, B)]
        new = [opened(fresh(catalog), id).count_rows() == 2 for id in (A, B)]
        assert new in ([True, True], [False, False]), (at, stood, made)
        assert not list(Path(catalog.uri).glob("_tiltyard/batch/*"))
        at += 3
    assert at > 20


@pytest.mark.parametrize("call", ["create", "copy_create"])
def test_lost_answers_are_resolved_or_left_to_the_next_change(call: str, copies: Copies) -> None:
    for fault in (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST):
        for at in range(1, 6):
            catalog, members = copies[f"{fault.name}{at}"]
            rule = Rule(fault, call, at=at)
            try:
                commit_batch(fresh(catalog, rule), members)
                assert set(outcome(catalog)) == {True}
            except (OutcomeUnknown, StoreError):
                create_namespace(fresh(catalog), ("next",))
                assert len(set(outcome(catalog))) == 1


def test_two_batches_at_once_both_come_through_or_one_is_refused(catalog: Catalog) -> None:
    from threading import Thread

    batches = [[stage(catalog, A), stage(catalog, B)], [stage(catalog, B), stage(catalog, A)]]
    answers: list[Any] = [None, None]

    def run(at: int, members: Sequence[Member]) -> None:
        try:
            answers[at] = commit_batch(fresh(catalog), members)
        except RetryableConflict as error:
            answers[at] = error

    threads = [Thread(target=run, args=each) for each in enumerate(batches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = sum(isinstance(each, tuple) for each in answers)
    assert won >= 1
    assert rows(catalog, A, B) == [1 + won, 1 + won]


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda c: [], InvalidInput),
        (lambda c: [DeclareTable(NEW)] * 1001, InvalidInput),
        (lambda c: [stage(c, A), CreateVersion(A, 2, "x")], InvalidInput),
        (lambda c: [CreateVersion(A, 2, "elsewhere/_versions/x")], InvalidInput),
        (lambda c: [CreateVersion(("n", "zz"), 2, "x")], TableNotFound),
        (lambda c: [CreateVersion(A, 2, "x", branch="dev")], UnsupportedFeature),
        (lambda c: [stage(c, A), CreateVersion(B, 5, stage(c, B).manifest_path)], RetryableConflict),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(
    make: Callable[[Catalog], list[Member]], error: type[Exception], catalog: Catalog
) -> None:
    with pytest.raises(error):
        commit_batch(catalog, make(catalog))
    assert rows(catalog, A, B) == [1, 1]
    assert not Path(catalog.uri, "_tiltyard").exists()


def test_damaged_intents_hold_up_nobody_and_are_shown(catalog: Catalog) -> None:
    directory = Path(catalog.uri, "_tiltyard", "batch")
    directory.mkdir(parents=True)
    staged = {
        "id": ["a"],
        "location": "a.lance",
        "version": 2,
        "naming": "V2",
        "path": "x",
        "uuid": "u",
        "undo": "v",
    }
    member = {"id": ["a"], "declare": True, "location": "a", "properties": None}
    whole: dict[str, Any] = {"uuid": "x", "versions": [], "rows": [], "removals": []}
    texts = ["{", "[]", "[" * 100_000, "null", "9" * 5_000, "\xff", json.dumps({**whole, "uuid": "y"})]
    texts += [
        json.dumps({**whole, "versions": [{**staged, "version": bad}]}) for bad in (1e400, 10**400, "2", -1)
    ]
    texts += [
        json.dumps({**whole, "versions": [{**staged, "location": bad}]}) for bad in ("../b", "", "\ud800")
    ]
    texts += [json.dumps({**whole, "rows": [{**member, "properties": bad}]}) for bad in ([], {"k": 5})]
    texts += [json.dumps({**whole, "removals": [{"id": "a", "location": "a", "ranges": []}]})]
    for at, text in enumerate(texts):
        (directory / "x.json").write_text(text, "latin-1")
        create_namespace(catalog, (f"next{at}",))
        report = check(catalog)
        (found,) = report.findings
        assert (found.kind, found.subject) == ("unreadable-record", "_tiltyard/batch/x.json")
        assert report.damaged
        made = repair(catalog, plan_repair(report))
        assert check(catalog).findings == ()
        assert undo(catalog, made.undo) == ("_tiltyard/batch/x.json: is there again",)
        assert (directory / "x.json").read_text("latin-1") == text


def test_a_catalog_without_a_register_refuses_rows_and_publishes_versions(tmp_path: Path) -> None:
    catalog = open_catalog(str(tmp_path), properties={"manifest_enabled": "false"})
    for name in ("t", "u"):
        ty.create_table(tmp_path / f"{name}.lance", ROW)
    with pytest.raises(UnsupportedFeature):
        commit_batch(catalog, [DeclareTable(("d",))])
    commit_batch(catalog, [stage(catalog, ("t",)), stage(catalog, ("u",))])
    assert rows(catalog, ("t",), ("u",)) == [2, 2]
