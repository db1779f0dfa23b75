"""The drop-in face: names where scripts look for them, and scripts that run unchanged."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.dataset import Branches, LanceDataset, LanceFragment, LanceScanner, ScannerBuilder, Tags
from tiltyard.dataset.not_yet import NOT_YET
from tiltyard.errors import UnsupportedFeature
from tiltyard.lance.file import LanceFileReader, LanceFileSession, LanceFileWriter

NAMES = {
    "tiltyard.lance": "dataset write_dataset LanceDataset LanceFragment LanceOperation Transaction",
    "tiltyard.lance.dataset": "LanceDataset LanceOperation LanceScanner ScannerBuilder Transaction",
    "tiltyard.lance.fragment": "write_fragments FragmentMetadata DataFile DeletionFile LanceFragment",
    "tiltyard.lance.commit": "CommitConflictError",
    "tiltyard.lance.mem_wal": "ShardWriter ShardSnapshot LsmScanner LsmPointLookupPlanner ExecutionPlan "
    "LsmVectorSearchPlanner ShardingSpec ShardingField evaluate_sharding_spec CompactedSsTable",
    "tiltyard.lance.namespace": "DirectoryNamespace RestNamespace RestAdapter DynamicContextProvider "
    "DescribeTableRequest",
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


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tiltyard.lance", *words], capture_output=True, text=True, check=False
    )


def test_running_a_script_explains_itself_and_shows_no_machinery(tmp_path: Path) -> None:
    assert "usage" in ran().stderr
    assert ran().stderr.rstrip().endswith("the following arguments are required: script")
    assert "import lance" in ran("--help").stdout
    missing = ran(str(tmp_path / "no.py"))
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert "No such file" in missing.stderr
    script = tmp_path / "script.py"
    script.write_text("import lance, sys\n\nprint(sys.argv[1:])\nlance.dataset('nowhere.lance')\n")
    failed = ran(str(script), "--flag", "x")
    assert (failed.returncode, failed.stdout) == (1, "['--flag', 'x']\n")
    assert "runpy" not in failed.stderr
    assert f'  File "{script}", line 4' in failed.stderr
    assert "lance/__main__.py" not in failed.stderr
    script.write_text("def broken(:\n")
    assert "SyntaxError" in ran(str(script)).stderr
    assert "Traceback" not in ran(str(script)).stderr


# -- what is not there yet ----------------------------------------------------------------------


@pytest.mark.parametrize(("owner", "name"), [(o, n) for o, names in NOT_YET.items() for n in names])
def test_what_is_not_there_yet_is_named(owner: str, name: str, tmp_path: Path) -> None:
    ds = lance.write_dataset({"a": [1]}, tmp_path / "t.lance")
    things = {
        "LanceDataset": ds,
        "LanceFragment": ds.get_fragments()[0],
        "LanceScanner": ds.scanner(),
        "ScannerBuilder": ScannerBuilder(ds),
        "Tags": ds.tags,
        "Branches": ds.branches,
        "LanceFileSession": ds.new_file_session(),
        "tiltyard.lance": lance,
        "tiltyard.lance.mem_wal": "ShardWriter ShardSnapshot LsmScanner LsmPointLookupPlanner ExecutionPlan "
        "LsmVectorSearchPlanner ShardingSpec ShardingField evaluate_sharding_spec CompactedSsTable",
        "tiltyard.lance.namespace": lance.namespace,
    }
    assert not hasattr(things[owner], name)
    with pytest.raises(UnsupportedFeature, match=f"{owner}.{name} is not supported"):
        getattr(things[owner], name)


def test_every_public_method_of_the_official_classes_is_there_or_named(peer: Peer) -> None:
    files = (LanceFileReader, LanceFileWriter, LanceFileSession)
    classes = (LanceDataset, LanceFragment, LanceScanner, ScannerBuilder, Tags, Branches, *files)
    homes = {"LanceFragment": "lance.fragment", **{each.__name__: "lance.file" for each in files}}
    for ours in classes:
        name = ours.__name__
        home = homes.get(name, "lance.dataset")
        theirs = peer(f"dir(__import__('importlib').import_module('{home}').{name})")
        public = {each for each in theirs if not each.startswith("_")}
        assert public - set(dir(ours)) - set(NOT_YET.get(name, {})) == set(), name


def test_a_name_that_nobody_has_is_an_ordinary_attribute_error(tmp_path: Path) -> None:
    ds = lance.write_dataset({"a": [1]}, tmp_path / "t.lance")
    with pytest.raises(AttributeError, match="no attribute 'cuont_rows'; nearest: count_rows") as raised:
        ds.cuont_rows  # noqa: B018
    assert not isinstance(raised.value, UnsupportedFeature)


def test_parts_of_arrow_that_the_official_package_loads_are_there_when_they_are_named() -> None:
    code = (
        "import sys, pyarrow as pa, tiltyard.lance; before = 'pyarrow.dataset' in sys.modules; "
        "print(before, pa.dataset.__name__, pa.compute.__name__, pa.fs.__name__, hasattr(pa, 'nothing'))"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["False", "pyarrow.dataset", "pyarrow.compute", "pyarrow.fs", "False"]
