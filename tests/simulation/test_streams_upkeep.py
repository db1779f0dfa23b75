"""Streams and their upkeep in the simulation: pairs of calls through every schedule with one preemption, and
with one accident. The scenarios with more actors run with the others (`test_streams`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from accidents import ACCIDENTS
from soaking import Share
from tiltyard.testing.simulation.explore import exhaust
from tiltyard.testing.simulation.storm import CALM, Weather
from tiltyard.testing.simulation.streams import Client
from tiltyard.testing.simulation.streams_scenarios import (
    CLOSE,
    COLLECT,
    COMPACT,
    FLUSH,
    OPEN,
    READ,
    Script,
    StreamScenario,
    delete,
    put,
    steps,
)
from tiltyard.testing.simulation.world import Medium, Settings

MEDIA = get_args(Medium)

TWO = steps(OPEN, put(0, 3), FLUSH, delete(0), put(1), FLUSH, put(4), Client.abort)
"""A shard with two generations, and one more entry in its log."""

DRAINED = steps(TWO, COMPACT)

PAIRS: Mapping[str, tuple[Script, Mapping[str, Script]]] = {
    "compact, compact": (TWO, {"a": COMPACT, "b": COMPACT}),
    "compact, read": (TWO, {"a": COMPACT, "b": READ}),
    "compact, flush": (TWO, {"a": COMPACT, "b": steps(OPEN, put(0), FLUSH, READ)}),
    "compact, clean": (TWO, {"a": steps(COMPACT, READ), "b": Client.clean}),
    "collect, append": (DRAINED, {"a": COLLECT, "b": steps(OPEN, put(0), Client.abort)}),
    "collect, passed": (DRAINED, {"a": steps(OPEN, put(0), put(1)), "b": steps(OPEN, CLOSE, COLLECT)}),
    "collect, collect": (DRAINED, {"a": COLLECT, "b": steps(COLLECT, READ)}),
    "revise, append": (TWO, {"a": Client.revise, "b": steps(OPEN, put(0), READ)}),
    "revise, abandon": (TWO, {"a": Client.revise, "b": steps(Client.abandon, OPEN, put(0), READ)}),
    "revise, revise": (TWO, {"a": Client.revise, "b": steps(Client.revise, READ)}),
}


MERGED = ("compact, compact", "compact, read", "compact, flush")
"""Pairs that also a table with a merge function goes through."""


def pair_of(name: str, medium: Medium, weather: Weather = CALM, *, merges: bool = False) -> StreamScenario:
    before, actors = PAIRS[name]
    made = Settings(medium=medium, weather=weather)
    return StreamScenario(f"upkeep-{medium}", actors, made, before, is_short=True, upkeep=True, merges=merges)


SHORT: list[tuple[str, Medium]] = [
    ("compact, compact", "objects"),
    ("compact, read", "objects"),
    ("collect, append", "objects"),
]
"""For `make test`."""

LONG = [(name, medium) for name in PAIRS for medium in MEDIA if (name, medium) not in SHORT]


@pytest.mark.parametrize(("name", "medium"), SHORT)
def test_every_schedule_with_one_preemption(name: str, medium: Medium) -> None:
    report = exhaust(pair_of(name, medium), events=1, most=1_500)
    assert report.finding is None, str(report.finding)
    assert report.complete, str(report)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "medium"), LONG)
def test_every_schedule_with_one_preemption_of_longer_pairs(name: str, medium: Medium, share: Share) -> None:
    share.exhaust(pair_of(name, medium))


@pytest.mark.soak
@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("name", PAIRS)
def test_every_preemption_and_accident(name: str, medium: Medium, share: Share) -> None:
    share.exhaust(pair_of(name, medium, ACCIDENTS[medium]))
