"""`tiltyard compact`, `optimize` and `maintain` on small tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.cli import main


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    for number in range(4):
        lance.write_dataset(pa.table({"id": range(10 * number, 10 * number + 10)}), path, mode="append")
    return path


def test_compact_says_what_it_would_do_and_what_it_did(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", uri, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would rewrite 4 fragments (40 rows) in 1 task\n"
    assert main(["compact", uri, "--target-rows", "20"]) == 0
    assert capsys.readouterr().out == "4 fragments became 2; version 6\n"
    assert main(["compact", uri, "--target-rows", "20"]) == 0
    assert capsys.readouterr().out == "nothing to compact in 2 fragments\n"
    assert lance.dataset(uri).to_table()["id"].to_pylist() == list(range(40))


def test_compact_says_which_index_keeps_fragments_as_they_are(
    uri: str, peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    peer("lance.dataset(p).create_scalar_index('id', 'BITMAP')", p=uri)
    assert main(["compact", uri]) == 0
    said = capsys.readouterr().out
    assert "nothing to compact in 4 fragments" in said
    assert "4 fragments stay as they are for index 'id_idx'" in said
    assert main(["compact", uri, "--defer-index-remap"]) == 0
    assert capsys.readouterr().out == "4 fragments became 1; version 7\n"
    assert peer("lance.dataset(p).count_rows('id in (3, 33)')", p=uri) == 2


def test_optimize_gives_an_account_of_each_step(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", uri, "--older-than", "0s"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "version 4 to 6"
    assert said[1] == "  compaction: 4 fragments became 1 (40 rows rewritten)"
    assert said[2] == "  indices: up to date"
    assert said[3].startswith("  cleanup: 5 versions and ")


def test_maintain_once_tells_what_is_within_its_limits(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", uri, "--once"]) == 0
    assert "compaction: 4 small fragments (at most 100)" in capsys.readouterr().out
    assert main(["maintain", uri, "--once", "--small-files", "3"]) == 0
    assert "compaction: 4 fragments became 1 (40 rows rewritten)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["compact", "--target-rows", "0"],
        ["optimize", "--older-than", "soon"],
        ["maintain", "--once", "--pass-mib", "0"],
        ["maintain", "--interval", "0s"],
    ],
)
def test_bad_settings_are_told_in_one_line(
    uri: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([words[0], uri, *words[1:]]) == 1
    assert capsys.readouterr().err.startswith("tiltyard: ")
    assert lance.dataset(uri).version == 4


@pytest.mark.parametrize("words", [["optimize", "--older-than", "0s"], ["maintain", "--older-than", "0s"]])
def test_upkeep_tells_beforehand_what_it_would_do_and_remove(
    uri: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(pa.table({"id": [99]}), uri, mode="append")
    assert main([words[0], uri, *words[1:], "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "version 6 as it stands; nothing is changed"
    if words[0] == "optimize":
        assert said[1] == "  compaction: would rewrite 4 fragments (40 rows) in 1 task"
        assert said[2] == "  indices: id_idx would take in 1 fragment"
    else:
        assert said[1] == "  compaction: 5 small fragments (at most 100): left"
        assert said[2] == "  indices: 1 fragment not indexed (at most 20): left"
    assert said[3].startswith("  cleanup: would remove 5 versions")
    assert said[4] == "    versions that would go: 1 to 5"
    assert len(lance.dataset(uri).versions()) == 6
