"""`tiltyard catalog`: looking, checking, repairing, dropping and renaming on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiltyard as ty
from catalog_damage import duplicate
from tiltyard.catalog import open_catalog
from tiltyard.catalog.declaring import declare_table
from tiltyard.cli import main


@pytest.fixture
def root(tmp_path: Path) -> str:
    lake = ty.connect(tmp_path / "lake")
    lake.create_table("ops.flights", {"x": [1, 2]})
    lake.create_table("planes", {"x": [1]})
    return lake.uri


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["catalog", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_tables_and_namespaces_are_listed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "list", root) == ["ops.flights", "planes"]
    assert said(capsys, "list", root, "ops") == ["ops.flights"]
    assert said(capsys, "list", root, "--namespaces") == ["ops"]
    assert said(capsys, "list", root, "--mode", "v1") == ["planes"]
    assert main(["catalog", "list", root, "nope"]) == 1
    assert "no namespace 'nope'" in capsys.readouterr().err


def test_a_table_is_dropped_brought_back_and_renamed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "drop", root, "ops.flights")[0].startswith("dropped ops.flights; ")
    assert said(capsys, "dropped", root)[1].startswith("ops.flights  ")
    assert main(["catalog", "drop", root, "ops.flights"]) == 1
    assert "no table" in capsys.readouterr().err
    assert said(capsys, "undrop", root, "ops.flights") == ["ops.flights is there again"]
    assert said(capsys, "rename", root, "ops.flights", "flights") == ["ops.flights is called flights now"]
    assert said(capsys, "list", root) == ["flights", "planes"]
    assert said(capsys, "dropped", root) == ["no dropped tables"]


def test_a_purge_gives_up_what_was_dropped(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "drop", root, "planes")
    removed, kept = said(capsys, "purge", root)
    assert removed == "removed 0 directories"
    assert kept == "1 dropped table can still be brought back: `tiltyard catalog dropped`"
    assert said(capsys, "purge", root, "--grace", "0s")[0] == "planes cannot be brought back any more"
    assert main(["catalog", "undrop", root, "planes"]) == 1
    assert main(["catalog", "purge", root, "--grace", "soon"]) == 1
    assert "no span of time" in capsys.readouterr().err


def test_directories_get_rows(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    ty.create_table(f"{root}/trains.lance", {"x": [1]})
    assert said(capsys, "list", root, "--mode", "manifest") == ["ops.flights", "planes"]
    assert said(capsys, "migrate", root) == ["1 table got a row"]
    assert said(capsys, "list", root, "--mode", "manifest") == ["ops.flights", "planes", "trains"]


def test_a_sound_catalog_passes_the_check(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "check", root) == ["2 tables, 1 namespace in the register: nothing is damaged"]
    told = json.loads("\n".join(said(capsys, "check", root, "--json")))
    assert (told["damaged"], told["findings"], told["tables"]) == (False, [], 2)
    assert said(capsys, "check", root, "--mode", "v1")[-1].endswith("nothing is damaged")


def test_damage_is_told_repaired_and_the_repair_taken_back(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    duplicate(root, "ops$flights")
    assert main(["catalog", "check", root]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("duplicate-row  ops$flights: 2 rows for one table")
    assert captured.err.endswith("1 damaged\n")
    assert main(["catalog", "check", root, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["damage"]) == ("duplicate-row", True)
    assert finding["repairs"] == [{"does": "keep one of the rows", "option": None}]

    assert main(["catalog", "repair", root]) == 1  # nobody to ask
    captured = capsys.readouterr()
    assert captured.out == "ops$flights: keep one of the rows\n"
    assert captured.err == "nothing was changed; --yes does it\n"
    assert main(["catalog", "check", root]) == 1
    capsys.readouterr()

    told = said(capsys, "repair", root, "--yes")
    undo = told[-1].split("--undo ")[1].split("`")[0]
    assert said(capsys, "check", root)[-1].endswith("nothing is damaged")
    assert said(capsys, "repair", root, "--yes") == ["there is nothing to repair"]
    assert said(capsys, "repair", root, "--undo", undo) == ["ops$flights: has 2 rows again"]
    assert said(capsys, "repair", root, "--undo", undo) == ["nothing was to be taken back"]
    assert main(["catalog", "check", root]) == 1


def test_what_needs_an_option_stays_and_says_which(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(root, "ghost.lance", "data").mkdir(parents=True)
    assert main(["catalog", "repair", root, "--yes", "--grace", "0s"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("stays: incomplete-directory  ghost.lance: ")
    assert shown[0].endswith("would set it aside (with --prune)")
    assert shown[1] == "there is nothing to repair without options"
    assert said(capsys, "repair", root, "--yes", "--grace", "0s", "--prune")[0] == "ghost.lance: set it aside"
    assert not Path(root, "ghost.lance").exists()
    assert list(Path(root, "_tiltyard", "repair").glob("*/ghost.lance/data"))


def test_an_undo_file_that_is_not_there_is_told(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "repair", root, "--undo", "_tiltyard/repair/no.json"]) == 1
    assert "there is no undo file" in capsys.readouterr().err
    assert main(["catalog", "repair", root, "--undo", "../../etc/passwd.json"]) == 1
    assert "an undo file is in _tiltyard/repair/" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "check", "repair", "dropped", "purge", "migrate"])
def test_a_place_that_is_no_catalog_is_told(
    action: str, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalog", action, f"{root}/nowhere"]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert main(["catalog", action, f"{root}/planes.lance"]) == 1
    assert "is itself a table" in capsys.readouterr().err
    assert not Path(root, "nowhere").exists()


def test_locations_are_listed_and_declared_tables_when_asked_for(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declare_table(open_catalog(root), ("ops", "soon"))
    assert said(capsys, "list", root) == ["ops.flights", "planes"]
    assert said(capsys, "list", root, "--declared") == ["ops.flights", "ops.soon", "planes"]
    listed = [line.split("  ") for line in said(capsys, "list", root, "ops", "--locations")]
    ((name, place),) = listed
    assert name == "ops.flights"
    assert ty.open_table(place).count() == 2


def test_commands_take_a_table_by_its_name_in_a_lake(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["info"], ["head"], ["versions"], ["verify"], ["tag", "list"], ["shard", "list"]):
        assert main([*command, f"{root}::ops.flights"]) == 0
    capsys.readouterr()
    for place, told in (
        (f"{root}::ops.flight", "nearest: ops.flights"),
        (f"{root}::ops", "'ops' is a namespace"),
        (f"{root}/ops.flights", f"given as {root}::ops.flights"),
        (root, f"`tiltyard catalog list {root}` gives names for {root}::NAME"),
    ):
        assert main(["info", place]) == 1
        assert told in capsys.readouterr().err


def test_errors_are_told_in_the_names_that_were_typed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (("drop", root, "ops.flight"), "nearest: ops.flights"),
        (("rename", root, "ops.flights", "us.flights"), "create_namespace('us')"),
        (("undrop", root, "ops.flights"), "no dropped table 'ops.flights'"),
        (("list", root, "opss"), "nearest: ops"),
    ):
        assert main(["catalog", *words]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert "$" not in error


def test_the_older_drop_of_a_name_is_brought_back_by_its_id(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = ty.connect(root)
    lake.drop("planes")
    lake.create_table("planes", {"y": [1]})
    lake.drop("planes")
    older = lake.dropped()[0]["id"]
    assert older in "".join(said(capsys, "dropped", root))
    assert said(capsys, "undrop", root, "planes", "--id", older) == ["planes is there again"]
    assert lake["planes"].schema.names == ["x"]


def test_a_purge_tells_of_emptied_directories_that_stay(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ty.connect(root).drop("planes", purge=True)
    for grace in ([], ["--grace", "0s"]):
        told = said(capsys, "purge", root, *grace)
        assert told[0] == "removed 0 directories"
        assert told[1].startswith("1 directory without a file stays for an hour after being emptied")
    assert main(["catalog", "check", root]) == 0
    (finding, _) = capsys.readouterr().out.splitlines()
    assert finding.startswith("purged-directory")
    assert "`tiltyard catalog purge` removes it then" in finding
