"""Every scenario under foul weather, and the smallest through every schedule: nothing may be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from soaking import Share
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.explore import exhaust, explore
from tiltyard.testing.simulation.scenarios import TABLES
from tiltyard.testing.simulation.tables import Client, TableScenario
from tiltyard.testing.simulation.world import Medium, Settings

RUNS = 25
"""Runs of each scenario in `make test`."""


@pytest.mark.parametrize("name", TABLES)
def test_nothing_goes_wrong(name: str) -> None:
    report = explore(TABLES[name](), range(RUNS))
    assert report.finding is None, str(report.finding)
    assert len(report.states) == report.runs == RUNS
    done = {word.partition(" ")[0] for word in report.outcomes if word.endswith("done")}
    begun = {word.partition(" ")[0] for word in report.outcomes}
    assert done == begun, f"operations that never came to an end: {report}"
    assert report.struck


@pytest.mark.soak
@pytest.mark.parametrize("name", TABLES)
def test_nothing_goes_wrong_for_long(name: str, share: Share) -> None:
    share.explore(TABLES[name]())


def small(medium: Medium, **actors: Any) -> TableScenario:
    """Two actors with one operation each, in fair weather."""
    return TableScenario(f"small-{medium}", actors, Settings(medium=medium))


PAIRS = {
    "append-append": {"a": lambda c: c.append(10), "b": lambda c: c.append(20)},
    "append-delete": {"a": lambda c: c.append(10), "b": lambda c: c.delete(1)},
    "delete-delete": {"a": lambda c: c.delete(1), "b": lambda c: c.delete(1)},
    "upsert-upsert": {"a": lambda c: c.upsert(9, 109), "b": lambda c: c.upsert(9, 209)},
    "delete-compact": {"a": lambda c: c.delete(1), "b": Client.compact},
}


@pytest.mark.parametrize("pair", PAIRS)
def test_every_schedule_of_two_with_one_preemption(pair: str) -> None:
    scenario = small("objects", **PAIRS[pair])
    scenario.unique = pair == "upsert-upsert"
    report = exhaust(scenario, events=1)
    assert report.finding is None, str(report.finding)
    assert report.complete
    assert report.runs > 20


def test_every_single_fault_of_two_appends_on_disk() -> None:
    """One accident or one preemption, wherever it can be."""
    scenario = small("disk", **PAIRS["append-append"])
    weather = replace(
        scenario.settings.weather,
        faults=frozenset({Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER}),
        machine_crash=True,
    )
    scenario.settings = replace(scenario.settings, weather=weather)
    report = exhaust(scenario, events=1, most=600)
    assert report.finding is None, str(report.finding)
    assert report.struck["machine crash"]
