"""Protocols on file systems that lack calls, so that names are given in other ways; and spills on a disk."""

from __future__ import annotations

from unittest import mock

import pytest

from soaking import Share
from tiltyard.table.merge.source import Source
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.choices import RandomChoices
from tiltyard.testing.simulation.explore import explore, run_once, same_twice, with_settings
from tiltyard.testing.simulation.scenarios import SCENARIOS
from tiltyard.testing.simulation.storm import Weather
from tiltyard.testing.simulation.world import FileSystem

RUNS = 15
"""Runs of each scenario on each file system."""

POOR = [each for each in FileSystem if each is not FileSystem.WHOLE]

NAMES = ["appends-disk", "cleanups-disk", "tags-disk", "everything-disk"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", POOR)
def test_nothing_goes_wrong_on_a_file_system_that_lacks_calls(kind: FileSystem, name: str) -> None:
    report = explore(with_settings(SCENARIOS[name](), file_system=kind), range(RUNS))
    assert report.finding is None, str(report.finding)


@pytest.mark.soak
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FileSystem)
def test_nothing_goes_wrong_for_long_on_any_file_system(
    kind: FileSystem, name: str, network: bool, share: Share
) -> None:
    share.explore(with_settings(SCENARIOS[name](), file_system=kind, network=network))


@pytest.mark.parametrize("kind", FileSystem)
def test_the_same_seed_is_the_same_run_on_every_file_system(kind: FileSystem) -> None:
    for network in (False, True):
        scenario = with_settings(SCENARIOS["everything-disk"](), file_system=kind, network=network)
        assert same_twice(scenario, 7) is None


def test_a_version_that_was_never_finished_is_moved_away_before_the_check() -> None:
    """Without an exclusive name for a finished file a death leaves a manifest that is cut short: it blocks
    what comes after it, and takes nothing away.
    """
    weather = Weather(frozenset({Fault.CRASH}), chance=0.03, machine_crash=False)
    changed = {"file_system": FileSystem.NO_EXCLUSIVE_NAMES, "weather": weather}
    traces = []
    for seed in range(150):
        run = run_once(with_settings(SCENARIOS["appends-disk"](), **changed), RandomChoices(seed), seed)
        assert run.wrong == ()
        traces += run.trace
    assert any(each.startswith("person: unlink _versions/") for each in traces)


def test_merges_that_spill_meet_the_weather_of_the_disk() -> None:
    """A full disk under a temporary file is an error of ours, and nothing is written or lost by it."""
    real = Source.of

    def spilling(schema: object, batches: object, *, held: bool, spill_bytes: int) -> Source:
        return real(schema, batches, held=False, spill_bytes=0)  # type: ignore[arg-type]

    weather = Weather(frozenset({Fault.FAIL_BEFORE}), chance=0.1, machine_crash=False)
    struck = 0
    with mock.patch.object(Source, "of", spilling):
        for seed in range(40):
            run = run_once(
                with_settings(SCENARIOS["upserts-disk"](), weather=weather), RandomChoices(seed), seed
            )
            assert run.wrong == ()
            struck += sum("a temporary file for what does not fit" in each for each in run.trace)
    assert struck
