"""Looking for a run that goes wrong: at random with many seeds, or through every schedule of a small one.

A finding is its list of choices; shrinking makes it the simplest that still goes wrong in the same way.

S7  An actor that ends by an exception is a finding (`World.do`).
S8  An exception of a scenario, or of its check, is a finding with seed and trace like any other.
S9  A finding that was made simpler breaks the same invariant; another one met on the way is kept beside it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from time import monotonic
from typing import Protocol

from tiltyard.errors import InvalidInput
from tiltyard.testing.faults import Crashed
from tiltyard.testing.simulation.choices import (
    Choices,
    EnumeratedChoices,
    RandomChoices,
    ReplayedChoices,
)
from tiltyard.testing.simulation.findings import Finding, Run, again, trimmed
from tiltyard.testing.simulation.guard import guarded
from tiltyard.testing.simulation.scheduler import SimulationError
from tiltyard.testing.simulation.world import Settings, World, place

MAX_SHRINKING_RUNS = 600
"""Runs spent on making a finding simpler."""

MAX_OTHERS = 3
"""Findings of other kinds that are kept from shrinking one."""


class Scenario(Protocol):
    """What actors do in a world, and what must hold afterwards."""

    name: str
    settings: Settings

    def run(self, world: World) -> list[str]:
        """Set up, act, check; what is wrong."""
        ...


@dataclass(slots=True)
class Report:
    """What was explored."""

    scenario: str
    runs: int = 0
    steps: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How operations ended, by their first word."""
    states: set[str] = field(default_factory=set)
    """Digests of traces: distinct schedules."""
    finding: Finding | None = None
    complete: bool = False
    """Whether an exhaustive search came to its end."""
    covered: float = 0.0
    """How much of the tree an exhaustive search went through, from 0 to 1: an estimate until it is complete,
    for which the runs that differ at a place count alike.
    """

    def add(self, run: Run) -> None:
        """Count a run."""
        self.runs += 1
        self.steps += run.steps
        self.struck.update(run.struck)
        self.outcomes.update(run.outcomes)
        self.states.add(run.digest)

    def __str__(self) -> str:
        whole = "" if not self.covered else f", {self.covered:.0%} of the schedules"
        whole = ", every schedule" if self.complete else whole
        return (
            f"{self.scenario}: {self.runs} runs{whole}, {len(self.states)} distinct schedules, "
            f"{self.steps} steps; operations: {_told(self.outcomes)}; faults: {_told(self.struck)}; "
            + ("nothing found" if self.finding is None else "FOUND")
        )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def run_once(scenario: Scenario, choices: Choices, seed: int) -> Run:
    """One run. What goes wrong with the run itself, its scenario or its check is a finding like any other."""
    world = World(choices, scenario.settings, seed)
    wrong: list[str] = []
    with world.installed(), guarded(world.scheduler, type(scenario).__module__):
        try:
            wrong += scenario.run(world)
        except SimulationError as error:
            wrong.append(f"{type(error).__name__}: {error}")
        except (Exception, Crashed) as error:
            wrong.append(
                f"S8 {type(error).__name__}: the scenario or its check raised it: {error}{place(error)}"
            )
    wrong += world.wrong
    trace = tuple(world.scheduler.trace)
    digest = hashlib.blake2b("\n".join(trace).encode(), digest_size=8).hexdigest()
    return Run(
        tuple(wrong),
        tuple(choices.taken),
        trace,
        world.storm.struck,
        world.outcomes,
        world.scheduler.steps,
        digest,
    )


def explore(
    scenario: Scenario,
    seeds: Iterable[int],
    *,
    seconds: float | None = None,
    shrinking_runs: int = MAX_SHRINKING_RUNS,
) -> Report:
    """Run with one seed after the other, until one goes wrong or the time is over. What goes wrong is made
    simpler in at most `shrinking_runs` runs. Raises `InvalidInput` where there is no seed.
    """
    report = Report(scenario.name)
    end = None if seconds is None else monotonic() + seconds
    for seed in seeds:
        run = run_once(scenario, RandomChoices(seed), seed)
        report.add(run)
        if run.wrong:
            report.finding = finding(scenario, seed, run, shrinking_runs)
            return report
        if end is not None and monotonic() > end:
            return report
    if not report.runs:
        raise InvalidInput(f"no seed to run {scenario.name} with: nothing would be looked at")
    return report


def replay(scenario: Scenario, seed: int, choices: Sequence[int]) -> Run:
    """The run of these choices. Raises `InvalidInput` if they are not those of a run of this scenario with
    these settings and this seed, as the product is now.
    """
    bad = next((each for each in choices if not isinstance(each, int) or each < 0), None)
    if bad is not None:
        raise InvalidInput(f"choices of {scenario.name} hold {bad!r}; expected numbers of answers, from 0 on")
    answers = ReplayedChoices(choices)
    run = run_once(scenario, answers, seed)
    misfit = answers.misfit()
    if misfit is not None:
        raise InvalidInput(
            f"these choices are not those of a run of {scenario.name} with seed {seed}: {misfit}. Scenario, "
            "settings and seed must be those of the finding; where the product has changed since, explore "
            "its seed again"
        )
    return run


