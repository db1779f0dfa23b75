"""Shards of streamed tables in the simulation: every scenario under foul weather, pairs of calls through
every schedule, and the cases that were reported of other implementations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from accidents import ACCIDENTS
from soaking import Share
from tiltyard.memwal import layout
from tiltyard.memwal.claim import MAX_CLAIMS
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.choices import RandomChoices
from tiltyard.testing.simulation.explore import Report, exhaust, explore
from tiltyard.testing.simulation.history import History
from tiltyard.testing.simulation.scenarios import STREAMS, settings
from tiltyard.testing.simulation.storm import CALM, Weather
from tiltyard.testing.simulation.streams import SHARD_DIR, Client, Ledger, make_table
from tiltyard.testing.simulation.streams_model import Archive
from tiltyard.testing.simulation.streams_scenarios import (
    BEGUN,
    FLUSH,
    OPEN,
    READ,
    Script,
    StreamScenario,
    do,
    put,
    steps,
)
from tiltyard.testing.simulation.world import Medium, Settings, World

RUNS = 8
"""Runs of each scenario in `make test`."""

MEDIA = get_args(Medium)


@pytest.mark.parametrize("name", STREAMS)
def test_nothing_goes_wrong(name: str) -> None:
    report = explore(STREAMS[name](), range(RUNS))
    assert report.finding is None, str(report.finding)
    assert len(report.states) == report.runs == RUNS
    done = {word.partition(" ")[0] for word in report.outcomes if word.endswith("done")}
    assert done >= {"open", "read"}, f"operations that never came to an end: {report}"
    assert report.struck


@pytest.mark.soak
@pytest.mark.parametrize("name", STREAMS)
def test_nothing_goes_wrong_for_long(name: str, share: Share) -> None:
    share.explore(STREAMS[name]())


# -- every schedule ------------------------------------------------------------------------------

CLAIM_0, CLAIM_1 = do(Client.claim, 0), do(Client.claim, 1)

HAD = steps(OPEN, put(0), Client.abort)
"""A shard with one entry in its log."""

PAIRS: Mapping[str, tuple[Script | None, Mapping[str, Script]]] = {
    "first claim, first claim": (None, {"a": CLAIM_0, "b": CLAIM_1}),
    "claim, claim": (HAD, {"a": OPEN, "b": OPEN}),
    "claim, append": (None, {"a": steps(OPEN, put(0)), "b": steps(OPEN, put(1))}),
    "flush, claim": (None, {"a": steps(OPEN, put(0), FLUSH), "b": OPEN}),
}


def small(medium: Medium, pair: str, weather: Weather = CALM) -> StreamScenario:
    before, actors = PAIRS[pair]
    made = Settings(medium=medium, weather=weather)
    return StreamScenario(f"small-{medium}", actors, made, before, is_short=True)


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_schedule_with_one_preemption(pair: str, medium: Medium) -> None:
    report = exhaust(small(medium, pair), events=1, most=800)
    assert report.finding is None, str(report.finding)
    assert report.complete, str(report)


SHORT = [("first claim, first claim", "disk"), *((pair, "objects") for pair in PAIRS if "flush" not in pair)]
"""Pairs with few points, for `make test`."""


@pytest.mark.parametrize(("pair", "medium"), SHORT)
def test_every_preemption_and_accident(pair: str, medium: Medium) -> None:
    report = exhaust(small(medium, pair, ACCIDENTS[medium]), events=1, most=5_000)
    assert report.finding is None, str(report.finding)
    assert report.complete, str(report)
    assert report.struck


@pytest.mark.soak
@pytest.mark.parametrize(
    ("pair", "medium"), [(pair, medium) for pair in PAIRS for medium in MEDIA if (pair, medium) not in SHORT]
)
def test_every_preemption_and_accident_of_longer_pairs(pair: str, medium: Medium, share: Share) -> None:
    share.exhaust(small(medium, pair, ACCIDENTS[medium]))


@pytest.mark.soak
@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_schedule_with_two_preemptions_or_accidents(pair: str, medium: Medium, share: Share) -> None:
    share.exhaust(small(medium, pair, ACCIDENTS[medium]), events=2)


# -- cases that were reported --------------------------------------------------------------------


def every(medium: Medium, actors: Mapping[str, Script], before: Script | None = HAD, **more: Any) -> Report:
    """Every schedule of some actors with one preemption, in fair weather; nothing may be wrong."""
    scenario = StreamScenario(
        f"case-{medium}", actors, Settings(medium=medium), before, is_short=True, **more
    )
    report = exhaust(scenario, events=1, most=800)
    assert report.finding is None, str(report.finding)
    assert report.complete
    return report


OWNER = steps(OPEN, put(0))


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("automatic", [False, True], ids=["1 against 0", "0 against 1"])
def test_a_claim_of_another_spec_never_succeeds_and_fences_nobody(automatic: bool, medium: Medium) -> None:
    """lance#7945: it advanced the epoch, and so fenced the rightful owner."""
    foreign = CLAIM_0 if automatic else CLAIM_1
    found = every(medium, {"owner": OWNER, "foreign": foreign}, automatic=automatic).outcomes
    assert found["claim failed"]
    assert not found["claim done"]
    assert not found["put failed"] + found["put unknown"] + found["open failed"]


