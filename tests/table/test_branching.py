"""A branch that is removed while somebody tags one of its versions: one of the two gives way (case K05)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from peer import Peer
from tiltyard import runtime
from tiltyard.errors import CleanupRefused, TableNotFound, TiltyardError, VersionNotFound
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table import refs
from tiltyard.table.branching import delete_branch
from tiltyard.table.cleanup.intents import read_intents
from tiltyard.table.scan import Scan
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.tagging import create_tag
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

WAIT = 20.0


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> Path:
    """A table with a branch of one version of its own."""
    place = tmp_path_factory.mktemp("branched") / "t"
    peer(
        """
b = lance.write_dataset(pa.table({"a": [1]}), p).create_branch("dev")
lance.write_dataset(pa.table({"a": [2]}), b, mode="append")
result = None
""",
        p=str(place),
    )
    return place


def _answer(act: Any, store: Store) -> Any:
    try:
        return act(store)
    except TiltyardError as error:
        return error


def _removed(store: Store) -> None:
    delete_branch(store, "dev")


def _tagged(store: Store) -> Any:
    chain = store.at("tree/dev")
    return create_tag(store, "gold", open_snapshot(chain, Session()))


@pytest.mark.parametrize(("paused", "other"), [(_removed, _tagged), (_tagged, _removed)])
def test_of_a_tagger_and_the_removal_of_a_branch_one_sees_the_other(
    branched: Path, tmp_path: Path, paused: Any, other: Any
) -> None:
    kept = gone = 0
    for at in range(1, 30):
        place = shutil.copytree(branched, tmp_path / str(at))
        store = open_store(str(place))
        rule = Rule(Fault.PAUSE, at=at)
        slow = FaultyStore(store, Plan(rule))
        task = runtime.spawn(_answer, paused, slow)
        while not rule.reached.is_set() and not task.done():
            rule.reached.wait(deadline=runtime.monotonic() + 0.01)
        answers = {other: _answer(other, store)}
        rule.resume.set()
        answers[paused] = task.join(deadline=runtime.monotonic() + WAIT)
        tags = [tag.version for tag in refs.every_tag(store) if tag.branch == "dev"]
        if tags:
            kept += 1
            assert open_snapshot(store.at("tree/dev"), Session(), version=tags[0]).version == tags[0]
            assert isinstance(answers[_removed], CleanupRefused), (at, answers)
            assert not read_intents(store.at("tree/dev"), Session())  # else the branch would stand still
        else:
            gone += 1
            assert isinstance(answers[_tagged], VersionNotFound | TableNotFound), (at, answers)
        if not rule.reached.is_set():
            break
    assert kept
    assert gone


def test_a_branch_below_another_by_name_alone_outlives_it(branched: Path, tmp_path: Path, peer: Peer) -> None:
    place = str(shutil.copytree(branched, tmp_path / "t"))
    peer('lance.dataset(p).create_branch("dev/x", 1)\nresult = None\n', p=place)
    store = open_store(place)
    delete_branch(store, "dev")
    assert [each.name for each in refs.every_branch(store)] == ["dev/x"]
    assert not store.list_names("tree/dev/_versions")
    assert Scan(open_snapshot(store.at("tree/dev/x"), Session())).count() == 1
    delete_branch(store, "dev/x")
    assert not store.list_names("tree")
