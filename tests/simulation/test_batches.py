"""Batches over several tables in the simulation: sound ones pass, faults planted in them are found."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any
from unittest import mock

import pytest

from tiltyard.catalog import batch_walk
from tiltyard.catalog.batch_intents import withdraw
from tiltyard.catalog.batch_walk import Walk
from tiltyard.table.versions import VersionLocation
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.batches import BatchScenario
from tiltyard.testing.simulation.explore import explore
from tiltyard.testing.simulation.scenarios import BATCHES

RUNS = 25
SECONDS = 60.0
"""Time in which a planted fault must be found."""


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_a_sound_batch_is_all_or_nothing(name: str) -> None:
    report = explore(BATCHES[name](), range(RUNS), seconds=None)
    assert report.finding is None, report.finding


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # The size of a new manifest could not be read, and the batch was told to have failed.
        ("batches-appends-objects", 100226),
        # A helper acted on an intent that was not durable yet, and the power went.
        ("batches-overwrites-disk", 200041),
        # A late request brought an intent back; a version of it stood elsewhere, and it stayed for ever.
        ("batches-appends-objects", 200056),
    ],
)
def test_what_the_simulation_found_stays_right(name: str, seed: int) -> None:
    assert explore(BATCHES[name](), [seed]).finding is None


def found(name: str, owner: Any, attribute: str, value: Any, *faults: Fault) -> None:
    scenario = BATCHES[name]()
    assert isinstance(scenario, BatchScenario)
    weather = replace(scenario.settings.weather, faults=frozenset(faults), chance=0.05, machine_crash=False)
    scenario.settings = replace(scenario.settings, weather=weather, switch_chance=0.4, max_skew_ns=0)
    with mock.patch.object(owner, attribute, value):
        report = explore(scenario, count(), seconds=SECONDS, shrinking_runs=5)
    assert report.finding is not None, f"nothing found: {report}"
    assert any(each.startswith("K14") for each in report.finding.run.wrong), report.finding


def forgetting(self: Walk, cause: Exception) -> None:
    withdraw(self.catalog.store, self.intent)


def test_a_batch_that_takes_nothing_back_is_found() -> None:
    found("batches-overwrites-disk", Walk, "_take_back", forgetting)


def test_a_batch_whose_intent_nobody_finishes_is_found() -> None:
    found("batches-appends-objects", batch_walk, "pending", lambda store: iter(()), Fault.CRASH)


def test_a_batch_that_takes_others_versions_for_its_own_is_found() -> None:
    def mistaken(store: Any, location: Any) -> str | None:
        there = batch_walk.transaction_at
        try:
            there(store, location.path)
        except Exception:
            return None
        return "ours"

    real = Walk._publish

    def publishing(self: Walk, staged: Any, *, first: bool) -> VersionLocation:
        return real(self, replace(staged, uuid="ours"), first=first)

    with mock.patch.object(Walk, "_publish", publishing):
        found("batches-overwrites-objects", batch_walk, "_uuid_at", mistaken)
