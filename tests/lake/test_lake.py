"""The lake: tables by dotted names, in namespaces; what it tells and what it refuses."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from peer import Peer
from tiltyard.errors import (
    FieldNotFound,
    InvalidInput,
    InvalidName,
    InvalidUri,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    SchemaMismatch,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    WrongType,
)

DATA = pa.table({"id": [1, 2], "text": ["a", "b"]})


def test_a_table_is_opened_by_its_name_in_brackets(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("flights", {"id": [1, 2]})
    assert lake["flights"].to_arrow() == pa.table({"id": [1, 2]})
    with pytest.raises(TableNotFound, match="nearest: flights"):
        lake["flight"]
    with pytest.raises(InvalidInput):
        lake["../flights"]


def test_connecting_to_a_table_says_how_to_open_it(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    ty.create_table(place, {"id": [1]})
    with pytest.raises(InvalidUri, match=r"itself a table.*open_table\('.*t\.lance'\)"):
        ty.connect(place)
    assert list(ty.connect(tmp_path)) == ["t"]


def test_connecting_and_reading_make_nothing(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path / "new")
    assert (list(lake), lake.tables(), lake.namespaces(), lake.dropped()) == ([], [], [], [])
    assert "t" not in lake
    for fails in (lambda: lake.table("t"), lambda: lake.drop("t"), lambda: lake.rename("t", "u")):
        with pytest.raises(TableNotFound):
            fails()
    assert list(tmp_path.iterdir()) == []


def test_tables_of_a_plain_directory_are_in_the_lake_as_they_are(tmp_path: Path) -> None:
    ty.create_table(tmp_path / "planes.lance", DATA)
    before = sorted(path.name for path in tmp_path.iterdir())
    lake = ty.connect(tmp_path)
    assert lake.tables() == ["planes"]
    assert lake["planes"].to_arrow() == DATA
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_dotted_name_is_a_table_of_a_namespace(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("ops.eu.flights", DATA)
    lake.create_table("planes", DATA)
    assert lake.namespaces() == ["ops", "ops.eu"]
    assert lake.tables() == list(lake) == ["ops.eu.flights", "planes"]
    assert lake.tables("ops") == lake.tables("ops.eu") == ["ops.eu.flights"]
    assert len(lake) == 2
    assert "ops.eu.flights" in lake
    assert "ops.flights" not in lake
    assert all(lake.table(name).count() == 2 for name in lake.tables())
    assert lake.table(["ops", "eu", "flights"]).count() == 2
    with pytest.raises(NamespaceNotFound):
        lake.tables("eu")
    with pytest.raises(NamespaceNotFound):
        lake.namespaces("eu")


def test_a_name_with_a_dot_itself_stands_in_quotes(tmp_path: Path) -> None:
    ty.create_table(tmp_path / "v1.2.lance", DATA)
    lake = ty.connect(tmp_path)
    assert lake.tables() == ['"v1.2"']
    assert lake['"v1.2"'].count() == lake[["v1.2"]].count() == 2
    with pytest.raises(TableNotFound, match=r"has the dot itself is '\"v1\.2\"'"):
        lake["v1.2"]


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", '"a', '"a"b', "a$b", "a/b", "x" * 300, "ä"])
def test_names_that_cannot_be_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    with pytest.raises(InvalidName):
        lake.create_table(name, DATA)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [None, 1, ["a", 1], {"a": 1}])
def test_a_name_is_text_or_a_list_of_texts(name: Any, tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    for call in (lake.table, lake.drop, lambda each: lake.create_table(each, DATA)):
        with pytest.raises(WrongType):
            call(name)


def test_create_or_open_looks_at_what_it_found(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
    first = lake.create_table("ops.t", schema, key="id", exist_ok=True)
    first.append(DATA)
    assert lake.create_table("ops.t", schema, key="id", exist_ok=True).count() == 2
    assert lake.create_table("ops.t", schema, exist_ok=True).count() == 2
    with pytest.raises(SchemaMismatch, match="text"):
        lake.create_table("ops.t", schema.set(1, pa.field("text", pa.int8())), exist_ok=True)
    with pytest.raises(SchemaMismatch, match="more"):
        lake.create_table("ops.t", schema.append(pa.field("more", pa.int8())), exist_ok=True)
    with pytest.raises(SchemaMismatch, match="primary key id, not the primary key text"):
        lake.create_table("ops.t", schema, key="text", exist_ok=True)
    with pytest.raises(TableAlreadyExists, match="adds no rows"):
        lake.create_table("ops.t", DATA, exist_ok=True)
    with pytest.raises(TableAlreadyExists, match=r"open it with table\('ops.t'\)"):
        lake.create_table("ops.t", schema)
    assert lake["ops.t"].count() == 2


def test_the_key_is_the_primary_key_of_the_table(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    table = lake.create_table("t", DATA, key=["text", "id"])
    assert [each.name for each in table.dataset._snapshot.schema.primary_key] == ["text", "id"]
    assert table.upsert({"id": [2, 3], "text": ["b", "c"]}) == {"inserted": 1, "updated": 1}
    made = lake.create_table("u", [{"id": 1}], key="id")
    assert made.upsert([{"id": 1}, {"id": 2}]) == {"inserted": 1, "updated": 1}
    with pytest.raises(FieldNotFound, match="nearest: id"):
        lake.create_table("v", DATA, key="ident")
    with pytest.raises(InvalidInput, match="has a null"):
        lake.create_table("v", [{"id": 1}, {"id": None}], key="id")
    with pytest.raises(InvalidInput, match="twice"):
        lake.create_table("v", DATA, key=["id", "id"])
    assert lake.tables() == ["t", "u"]


def test_a_dropped_table_comes_back(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    for name in ("flights", "ops.flights"):
        lake.create_table(name, DATA, properties={"owner": "me"})
        lake.drop(name)
        assert name not in lake
        with pytest.raises(TableNotFound):
            lake.drop(name)
        (listed,) = lake.dropped()
        assert listed["table"] == name
        assert listed["dropped"] < listed["until"]
        assert lake.undrop(name).to_arrow() == DATA
        assert lake.properties(name) == {"owner": "me"}
        with pytest.raises(TableNotDropped):
            lake.undrop(name)
    lake.drop("flights")
    assert lake.create_table("flights", {"b": [1]}).version == 1
    with pytest.raises(TableAlreadyExists):
        lake.undrop("flights")
    lake.drop("ops.flights", purge=True)
    assert [each["table"] for each in lake.dropped()] == ["flights"]
    with pytest.raises(TableNotFound, match="nearest: flights"):
        lake.drop("flight")


def test_a_table_is_renamed_across_namespaces(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    table = lake.create_table("a.t", DATA)
    lake.create_namespace("b")
    moved = lake.rename("a.t", "b.u")
    assert lake.tables() == ["b.u"]
    moved.append(DATA)
    assert table.count() == 4
    assert lake.rename("b.u", "root").count() == 4
    assert lake.rename("root", "b.u").count() == 4
    with pytest.raises(NamespaceNotFound):
        lake.rename("b.u", "c.u")
    lake.create_table("t", DATA)
    with pytest.raises(TableAlreadyExists):
        lake.rename("t", "b.u")


def test_namespaces_are_made_with_those_above_and_dropped(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_namespace("a.b.c", {"k": "v"})
    lake.create_namespace("a.b.c", exist_ok=True)
    with pytest.raises(NamespaceAlreadyExists):
        lake.create_namespace("a.b.c")
    assert lake.namespaces() == ["a", "a.b", "a.b.c"]
    assert lake.namespaces("a.b") == ["a.b.c"]
    lake.create_table("a.b.t", DATA)
    with pytest.raises(NamespaceNotEmpty):
        lake.drop_namespace("a")
    lake.drop_namespace("a", cascade=True)
    assert (lake.namespaces(), lake.tables()) == ([], [])
    lake.create_namespace("a.b")
    assert lake.undrop("a.b.t").to_arrow() == DATA
    with pytest.raises(NamespaceNotFound):
        lake.drop_namespace("zz")


def test_a_lake_is_pickled_and_shared_among_threads(tmp_path: Path) -> None:
    lake = pickle.loads(pickle.dumps(ty.connect(str(tmp_path), properties={"dir_listing_enabled": "false"})))
    lake.create_namespace("n")

    def make(number: int) -> None:
        lake.create_table(f"n.t{number}", {"id": [number]})

    threads = [Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.tables() == [f"n.t{number}" for number in range(8)]
    assert [lake[name].to_arrow()["id"][0].as_py() for name in lake] == list(range(8))
    assert not list(tmp_path.glob("*.lance"))


def test_a_lake_in_memory_works_too() -> None:
    lake = ty.connect("memory://lake of a test")
    lake.create_table("a.t", DATA)
    lake.create_table("u", DATA)
    lake.drop("a.t")
    assert lake.undrop("a.t").count() == 2
    assert ty.connect("memory://lake of a test").tables() == ["a.t", "u"]


def test_the_official_package_sees_the_tables_of_a_lake(tmp_path: Path, peer: Peer) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("ops.flights", DATA)
    lake.create_table("planes", DATA)
    seen = peer(
        """
from lance.namespace import DirectoryNamespace
from lance_namespace import ListNamespacesRequest, ListTablesRequest, DescribeTableRequest
ns = DirectoryNamespace(root=root)
result = (
    ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces,
    ns.list_tables(ListTablesRequest(id=[])).tables,
    ns.list_tables(ListTablesRequest(id=["ops"])).tables,
    lance.dataset(ns.describe_table(DescribeTableRequest(id=["ops", "flights"])).location).count_rows(),
)
""",
        root=str(tmp_path),
    )
    assert [list(seen[0]), sorted(seen[1]), list(seen[2]), seen[3]] == [["ops"], ["planes"], ["flights"], 2]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda lake: lake.create_table("t", DATA, exist_ok="yes"), "exist_ok"),
        (lambda lake: lake.drop("t", purge=1), "purge"),
        (lambda lake: lake.create_table("t", DATA, properties={"a": 1}), "properties"),
        (lambda lake: lake.create_table("t", DATA, key=7), "key"),
        (lambda lake: lake.create_table("t", None), "data"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[ty.Lake], Any], told: str, tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    with pytest.raises(InvalidInput, match=told):
        call(lake)
    assert list(tmp_path.iterdir()) == []