def finding(scenario: Scenario, seed: int, run: Run, most: int = MAX_SHRINKING_RUNS) -> Finding:
    """A run that went wrong, made simpler in at most `most` runs, with what brings it back."""
    best, others = shrunk(scenario, seed, run, most)
    told = tuple((each, again(scenario, seed, each.choices)) for each in others)
    return Finding(scenario.name, seed, best, again(scenario, seed, best.choices), told)


def shrunk(
    scenario: Scenario, seed: int, found: Run, most: int = MAX_SHRINKING_RUNS
) -> tuple[Run, tuple[Run, ...]]:
    """The simplest run that still goes wrong as this one did first: as few events, as early an end as can be.
    And runs that went wrong otherwise, the first of each kind.
    """
    best = found
    left = most
    others: list[Run] = []
    seen = set(found.kinds)

    def attempt(choices: Sequence[int]) -> bool:
        nonlocal best, left
        left -= 1
        run = run_once(scenario, ReplayedChoices(choices), seed)
        if found.kinds[0] in run.kinds:
            best = run
            return True
        if not seen.issuperset(run.kinds) and len(others) < MAX_OTHERS:
            seen.update(run.kinds)
            others.append(run)
        return False

    improved = True
    while improved and left > 0:
        improved = False
        for candidate in _simpler(trimmed(best.choices)):
            if left <= 0:
                break
            if attempt(candidate):
                improved = True
                break
    return best, tuple(others)


def _simpler(choices: tuple[int, ...]) -> Iterator[list[int]]:
    """Lists with fewer events: halves, quarters, ... of them set to 0, then each alone."""
    events = [at for at, answer in enumerate(choices) if answer]
    size = len(events)
    while size:
        for start in range(0, len(events), size):
            gone = set(events[start : start + size])
            yield [0 if at in gone else answer for at, answer in enumerate(choices)]
        size //= 2
    for at in events:
        if choices[at] > 1:
            yield [1 if place == at else answer for place, answer in enumerate(choices)]


def exhaust(
    scenario: Scenario,
    *,
    events: int = 2,
    seed: int = 0,
    most: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    order: Random | None = None,
) -> Report:
    """Every run with at most so many unforced events (preemptions and faults), up to `most` runs or until
    `stop` says so. With `order` the runs come in an order that is drawn, so that a search which is stopped
    has seen something of everything. Raises `InvalidInput` for bounds that allow no run.
    """
    if events < 0 or (most is not None and most < 1):
        raise InvalidInput(f"events is {events} and most is {most}; expected 0 or more, and 1 or more")
    report = Report(scenario.name)
    pending = [_Branch((), 0, 0, 0, 1.0)]
    while pending:
        if (most is not None and report.runs >= most) or stop():
            return report
        if order is not None:
            at = order.randrange(len(pending))
            pending[at], pending[-1] = pending[-1], pending[at]
        branch = pending.pop()
        choices = EnumeratedChoices(branch.choices)
        run = run_once(scenario, choices, seed)
        report.add(run)
        if run.wrong:
            report.finding = finding(scenario, seed, run)
            return report
        report.covered += _follow(branch, choices, events, pending)
    report.complete, report.covered = True, 1.0
    return report


@dataclass(frozen=True, slots=True)
class _Branch:
    """Where a run parts from another one: that one's choices before `at`, then `answer`. `spent`: the events
    so far. `weight`: its part of the whole tree, if at every place all that comes is as much.
    """

    taken: Sequence[int]
    at: int
    answer: int
    spent: int
    weight: float

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices with which it begins; none for the first run."""
        return (*self.taken[: self.at], self.answer) if self.taken else ()


def _follow(branch: _Branch, run: EnumeratedChoices, events: int, pending: list[_Branch]) -> float:
    """Put what parts from a run into `pending`; the weight of the run itself."""
    first = len(branch.choices)
    found = [
        (at, answer, branch.spent + (0 if forced else 1))
        for at, (options, forced) in enumerate(run.asked[first:], first)
        if branch.spent + (0 if forced else 1) <= events
        for answer in range(1, options)
    ]
    weight = branch.weight / (1 + len(found))
    pending += [_Branch(run.taken, at, answer, spent, weight) for at, answer, spent in found]
    return weight


def same_twice(scenario: Scenario, seed: int) -> str | None:
    """None if two runs of a seed leave the same trace; else where they part (decision D58)."""
    one, other = (run_once(scenario, RandomChoices(seed), seed) for _ in range(2))
    if one.trace == other.trace:
        return None
    for at, (mine, theirs) in enumerate(zip(one.trace, other.trace, strict=False)):
        if mine != theirs:
            return f"line {at}: {mine!r} the first time, {theirs!r} the second"
    return f"one trace has {len(one.trace)} lines, the other {len(other.trace)}"


def with_settings(scenario: Scenario, **changes: object) -> Scenario:
    """The scenario under other settings."""
    scenario.settings = replace(scenario.settings, **changes)  # type: ignore[arg-type]
    return scenario
