"""The races of `races` and `interop`, longer and with more processes. Only in `make soak`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from corrupt.victims import make_all
from peer import Peer
from workers import Crew, Worker, together

pytestmark = pytest.mark.soak

MIXED_ROUNDS = 40
KILLS = 60
DAMAGES = 2000
FIRST_SEED = 10_000  # other accidents than those of `make test`


def pairs(path: str) -> list[tuple[int, int]]:
    table = lance.dataset(path).to_table()
    return sorted(zip(table["worker"].to_pylist(), table["step"].to_pylist(), strict=True))


def empty_table(path: str) -> None:
    none = pa.array([], pa.int64())
    lance.write_dataset(pa.table({"worker": none, "step": none}), path)


MIXED = """
for step in range(rounds):
    lance.write_dataset(pa.table({"worker": [me] * 2, "step": [step] * 2}), path, mode="append")
    if step % 5 == 4:
        lance.dataset(path).delete(f"worker = {me} AND step = {step - 4}")
result = None
"""


def test_appends_and_deletes_of_both_implementations(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    path = str(tmp_path / "t.lance")
    empty_table(path)
    workers = crew.ours(5) + crew.peers(3)
    together(workers, MIXED, tmp_path / "gate", path=path, rounds=MIXED_ROUNDS)
    kept = [s for s in range(MIXED_ROUNDS) if s % 5 != 0]
    right = sorted((w, s) for w in range(len(workers)) for s in kept for _ in range(2))
    assert pairs(path) == right
    assert peer("lance.dataset(p).count_rows()", p=path) == len(right)


KILLED = """
step = 0
while True:
    lance.write_dataset(pa.table({"worker": [me], "step": [step]}), path, mode="append")
    lance.dataset(path).delete(f"worker = {me} AND step < {step - 3}")
    step += 1
"""


def test_writers_killed_over_and_over_never_leave_a_broken_table(tmp_path: Path, peer: Peer) -> None:
    """Every version that exists afterwards is whole, for us and for the official reader."""
    path, dice = str(tmp_path / "t.lance"), random.Random(9)
    empty_table(path)
    for turn in range(KILLS):
        writers = [Worker("tiltyard.lance") for _ in range(2)]
        for number, writer in enumerate(writers):
            writer.begin(KILLED, path=path, me=turn * 2 + number)
        time.sleep(0.5 + dice.random() * 0.5)
        for writer in writers:
            writer.kill()
        found = pairs(path)
        assert len(found) == len(set(found))
    for version in lance.dataset(path).versions()[-200:]:
        lance.dataset(path, version=version["version"]).to_table()
    assert peer("lance.dataset(p).to_table().num_rows", p=path) == len(pairs(path))


def test_two_thousand_accidents_to_every_file(tmp_path: Path, peer: Peer) -> None:
    env = dict(
        os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), TILTYARD_FIRST_SEED=str(FIRST_SEED)
    )
    for victim in make_all(tmp_path, peer):
        done = subprocess.run(
            [sys.executable, "-m", "corrupt.prober", str(DAMAGES), str(victim.directory)],
            capture_output=True,
            text=True,
            env=env,
        )
        last = done.stdout.strip().split("\n")[-1]
        assert last.startswith("{"), f"died with {done.returncode} at: {last}\n{done.stderr[-3000:]}"
        failures = json.loads(last)["failures"]
        assert not failures, "\n".join(failures)
