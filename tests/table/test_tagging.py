"""Tags: one creator wins, lost answers are found out, names are checked, the official package reads them and
we read its.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer, PeerError
from tiltyard import runtime
from tiltyard.dataset import LanceDataset, dataset, write_dataset
from tiltyard.errors import (
    CleanupRefused,
    InvalidInput,
    OutcomeUnknown,
    StoreError,
    TagAlreadyExists,
    TagNotFound,
    TiltyardError,
    VersionNotFound,
)
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.refs import list_tags, read_tag
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.tagging import create_tag, delete_tag, move_tag, replace_tag_metadata
from tiltyard.testing.faults import Fault, FaultyPort, FaultyStore, Plan, Rule, port_installed, refusing


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "t")
    for n in range(4):
        write_dataset(pa.table({"a": [n]}), place, mode="append" if n else "create")
    return place


def at(store: Store, version: int | None = None) -> Any:
    return open_snapshot(store, Session(), version=version)


def test_tags_are_made_moved_and_deleted(uri: str) -> None:
    tags = dataset(uri).tags
    tags.create("gold", 2, metadata={"by": "me"})
    assert tags.get_version("gold") == 2
    made = tags.list()["gold"]
    assert made["metadata"] == {"by": "me"}
    assert made["branch"] is None
    tags.update("gold", 3)
    moved = tags.list()["gold"]
    assert (moved["version"], moved["metadata"]) == (3, {"by": "me"})
    assert moved["created_at"] == made["created_at"] < moved["updated_at"]
    tags.replace_metadata("gold", {"x": "y"})
    replaced = tags.list()["gold"]
    assert (replaced["metadata"], replaced["updated_at"]) == ({"x": "y"}, moved["updated_at"])
    tags.delete("gold")
    assert tags.list() == {}


def test_what_a_reference_names(uri: str) -> None:
    old = dataset(uri, version=2)
    old.tags.create("shown")
    old.tags.create("newest", (None, None))
    old.tags.create("main", ("main", 1))
    old.tags.create("same", "main")
    assert {name: tag["version"] for name, tag in old.tags.list_ordered("asc")} == {
        "main": 1,
        "same": 1,
        "shown": 2,
        "newest": 4,
    }
    assert [name for name, _ in old.tags.list_ordered()] == ["newest", "shown", "same", "main"]


def test_the_official_package_and_we_read_and_change_each_others_tags(uri: str, peer: Peer) -> None:
    dataset(uri).tags.create("ours", 2, metadata={"k": "v"})
    peer("lance.dataset(p).tags.create('theirs', 3)", p=uri)
    assert dataset(uri).tags.get_version("theirs") == 3
    assert dataset(uri, version="theirs").version == 3
    theirs = peer(
        "{n: (t['version'], t['metadata'].get('k')) for n, t in lance.dataset(p).tags.list().items()}", p=uri
    )
    assert theirs == {"ours": (2, "v"), "theirs": (3, None)}
    assert peer("lance.dataset(p, version='ours').version", p=uri) == 2
    dataset(uri).tags.update("theirs", 1)
    peer("lance.dataset(p).tags.update('ours', 4)", p=uri)
    assert peer("lance.dataset(p).tags.get_version('theirs')", p=uri) == 1
    assert dataset(uri).tags.get_version("ours") == 4
    dataset(uri).tags.delete("theirs")
    peer("lance.dataset(p).tags.delete('ours')", p=uri)
    assert dataset(uri).tags.list() == peer("lance.dataset(p).tags.list()", p=uri) == {}


def test_the_file_has_the_keys_that_the_format_gives_it(uri: str) -> None:
    dataset(uri).tags.create("gold", 2)
    found = json.loads((Path(uri) / "_refs/tags/gold.json").read_text())
    assert set(found) == {"branch", "version", "createdAt", "updatedAt", "manifestSize", "metadata"}
    assert found["createdAt"].endswith("Z")
    assert found["manifestSize"] > 0


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", ".a", "a.", "a.lock", "a b", "a~", "ä", "x" * 300])
def test_names_that_no_tag_may_have_are_refused(uri: str, name: str, peer: Peer) -> None:
    with pytest.raises(InvalidInput, match="Ref is invalid"):
        dataset(uri).tags.create(name, 1)
    assert not (Path(uri) / "_refs").exists()
    if name != "ä":  # the official package takes it, and can then list no tags at all
        with pytest.raises(PeerError):
            peer("lance.dataset(p).tags.create(n, 1)", p=uri, n=name)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda tags: tags.create("gold", 2), TagAlreadyExists),
        (lambda tags: tags.create("x", 9), VersionNotFound),
        (lambda tags: tags.create("x", "nope"), TagNotFound),
        (lambda tags: tags.create("x", 0), VersionNotFound),
        (lambda tags: tags.create("x", 1.5), TypeError),
        (lambda tags: tags.create(3, 1), TypeError),
        (lambda tags: tags.create("x", 1, metadata={"a": 1}), TypeError),
        (lambda tags: tags.update("nope", 1), TagNotFound),
        (lambda tags: tags.update("gold", 9), VersionNotFound),
        (lambda tags: tags.delete("nope"), TagNotFound),
        (lambda tags: tags.delete("a/b"), TagNotFound),
        (lambda tags: tags.replace_metadata("nope", {}), TagNotFound),
        (lambda tags: tags.replace_metadata("gold", None), TypeError),
        (lambda tags: tags.list_ordered("up"), ValueError),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    uri: str, act: Callable[[Any], Any], error: type[Exception]
) -> None:
    tags = dataset(uri).tags
    tags.create("gold", 1)
    before = tags.list()
    with pytest.raises(error) as raised:
        act(tags)
    assert isinstance(raised.value, ValueError | TypeError)
    assert tags.list() == before


def test_of_many_creators_one_makes_the_tag(uri: str) -> None:
    store = open_store(uri)

    def make(version: int) -> Any:
        try:
            return create_tag(store, "gold", at(store, version % 4 + 1)).version
        except TagAlreadyExists:
            return None

    tasks = [runtime.spawn(make, n) for n in range(8)]
    won = [answer for answer in (task.join() for task in tasks) if answer is not None]
    assert won == [read_tag(store, "gold").version]


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.FAIL_AFTER])
def test_a_creation_whose_answer_is_lost_is_found_out(uri: str, fault: Fault) -> None:
    store = FaultyStore(open_store(uri), Plan(Rule(fault, "create")))
    assert create_tag(store, "gold", at(store, 2)).version == 2
    assert read_tag(store, "gold").version == 2


def test_a_creation_that_is_found_to_have_landed_is_synced_before_it_is_told(uri: str) -> None:
    """What got no answer may be the sync of its name: seen is not yet safe."""
    plan = Plan(Rule(Fault.LOSE_ANSWER, "create"))
    store = FaultyStore(open_store(uri), plan)
    create_tag(store, "gold", at(store, 2))
    assert ("sync_dir", "_refs/tags") in plan.trace[plan.trace.index(("create", "_refs/tags/gold.json")) :]
    failing = Plan(Rule(Fault.LOSE_ANSWER, "create"), Rule(Fault.FAIL_BEFORE, "sync_dir", path="_refs/*"))
    store = FaultyStore(open_store(uri), failing)
    with pytest.raises(OutcomeUnknown, match="List the tags"):
        create_tag(store, "silver", at(store, 2))


def test_a_version_is_synced_before_a_tag_names_it(uri: str) -> None:
    """Whoever made it may have died before that, and the tag would outlive it."""
    plan = Plan(Rule(Fault.FAIL_BEFORE, "sync_dir", path="_versions", times=2))
    store = FaultyStore(open_store(uri), plan)
    create_tag(open_store(uri), "gold", at(open_store(uri), 1))
    for change in (create_tag, move_tag):
        name = "gold" if change is move_tag else "silver"
        with pytest.raises(StoreError):
            change(store, name, at(store, 2))
    assert {name: tag.version for name, tag in list_tags(store).items()} == {"gold": 1}


def test_a_creation_whose_answer_is_lost_does_not_take_anothers_tag_for_its_own(uri: str) -> None:
    """Nor does it say that it was not made: it may have stood until somebody deleted it."""
    inner = open_store(uri)
    create_tag(inner, "gold", at(inner, 1))
    store = FaultyStore(inner, Plan(Rule(Fault.LOSE_ANSWER, "create")))
    with pytest.raises(OutcomeUnknown, match="'gold'"):
        create_tag(store, "gold", at(store, 2))
    assert read_tag(inner, "gold").version == 1


def test_what_cannot_be_found_out_is_said_so(uri: str) -> None:
    inner = open_store(uri)
    store = FaultyStore(inner, Plan(Rule(Fault.LOSE_REQUEST, "create")))
    with pytest.raises(OutcomeUnknown, match="List the tags"):
        create_tag(store, "gold", at(store, 2))
    assert list_tags(inner) == {}  # not made a second time: it may have been deleted after it stood
    blind = FaultyStore(
        inner,
        Plan(Rule(Fault.LOSE_ANSWER, "create"), Rule(Fault.FAIL_BEFORE, "read", path="_refs/*", times=None)),
    )
    with pytest.raises(OutcomeUnknown):
        create_tag(blind, "gold", at(blind, 2))
    assert read_tag(inner, "gold").version == 2
    definite = FaultyStore(inner, Plan(Rule(Fault.FAIL_BEFORE, "create")))
    with pytest.raises(StoreError):
        create_tag(definite, "other", at(definite, 2))
    assert set(list_tags(inner)) == {"gold"}


def test_a_move_whose_answer_is_lost_is_found_out(uri: str) -> None:
    inner = open_store(uri)
    create_tag(inner, "gold", at(inner, 1))
    store = FaultyStore(inner, Plan(Rule(Fault.LOSE_ANSWER, "put")))
    assert move_tag(store, "gold", at(store, 2)).version == 2
    lost = FaultyStore(inner, Plan(Rule(Fault.LOSE_REQUEST, "put")))
    with pytest.raises(OutcomeUnknown):
        move_tag(lost, "gold", at(lost, 3))
    assert read_tag(inner, "gold").version == 2
    again = FaultyStore(inner, Plan(Rule(Fault.LOSE_ANSWER, "put")))
    assert replace_tag_metadata(again, "gold", {"a": "b"}).metadata["a"] == "b"
    delete_tag(inner, "gold")
    assert list_tags(inner) == {}


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_move_that_the_system_refuses_was_not_made(uri: str, error: int) -> None:
    inner = open_store(uri)
    create_tag(inner, "gold", at(inner, 1))
    with port_installed(FaultyPort(refusing(open_new=error))):
        refused = open_store(uri)
        with pytest.raises(StoreError, match="cannot write"):
            move_tag(refused, "gold", at(refused, 2))
    assert read_tag(inner, "gold").version == 1


def test_of_movers_and_a_deleter_the_last_one_holds(uri: str) -> None:
    store = open_store(uri)
    create_tag(store, "gold", at(store, 1))
    rule = Rule(Fault.PAUSE, "put")
    slow = FaultyStore(store, Plan(rule))
    task = runtime.spawn(move_tag, slow, "gold", at(store, 3))
    rule.reached.wait()
    move_tag(store, "gold", at(store, 2))
    rule.resume.set()
    task.join()
    assert read_tag(store, "gold").version == 3


def branched(uri: str, peer: Peer) -> LanceDataset:
    peer(
        """
