"""Handles in forked children and among threads (case T06): work or a clear error, never a hang."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance

CHILD_SECONDS = 60

# Runs in a process of its own: pytest's process holds threads of others, which fork cannot carry over.
FORKING = """
import os, sys
import numpy as np
import pyarrow as pa
import tiltyard.lance as lance

path, action, children = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = pa.table({"n": np.arange(400_000), "text": pa.array(["tilt", "yard", None, "lance"] * 100_000)})
lance.write_dataset(table, path, max_rows_per_file=100_000)
held = lance.dataset(path)
assert held.to_table().num_rows == 400_000      # pool, arena and caches are in use before the fork
assert held.take([5, 399_999])["n"].to_pylist() == [5, 399_999]

pids = []
for child in range(children):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if action == "read through the held handle":
                numbers = held.to_table(filter="n >= 1000")["n"].to_numpy()
                assert numbers.sum() == np.arange(1000, 400_000).sum()
                assert held.take([child])["n"].to_pylist() == [child]
            elif action == "read through a new handle":
                assert lance.dataset(path).count_rows("n < 77") == 77
                assert lance.dataset(path).to_table(columns=["text"]).num_rows == 400_000
            else:
                for step in range(3):
                    row = pa.table({"n": [1_000_000 + child], "text": [str(step)]})
                    lance.write_dataset(row, path, mode="append")
            status = 0
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(status)
    pids.append(pid)
statuses = [os.waitpid(pid, 0)[1] for pid in pids]
assert statuses == [0] * children, statuses
rows = lance.dataset(path).count_rows("n >= 1000000")
assert rows == (3 * children if action == "write" else 0), rows
assert held.to_table(limit=5).num_rows == 5     # and the parent still works
print("fine")
"""


@pytest.mark.parametrize("action", ["read through the held handle", "read through a new handle", "write"])
def test_forked_children_read_and_write_after_use_in_the_parent(action: str, tmp_path: Path) -> None:
    script = tmp_path / "forking.py"
    script.write_text(FORKING)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "t.lance"), action, "6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail("a forked child hangs")
    assert output.endswith("fine\n"), output


def test_one_handle_serves_many_threads(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    rows = 120_000
    table = pa.table({"n": np.arange(rows), "text": pa.array([f"t{i % 1000}" for i in range(rows)])})
    lance.write_dataset(table, path, max_rows_per_file=20_000)
    handle = lance.dataset(path)
    wrong: list[str] = []

    def work(me: int) -> None:
        rng = np.random.default_rng(me)
        try:
            for _ in range(8):
                low = int(rng.integers(0, rows - 500))
                part = handle.to_table(filter=f"n >= {low} AND n < {low + 500}")
                if part["n"].to_pylist() != list(range(low, low + 500)):
                    wrong.append(f"filter from {low}")
                picks = rng.integers(0, rows, 30).tolist()
                if handle.take(picks)["text"].to_pylist() != [f"t{i % 1000}" for i in picks]:
                    wrong.append("take")
                if handle.to_table(columns=["n"])["n"].to_numpy().sum() != rows * (rows - 1) // 2:
                    wrong.append("scan")
        except Exception as error:
            wrong.append(repr(error))

    run_threads([threading.Thread(target=work, args=(i,)) for i in range(6)])
    assert not wrong


def test_threads_append_and_read_at_the_same_time(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"worker": [-1], "step": [-1]}), path)
    wrong: list[str] = []

    def write(me: int) -> None:
        try:
            for step in range(8):
                lance.write_dataset(pa.table({"worker": [me], "step": [step]}), path, mode="append")
        except Exception as error:
            wrong.append(repr(error))

    def read() -> None:
        try:
            seen = 0
            until = time.monotonic() + CHILD_SECONDS
            while seen < 4 * 8 + 1 and time.monotonic() < until:
                count = lance.dataset(path).to_table().num_rows
                if count < seen:
                    wrong.append(f"{count} rows after {seen}")
                seen = count
        except Exception as error:
            wrong.append(repr(error))

    run_threads(
        [threading.Thread(target=write, args=(i,)) for i in range(4)] + [threading.Thread(target=read)]
    )
    assert not wrong
    table = lance.dataset(path).to_table()
    found = sorted(zip(table["worker"].to_pylist(), table["step"].to_pylist(), strict=True))
    assert found == [(-1, -1), *((w, s) for w in range(4) for s in range(8))]


def run_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join(CHILD_SECONDS)
        assert not thread.is_alive(), "a thread hangs"


def test_a_pickled_handle_opens_the_same_version(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"n": [1, 2]}), path)
    handle = lance.dataset(path)
    lance.write_dataset(pa.table({"n": [3]}), path, mode="append")
    again = pickle.loads(pickle.dumps(handle))
    assert again.version == handle.version == 1
    assert again.to_table()["n"].to_pylist() == [1, 2]
