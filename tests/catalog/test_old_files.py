"""Data files of old versions of the register go; nothing that anybody may read does."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peer import Peer
from tiltyard.catalog import Catalog, old_files, open_catalog
from tiltyard.catalog.names import WAITING_DIR
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import NAMESPACE, Row
from tiltyard.catalog.settings import Settings
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

HOURS = 3600


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_files, "KEPT_VERSIONS", 5)
    monkeypatch.setattr(old_files, "EVERY_VERSIONS", 20)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def fresh(root: str) -> Catalog:
    return open_catalog(root, properties={"storage.durable": "false"}, session=Session())


def change(catalog: Catalog, times: int) -> None:
    for _ in range(times):
        row = Row(f"n{len(catalog.register().rows)}", NAMESPACE)
        catalog.mutate(partial(Draft.put, row=row))


def data(root: str) -> list[str]:
    return sorted(os.listdir(f"{root}/__manifest/data"))


def age(root: str, hours: float) -> None:
    """Make every data file that is there so old."""
    for name in data(root):
        path = f"{root}/__manifest/data/{name}"
        then = os.stat(path).st_mtime - hours * HOURS
        os.utime(path, (then, then))


def test_files_of_long_past_versions_go_and_manifests_stay(root: str) -> None:
    catalog = fresh(root)
    change(catalog, 18)
    assert (catalog.register().version, len(data(root))) == (19, 18)
    age(root, 2)
    change(catalog, 1)
    assert len(data(root)) == old_files.KEPT_VERSIONS
    manifests = [name for name in os.listdir(f"{root}/__manifest/_versions") if name.endswith(".manifest")]
    assert len(manifests) == 20
    assert len(fresh(root).register().rows) == 19


def test_disk_use_is_bounded_however_many_changes(root: str) -> None:
    catalog = fresh(root)
    most = 0
    for _ in range(12):
        change(catalog, 10)
        most = max(most, len(data(root)))
        age(root, 2)
    assert most <= old_files.KEPT_VERSIONS + old_files.EVERY_VERSIONS


def test_requests_that_were_given_up_long_ago_go(root: str) -> None:
    catalog = fresh(root)
    change(catalog, 18)
    waiting = Path(f"{root}/__manifest/{WAITING_DIR}")
    waiting.mkdir(parents=True)
    for name, hours in (("old", 2.0), ("old.withdrawn", 2.0), ("young", 0.9)):
        (waiting / name).write_text("x")
        then = os.stat(waiting / name).st_mtime - hours * HOURS
        os.utime(waiting / name, (then, then))
    change(catalog, 1)
    assert os.listdir(waiting) == ["young"]


def test_young_files_and_those_of_others_stay(root: str) -> None:
    catalog = fresh(root)
    change(catalog, 18)
    Path(f"{root}/__manifest/data/notes.txt").write_text("mine")
    age(root, 0.9)
    change(catalog, 1)
    assert len(data(root)) == 20
    age(root, 2)
    change(catalog, 20)
    assert "notes.txt" in data(root)


def test_a_file_that_new_versions_name_still_stays(root: str, peer: Peer) -> None:
    """An append of another writer keeps the file of the version before."""
    catalog = fresh(root)
    change(catalog, 18)
    age(root, 2)
    peer(
        """
ds = lance.dataset(root + "/__manifest")
table = ds.to_table().slice(0, 1)
table = table.set_column(0, table.schema.field(0), pa.array(["other"]))
lance.write_dataset(table, ds, mode="append")
""",
        root=root,
    )
    register = fresh(root).register()
    assert register.version == 20
    assert old_files.remove_old_files(catalog.register_store, Session(), register) == 18 - 4
    assert len(fresh(root).register().rows) == 19


def test_nothing_goes_where_versions_are_tagged(root: str, peer: Peer) -> None:
    catalog = fresh(root)
    change(catalog, 18)
    age(root, 2)
    peer('lance.dataset(root + "/__manifest").tags.create("kept", 3)', root=root)
    change(catalog, 1)
    assert len(data(root)) == 19


@pytest.mark.parametrize("call", ["list", "delete", "list_names", "stat", "read"])
def test_no_change_fails_because_of_it(root: str, call: str) -> None:
    change(fresh(root), 18)
    age(root, 2)
    plan = Plan()
    catalog = Catalog(FaultyStore(open_store(root, {"durable": False}), plan), Settings(), Session())
    made: list[Any] = []

    def last(draft: Any) -> None:
        draft.put(Row("last", NAMESPACE))
        made.append(1)

    # From the moment at which old files are looked for, every call of this kind fails.
    original = catalog._table.remove_old_files

    def looked() -> None:
        plan.rules.append(Rule(Fault.FAIL_BEFORE, call, times=None))
        original()

    catalog._table.remove_old_files = looked  # type: ignore[method-assign]
    catalog.mutate(last)
    assert made
    assert fresh(root).register().rows.find("last") is not None


def test_an_official_reader_that_has_an_old_version_open_goes_on(root: str, peer: Peer) -> None:
    catalog = fresh(root)
    change(catalog, 2)
    peer(
        """
import lance.namespace
from lance_namespace import *
ns = kept[root] = lance.namespace.DirectoryNamespace(root=root)
result = ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces
""",
        root=root,
    )
    for _ in range(3):
        age(root, 2)
        change(catalog, 20)
    seen = peer(
        """
from lance_namespace import *
ns = kept[root]
before = len(ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces)
ns.create_namespace(CreateNamespaceRequest(id=["theirs"]))
result = before, len(ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces)
""",
        root=root,
    )
    assert seen == (62, 63)
    assert len(data(root)) < 40
    assert catalog.register().rows.find("theirs") is not None
