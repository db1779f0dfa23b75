"""The deep probe: what it compares; that it finds nothing on a sound disk, and what is broken on purpose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tiltyard.errors import InvalidInput, ObjectNotFound, UnsupportedFeature
from tiltyard.testing.probe import deep
from tiltyard.testing.probe.deep import probe_deep
from tiltyard.testing.probe.deep_check import Journal, compare, counted

SECONDS = 2.0
MOST_SEEDS = 5


def journal(*operations: tuple[str, list[int], int, str, Any]) -> Journal:
    """A journal of (do, keys, value, outcome, version or error)."""
    made = Journal("worker 1")
    for number, (do, keys, value, outcome, more) in enumerate(operations):
        made.add(["begin", number, {"do": do, "keys": keys, "value": value}])
        if outcome != "running":
            made.add(["end", number, outcome, more])
    return made


APPENDED = ("append", [10, 11, 12], 0, "done", 2)


@pytest.mark.parametrize(
    ("operations", "rows", "wrong"),
    [
        ([APPENDED], [(10, 0), (11, 0), (12, 0)], None),
        ([APPENDED], [(10, 0), (12, 0)], "P1: key 11 is missing, though .*append .*: done"),
        ([APPENDED], [(10, 0), (11, 0), (11, 0), (12, 0)], "P2: key 11 has 2 rows"),
        ([APPENDED], [(10, 0), (11, 0), (12, 0), (99, 0)], "P1: key 99 is there, and nobody"),
        ([("append", [10, 11], 0, "failed", "no")], [(10, 0), (11, 0)], "P1: key 10 .*failed"),
        ([("append", [10, 11], 0, "running", None)], [(10, 0), (11, 0)], None),
        ([("append", [10, 11], 0, "unknown", "?")], [], None),
        ([("append", [10, 11], 0, "running", None)], [(10, 0)], "P1: 1 of 2 rows are there"),
        ([APPENDED, ("delete", [10], 0, "done", 3)], [(11, 0), (12, 0)], None),
        ([APPENDED, ("delete", [10], 0, "done", 3)], [(10, 0), (11, 0), (12, 0)], "P1: key 10 .*delete"),
        ([APPENDED, ("delete", [10], 0, "running", None)], [(10, 0), (11, 0), (12, 0)], None),
        ([APPENDED, ("update", [10], 7, "done", 3)], [(10, 7), (11, 0), (12, 0)], None),
        (
            [APPENDED, ("update", [10], 7, "done", 3)],
            [(10, 0), (11, 0), (12, 0)],
            "P1: key 10 has the value 0",
        ),
        ([APPENDED, ("update", [10], 7, "unknown", "?")], [(10, 7), (11, 0), (12, 0)], None),
        ([("upsert", [-1], 5, "done", 2), ("upsert", [-1], 6, "done", 3)], [(-1, 6)], None),
        ([("upsert", [-1], 5, "done", 3), ("upsert", [-1], 6, "done", 2)], [(-1, 6)], "P3: shared key -1"),
        ([("upsert", [-1], 5, "done", 3), ("upsert", [-1], 6, "running", None)], [(-1, 6)], None),
        ([("upsert", [-1], 5, "done", 3)], [], "P3: shared key -1 is missing"),
        ([("read", [], 0, "error", "AssertionError: x")], [], "P4: .*AssertionError"),
    ],
)
def test_a_journal_says_what_may_be_there(
    operations: list[Any], rows: list[tuple[int, int]], wrong: str | None
) -> None:
    found = compare([journal(*operations)], rows)
    if wrong is None:
        assert found == []
    else:
        assert any(re.match(wrong, each) for each in found), found


def test_processes_lose_nothing_on_this_disk(tmp_path: Path) -> None:
    report = probe_deep(str(tmp_path), seconds=SECONDS, seed=3)
    assert report.wrong == ()
    assert report.killed
    assert report.processes == len(deep.ROLES) + len(report.killed)
    assert report.operations["append done"]
    assert report.operations["read done"]
    assert report.versions
    assert list(tmp_path.iterdir()) == []


CARELESS = """
from contextlib import contextmanager
from tiltyard.store.local import LocalStore
@contextmanager
def open_door(self, directory, seconds):
    yield False
LocalStore.turnstile = open_door
from tiltyard.store import Created
from tiltyard.table import commit
real = commit.commit.__kwdefaults__["publish"]
def lenient(*given):
    answer = real(*given)
    return Created.WON if answer is Created.EXISTS else answer
commit.commit.__kwdefaults__["publish"] = lenient
"""


def test_planted_a_taken_version_that_counts_as_won_is_found_with_real_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep, "PROGRAM", CARELESS + deep.PROGRAM)
    for seed in range(MOST_SEEDS):  # whether two meet at one version is the machine's
        report = probe_deep(str(tmp_path), seconds=SECONDS, seed=seed)
        if any(each.startswith("P1: ") for each in report.wrong):
            return
    pytest.fail(f"nothing found: {report}")


def test_a_process_that_ends_by_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "PROGRAM", "raise SystemExit('cannot start')")
    report = probe_deep(str(tmp_path), seconds=1.0)
    assert any("cannot start" in each for each in report.wrong)
    assert not counted([])


def test_places_without_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="local path"):
        probe_deep("memory://x")
    with pytest.raises(ObjectNotFound, match="make it first"):
        probe_deep(str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="1 s or more"):
        probe_deep(str(tmp_path), seconds=0.1)
