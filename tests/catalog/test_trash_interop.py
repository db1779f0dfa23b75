"""Dropped and renamed tables beside pylance and lancedb: they see neither, take free names at once, and keep
what we need to bring a table back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakes import MODES, directories, faulty, fresh, has, moves_left, put, values
from peer import Peer, PeerError
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.errors import TableNotFound
from tiltyard.testing.faults import Crashed, Fault, Rule

Id = tuple[str, ...]

THEIRS = """
import io
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
space = DirectoryNamespace(root=root, **properties)

def body(*values):
    sink = io.BytesIO()
    data = pa.table({"a": list(values)})
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_table(data)
    return sink.getvalue()

def listed(id=()):
    return sorted(space.list_tables(ln.ListTablesRequest(id=list(id))).tables)

def rows(id):
    found = space.describe_table(ln.DescribeTableRequest(id=list(id)))
    return lance.dataset(found.location).to_table()["a"].to_pylist()

def told(call, *arguments):
    try:
        call(*arguments)
    except ln.LanceNamespaceError as error:
        return int(error.code)
    return 0
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    create_namespace(fresh(root), ("n",))
    return root


def theirs(peer: Peer, root: str, source: str, mode: str = "mixed", **variables: Any) -> Any:
    """What a block of statements leaves in `result`, in the official package's catalog."""
    return peer(THEIRS + source, root=root, properties=MODES[mode], **variables)


WAYS: list[tuple[Id, Id]] = [
    (("t",), ("u",)),
    (("t",), ("n", "t")),
    (("n", "t"), ("n", "u")),
    (("n", "t"), ("u",)),
]


@pytest.mark.parametrize("mode", ["mixed", "migration", "manifest"])
@pytest.mark.parametrize(("id", "new"), WAYS)
def test_pylance_opens_the_new_name_of_a_table_and_not_the_old(
    peer: Peer, root: str, mode: str, id: Id, new: Id
) -> None:
    put(fresh(root, mode), id, 1, 2)
    rename_table(fresh(root, mode), id, new)
    source = """
result = (rows(new), told(rows, id), listed(id[:-1]), listed(new[:-1]))
"""
    found, old, there, here = theirs(peer, root, source, mode, id=list(id), new=list(new))
    assert found == [1, 2]
    assert old == 4
    assert id[-1] not in there or id[:-1] != new[:-1]
    assert new[-1] in here


@pytest.mark.parametrize("mode", ["mixed", "migration", "manifest"])
@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_pylance_sees_no_dropped_table_and_takes_its_name_at_once(
    peer: Peer, root: str, mode: str, id: Id
) -> None:
    put(fresh(root, mode), id, 1, properties={"k": "v"})
    drop_table(fresh(root, mode), id)
    source = """
before = (listed(id[:-1]), told(rows, id))
space.create_table(ln.CreateTableRequest(id=id), body(7))
result = (before, listed(id[:-1]), rows(id))
"""
    before, after, found = theirs(peer, root, source, mode, id=list(id))
    assert before == ([], 4)
    assert after == [id[-1]]
    assert found == [7]
    assert values(fresh(root, mode), id) == [7]
    rename_table(fresh(root, mode), id, (*id[:-1], "other"))
    undrop_table(fresh(root, mode), id)  # their rewrites kept the record
    assert theirs(peer, root, "result = rows(id)", mode, id=list(id)) == [1]
    assert theirs(peer, root, "result = rows(id)", mode, id=[*id[:-1], "other"]) == [7]


def test_pylance_drops_and_makes_tables_between_ours(peer: Peer, root: str) -> None:
    lake = fresh(root)
    for turn in range(3):
        put(lake, ("t",), turn)
        drop_table(lake, ("t",))
        theirs(peer, root, 'space.create_table(ln.CreateTableRequest(id=["t"]), body(70))')
        assert values(lake, ("t",)) == [70]
        theirs(peer, root, 'space.drop_table(ln.DropTableRequest(id=["t"]))')
        assert not has(lake, ("t",))
    theirs(peer, root, 'space.create_table(ln.CreateTableRequest(id=["t"]), body(70))')
    drop_table(lake, ("t",))
    assert theirs(peer, root, 'result = told(rows, ["t"])') == 4
    found = []
    for number, each in enumerate(dropped_tables(lake)):
        undrop_table(lake, trash=each.trash)
        rename_table(lake, ("t",), (f"t{number}",))
        found += theirs(peer, root, "result = rows(id)", id=[f"t{number}"])
    assert found == [0, 1, 2, 70]


