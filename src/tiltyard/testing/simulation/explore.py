"""Looking for a run that goes wrong: at random with many seeds, or through every schedule of a small one.

A finding is its list of choices; shrinking makes it the simplest that still goes wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Protocol

from tiltyard.testing.simulation.choices import (
    Choices,
    EnumeratedChoices,
    RandomChoices,
    ReplayedChoices,
)
from tiltyard.testing.simulation.guard import guarded
from tiltyard.testing.simulation.scheduler import SimulationError
from tiltyard.testing.simulation.world import Settings, World

MAX_SHRINKING_RUNS = 600
"""Runs spent on making a finding simpler."""

TRACE_LINES = 120
"""Lines of a trace that a report shows, from its end."""


class Scenario(Protocol):
    """What actors do in a world, and what must hold afterwards."""

    name: str
    settings: Settings

    def run(self, world: World) -> list[str]:
        """Set up, act, check; what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over."""

    wrong: tuple[str, ...]
    choices: tuple[int, ...]
    trace: tuple[str, ...]
    struck: Counter[str]
    outcomes: Counter[str]
    steps: int
    digest: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A run that went wrong, and how to see it again."""

    scenario: str
    seed: int
    run: Run

    def __str__(self) -> str:
        events = ",".join(map(str, _trimmed(self.run.choices)))
        lines = self.run.trace[-TRACE_LINES:]
        cut = len(self.run.trace) - len(lines)
        return "\n".join(
            [
                f"{self.scenario}, seed {self.seed}: {len(self.run.wrong)} found",
                *(f"  {each}" for each in self.run.wrong),
                f"trace ({cut} lines before it left out):" if cut else "trace:",
                *(f"  {line}" for line in lines),
                "to see it again:",
                f"  python -m tiltyard.testing replay {self.scenario} --seed {self.seed} --choices {events}",
            ]
        )


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

    def add(self, run: Run) -> None:
        """Count a run."""
        self.runs += 1
        self.steps += run.steps
        self.struck.update(run.struck)
        self.outcomes.update(run.outcomes)
        self.states.add(run.digest)

    def __str__(self) -> str:
        whole = "" if not self.complete else ", every schedule"
        return (
            f"{self.scenario}: {self.runs} runs{whole}, {len(self.states)} distinct schedules, "
            f"{self.steps} steps; operations: {_told(self.outcomes)}; faults: {_told(self.struck)}; "
            + ("nothing found" if self.finding is None else "FOUND")
        )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def run_once(scenario: Scenario, choices: Choices, seed: int) -> Run:
    """One run. What goes wrong with the run itself is a finding like any other."""
    world = World(choices, scenario.settings, seed)
    with world.installed(), guarded(world.scheduler):
        try:
            wrong = scenario.run(world)
        except SimulationError as error:
            wrong = [f"{type(error).__name__}: {error}"]
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
    simpler in at most `shrinking_runs` runs.
    """
    report = Report(scenario.name)
    end = None if seconds is None else monotonic() + seconds
    for seed in seeds:
        run = run_once(scenario, RandomChoices(seed), seed)
        report.add(run)
        if run.wrong:
            report.finding = Finding(scenario.name, seed, shrunk(scenario, seed, run, shrinking_runs))
            return report
        if end is not None and monotonic() > end:
            return report
    return report


def replay(scenario: Scenario, seed: int, choices: Sequence[int]) -> Run:
    """The run of these choices."""
    return run_once(scenario, ReplayedChoices(choices), seed)


def shrunk(scenario: Scenario, seed: int, found: Run, most: int = MAX_SHRINKING_RUNS) -> Run:
    """The simplest run that still goes wrong: as few events, as early an end as can be."""
    best = found
    left = most

    def attempt(choices: Sequence[int]) -> bool:
        nonlocal best, left
        left -= 1
        run = replay(scenario, seed, choices)
        if run.wrong:
            best = run
        return bool(run.wrong)

    improved = True
    while improved and left > 0:
        improved = False
        for candidate in _simpler(_trimmed(best.choices)):
            if left <= 0:
                break
            if attempt(candidate):
                improved = True
                break
    return best


def _trimmed(choices: Sequence[int]) -> tuple[int, ...]:
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    return tuple(choices[:end])


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
) -> Report:
    """Every run with at most so many unforced events (preemptions and faults), up to `most` runs."""
    report = Report(scenario.name)
    pending: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while pending:
        if (most is not None and report.runs >= most) or stop():
            return report
        start, spent = pending.pop()
        choices = EnumeratedChoices(start)
        run = run_once(scenario, choices, seed)
        report.add(run)
        if run.wrong:
            report.finding = Finding(scenario.name, seed, shrunk(scenario, seed, run))
            return report
        for at in range(len(start), len(choices.asked)):
            options, forced = choices.asked[at]
            cost = spent + (0 if forced else 1)
            if cost > events:
                continue
            head = tuple(choices.taken[:at])
            pending += [((*head, answer), cost) for answer in range(1, options)]
    report.complete = True
    return report


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
