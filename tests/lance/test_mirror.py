"""The drop-in face: names where scripts look for them, and scripts that run unchanged."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = {
    "tiltyard.lance": "dataset write_dataset LanceDataset LanceFragment LanceOperation Transaction",
    "tiltyard.lance.dataset": "LanceDataset LanceOperation LanceScanner ScannerBuilder Transaction",
    "tiltyard.lance.fragment": "write_fragments FragmentMetadata DataFile DeletionFile LanceFragment",
    "tiltyard.lance.commit": "CommitConflictError",
    "tiltyard.lance.progress": "FragmentWriteProgress NoopFragmentWriteProgress",
    "tiltyard.lance.schema": "LanceSchema",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_where_the_official_package_has_them(module: str) -> None:
    found = importlib.import_module(module)
    official = importlib.util.find_spec("lance")
    assert official is not None
    for name in NAMES[module].split():
        assert hasattr(found, name), name
    assert set(found.__all__) <= set(dir(found))


SCRIPT = """
import sys
import lance
import lance.fragment
from lance.dataset import LanceOperation
from lance.commit import CommitConflictError
import pyarrow as pa

uri = sys.argv[1]
ds = lance.write_dataset(pa.table({"a": [1, 2]}), uri)
fragments = lance.fragment.write_fragments(pa.table({"a": [3]}), uri)
ds = lance.LanceDataset.commit(uri, LanceOperation.Append(fragments), read_version=ds.version)
print(lance.__name__, ds.to_table()["a"].to_pylist(), __name__)
"""


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "tiltyard.lance", str(script), str(tmp_path / "t.lance")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "tiltyard.lance [1, 2, 3] __main__"
    usage = subprocess.run(
        [sys.executable, "-m", "tiltyard.lance"], capture_output=True, text=True, check=False
    )
    assert usage.returncode != 0
    assert "usage" in usage.stderr
