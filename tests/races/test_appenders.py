"""Real processes of ours on one table: creators, appenders, deleters, and writers that are killed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from workers import Crew, Worker, WorkerError, together

APPEND = """
for step in range(appends):
    lance.write_dataset(pa.table({"worker": [me], "step": [step]}), path, mode="append")
result = appends
"""


def empty_table(path: str) -> None:
    none = pa.array([], pa.int64())
    lance.write_dataset(pa.table({"worker": none, "step": none}), path)


def pairs(path: str) -> list[tuple[int, int]]:
    table = lance.dataset(path).to_table()
    return sorted(zip(table["worker"].to_pylist(), table["step"].to_pylist(), strict=True))


def assert_contiguous(path: str) -> int:
    versions = [v["version"] for v in lance.dataset(path).versions()]
    assert versions == list(range(1, versions[-1] + 1))
    return versions[-1]


@pytest.mark.parametrize(("processes", "appends"), [(4, 10), (8, 25)])
def test_appends_of_many_processes_all_land(processes: int, appends: int, tmp_path: Path, crew: Crew) -> None:
    path = str(tmp_path / "t.lance")
    empty_table(path)
    together(crew.ours(processes), APPEND, tmp_path / "gate", path=path, appends=appends)
    assert pairs(path) == [(w, s) for w in range(processes) for s in range(appends)]
    assert_contiguous(path)
    leftovers = [n for n in os.listdir(os.path.join(path, "_versions")) if n.startswith(".tmp")]
    assert not leftovers


@pytest.mark.soak
def test_thirty_two_processes_append_fifty_rows_each(tmp_path: Path, crew: Crew) -> None:
    """Case O09 at its full size."""
    path = str(tmp_path / "t.lance")
    empty_table(path)
    together(crew.ours(32), APPEND, tmp_path / "gate", path=path, appends=50)
    assert pairs(path) == [(w, s) for w in range(32) for s in range(50)]
    assert_contiguous(path)


CREATE = """
try:
    lance.write_dataset(pa.table({"worker": [me]}), path, mode="create")
    result = "created"
except Exception as error:
    result = type(error).__name__
"""


def test_of_many_creators_one_wins_and_the_others_are_told_that_it_exists(tmp_path: Path, crew: Crew) -> None:
    """Case O01, mode create."""
    for turn in range(3):
        path = str(tmp_path / f"t{turn}.lance")
        answers = together(crew.ours(8), CREATE, tmp_path / f"gate{turn}", path=path)
        assert sorted(set(answers)) == ["TableAlreadyExists", "created"]
        assert answers.count("created") == 1
        assert lance.dataset(path).to_table()["worker"].to_pylist() == [answers.index("created")]


CREATE_BY_MODE = """
lance.write_dataset(pa.table({"worker": [me]}), path, mode=mode)
"""


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_appends_and_overwrites_that_race_to_create_a_table_all_succeed(
    mode: str, tmp_path: Path, crew: Crew
) -> None:
    """Case O01, modes append and overwrite on a path without a table."""
    path = str(tmp_path / "t.lance")
    together(crew.ours(6), CREATE_BY_MODE, tmp_path / "gate", path=path, mode=mode)
    found = sorted(lance.dataset(path).to_table()["worker"].to_pylist())
    if mode == "append":
        assert found == list(range(6))
    else:
        assert len(found) == 1
    assert_contiguous(path)


APPEND_AND_DELETE = """
for step in range(rounds):
    lance.write_dataset(pa.table({"worker": [me] * 4, "step": [step] * 4}), path, mode="append")
    lance.dataset(path).delete(f"worker = {me} AND step < {step}")
result = None
"""


def test_appends_and_deletes_of_many_processes_leave_what_the_model_says(tmp_path: Path, crew: Crew) -> None:
    path, rounds = str(tmp_path / "t.lance"), 6
    empty_table(path)
    together(crew.ours(4), APPEND_AND_DELETE, tmp_path / "gate", path=path, rounds=rounds)
    assert pairs(path) == [(w, rounds - 1) for w in range(4) for _ in range(4)]
    assert_contiguous(path)


# -- kill -9 -------------------------------------------------------------------------------------

WRITE_AND_TELL = """
import os
log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
step = first
while True:
    os.write(log, f"begin {step}\\n".encode())
    lance.write_dataset(pa.table({"worker": [0] * 50, "step": [step] * 50}), path, mode="append")
    os.write(log, f"done {step}\\n".encode())
    step += 1
"""


def test_a_killed_writer_leaves_exactly_its_committed_rows(tmp_path: Path) -> None:
    """Each append that returned is there in full; the one cut short is there in full or not at all."""
    path, journal = str(tmp_path / "t.lance"), tmp_path / "journal"
    empty_table(path)
    first, dice = 0, random.Random(20)
    for _ in range(6):
        worker = Worker("tiltyard.lance")
        worker.begin(WRITE_AND_TELL, path=path, journal=str(journal), first=first)
        wait_for(journal, f"done {first}")
        time.sleep(dice.random() * 0.03)
        worker.kill()
        lines = journal.read_text().split("\n")
        done = {int(line[5:]) for line in lines if line.startswith("done ")}
        begun = {int(line[6:]) for line in lines if line.startswith("begin ")}
        found = pairs(path)
        present = {s for _, s in found}
        assert done <= present <= begun
        assert len(found) == 50 * len(present)
        assert_contiguous(path)
        first = max(begun) + 1
    # and a survivor carries on
    lance.write_dataset(pa.table({"worker": [1], "step": [0]}), path, mode="append")
    assert pairs(path)[-1] == (1, 0)


def wait_for(journal: Path, line: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not (journal.exists() and line in journal.read_text().split("\n")):
        assert time.monotonic() < until, "the writer did not get going"
        time.sleep(0.001)


def test_an_error_in_one_process_does_not_disturb_the_others(tmp_path: Path, crew: Crew) -> None:
    path = str(tmp_path / "t.lance")
    empty_table(path)
    mixed = """
for step in range(6):
    table = pa.table({"other": ["x"]}) if me == 0 else pa.table({"worker": [me], "step": [step]})
    lance.write_dataset(table, path, mode="append")
"""
    with pytest.raises(WorkerError, match="SchemaMismatch"):
        together(crew.ours(4), mixed, tmp_path / "gate", path=path)
    assert pairs(path) == [(w, s) for w in (1, 2, 3) for s in range(6)]
