"""Creators that name versions in different ways: at most one of them stands (`table.creators`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from committing import append, create
from tiltyard import runtime
from tiltyard.errors import TableAlreadyExists
from tiltyard.format import names
from tiltyard.store import Created, Store, open_store
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.faults import FaultyPort, FaultyStore, Plan, port_installed


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "t"), {"durable": False})
    return open_store(f"memory://{re.sub('[^a-z0-9]', '', str(tmp_path).lower())}")


def racing(store: Store, naming: names.Naming, meanwhile: Any) -> Snapshot:
    """A creation during whose publication something else happens."""

    def publish(where: Store, version: int, path: str, data: Any) -> Created:
        meanwhile()
        return where.create(path, data)

    return create(store, naming=naming, publish=publish)


def test_creator_under_old_names_makes_room_for_one_under_the_usual_ones(store: Store) -> None:
    with pytest.raises(TableAlreadyExists) as caught:
        racing(store, "V1", lambda: create(store, naming="V2"))
    assert caught.value.files_referenced
    assert [location.naming for location in list_versions(store)] == ["V2"]


@pytest.mark.usefixtures("syncing")
def test_making_room_is_durable_before_either_creator_has_its_answer(tmp_path: Path) -> None:
    old, usual = Plan(), Plan()
    with port_installed(FaultyPort(old)):
        under_old = open_store(str(tmp_path / "t"))
    with port_installed(FaultyPort(usual)):
        under_usual = open_store(str(tmp_path / "t"))
    won, both_stand = runtime.event(), runtime.event()
    tasks: list[Any] = []

    def first(where: Store, version: int, path: str, data: Any) -> Created:
        answer = where.create(path, data)
        won.set()
        both_stand.wait()
        return answer

    def second(where: Store, version: int, path: str, data: Any) -> Created:
        tasks.append(runtime.spawn(lambda: create(under_usual, naming="V2", publish=first)))
        won.wait()
        answer = where.create(path, data)
        both_stand.set()
        runtime.sleep(0.05)  # by now the first one waits for this one to make room
        return answer

    with pytest.raises(TableAlreadyExists):
        create(under_old, naming="V1", publish=second)
    assert tasks[0].join().location.naming == "V2"
    for plan, last, syncs in ((old, "unlink", 1), (usual, "link_handle", 2)):
        calls = [call for call, _ in plan.trace]
        assert calls[calls.index(last) :].count("fsync_dir") == syncs


@pytest.mark.parametrize("others", [1, 2])
def test_creator_under_the_usual_names_makes_room_for_old_names_that_stay(store: Store, others: int) -> None:
    def old() -> None:
        made = create(store, naming="V1")
        if others == 2:
            append(made, "a")

    with pytest.raises(TableAlreadyExists):
        racing(store, "V2", old)
    assert [location.naming for location in list_versions(store)] == ["V1"] * others


def test_creator_under_the_usual_names_waits_until_the_other_has_made_room(store: Store) -> None:
    won, told = runtime.event(), []

    def usual(where: Store, version: int, path: str, data: Any) -> Created:
        answer = where.create(path, data)
        won.set()
        return answer

    def old() -> None:
        def publish(where: Store, version: int, path: str, data: Any) -> Created:
            task = runtime.spawn(lambda: told.append(create(store, naming="V2", publish=usual)))
            won.wait()
            tasks.append(task)
            return where.create(path, data)

        create(store, naming="V1", publish=publish)

    tasks: list[Any] = []
    with pytest.raises(TableAlreadyExists):
        old()
    tasks[0].join()
    assert [made.location.naming for made in told] == ["V2"]
    assert [location.naming for location in list_versions(store)] == ["V2"]


def test_creation_looks_for_the_other_name_before_it_writes(store: Store) -> None:
    plan = Plan()

    class Late(FaultyStore):
        def exists(self, path: str) -> bool:
            create(store, naming="V1")
            return super().exists(path)

    with pytest.raises(TableAlreadyExists):
        create(Late(store, plan), naming="V2")
    assert plan.calls("create") == 0
