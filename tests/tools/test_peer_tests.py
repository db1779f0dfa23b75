"""The runner of the official package's tests, on a small package's tests of our own making."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).resolve().parents[2] / "tools" / "peer_tests.py"

TESTS = """
import lance
import pyarrow as pa
import pytest
from lance.nothing_of_the_kind import Wonder

def test_reads(tmp_path):
    assert lance.write_dataset(pa.table({"a": [1]}), tmp_path).count_rows() == 1
    assert lance.__name__ == "tiltyard.lance"

def test_begins_without_tables_in_memory():
    lance.write_dataset(pa.table({"a": [1]}), "memory://here")

def test_begins_so_again():
    lance.write_dataset(pa.table({"a": [1]}), "memory://here")

@pytest.mark.parametrize("number", [1, 2])
def test_needs_what_is_not_there(number):
    Wonder(number)

def test_is_not_listed():
    raise AssertionError("nobody asked")
"""

LISTED = """
# what passes elsewhere
tests/test_small.py::test_reads
tests/test_small.py::test_begins_without_tables_in_memory
tests/test_small.py::test_begins_so_again
tests/test_small.py::test_needs_what_is_not_there[1]
tests/test_small.py::test_needs_what_is_not_there[2]
tests/test_other.py::test_of_a_file_that_is_not_run
"""


def test_listed_tests_are_counted_and_failures_grouped_by_their_reason(tmp_path: Path) -> None:
    folder = tmp_path / "python" / "python" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    (tmp_path / "listed").write_text(LISTED)
    command = [sys.executable, str(RUNNER), str(tmp_path), "--listed", str(tmp_path / "listed")]
    done = subprocess.run([*command, "--files", "test_small"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "test_small                  3 / 5" in done.stdout
    assert "  2  NotImplementedError: tiltyard.lance has no lance.nothing_of_the_kind.Wonder" in done.stdout
    assert "nobody asked" not in done.stdout
