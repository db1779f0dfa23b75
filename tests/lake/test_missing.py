"""What a lake refuses is told in the names that one types, with the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiltyard as ty
from tiltyard.catalog.declaring import declare_table
from tiltyard.errors import (
    InvalidInput,
    InvalidName,
    InvalidUri,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
    WrongType,
)

DATA = {"id": [1]}


@pytest.fixture
def lake(tmp_path: Path) -> ty.Lake:
    lake = ty.connect(tmp_path / "lake")
    lake.create_table("ops.eu.delays", DATA)
    lake.create_table('ops."v1.2"', DATA)
    lake.create_table("gone.old", DATA)
    lake.drop("gone.old")
    lake.drop_namespace("gone")
    return lake


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda lake: lake["ops.eu.delay"], TableNotFound, r"no table 'ops\.eu\.delay'.*nearest: ops\.eu"),
        (lambda lake: lake.drop("ops.eu.delay"), TableNotFound, r"nearest: ops\.eu\.delays"),
        (lambda lake: lake.rename("ops.eu.delay", "x"), TableNotFound, r"nearest: ops\.eu\.delays"),
        (lambda lake: lake.properties("ops.eu.delay"), TableNotFound, r"nearest: ops\.eu\.delays"),
        (
            lambda lake: lake['ops."v1.3"'],
            TableNotFound,
            r"""nearest: ops\."v1\.2\"""",
        ),
        (
            lambda lake: lake.rename("ops.eu.delays", "us.east.delays"),
            NamespaceNotFound,
            r"no namespace 'us\.east' for 'us\.east\.delays'.*create_namespace\('us\.east'\) makes it",
        ),
        (
            lambda lake: lake.rename("ops.eu.delays", 'ops."v1.2".x'),
            NamespaceNotFound,
            r"""'ops\."v1\.2"' is a table, not a namespace""",
        ),
        (
            lambda lake: lake.rename("ops.eu.delays", "ops.eu"),
            TableAlreadyExists,
            r"'ops\.eu' exists already",
        ),
        (
            lambda lake: lake.undrop("gone.ol"),
            TableNotDropped,
            r"no dropped table 'gone\.ol'.*: gone\.old",
        ),
        (lambda lake: lake.undrop("gone.old"), NamespaceNotFound, r"create_namespace\('gone'\) makes it"),
        (
            lambda lake: lake.drop_namespace("ops"),
            NamespaceNotEmpty,
            r"'ops' of .* is not empty, it holds 2 tables and 1 namespace.*cascade=True",
        ),
        (lambda lake: lake["ops.eu"], TableNotFound, r"'ops\.eu' is a namespace of .*tables\('ops\.eu'\)"),
        (lambda lake: lake.drop("ops.eu"), TableNotFound, r"'ops\.eu' is a namespace"),
        (lambda lake: lake.drop_namespace("ops.eu.delays"), NamespaceNotFound, r"is a table.*drop\('ops\.eu"),
        (lambda lake: lake.drop_namespace("ops.e"), NamespaceNotFound, r"nearest: ops\.eu"),
        (lambda lake: lake.tables("opss"), NamespaceNotFound, "no namespace 'opss'.*nearest: ops"),
        (lambda lake: lake.namespaces("opss"), NamespaceNotFound, "nearest: ops"),
        (lambda lake: lake.create_namespace("ops.eu"), NamespaceAlreadyExists, r"'ops\.eu' exists already"),
        (lambda lake: lake["../lake"], InvalidName, r"is a path.*dotted, such as 'ops\.flights'"),
        (lambda lake: lake.create_table("new", {}), InvalidInput, "have no column"),
        (lambda lake: lake.create_table("new"), InvalidInput, "needs data or a schema"),
        (lambda lake: lake.create_table("zz.t", 5), InvalidInput, "is no data"),
        (lambda lake: lake.create_table("zz.a$b", DATA), InvalidName, "separates"),
    ],
)
def test_an_error_says_what_there_is_and_what_to_do(
    call: Callable[[ty.Lake], Any], error: type[TiltyardError], told: str, lake: ty.Lake
) -> None:
    with pytest.raises(error, match=told) as caught:
        call(lake)
    assert "$" not in str(caught.value).replace("a$b", "").replace("'$'", "")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert lake.namespaces() == ["ops", "ops.eu"]
    assert lake.tables() == ["ops.eu.delays", 'ops."v1.2"']


