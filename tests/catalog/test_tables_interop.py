"""One root shared with pylance and lancedb: what one makes the other lists, describes and opens (namespace
pack, appendix E 1, 2, 5).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer, PeerError
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.namespaces import create_namespace, list_namespaces
from tiltyard.catalog.tables import (
    create_table,
    declare_table,
    deregister_table,
    describe,
    register_table,
    table_exists,
)
from tiltyard.errors import TableAlreadyExists
from tiltyard.session import Session

DATA = pa.table({"a": [1, 2, 3]})
MODES: dict[str, dict[str, str]] = {
    "v1": {"manifest_enabled": "false"},
    "mixed": {},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}

THEIRS = """
import io
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
space = DirectoryNamespace(root=root, **properties)
sink = io.BytesIO()
with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as stream:
    stream.write_table(pa.table({"a": [1, 2, 3]}))
body = sink.getvalue()

def make(id, **more):
    space.create_table(ln.CreateTableRequest(id=id, **more), body)

def listed(id=(), **more):
    return sorted(space.list_tables(ln.ListTablesRequest(id=list(id), **more)).tables)

def rows(id):
    found = space.describe_table(ln.DescribeTableRequest(id=id))
    return lance.dataset(found.location).count_rows()

def there(id):
    try:
        space.table_exists(ln.TableExistsRequest(id=id))
    except Exception as error:
        return getattr(error, "code", error)
    return True

"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def fresh(root: str, mode: str = "mixed") -> Catalog:
    return open_catalog(root, properties=MODES[mode], session=Session())


def theirs(peer: Peer, root: str, source: str, mode: str = "mixed", **variables: Any) -> Any:
    """What a block of statements leaves in `result`, in the official package's catalog."""
    return peer(THEIRS + source, root=root, properties=MODES[mode], **variables)


def count(catalog: Catalog, id: tuple[str, ...]) -> int:
    dataset = describe(catalog, id, detailed=True).dataset
    assert dataset is not None
    return int(dataset.count_rows())


@pytest.mark.parametrize("mode", MODES)
def test_what_pylance_makes_we_list_describe_and_open(peer: Peer, root: str, mode: str) -> None:
    child = mode != "v1"
    theirs(
        peer,
        root,
        """
make(["t"])
space.declare_table(ln.DeclareTableRequest(id=["d"]))
if child:
    space.create_namespace(ln.CreateNamespaceRequest(id=["n"]))
    make(["n", "t"], properties={"k": "v"})
    space.declare_table(ln.DeclareTableRequest(id=["n", "d"]))
""",
        mode,
        child=child,
    )
    lake = fresh(root, mode)
    assert list_tables(lake).names == ("d", "t")
    assert list_tables(lake, include_declared=False).names == ("t",)
    assert count(lake, ("t",)) == 3
    assert describe(lake, ("d",), check_declared=True).declared_only
    if child:
        assert list_tables(lake, ("n",)).names == ("d", "t")
        assert count(lake, ("n", "t")) == 3
        assert describe(lake, ("n", "t")).properties == {"k": "v"}
        assert describe(lake, ("n", "d"), check_declared=True).declared_only
    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("t",), DATA)
    create_table(lake, ("d",), DATA)
    assert theirs(peer, root, 'result = rows(["d"])', mode) == 3


@pytest.mark.parametrize("mode", MODES)
def test_what_we_make_pylance_lists_describes_and_opens(peer: Peer, root: str, mode: str) -> None:
    child = mode != "v1"
    lake = fresh(root, mode)
    create_table(lake, ("t",), DATA)
    declare_table(lake, ("d",))
    if child:
        create_namespace(lake, ("n",))
        create_table(lake, ("n", "t"), DATA, properties={"k": "v"})
        declare_table(lake, ("n", "d"))
    seen = theirs(
        peer,
        root,
        """
result = [listed(), listed(include_declared=False), rows(["t"]), there(["d"])]
if child:
    described = space.describe_table(ln.DescribeTableRequest(id=["n", "t"]))
    result += [listed(["n"]), listed(["n"], include_declared=False), rows(["n", "t"]), described.properties]
    make(["n", "d"])
    result.append(rows(["n", "d"]))
    space.drop_table(ln.DropTableRequest(id=["n", "d"]))
make(["d"])
result.append(rows(["d"]))
""",
        mode,
        child=child,
    )
    expected: list[Any] = [["d", "t"], ["t"], 3, True]
    if child:
        expected += [["d", "t"], ["t"], 3, {"k": "v"}, 3]
    assert seen == [*expected, 3]
    assert count(lake, ("d",)) == 3
    assert not child or list_tables(lake, ("n",)).names == ("t",)


