"""`make soak` ends in time, gives every search something, and says what it did not get to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soaking import LEAST_SECONDS, Soak

SEARCHES = """
from dataclasses import replace
import pytest
from tiltyard.testing.simulation.world import Settings

class Own:
    name, settings = "own", Settings()
    def run(self, world):
        world.scheduler.trace.append(str([world.choices.choose(9, 0.5) for _ in range(20)]))
        return []

@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_in_part(number, share):
    replace(share, end=0.0).exhaust(Own(), events=3)

@pytest.mark.soak
def test_whole(share):
    share.exhaust(Own(), events=1)

@pytest.mark.soak
def test_at_random(share):
    replace(share, end=0.0).explore(Own())

@pytest.mark.soak
def test_fixed():
    pass
"""


def run(directory: Path, minutes: int) -> str:
    (directory / "test_it.py").write_text(SEARCHES)
    tests = Path(__file__).parents[1]
    (directory / "conftest.py").write_text((tests / "conftest.py").read_text())
    (directory / "pytest.ini").write_text(f"[pytest]\npythonpath = {tests}\nmarkers = soak: long\n")
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("TILTYARD_SOAK", "PYTEST"))
    }
    env |= {"TILTYARD_SOAK_MINUTES": str(minutes), "TILTYARD_SOAK_SEED": "7"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "soak", "."]
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True).stdout


def test_what_was_looked_at_is_told(tmp_path: Path) -> None:
    told = run(tmp_path, 10)
    assert "soak of 10 minutes with seed 7" in told
    assert "at random: 1 scenarios, 1 runs, 1 schedules" in told
    assert "exhaustive: 4 searches, 161 runs, 161 schedules" in told
    assert "every schedule of 1\n" in told
    assert "a part of 3, " in told
    assert "not begun: 0 tests" in told
    assert "6 passed" in told


def test_what_was_not_begun_is_told(tmp_path: Path) -> None:
    told = run(tmp_path, 0)
    assert "not begun: 6 tests" in told
    assert "test_it.py::test_fixed" in told
    assert "6 skipped" in told


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Soak:
    for name in list(os.environ):
        if name.startswith("TILTYARD_SOAK"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TILTYARD_SOAK_MINUTES", "10")
    monkeypatch.setenv("TILTYARD_SOAK_NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("TILTYARD_SOAK_BEGAN", "0")
    monkeypatch.setenv("TILTYARD_SOAK_SEED", "1")
    return Soak(jobs=2)


def test_every_search_gets_its_part_of_what_is_left(soak: Soak, monkeypatch: pytest.MonkeyPatch) -> None:
    soak.searches = 4
    now = [0.0]
    monkeypatch.setattr("soaking.time.monotonic", lambda: now[0])
    assert soak.seconds_for("a") == 600 * 2 / 4
    assert soak.seconds_for("b") == 600 * 2 / 3  # as if the first took no time
    now[0] = 300.0
    assert soak.seconds_for("c") == 300.0
    now[0] = 599.75
    assert soak.seconds_for("d") == 0.25  # the time of the whole is what counts
    soak.searches = 1_000_000
    now[0] = 0.0
    assert soak.seconds_for("e") == LEAST_SECONDS