b = lance.dataset(p).create_branch("dev", 2)
b = lance.write_dataset(pa.table({"a": [9]}), b, mode="append")
b.create_branch("dev/x", 3)
result = None
""",
        p=uri,
    )
    return dataset(uri)


def test_a_branch_that_a_tag_or_branch_needs_is_not_removed(uri: str, peer: Peer) -> None:
    """Case K05."""
    ds = branched(uri, peer)
    ds.tags.create("gold", ("dev", 3))
    assert ds.tags.list()["gold"]["branch"] == "dev"
    assert ds.checkout_version("gold").to_table()["a"].to_pylist() == [0, 1, 9]
    with pytest.raises(CleanupRefused, match="'gold'"):
        ds.branches.delete("dev")
    ds.tags.delete("gold")
    with pytest.raises(CleanupRefused, match="'dev/x'"):
        ds.branches.delete("dev")
    ds.branches.delete("dev/x")
    assert set(ds.branches.list()) == {"dev"} == set(peer("lance.dataset(p).branches.list()", p=uri))
    assert ds.checkout_version(("dev", 3)).count_rows() == 3
    ds.branches.delete("dev")
    assert ds.branches.list() == {}
    assert not (Path(uri) / "tree/dev").exists()
    with pytest.raises(TiltyardError):
        ds.branches.delete("dev")
    with pytest.raises(InvalidInput):
        ds.branches.delete("main")


def test_branches_are_listed_as_the_official_package_lists_them(uri: str, peer: Peer) -> None:
    ds = branched(uri, peer)
    assert ds.branches.list() == peer("lance.dataset(p).branches.list()", p=uri)
    assert [name for name, _ in ds.branches.list_ordered()] == ["dev/x", "dev"]


def test_a_tag_made_through_a_branch_is_the_branchs(uri: str, peer: Peer) -> None:
    branch = branched(uri, peer).checkout_version(("dev", 3))
    branch.tags.create("here")
    assert peer("lance.dataset(p).tags.list()['here']['branch']", p=uri) == "dev"