def test_pylance_is_not_misled_by_a_drop_that_died_half_way(peer: Peer, root: str) -> None:
    """It still lists the directory until our next change, as it does with any directory; then it is gone."""
    put(fresh(root), ("t",), 1)
    with pytest.raises(Crashed):
        drop_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="*_dropped_t")), ("t",))
    theirs(peer, root, 'space.create_namespace(ln.CreateNamespaceRequest(id=["m"]))')
    assert not has(fresh(root), ("t",))
    put(fresh(root), ("x",), 1)
    assert theirs(peer, root, "result = listed()") == ["x"]
    theirs(peer, root, 'space.create_table(ln.CreateTableRequest(id=["t"]), body(7))')
    assert values(fresh(root), ("t",)) == [7]
    assert moves_left(fresh(root)) == 0


def test_a_table_made_by_pylance_after_a_move_that_nobody_took_out_of_the_register(
    peer: Peer, root: str
) -> None:
    """The record of a done rename stands until our next change; their table under the old name stays."""
    put(fresh(root), ("t",), 1)
    rename_table(fresh(root), ("t",), ("u",))
    assert moves_left(fresh(root)) == 1
    theirs(peer, root, 'space.create_table(ln.CreateTableRequest(id=["t"]), body(7))')
    theirs(peer, root, 'space.drop_table(ln.DropTableRequest(id=["u"]))')
    create_namespace(fresh(root), ("next",))
    assert values(fresh(root), ("t",)) == [7]
    assert directories(fresh(root)) == ["t.lance"]


LANCEDB = """
import lancedb
plain = lancedb.connect(root)
space = lancedb.connect_namespace("dir", {"root": root})
"""


def test_lancedb_sees_no_dropped_or_renamed_table_and_takes_their_names(peer: Peer, root: str) -> None:
    lake = fresh(root)
    for name in ("dropped", "renamed", "kept"):
        put(lake, (name,), 1)
    drop_table(lake, ("dropped",))
    rename_table(lake, ("renamed",), ("new",))
    source = """
def told(db, name):
    try:
        return db.open_table(name).count_rows()
    except Exception as error:
        return "not found" in str(error).lower()

names = ["dropped", "renamed", "new"]
before = [(sorted(db.table_names()), [told(db, name) for name in names]) for db in (plain, space)]
plain.create_table("dropped", pa.table({"a": [7, 7]}))
space.create_table("renamed", pa.table({"a": [8, 8]}))
result = before, [sorted(db.table_names()) for db in (plain, space)]
"""
    before, after = peer(LANCEDB + source, root=root)
    assert before == [(["kept", "new"], [True, True, 1])] * 2
    assert after == [["dropped", "kept", "new", "renamed"]] * 2
    assert values(fresh(root), ("dropped",)) == [7, 7]
    assert values(fresh(root), ("renamed",)) == [8, 8]
    drop_table(lake, ("dropped",))
    undrop_table(lake, trash=dropped_tables(lake)[0].trash)
    assert peer(LANCEDB + 'result = plain.open_table("dropped").count_rows()', root=root) == 1


def test_a_lancedb_that_has_a_table_open_gets_one_clear_error_and_no_wrong_rows(
    peer: Peer, root: str
) -> None:
    """Only ours go on reading (they hold the directory); theirs look the files up by their old names."""
    put(fresh(root), ("t",), 1)
    peer(LANCEDB + 'kept["t"] = plain.open_table("t")', root=root)
    drop_table(fresh(root), ("t",))
    with pytest.raises(PeerError, match=r"(?i)not found"):
        peer('result = kept["t"].to_arrow()')
    undrop_table(fresh(root), ("t",))
    assert peer('kept["t"].to_arrow()').num_rows == 1


@pytest.mark.parametrize("mode", ["mixed", "v1"])
def test_purges_leave_nothing_that_official_programs_see(peer: Peer, root: str, mode: str) -> None:
    put(fresh(root, mode), ("t",), 1)
    drop_table(fresh(root, mode), ("t",))
    purge(fresh(root, mode), 0)
    assert theirs(peer, root, "result = (listed(), told(rows, ['t']))", mode) == ([], 4)
    with pytest.raises(TableNotFound):
        undrop_table(fresh(root, mode), ("t",))
