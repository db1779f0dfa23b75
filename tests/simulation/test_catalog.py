"""The catalog under foul weather: every pair of calls on one name, from every start, groups of callers, and
small pairs through every schedule. Nothing may be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from _pytest.mark.structures import ParameterSet

from soaking import Share
from tiltyard.testing.simulation.catalogs_scenarios import (
    PAIRS,
    PLACES,
    UNREGISTERED_PAIRS,
    CatalogScenario,
    Pair,
)
from tiltyard.testing.simulation.choices import EnumeratedChoices
from tiltyard.testing.simulation.explore import exhaust, explore, run_once, same_twice
from tiltyard.testing.simulation.scenarios import CATALOGS
from tiltyard.testing.simulation.storm import CALM

PAIR_RUNS = 40
GROUP_RUNS = 5
"""Runs of each scenario in `make test`: together they take half a minute."""

DRAWN = [name for name in CATALOGS if name.startswith("catalog-pairs-")]
GROUPED = [name for name in CATALOGS if name not in DRAWN]


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_goes_wrong_between_two(name: str) -> None:
    report = explore(CATALOGS[name](), range(PAIR_RUNS))
    assert report.finding is None, str(report.finding)
    assert report.struck
    assert len(report.states) == PAIR_RUNS


@pytest.mark.parametrize("name", GROUPED)
def test_nothing_goes_wrong_in_a_group(name: str) -> None:
    report = explore(CATALOGS[name](), range(GROUP_RUNS))
    assert report.finding is None, str(report.finding)


FOUND = {
    ("catalog-creates-root-objects", 7004): "a table that was overwritten, told as untouched",
    ("catalog-threads-root-objects", 7015): "a marker taken for an older one: a renamed table had both names",
    ("catalog-pairs-directories-disk", 100_471): "a deregistration that came late hid the table's new name",
    ("catalog-creates-directories-disk", 100_316): "a table that nobody was told of, dropped and lost",
    ("catalog-threads-directories-disk", 100_282): "a table moved aside without a note of its drop",
}
"""Seeds that once found something."""


@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_what_was_found_is_mended(name: str, seed: int) -> None:
    report = explore(CATALOGS[name](), [seed])
    assert report.finding is None, f"{FOUND[name, seed]}: {report.finding}"


@pytest.mark.soak
@pytest.mark.parametrize("name", CATALOGS)
def test_nothing_goes_wrong_for_long(name: str, share: Share) -> None:
    share.explore(CATALOGS[name]())


def pair_of(where: str, pair: Pair, *starts: str, weather: bool = False) -> CatalogScenario:
    """Two calls in a scenario of their own; without `weather` in a fair one."""
    made = CATALOGS[f"catalog-pairs-{where}"]()
    assert isinstance(made, CatalogScenario)
    made.pairs, made.starts = (pair,), starts
    if not weather:
        made.settings = replace(made.settings, weather=CALM)
    made.settings = replace(made.settings, max_skew_ns=0)
    return made


SMALL = [
    ("child-objects", ("create", "drop_namespace"), "absent"),
    ("child-objects", ("exist_ok", "drop"), "present"),
    ("child-objects", ("undrop", "create_namespace"), "dropped"),
    ("root-objects", ("rename", "overwrite"), "present"),
    ("directories-disk", ("create", "drop"), "present"),
    ("directories-disk", ("create", "undrop"), "dropped"),
    ("directories-disk", ("drop", "undrop"), "present"),
    ("directories-disk", ("undrop", "purge"), "dropped"),
    ("directories-disk", ("rename", "deregister"), "present"),
]
"""Pairs that every run of the tests goes through, with one preemption anywhere."""


@pytest.mark.parametrize(("where", "pair", "start"), SMALL)
def test_every_schedule_of_two_with_one_preemption(where: str, pair: Pair, start: str) -> None:
    report = exhaust(pair_of(where, pair, start), events=1)
    assert report.finding is None, str(report.finding)
    assert report.complete
    assert report.runs > 20


def every_pair() -> Iterator[ParameterSet]:
    for name in DRAWN:
        where = name.removeprefix("catalog-pairs-")
        for pair in UNREGISTERED_PAIRS if where.startswith("directories") else PAIRS:
            yield pytest.param(where, pair, id=f"{where}-{'-'.join(pair)}")


@pytest.mark.soak
@pytest.mark.parametrize(("where", "pair"), list(every_pair()))
def test_every_schedule_of_every_pair_with_one_preemption(where: str, pair: Pair, share: Share) -> None:
    share.exhaust(pair_of(where, pair))


@pytest.mark.soak
@pytest.mark.parametrize("where", ["child-objects", "root-disk", "root-objects"])
@pytest.mark.parametrize(
    "pair", [("create", "create"), ("create", "drop"), ("drop", "undrop"), ("rename", "create")]
)
def test_every_single_accident_of_two(where: str, pair: Pair, share: Share) -> None:
    """One fault or one preemption, wherever it can be."""
    starts = ("present",) if "rename" in pair else ("absent", "present", "dropped")
    share.exhaust(pair_of(where, pair, *starts, weather=True))


def test_a_search_through_everything_draws_every_pair_and_every_start() -> None:
    drawn = set()
    scenario = pair_of("child-objects", PAIRS[0])
    scenario.pairs = PAIRS[:3]
    for pair in range(1, 4):
        for start in range(1, 5):
            run = run_once(scenario, EnumeratedChoices([pair, start]), 0)
            begun = [
                line.partition("begins: ")[2]
                for line in run.trace
                if line.startswith(("a: begins", "b: begins"))
            ]
            drawn.add((tuple(each.partition(" ")[0] for each in begun), run.digest))
    assert len(drawn) == 3 * len(PLACES["child"].starts)


@pytest.mark.parametrize("name", ["catalog-pairs-root-disk", "catalog-threads-child-objects"])
def test_the_same_seed_is_the_same_run(name: str) -> None:
    for seed in range(3):
        assert same_twice(CATALOGS[name](), seed) is None
