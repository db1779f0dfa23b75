"""Batches of real processes, one of which is killed in the middle of its work."""

from __future__ import annotations

import time
from pathlib import Path

import tiltyard as ty
from tiltyard.catalog import open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.session import Session
from tiltyard.testing.simulation.tables import rows
from workers import Crew

ROUNDS = 8
WORKERS = 3
SECONDS_TO_LIVE = 0.5

BATCHES = """
from pathlib import Path
from tiltyard.catalog import open_catalog
from tiltyard.catalog.batch import DeclareTable, commit_batch
from tiltyard.errors import TiltyardError
from tiltyard.session import Session
from tiltyard.testing.simulation.batches import stage

result = {}
for number in range(rounds):
    key = (me + 1) * 1000 + number
    catalog = open_catalog(root, session=Session())
    try:
        members = [stage(catalog, ("n", table), {key: key})[0] for table in "abc"]
        commit_batch(catalog, [*members, DeclareTable(("n", f"d{key}"))])
        result[key] = "ok"
    except TiltyardError as error:
        result[key] = type(error).__name__
    Path(started).touch()
"""


def test_batches_of_several_processes_are_all_or_nothing_though_one_is_killed(
    crew: Crew, tmp_path: Path
) -> None:
    root, started = tmp_path / "lake", tmp_path / "started"
    lake = ty.connect(root)
    for name in ("n.a", "n.b", "n.c"):
        lake.create_table(name, rows({0: 0}))
    workers = crew.ours(WORKERS + 1)
    for me, worker in enumerate(workers):
        rounds = 1000 if me == WORKERS else ROUNDS
        worker.begin(BATCHES, me=me, root=str(root), rounds=rounds, started=str(started))
    while not started.exists():
        time.sleep(0.01)
    time.sleep(SECONDS_TO_LIVE)
    workers[WORKERS].kill()
    answers = [worker.answer() for worker in workers[:WORKERS]]
    told = {key: answer for each in answers for key, answer in each.items()}
    assert set(told.values()) <= {"ok", "RetryableConflict"}

    create_namespace(open_catalog(str(root), session=Session()), ("after",))
    stand = [set(lake[f"n.{table}"].to_arrow()["id"].to_pylist()) - {0} for table in "abc"]
    declared = lake.tables("n", declared=True)
    stand.append({int(name[3:]) for name in declared if name.startswith("n.d")})
    assert all(each == stand[0] for each in stand)
    own = {key for key in stand[0] if key < (WORKERS + 1) * 1000}
    assert own == {key for key, answer in told.items() if answer == "ok"}
    assert not check(lake.catalog).damaged
    assert list(root.glob("_tiltyard/batch/*")) == []
