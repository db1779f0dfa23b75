"""Real processes that commit at once (O01, O09): exactly one creation wins, no append is lost.

Each worker imports only the table layer and answers with one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.versions import list_versions, read_hint

START = """
import json, os, sys, time
from conflict_operations import SCHEMA, new_fragment
from tiltyard import runtime
from tiltyard.errors import TiltyardError
from tiltyard.format.operations import Append, Overwrite
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_snapshot
path, gate, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
store, session = open_store(path, {"durable": False}), Session()
open(f"{gate}/ready-{number}", "w").close()
while not os.path.exists(f"{gate}/go"):
    time.sleep(0.0005)
"""

CREATE = """
operation = Overwrite((new_fragment(f"by-{number}"),), SCHEMA)
try:
    first = Transaction(0, str(runtime.uuid4()), operation)
    made = commit(store, first, session=session, base=None, strict=True)
    print(json.dumps(["won", made.version]))
except TiltyardError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""

APPEND = """
base = open_snapshot(store, session)
versions = []
for count in range(COUNT):
    operation = Append((new_fragment(f"by-{number}-{count}", rows=1),))
    mine = Transaction(base.version, str(runtime.uuid4()), operation)
    base = commit(store, mine, session=session, base=base)
    versions.append(base.version)
print(json.dumps(versions))
"""


def together(tmp_path: Path, path: Path, body: str, processes: int) -> list[Any]:
    """Run the body in so many processes that start at the same moment; their answers."""
    gate = tmp_path / "gate"
    gate.mkdir()
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", START + body, str(path), str(gate), str(number)],
            stdout=subprocess.PIPE,
            env=env,
        )
        for number in range(processes)
    ]
    while len(list(gate.glob("ready-*"))) < processes:
        assert all(each.poll() is None for each in running)
    (gate / "go").touch()
    answers = [each.communicate(timeout=60)[0] for each in running]
    assert [each.returncode for each in running] == [0] * processes
    return [json.loads(answer) for answer in answers]


def test_one_of_eight_creators_wins_and_the_others_are_told(tmp_path: Path) -> None:
    answers = together(tmp_path, tmp_path / "t", CREATE, 8)
    assert sorted(kind for kind, _ in answers) == ["TableAlreadyExists"] * 7 + ["won"]
    assert all("already exists" in text for kind, text in answers if kind != "won")
    (winner,) = [number for number, (kind, _) in enumerate(answers) if kind == "won"]
    store = open_store(str(tmp_path / "t"))
    found = open_snapshot(store, Session())
    assert found.version == 1
    assert found.fragments[0].files[0].path == f"by-{winner}.lance"
    assert [stat.path for stat in store.list("") if not stat.path.startswith("_versions/")] == []


@pytest.mark.parametrize("processes", [4])
def test_single_row_appends_of_many_processes_all_land(tmp_path: Path, processes: int) -> None:
    count = 15
    together(tmp_path, tmp_path / "t", CREATE, 1)
    (tmp_path / "gate").rename(tmp_path / "first-gate")
    answers = together(tmp_path, tmp_path / "t", APPEND.replace("COUNT", str(count)), processes)
    total = processes * count
    assert sorted(version for versions in answers for version in versions) == list(range(2, total + 2))
    assert all(versions == sorted(versions) for versions in answers)
    store = open_store(str(tmp_path / "t"))
    found = open_snapshot(store, Session())
    assert found.version == total + 1
    files = [file.path for fragment in found.fragments for file in fragment.files]
    assert len(files) == len(set(files)) == total + 1
    assert [location.version for location in list_versions(store)] == list(range(1, total + 2))
    assert read_hint(store) is not None