def test_a_declared_table_of_ours_can_be_dropped_by_pylance(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    for id in (("d",), ("n", "d")):
        declare_table(lake, id)
        theirs(peer, root, "space.drop_table(ln.DropTableRequest(id=list(id)))", id=id)
        assert not table_exists(lake, id)
    assert sorted(os.listdir(root)) == ["__manifest"]


def test_a_table_deregistered_by_us_is_gone_for_pylance_and_comes_back(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_table(lake, ("t",), DATA)
    deregister_table(lake, ("t",))
    look = 'result = [there(["t"]), listed()]'
    for mode in MODES:
        assert theirs(peer, root, look, mode) == [4, []], mode
    register_table(lake, ("t",), "t.lance")
    for mode in MODES:
        assert theirs(peer, root, look, mode) == [True, ["t"]], mode


def test_a_table_that_pylance_deregisters_by_its_directory_is_gone_for_us(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_table(lake, ("t",), DATA)
    theirs(peer, root, 'space.deregister_table(ln.DeregisterTableRequest(id=["t"]))', "v1")
    assert Path(root, "t.lance", DEREGISTERED).exists()
    for mode in ("v1", "mixed"):
        assert not table_exists(fresh(root, mode), ("t",))
        assert theirs(peer, root, 'result = there(["t"])', mode) == 4
    register_table(fresh(root), ("t",), "t.lance")
    assert theirs(peer, root, 'result = [there(["t"]), rows(["t"])]') == [True, 3]


def test_a_table_that_pylance_registers_is_found_by_us(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    create_table(lake, ("t",), DATA)
    theirs(peer, root, 'space.register_table(ln.RegisterTableRequest(id=["n", "r"], location="t.lance"))')
    assert count(lake, ("n", "r")) == 3


def test_a_hundred_changes_in_turn_leave_the_same_catalog_for_both(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    for at in range(50):
        name = f"t{at:02}"
        if at % 2:
            declare_table(lake, ("n", f"ours-{name}"))
        else:
            create_namespace(lake, (f"ours-{name}",))
        theirs(
            peer,
            root,
            """
if at % 2:
    space.create_namespace(ln.CreateNamespaceRequest(id=["theirs-" + name]))
else:
    space.declare_table(ln.DeclareTableRequest(id=["n", "theirs-" + name]))
""",
            at=at,
            name=name,
        )
    ours = [list_tables(lake, ("n",)).names, list_namespaces(lake, ()).names]
    seen = theirs(
        peer,
        root,
        'result = [listed(["n"]), sorted(space.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces)]',
    )
    assert [sorted(each) for each in ours] == seen
    assert len(seen[0]) == 50
    assert len(seen[1]) == 51
    assert len(lake.register().rows) == 101
    assert lake.register().version == 102


def test_lancedb_opens_what_we_make_and_we_what_lancedb_makes(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    create_table(lake, ("n", "t"), DATA)
    create_table(lake, ("t",), DATA)
    seen = peer(
        """
import lancedb
spaces = lancedb.connect_namespace("dir", {"root": root})
plain = lancedb.connect(root)
result = [spaces.open_table("t", namespace_path=["n"]).count_rows(), spaces.open_table("t").count_rows(),
          plain.open_table("t").count_rows(), sorted(plain.table_names())]
data = pa.table({"a": [1, 2, 3]})
spaces.create_table("u", data, namespace_path=["n"])
plain.create_table("plain", data)
""",
        root=root,
    )
    assert seen == [3, 3, 3, ["t"]]
    assert list_tables(lake).names == ("plain", "t")
    assert list_tables(lake, ("n",)).names == ("t", "u")
    assert count(lake, ("plain",)) == 3
    assert count(lake, ("n", "u")) == 3


def test_both_refuse_a_name_that_the_other_took(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    for at, id in enumerate((("t",), ("n", "t"))):
        create_table(lake, id, DATA)
        with pytest.raises(PeerError):
            theirs(peer, root, "make(list(id))", id=id)
        other = (*id[:-1], f"u{at}")
        theirs(peer, root, "make(list(id))", id=other)
        with pytest.raises(TableAlreadyExists):
            create_table(lake, other, DATA)
    assert len(lake.register().rows) == 5
    places = {row.location for row in lake.register().rows if row.location}
    assert {name for name in os.listdir(root) if name != "__manifest"} == places


def test_an_orphan_of_pylance_is_no_table(peer: Peer, root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    create_table(lake, ("n", "t"), DATA)
    os.rename(os.path.join(root, find_table(lake, ("n", "t")).location), os.path.join(root, "0badcafe_n$t"))
    assert describe(lake, ("n", "t"), check_declared=True).declared_only
    assert list_tables(lake, ("n",), include_declared=False).names == ()
    assert theirs(peer, root, 'result = listed(["n"], include_declared=False)') == []
