"""`tiltyard dedupe`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.cli import main


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2, 1, 1], "v": [1, 2, 3, 4]}), path)
    return path


def test_duplicates_are_counted_without_being_touched(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dedupe", uri, "--on", "id", "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 key stands in 3 rows, 2 too many, such as id = 1\n"
    assert lance.dataset(uri).version == 1
    assert main(["dedupe", uri, "--on", "id, v", "--dry-run"]) == 0
    assert capsys.readouterr().out == "no key stands twice\n"


@pytest.mark.parametrize(("keep", "value"), [("last", 4), ("first", 1)])
def test_all_but_one_row_of_each_key_are_deleted(
    uri: str, capsys: pytest.CaptureFixture[str], keep: str, value: int
) -> None:
    assert main(["dedupe", uri, "--on", "id", "--keep", keep]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("version 2: deleted 2 rows of 1 key")
    assert sorted(lance.dataset(uri).to_table()["v"].to_pylist()) == sorted([2, value])
    assert main(["dedupe", uri, "--on", "id"]) == 0
    assert capsys.readouterr().out == "no key stands twice; nothing was changed\n"


def test_a_table_without_a_key_says_what_to_give(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dedupe", uri]) == 1
    assert "say which columns are the key" in capsys.readouterr().err