@pytest.mark.parametrize("medium", MEDIA)
def test_of_first_claims_of_two_specs_one_identity_is_stored(medium: Medium) -> None:
    report = every(medium, {"a": steps(CLAIM_0, CLAIM_1), "b": steps(CLAIM_1, CLAIM_0)}, None)
    found = report.outcomes
    # Of each process's two claims one is of the identity that came first.
    assert found["claim failed"] >= found["claim done"] >= report.runs


@pytest.mark.parametrize("medium", MEDIA)
def test_a_shard_that_was_sealed_before_is_claimed_by_nobody(medium: Medium) -> None:
    found = every(medium, {"a": OPEN, "b": steps(CLAIM_0, CLAIM_1)}, steps(HAD, Client.seal)).outcomes
    assert found["open done"] == found["open failed"]  # that of the set-up
    assert not found["claim done"]


@pytest.mark.parametrize("medium", MEDIA)
def test_a_shard_that_is_sealed_during_a_claim_is_claimed_before_or_not_at_all(medium: Medium) -> None:
    report = every(medium, {"a": OPEN, "b": Client.seal})
    assert report.outcomes["open failed"]
    assert report.outcomes["open done"] > report.runs


@pytest.mark.parametrize("medium", MEDIA)
def test_a_harmless_version_in_between_does_not_hinder_a_claim(medium: Medium) -> None:
    report = every(medium, {"a": steps(OPEN, put(0)), "b": steps(Client.bump, Client.bump)})
    assert not report.outcomes["open failed"] + report.outcomes["put failed"]


@pytest.mark.parametrize("medium", MEDIA)
def test_a_claim_whose_writes_all_fail_ends_and_leaves_nothing(medium: Medium) -> None:
    weather = Weather(frozenset({Fault.FAIL_BEFORE}), chance=1.0, most=10_000)
    made = Settings(medium=medium, weather=weather)
    report = explore(StreamScenario(f"failing-{medium}", {"a": CLAIM_0}, made, BEGUN), [0])
    assert report.finding is None, str(report.finding)
    assert report.outcomes["claim failed"] == 1
    assert report.struck[Fault.FAIL_BEFORE.value] >= MAX_CLAIMS


@pytest.mark.parametrize("medium", MEDIA)
def test_an_sstable_that_is_seen_before_its_key_index_can_be_read(medium: Medium) -> None:
    """lance#9035: other writers have published without it."""
    world = World(RandomChoices(0), Settings(medium=medium))
    with world.installed():
        ledger = Ledger(world, History(world))

        def play() -> None:
            make_table(world, automatic=False)
            client = Client(ledger, world.store(), world.session())
            BEGUN(client)
            for name in client.shard.list_names(""):
                if layout.sstable_generation(name) is not None:
                    for path in (layout.PK_PAGES, layout.PK_LOOKUP):
                        client.shard.at(name).delete(path)
            READ(client)

        world.calmly("a", play)
        (look,) = ledger.looks
        assert look.scanned == look.looked_up == {0: 100, 1: 1, 2: 2, 3: 100}
        assert Archive.of(world).files
    assert not ledger.wrong
    assert SHARD_DIR


def test_the_weather_is_that_of_tables() -> None:
    made = STREAMS["stream-claims-disk"]().settings
    assert replace(made, weather=settings("disk").weather) == settings("disk")
