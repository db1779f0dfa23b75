"""`tiltyard shard`: what it shows, finds and mends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from streamed import OTHER_SHARD, SHARD, rows, shard_dir, streamed, values
from tiltyard.cli import FAILED, main
from tiltyard.errors import UnsupportedFeature
from tiltyard.lance.mem_wal import ShardWriter
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.scan import LsmScan

NONE = "00000000-1111-4222-8333-444444444444"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is cut to the terminal's width."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def table(tmp_path: Path) -> str:
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, OTHER_SHARD) as writer:
        writer.put(rows([10, 11], 1.0))
    writer = ShardWriter.open(dataset, SHARD)
    for key in (20, 21, 22):
        writer.put(rows([key], 2.0))
    writer.abort()
    return str(tmp_path / "t")


def test_shards_are_listed(table: str, capsys: Any, tmp_path: Path) -> None:
    assert main(["shard", "list", table]) == 0
    shown = capsys.readouterr().out
    for told in (SHARD, OTHER_SHARD, "active", "rows waiting", "by hand"):
        assert told in shown
    lance.write_dataset(rows([1]), str(tmp_path / "bare"))
    assert main(["shard", "list", str(tmp_path / "bare")]) == 0
    assert "no shards" in capsys.readouterr().out
    manifests = sorted((shard_dir(Path(table), OTHER_SHARD) / layout.MANIFEST_DIR).glob("*.binpb"))
    for each in manifests:
        each.write_bytes(b"\xff")
    assert main(["shard", "list", table]) == 0
    assert "cannot be read" in capsys.readouterr().out


def test_shards_of_an_earlier_table_are_listed_as_such(tmp_path: Path, capsys: Any) -> None:
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10]))
    from tiltyard.store.local import LocalStore

    with pytest.MonkeyPatch.context() as patched:

        def move_dir(*_: Any) -> Any:
            raise UnsupportedFeature("no such step")

        patched.setattr(LocalStore, "move_dir", move_dir)
        dataset.insert(rows([1]), mode="overwrite", discard_streamed=True)
    assert main(["shard", "list", str(tmp_path / "t")]) == 0
    assert "of an earlier table" in capsys.readouterr().out


def test_a_log_that_is_cut_short_is_found_and_mended(table: str, capsys: Any) -> None:
    assert main(["shard", "check", table]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    entry = shard_dir(Path(table)) / layout.entry_path(2)
    entry.write_bytes(entry.read_bytes()[:40])
    assert main(["shard", "check", table]) == FAILED
    told = capsys.readouterr()
    assert "log entry 2" in told.out
    assert "1 damage" in told.err
    assert main(["shard", "check", table, OTHER_SHARD]) == 0
    capsys.readouterr()
    assert main(["shard", "repair", table, SHARD]) == 0
    assert "--yes does it" in capsys.readouterr().out
    assert main(["shard", "check", table]) == FAILED
    assert main(["shard", "repair", table, SHARD, "--yes"]) == 0
    assert "_tiltyard/repair/" in capsys.readouterr().out
    assert main(["shard", "check", table]) == 0
    dataset = lance.dataset(table)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([23], 2.0))
    found = values(LsmScan(capture(dataset._store, dataset._session)).table())
    assert {20, 22, 23, 10, 11} <= set(found)
    assert 21 not in found
    assert main(["shard", "repair", table, SHARD, "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["check", "no uuid"], ["repair", "no uuid"], ["repair", OTHER_SHARD[::-1]]]
)
def test_what_is_no_shard_is_told(table: str, words: list[str], capsys: Any) -> None:
    assert main(["shard", words[0], table, words[1]]) != 0
    assert "shard" in capsys.readouterr().err
