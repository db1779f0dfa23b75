"""Streaming broken on purpose: what the simulation must find then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation import explore as exploring
from tiltyard.testing.simulation.explore import exhaust, explore
from tiltyard.testing.simulation.scenarios import STREAMS
from tiltyard.testing.simulation.storm import Weather
from tiltyard.testing.simulation.streams import Client
from tiltyard.testing.simulation.streams_scenarios import OPEN, Script, StreamScenario, put, steps
from tiltyard.testing.simulation.world import Medium, Settings

MOST = 2_000
"""Runs in which each must be found, by chance or by a search through all schedules: a number, however slow
the machine.
"""

HAD = steps(OPEN, put(0), Client.abort)
Planting = Callable[[], AbstractContextManager[Any]]


def patched(owner: Any, name: str, value: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, value)


@contextmanager
def several(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with patches[0]:
        if len(patches) == 1:
            yield
        else:
            with several(*patches[1:]):
                yield


def found(
    planting: AbstractContextManager[Any],
    actors: Mapping[str, Script],
    *checks: str,
    before: Script | None = HAD,
    faults: Sequence[Fault] = (),
    failing_reads: bool = False,
    medium: Medium = "objects",
    automatic: bool = False,
    is_short: bool = True,
    upkeep: bool = False,
    merges: bool = False,
) -> str:
    """What the simulation finds with one preemption or accident; one of `checks` must be it."""
    weather = Weather(frozenset(faults), stalls=(40.0,), failing_reads=failing_reads)
    made = Settings(medium=medium, weather=weather)
    scenario = StreamScenario(
        "planted",
        actors,
        made,
        before,
        automatic=automatic,
        is_short=is_short,
        upkeep=upkeep,
        merges=merges,
    )
    with planting, patched(exploring, "shrunk", lambda scenario, seed, run, most: (run, ())):
        report = exhaust(scenario, events=1, most=MOST)
    assert report.finding is not None, f"nothing found: {report}"
    wrong = report.finding.run.wrong
    assert any(each.startswith(check) for each in wrong for check in checks), report.finding
    return str(report.finding)


def found_by_chance(planting: AbstractContextManager[Any], name: str, *checks: str) -> None:
    """What chance finds in a shipped scenario on a disk that loses power."""
    made: Any = STREAMS[name]()
    weather = Weather(chance=0.05, machine_crash=True)
    made.settings = replace(made.settings, weather=weather, switch_chance=0.3)
    with planting:
        report = explore(made, range(MOST), shrinking_runs=10)
    assert report.finding is not None, f"nothing found: {report}"
    wrong = report.finding.run.wrong
    assert any(each.startswith(check) for each in wrong for check in checks), report.finding
