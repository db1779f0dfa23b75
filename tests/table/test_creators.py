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
from tiltyard.testing.faults import FaultyStore, Plan


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
