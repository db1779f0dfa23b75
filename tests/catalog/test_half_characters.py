"""Half a surrogate pair, which UTF-8 cannot write, is refused by every face, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.catalog.tables import declare_table, register_table
from tiltyard.cli import main
from tiltyard.errors import InvalidInput

HALF = "\udcff"
DATA = pa.table({"x": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> ty.Lake:
    lake = ty.connect(tmp_path / "lake")
    lake.create_table("n.t", DATA)
    return lake


def files(lake: ty.Lake) -> set[str]:
    return {str(each) for each in Path(lake.uri).rglob("*")}


CALLS: dict[str, Callable[[Any], Any]] = {
    "table": lambda lake: lake.table(HALF),
    "parts": lambda lake: lake.table(["n", HALF]),
    "create": lambda lake: lake.create_table(f"n.{HALF}", DATA),
    "create with": lambda lake: lake.create_table("n.u", DATA, properties={"k": HALF}),
    "create by": lambda lake: lake.create_table("n.u", DATA, properties={HALF: "v"}),
    "drop": lambda lake: lake.drop(HALF),
    "undrop": lambda lake: lake.undrop(HALF),
    "undrop of": lambda lake: lake.undrop("n.t", id=HALF),
    "rename": lambda lake: lake.rename(HALF, "n.u"),
    "rename to": lambda lake: lake.rename("n.t", HALF),
    "tables": lambda lake: lake.tables(HALF),
    "namespaces": lambda lake: lake.namespaces(HALF),
    "properties": lambda lake: lake.properties(HALF),
    "namespace": lambda lake: lake.create_namespace(HALF),
    "namespace with": lambda lake: lake.create_namespace("m", {"k": HALF}),
    "namespace by": lambda lake: lake.create_namespace("m", {HALF: "v"}),
    "drop namespace": lambda lake: lake.drop_namespace(HALF),
    "declare": lambda lake: declare_table(lake.catalog, ("n", "u"), properties={"k": HALF}),
    "declare at": lambda lake: declare_table(lake.catalog, ("n", "u"), location=HALF),
    "register": lambda lake: register_table(lake.catalog, ("n", "u"), "p", properties={"k": HALF}),
    "register at": lambda lake: register_table(lake.catalog, ("n", "u"), HALF),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_says_what_it_cannot_store(call: str, lake: ty.Lake) -> None:
    before = files(lake)
    with pytest.raises(InvalidInput, match="half a"):
        CALLS[call](lake)
    assert files(lake) == before


def test_a_lake_has_no_such_table(lake: ty.Lake) -> None:
    assert HALF not in lake


COMMANDS = [
    ["list", "{root}", HALF],
    ["list", "{root}", HALF, "--namespaces"],
    ["list", HALF],
    ["drop", "{root}", HALF],
    ["undrop", "{root}", HALF],
    ["undrop", "{root}", "n.t", "--id", HALF],
    ["rename", "{root}", HALF, "n.u"],
    ["rename", "{root}", "n.t", HALF],
    ["repair", "{root}", "--undo", HALF],
    ["repair", "{root}", "--undo", HALF + ".json"],
    ["check", "{root}", "--grace", HALF],
    ["purge", "{root}", "--orphans", HALF],
]


@pytest.mark.parametrize("words", COMMANDS, ids=range(len(COMMANDS)))
def test_a_command_says_so_in_one_line(
    words: list[str], lake: ty.Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(lake)
    assert main(["catalog", *(each.format(root=lake.uri) for each in words)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    told.encode()
    assert files(lake) == before
