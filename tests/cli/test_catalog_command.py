"""`tiltyard catalog`: looking, checking, repairing, dropping and renaming on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiltyard as ty
from catalog_damage import duplicate
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
    assert said(capsys, "purge", root) == ["removed 0 directories"]
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
