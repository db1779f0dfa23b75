"""A catalog whose root is removed, made again or renamed while it is open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tiltyard as ty
from lakes import MODES, faulty, fresh, put, table
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, list_namespaces
from tiltyard.catalog.taking import look
from tiltyard.catalog.trash import drop_table
from tiltyard.errors import StoreError, TableNotFound
from tiltyard.store import open_store


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.mark.parametrize("mode", MODES)
def test_a_root_that_was_removed_is_empty_and_can_be_filled(root: str, mode: str) -> None:
    live = fresh(root, mode)
    put(live, ("t",), 1)
    shutil.rmtree(root)
    assert list_tables(live, ()).names == ()
    with pytest.raises(TableNotFound):
        find_table(live, ("t",))
    assert not os.path.exists(root)
    put(live, ("u",), 2)
    assert list_tables(live, ()).names == list_tables(fresh(root, mode), ()).names == ("u",)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", ["list", "find", "create", "drop"])
def test_a_root_that_was_removed_and_made_again_is_seen_by_whoever_was_there_before(
    root: str, mode: str, first: str
) -> None:
    live = fresh(root, mode)
    put(live, ("old",), 1)
    shutil.rmtree(root)
    put(fresh(root, mode), ("new",), 2)
    expected = {"new"}
    if first == "list":
        assert list_tables(live, ()).names == ("new",)
    elif first == "find":
        assert find_table(live, ("new",)).id == ("new",)
    elif first == "create":
        put(live, ("more",), 3)
        expected = {"new", "more"}
    else:
        drop_table(live, ("new",))
        expected = set()
    for each in (live, fresh(root, mode)):
        assert set(list_tables(each, ()).names) == expected


def test_namespaces_are_made_in_what_stands_there_now(root: str) -> None:
    live = fresh(root)
    create_namespace(live, ("old",))
    shutil.rmtree(root)
    create_namespace(live, ("new",))
    assert list_namespaces(live, ()).names == list_namespaces(fresh(root), ()).names == ("new",)


def test_a_lake_goes_on_too(root: str) -> None:
    lake = ty.connect(root)
    lake.create_table("n.t", table(1))
    shutil.rmtree(root)
    ty.connect(root).create_table("n.u", table(1, 2))
    assert lake.tables() == ["n.u"]
    assert lake["n.u"].count() == 2
    lake.create_table("n.w", table(1))
    assert sorted(ty.connect(root)) == ["n.u", "n.w"]


def test_over_stores_of_other_kinds_it_is_the_same(root: str) -> None:
    live = faulty(root)
    put(live, ("old",), 1)
    shutil.rmtree(root)
    put(live, ("new",), 1)
    assert list_tables(live, ()).names == ("new",)
    assert open_store("memory://never-removed").successor() is None


def test_a_change_that_was_begun_in_the_removed_root_is_not_made_in_the_next(root: str) -> None:
    """Its row would name what was removed."""
    live = fresh(root)
    put(live, ("t",), 1)
    seen = look(live)
    shutil.rmtree(root)
    put(fresh(root), ("new",), 1)
    with pytest.raises(StoreError, match="was removed while it was to be changed"):
        seen.mutate(lambda draft: draft.remove("new"))
    assert list_tables(live, ()).names == ("new",)


def test_a_root_that_was_renamed_is_followed(root: str) -> None:
    """As an open table is (docs/catalog.md): what is at the old path then is another catalog."""
    live = fresh(root)
    put(live, ("t",), 1)
    os.rename(root, f"{root}-moved")
    put(live, ("u",), 2)
    assert list_tables(live, ()).names == list_tables(fresh(f"{root}-moved"), ()).names == ("t", "u")
    assert list_tables(fresh(root), ()).names == ()