def test_a_declared_table_is_listed_only_when_it_is_asked_for(lake: ty.Lake) -> None:
    for id in (("ops", "soon"), ("soon",)):
        declare_table(lake.catalog, id)
    written = ["ops.eu.delays", 'ops."v1.2"']
    assert list(lake) == lake.tables() == lake.tables("ops") == lake._ipython_key_completions_() == written
    assert len(lake) == 2
    assert sorted(lake.tables(declared=True)) == sorted([*written, "ops.soon", "soon"])
    assert lake.tables("ops", declared=True) == ["ops.eu.delays", "ops.soon", 'ops."v1.2"']
    assert "soon" not in lake
    with pytest.raises(TableNotFound, match=r"only declared.*create_table\('ops\.soon', \.\.\.\) fills it"):
        lake["ops.soon"]
    lake.create_table("ops.soon", DATA)
    assert "ops.soon" in lake


def test_properties_of_a_namespace_are_read_as_those_of_a_table(lake: ty.Lake) -> None:
    lake.create_namespace("meta", {"owner": "me"})
    assert lake.properties("meta") == {"owner": "me"}
    assert lake.properties("ops") == {}


def test_the_older_drop_of_a_name_is_brought_back_by_its_id(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    for number in (1, 2):
        lake.create_table("t", {"id": [number]})
        lake.drop("t")
    older, newer = lake.dropped()
    assert older["table"] == newer["table"] == "t"
    with pytest.raises(TableNotDropped):
        lake.undrop("t", id="none")
    assert lake.undrop("t", id=older["id"]).to_arrow()["id"].to_pylist() == [1]
    lake.rename("t", "first")
    assert lake.undrop("t").to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("properties", "error", "told"),
    [
        ({"manifest_enable": "false"}, InvalidInput, "nearest: manifest_enabled"),
        ({"manifest_enabled": "flase"}, InvalidInput, "'true' or 'false', found 'flase'"),
        ({"commit_retries": "many"}, InvalidInput, "whole number"),
        ({"storage.map": "false"}, InvalidInput, "storage_options="),
        ("manifest_enabled", WrongType, "properties"),
        ({"manifest_enabled": None}, InvalidInput, "'true' or 'false'"),
    ],
)
def test_a_property_that_says_nothing_is_refused(
    properties: Any, error: type[TiltyardError], told: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=told):
        ty.connect(tmp_path, properties=properties)
    ty.connect(tmp_path, properties={"manifest_enabled": False, "commit_retries": 3, "root": "x"})


def test_connecting_to_a_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.py"
    place.write_text("pass")
    with pytest.raises(InvalidUri, match="is a file, no lake"):
        ty.connect(place)


def test_a_schema_alone_makes_an_empty_table(tmp_path: Path) -> None:
    import pyarrow as pa

    schema = pa.schema([("id", pa.int64())])
    lake = ty.connect(tmp_path)
    assert lake.create_table("a", schema=schema).schema.names == ["id"]
    assert lake.create_table("b", schema=schema, key="id").count() == 0
    assert lake.create_table("b", schema=schema, key="id", exist_ok=True).count() == 0
    assert lake.create_table("n.c", [{"id": 1}], schema=schema).count() == 1
    assert lake.create_table("m.d", iter([{"id": 1}, {"id": 2}]), key="id").count() == 2
    assert ty.create_table(tmp_path / "e.lance", schema=schema).count() == 0


def test_only_public_names_are_completed() -> None:
    assert dir(ty) == sorted(ty.__all__)
