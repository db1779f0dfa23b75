"""`tiltyard.connect("http://...")`: the plain face over a server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard as ty
from serving import ROWS, keys, serving
from tiltyard.errors import (
    InvalidInput,
    NamespaceNotEmpty,
    NamespaceNotFound,
    SchemaMismatch,
    TableAlreadyExists,
    TableNotFound,
    Unauthenticated,
    UnsupportedFeature,
)
from tiltyard.lake import Lake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with serving(tmp_path) as server:
        yield ty.connect(server.uri)


def test_tables_by_name(lake: Lake) -> None:
    table = lake.create_table("ops.flights", ROWS, key="id")
    table.upsert({"id": [3, 4], "s": ["x", "y"]})
    table.append({"id": [9], "s": ["z"]})
    assert lake["ops.flights"].scan(where="id > 2").to_arrow().column("s").to_pylist() == ["x", "y", "z"]
    assert list(lake) == ["ops.flights"]
    assert lake.namespaces() == ["ops"]
    assert lake.tables("ops") == ["ops.flights"]
    assert "ops.flights" in lake
    assert "ops.none" not in lake
    assert len(lake) == 1
    assert lake.rename("ops.flights", "ops.planes").version == 3
    lake.drop("ops.planes")
    assert lake.tables() == []
    lake.drop_namespace("ops")
    assert lake.namespaces() == []


def test_create_or_open_is_free_of_races(lake: Lake) -> None:
    first = lake.create_table("a.t", SCHEMA, key="id", exist_ok=True, properties={"owner": "me"})
    again = lake.create_table("a.t", SCHEMA, key="id", exist_ok=True)
    assert first.uri == again.uri
    assert lake.properties("a.t") == {"owner": "me"}
    with pytest.raises(SchemaMismatch):
        lake.create_table("a.t", pa.schema([("other", pa.int64())]), exist_ok=True)
    with pytest.raises(SchemaMismatch):
        lake.create_table("a.t", SCHEMA, key="s", exist_ok=True)
    with pytest.raises(TableAlreadyExists, match="adds no rows"):
        lake.create_table("a.t", ROWS, exist_ok=True)


def test_streams_go_to_the_table_where_it_lies(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA, key="id")
    with table.stream() as stream:
        stream.put({"id": [1], "s": ["a"]})
        assert table.live().lookup([1]).column("s").to_pylist() == ["a"]


def test_refusals_have_the_names_that_one_types(lake: Lake) -> None:
    lake.create_table("ops.t", ROWS)
    with pytest.raises(TableNotFound, match=r"'ops\.none'"):
        lake.table("ops.none")
    with pytest.raises(TableAlreadyExists, match=r"'ops\.t'"):
        lake.create_table("ops.t", ROWS)
    with pytest.raises(NamespaceNotFound, match="'none'"):
        lake.tables("none")
    with pytest.raises(NamespaceNotEmpty):
        lake.drop_namespace("ops")
    for call in (
        lambda: lake.undrop("ops.t"),
        lambda: lake.dropped(),
        lambda: lake.drop("ops.t", purge=True),
        lambda: lake.catalog,
        lambda: lake.create_table("ops.u", ROWS, max_rows_per_file=1),
    ):
        with pytest.raises(UnsupportedFeature):
            call()
    with pytest.raises(TypeError, match="exist_ok"):
        lake.create_table("ops.u", ROWS, exists_ok=True)
    assert "nowhere.t" not in lake
    lake.drop_namespace("ops", cascade=True)


def test_a_lake_behind_keys(tmp_path: Path) -> None:
    with serving(tmp_path, keys(boss="admin")) as server:
        with pytest.raises(Unauthenticated):
            ty.connect(server.uri).tables()
        lake = ty.connect(server.uri, properties={"header.authorization": "Bearer boss-secret"})
        assert lake.tables() == []
        with pytest.raises(InvalidInput, match=r"header\.authorization"):
            ty.connect(server.uri, properties={"header_authorization": "x"})
        assert "boss-secret" not in repr(lake)
        assert pickle.loads(pickle.dumps(lake)).tables() == []


def test_a_table_that_this_machine_cannot_reach(tmp_path: Path) -> None:
    from serving import post

    (tmp_path / "root").mkdir()
    with serving(tmp_path / "root") as server:
        lake = ty.connect(server.uri)
        lake.create_table("a.t", ROWS)
        post(server, "table/a%24d/declare")
        with pytest.raises(TableNotFound, match="only declared"):
            lake.table("a.d")
        (tmp_path / "root").rename(tmp_path / "elsewhere")
        with pytest.raises((TableNotFound, NamespaceNotFound)):
            lake.table("a.t")
