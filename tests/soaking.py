"""The time and the chance of `make soak`: how long it lasts as a whole, what each search gets of it, and what
it did not get to.

A soak test that can use any time asks for its `share` of what is left, and looks where the seed of the run
says. Those with work of a fixed size come first. What time was not enough for is skipped, and told at the
end with the rest: another run, with another seed, begins elsewhere.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest

from tiltyard.testing.simulation.explore import Report, Scenario, exhaust, explore

MINUTES = "TILTYARD_SOAK_MINUTES"
"""How long a run of soak tests lasts. What has begun by then may go on for seconds."""

SEED = "TILTYARD_SOAK_SEED"
"""Where it looks; without one a run draws its own, and prints it."""

_BEGAN, _NOTES = "TILTYARD_SOAK_BEGAN", "TILTYARD_SOAK_NOTES"
"""What the process that distributes the tests tells those that run them."""

DEFAULT_MINUTES = 50.0
LEAST_SECONDS = 0.5
"""No search gets less, while there is time."""

SEEDS = 10_000
"""How far apart the seeds of two runs begin."""

NO_TIME = "the time of the soak is over"
SHOWN = 20
"""Names of tests that the summary lists."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one search has: until when (boot clock), and the seed of all its chance."""

    test: pytest.Item
    seed: int
    end: float

    def explore(self, scenario: Scenario) -> None:
        """Look for a run that goes wrong, from one seed on."""
        report = explore(scenario, count(self.seed), seconds=max(0.0, self.end - time.monotonic()))
        self._tell(report, None)

    def exhaust(self, scenario: Scenario, events: int = 1) -> None:
        """Go through the schedules with so many events, in an order that is drawn."""
        order = random.Random(self.seed)
        report = exhaust(scenario, events=events, stop=lambda: time.monotonic() > self.end, order=order)
        self._tell(report, report.covered)

    def _tell(self, report: Report, covered: float | None) -> None:
        told = {
            "runs": report.runs,
            "schedules": len(report.states),
            "steps": report.steps,
            "covered": covered,
            "struck": dict(report.struck),
        }
        self.test.user_properties.append(("soak", told))
        assert report.finding is None, str(report.finding)


class Soak:
    """The hooks. Without a soak test among those that are run they do nothing."""

    def __init__(self, jobs: int) -> None:
        self.seed = int(os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1, 1_000_000))))
        self.minutes = float(os.environ.get(MINUTES, DEFAULT_MINUTES))
        self.began = float(os.environ.setdefault(_BEGAN, str(time.monotonic())))
        self.notes = Path(os.environ.setdefault(_NOTES, f"{tempfile.gettempdir()}/tiltyard-soak-{uuid4()}"))
        """The names of the searches that have begun, in whatever process."""
        self.jobs = jobs
        self.searches = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return self.began + 60 * self.minutes - time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """What has a fixed size first, then the searches in an order that is drawn."""
        searches = [each for each in items if "share" in getattr(each, "fixturenames", ())]
        self.searches = len(searches)
        mine = set(searches)
        others = [each for each in items if each not in mine]
        random.Random(self.seed).shuffle(searches)
        items[:] = [*others, *searches]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Nothing of the soak begins when its time is over."""
        if item.get_closest_marker("soak") and self.left <= 0:
            pytest.skip(NO_TIME)

    @pytest.fixture
    def share(self, request: pytest.FixtureRequest) -> Share:
        """What this search gets: as much of what is left as each that has not begun."""
        name = request.node.nodeid
        seed = self.seed * SEEDS + crc32(name.encode()) % SEEDS
        return Share(request.node, seed, time.monotonic() + self.seconds_for(name))

    def seconds_for(self, name: str) -> float:
        """The time of a search that begins now."""
        with self.notes.open("a") as file:
            file.write(f"{name}\n")
        waiting = self.searches - len(self.notes.read_text().splitlines()) + 1
        return min(self.left, max(LEAST_SECONDS, self.left * self.jobs / max(1, waiting)))

    def pytest_unconfigure(self) -> None:
        """The process that distributes the tests ends last."""
        if "PYTEST_XDIST_WORKER" not in os.environ:
            self.notes.unlink(missing_ok=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was looked at, and what was not."""
        stats = terminalreporter.stats
        ended = [each for kind in ("passed", "failed") for each in stats.get(kind, ()) if each.when == "call"]
        told = [(each.nodeid, dict(each.user_properties)["soak"]) for each in ended if _has_soak(each)]
        missed = [each.nodeid for each in stats.get("skipped", ()) if NO_TIME in str(each.longrepr)]
        if not told and not missed:
            return
        terminalreporter.section(f"soak of {self.minutes:g} minutes with seed {self.seed}")
        for line in summary(told, missed):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"the same searches again: {SEED}={self.seed} make soak")


def _has_soak(report: Any) -> bool:
    return any(name == "soak" for name, _ in report.user_properties)


def summary(told: list[tuple[str, dict[str, Any]]], missed: list[str]) -> Iterator[str]:
    """The lines at the end of a soak."""
    struck: Counter[str] = Counter()
    for _, each in told:
        struck.update(each["struck"])
    at_random = [each for _, each in told if each["covered"] is None]
    yield f"at random: {len(at_random)} scenarios, {_count(at_random)}"
    searched = [(name, each) for name, each in told if each["covered"] is not None]
    whole = [each for _, each in searched if each["covered"] == 1.0]
    parts = sorted((each["covered"], name) for name, each in searched if each["covered"] < 1.0)
    yield f"exhaustive: {len(searched)} searches, {_count([each for _, each in searched])}"
    yield f"  every schedule of {len(whole)}"
    if parts:
        mean = sum(covered for covered, _ in parts) / len(parts)
        yield f"  a part of {len(parts)}, {mean:.0%} of their schedules; least of"
        yield from (f"    {covered:.1%} {name}" for covered, name in parts[:SHOWN])
    yield "faults: " + (", ".join(f"{name} {number}" for name, number in sorted(struck.items())) or "none")
    yield f"not begun: {len(missed)} tests" + (", among them" if len(missed) > SHOWN else "")
    yield from (f"    {name}" for name in sorted(missed)[:SHOWN])


def _count(told: list[dict[str, Any]]) -> str:
    return f"{sum(each['runs'] for each in told)} runs, {sum(each['schedules'] for each in told)} schedules"
