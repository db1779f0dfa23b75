"""Namespaces: made, found, listed and dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.namespaces import (
    Namespace,
    create_namespace,
    describe_namespace,
    drop_namespace,
    list_namespaces,
    namespace_exists,
)
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.tables import create_table, declare_table, register_table
from tiltyard.catalog.trash import dropped_tables, undrop_table
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import (
    CatalogDamaged,
    InvalidInput,
    InvalidName,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    UnsupportedFeature,
    WrongType,
)
from tiltyard.session import Session
from tiltyard.store import Created, Store

DATA = pa.table({"a": [1, 2]})
MODES: dict[str, dict[str, str]] = {
    "mixed": {},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture(params=MODES)
def lake(root: str, request: pytest.FixtureRequest) -> Catalog:
    return open_catalog(root, properties=MODES[request.param], session=Session())


def other(catalog: Catalog) -> Catalog:
    """The same catalog in another process."""
    return Catalog(catalog.store, catalog.settings, Session())


def names_of(catalog: Catalog, *id: str) -> list[str]:
    return list(list_namespaces(catalog, id))


# -- making --------------------------------------------------------------------------------------


def test_namespaces_are_made_below_each_other_with_their_properties(lake: Catalog) -> None:
    assert create_namespace(lake, ("a",), {"k": "v"}) == Namespace(("a",), {"k": "v"})
    assert create_namespace(lake, ("a", "b")) == Namespace(("a", "b"), None)
    assert create_namespace(lake, ("a", "b", "c"), {}) == Namespace(("a", "b", "c"), {})
    assert describe_namespace(other(lake), ("a",)) == Namespace(("a",), {"k": "v"})
    assert describe_namespace(lake, ("a", "b", "c")).properties is None
    assert (names_of(lake), names_of(lake, "a"), names_of(lake, "a", "b")) == (["a"], ["b"], ["c"])
    assert namespace_exists(lake, ("a", "b"))
    assert not namespace_exists(lake, ("b",))


@pytest.mark.parametrize("mode", [None, "create", "Create", "CREATE"])
def test_what_exists_is_not_made_again(lake: Catalog, mode: str | None) -> None:
    create_namespace(lake, ("a",), {"k": "v"})
    with pytest.raises(NamespaceAlreadyExists, match="'a' exists already: a namespace"):
        create_namespace(other(lake), ("a",), mode=mode)
    assert describe_namespace(lake, ("a",)).properties == {"k": "v"}


@pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXISTOK"])
def test_exist_ok_gives_what_is_there(lake: Catalog, mode: str) -> None:
    assert create_namespace(lake, ("a",), {"k": "v"}, mode).properties == {"k": "v"}
    assert create_namespace(lake, ("a",), {"other": "x"}, mode).properties == {"k": "v"}
    assert lake.register().version == 2


@pytest.mark.parametrize("mode", ["Overwrite", "overwrite"])
def test_overwrite_makes_an_empty_namespace_with_these_properties(lake: Catalog, mode: str) -> None:
    create_namespace(lake, ("a",), {"k": "v"})
    create_namespace(lake, ("a", "b"))
    create_table(lake, ("a", "b", "t"), DATA)
    assert create_namespace(lake, ("a",), {"n": "w"}, mode).properties == {"n": "w"}
    assert describe_namespace(other(lake), ("a",)).properties == {"n": "w"}
    assert lake.register().rows.ids == ["a"]
    assert [each.object_id for each in dropped_tables(lake)] == ["a$b$t"]


@pytest.mark.parametrize("mode", ["", "make", "exist ok", 3])
def test_modes_that_are_none_are_refused(lake: Catalog, mode: Any) -> None:
    with pytest.raises(InvalidInput, match="must be one of create, existok, overwrite"):
        create_namespace(lake, ("a",), mode=mode)
    with pytest.raises(InvalidInput, match="must be one of fail, skip"):
        drop_namespace(lake, ("a",), mode)
    with pytest.raises(InvalidInput, match="must be one of restrict, cascade"):
        drop_namespace(lake, ("a",), None, mode)
    assert not os.path.exists(lake.uri)


@pytest.mark.parametrize("name", ["", "a$b", "a/b", "..", "é", "a?"])
def test_names_are_checked(lake: Catalog, name: str) -> None:
    with pytest.raises(InvalidName):
        create_namespace(lake, (name,))
    assert not os.path.exists(lake.uri)


def test_properties_are_text(lake: Catalog) -> None:
    with pytest.raises(WrongType, match="mapping of text"):
        create_namespace(lake, ("a",), {"k": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize("missing", [("x", "y"), ("a", "x", "y"), ("t", "y")])
def test_every_ancestor_must_be_a_namespace(lake: Catalog, missing: tuple[str, ...]) -> None:
    create_namespace(lake, ("a",))
    create_table(lake, ("t",), DATA)
    with pytest.raises(NamespaceNotFound, match="parent namespace"):
        create_namespace(lake, missing)


def test_a_table_has_its_id_alone(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    create_table(lake, ("a", "t"), DATA)
    create_table(lake, ("r",), DATA)
    declare_table(lake, ("d",))
    for id in (("a", "t"), ("r",), ("d",)):
        for mode in ("create", "exist_ok", "overwrite"):
            with pytest.raises(NamespaceAlreadyExists, match="a table has this id"):
                create_namespace(lake, id, mode=mode)
        with pytest.raises(NamespaceNotFound):
            describe_namespace(lake, id)
        with pytest.raises(NamespaceNotFound):
            drop_namespace(lake, id)
        assert not namespace_exists(lake, id)


@pytest.mark.parametrize("mode", ["mixed", "migration"])
def test_a_table_without_a_row_has_its_name_too(root: str, mode: str) -> None:
    write_dataset(DATA, f"{root}/plain.lance")
    lake = open_catalog(root, properties=MODES[mode], session=Session())
    with pytest.raises(NamespaceAlreadyExists, match="a table has this id"):
        create_namespace(lake, ("plain",))
    os.mkdir(f"{root}/empty.lance")
    create_namespace(lake, ("empty",))


# -- the root ------------------------------------------------------------------------------------


def test_the_root_is_there_and_stays(lake: Catalog) -> None:
    assert describe_namespace(lake, ()) == Namespace((), {})
    assert namespace_exists(lake, ())
    with pytest.raises(NamespaceAlreadyExists, match="root namespace"):
        create_namespace(lake, ())
    assert create_namespace(lake, (), mode="exist_ok").properties == {}
    with pytest.raises(InvalidInput, match="root namespace"):
        create_namespace(lake, (), mode="overwrite")
    with pytest.raises(InvalidInput, match="Root namespace cannot be dropped"):
        drop_namespace(lake, ())
    assert not os.path.exists(lake.uri)


def test_the_root_has_the_properties_that_are_nobody_elses(lake: Catalog) -> None:
    metadata = {"owner": "me", "tiltyard.trash.x": "{", "lance.namespace.manifest.deleted": "false"}
    metadata |= {"schema": "{}", "partition_spec_v1": "{}", "table_version_management": "true"}
    lake.mutate(lambda draft: draft.metadata.update(metadata))
    assert describe_namespace(lake, ()).properties == {"owner": "me"}


def test_without_a_register_there_is_the_root_alone(root: str) -> None:
    lake = open_catalog(root, properties={"manifest_enabled": "false"})
    assert describe_namespace(lake, ()).properties == {}
    assert (names_of(lake), namespace_exists(lake, ())) == ([], True)
    acts: list[Callable[[], Any]] = [
        lambda: create_namespace(lake, ("a",)),
        lambda: describe_namespace(lake, ("a",)),
        lambda: drop_namespace(lake, ("a",)),
        lambda: namespace_exists(lake, ("a",)),
        lambda: list_namespaces(lake, ("a",)),
    ]
    for act in acts:
        with pytest.raises(UnsupportedFeature, match="only supported when manifest mode"):
            act()
    assert not os.path.exists(root)


# -- listing -------------------------------------------------------------------------------------


def test_pages_of_namespaces_give_every_name_once(lake: Catalog) -> None:
    for name in "cadbe":
        create_namespace(lake, (name,))
    seen: list[str] = []
    token: str | None = None
    while True:
        page = list_namespaces(lake, (), page_token=token, limit=2)
        seen += page.names
        token = page.token
        if token is None:
            break
        if token == "b":
            drop_namespace(lake, ("b",))
    assert seen == list("abcde")
    assert names_of(lake, "nowhere") == []


# -- dropping ------------------------------------------------------------------------------------


def test_an_empty_namespace_is_dropped(lake: Catalog) -> None:
    create_namespace(lake, ("a",), {"k": "v"})
    assert drop_namespace(other(lake), ("a",)) == Namespace(("a",), {"k": "v"})
    assert names_of(lake) == []
    create_namespace(lake, ("a",))
    assert describe_namespace(lake, ("a",)).properties is None


def test_what_is_not_there_is_told_or_skipped(lake: Catalog) -> None:
    create_namespace(lake, ("flights",))
    with pytest.raises(NamespaceNotFound, match="'flihgts' does not exist; nearest: flights"):
        drop_namespace(lake, ("flihgts",))
    with pytest.raises(NamespaceNotFound, match="nearest: flights"):
        describe_namespace(lake, ("flihgts",))
    assert drop_namespace(lake, ("flihgts",), "Skip") is None
    assert lake.register().version == 2


def test_a_namespace_that_holds_something_stays(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    create_namespace(lake, ("ab",))
    create_namespace(lake, ("a", "b"))
    create_table(lake, ("a", "b", "t"), DATA)
    for mode in ("fail", "skip"):
        with pytest.raises(NamespaceNotEmpty, match=r"'a' \(contains 2 child objects\)"):
            drop_namespace(lake, ("a",), mode, "restrict")
    assert len(lake.register().rows) == 4


def test_cascade_drops_tables_softly(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    create_namespace(lake, ("a", "b"))
    _, dataset = create_table(lake, ("a", "b", "t"), DATA)
    register_table(lake, ("a", "r"), "somewhere")
    assert drop_namespace(lake, ("a",), behavior="Cascade") == Namespace(("a",))
    assert len(lake.register().rows) == 0
    assert dataset.count_rows() == 2
    create_namespace(lake, ("a",))
    create_namespace(lake, ("a", "b"))
    undrop_table(lake, ("a", "b", "t"))
    (row,) = lake.register().rows.all("a$b$t")
    assert LanceDataset(f"{lake.uri}/{row.location}").count_rows() == 2


def test_objects_of_other_programs_are_not_dropped(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    lake.mutate(lambda draft: draft.put(Row("a$1", "table_version", metadata="{}")))
    for behavior in ("restrict", "cascade"):
        with pytest.raises(NamespaceNotEmpty):
            drop_namespace(lake, ("a",), behavior=behavior)
    with pytest.raises(NamespaceNotEmpty, match="table_version of another program"):
        create_namespace(lake, ("a",), mode="overwrite")


def test_properties_that_nobody_can_read_do_not_keep_a_namespace(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    lake.mutate(lambda draft: draft.put(Row("a", "namespace", metadata="{")))
    with pytest.raises(CatalogDamaged, match="namespace 'a'"):
        describe_namespace(lake, ("a",))
    create_namespace(lake, ("b",))
    assert drop_namespace(lake, ("a",)) == Namespace(("a",))


# -- races ---------------------------------------------------------------------------------------


def between(catalog: Catalog, act: Callable[[], Any]) -> Catalog:
    """A catalog whose next change meets another one between decision and publication."""
    did: list[int] = []

    def publish(store: Store, version: int, path: str, data: Any) -> Created:
        if not did:
            did.append(version)
            act()
        return store.create(path, data)

    return Catalog(catalog.store, catalog.settings, Session(), publish)


def test_a_namespace_dropped_meanwhile_gets_no_child(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    late = between(lake, lambda: drop_namespace(lake, ("a",)))
    with pytest.raises(NamespaceNotFound, match="parent namespace 'a'"):
        create_namespace(late, ("a", "b"))
    assert len(lake.register().rows) == 0


def test_a_namespace_that_gets_a_child_meanwhile_is_not_dropped(lake: Catalog) -> None:
    create_namespace(lake, ("a",))
    late = between(lake, lambda: lake.mutate(lambda draft: draft.put(Row("a$t", TABLE, "x"))))
    with pytest.raises(NamespaceNotEmpty):
        drop_namespace(late, ("a",))
    assert lake.register().rows.ids == ["a", "a$t"]


def test_exist_ok_gives_the_properties_of_who_was_first(lake: Catalog) -> None:
    create_namespace(lake, ("z",))
    late = between(lake, lambda: create_namespace(lake, ("a",), {"k": "theirs"}))
    assert create_namespace(late, ("a",), {"k": "mine"}, "exist_ok").properties == {"k": "theirs"}


def test_the_official_package_sees_them(root: str, peer: Peer) -> None:
    lake = open_catalog(root, session=Session())
    create_namespace(lake, ("a",), {"k": 'v "q" é'})
    create_namespace(lake, ("a", "b"))
    theirs = peer(
        """
import lance.namespace
from lance_namespace import *
ns = lance.namespace.DirectoryNamespace(root=root)
properties = ns.describe_namespace(DescribeNamespaceRequest(id=["a"])).properties
ns.create_namespace(CreateNamespaceRequest(id=["a", "c"], properties={"x": "é"}))
ns.drop_namespace(DropNamespaceRequest(id=["a", "b"]))
result = properties, ns.list_namespaces(ListNamespacesRequest(id=["a"])).namespaces
""",
        root=root,
    )
    assert theirs == ({"k": 'v "q" é'}, ["c"])
    assert describe_namespace(lake, ("a", "c")).properties == {"x": "é"}
    assert names_of(lake, "a") == ["c"]
