"""Seeds that once found something: nothing may be found with them again.

A change of the product may lead a seed through another schedule; what was found has a test of its own too, in
the tests of what was wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tiltyard.testing.simulation.explore import explore
from tiltyard.testing.simulation.scenarios import SCENARIOS

FOUND = {
    ("everything-disk", 100124): "a tag that was taken back came back with the power, without its version",
    ("tags-objects", 100567): "a creation with a lost answer, deleted by another, was told as not made",
    ("tags-objects", 200351): "a creation with a lost answer, deleted by another, was sent again",
    ("cleanups-disk", 50635): "a version whose writer slept before it named it went as old",
    ("stream-claims-objects", 5): "a late sentinel of a passed claimant ended the rightful owner",
    ("stream-flushes-objects", 5): "a fence check that could not be made was told as a refusal",
    ("stream-take-overs-objects", 20): "a passed process saw later rows without earlier ones",
    ("stream-collections-objects", 2): "a sleeper made a version in the place of a collected one",
}


FOUND_IN_STORMS = {
    (
        "reads-disk",
        103,
    ): "a tag whose name could not be synced was seen, told as made, and lost with the power",
    ("reads-disk", 120): "the same",
    ("everything-disk", 3078): "a tag named a version that was seen, and lost with the power",
}
"""In weather with more faults than usual."""


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_what_was_found_is_mended(scenario: str, seed: int) -> None:
    report = explore(SCENARIOS[scenario](), [seed])
    assert report.finding is None, f"{FOUND[scenario, seed]}: {report.finding}"


@pytest.mark.parametrize(("scenario", "seed"), FOUND_IN_STORMS)
def test_what_was_found_in_storms_is_mended(scenario: str, seed: int) -> None:
    made: Any = SCENARIOS[scenario]()
    weather = replace(made.settings.weather, chance=0.05, most=5)
    made.settings = replace(made.settings, weather=weather, switch_chance=0.5)
    report = explore(made, [seed])
    assert report.finding is None, f"{FOUND_IN_STORMS[scenario, seed]}: {report.finding}"
