"""What a run was, and a run that went wrong with whatever brings it back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiltyard.testing.simulation.explore import Scenario

TRACE_LINES = 120
"""Lines of a trace that a report shows, from its end."""


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

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is wrong by kind, in the order in which it was told (see `kind`)."""
        return tuple(dict.fromkeys(map(kind, self.wrong)))

    def __str__(self) -> str:
        lines = self.trace[-TRACE_LINES:]
        cut = len(self.trace) - len(lines)
        return "\n".join(
            [
                *(f"  {each}" for each in self.wrong),
                f"trace ({cut} lines before it left out):" if cut else "trace:",
                *(f"  {line}" for line in lines),
            ]
        )


def kind(wrong: str) -> str:
    """What a line of what is wrong says in general: the number of its invariant, or its words before the
    first colon without the numbers in them.
    """
    head = wrong.partition(":")[0]
    return head if re.match(r"[A-Z]\d+\b", head) else re.sub(r"\d+", "#", head)


@dataclass(frozen=True, slots=True)
class Finding:
    """A run that went wrong, and how to see it again.

    `again` is the code or command that does so; `others` are runs that went wrong in another way, met while
    this one was made simpler, each with its own code.
    """

    scenario: str
    seed: int
    run: Run
    again: str
    others: tuple[tuple[Run, str], ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.scenario}, seed {self.seed}: {len(self.run.wrong)} found",
            str(self.run),
            "to see it again:",
            _indented(self.again),
        ]
        for run, again in self.others:
            lines += [
                "another one, met while this one was made simpler:",
                *(f"  {each}" for each in run.wrong),
            ]
            lines += ["to see that again:", _indented(again)]
        return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def again(scenario: Scenario, seed: int, choices: Sequence[int]) -> str:
    """What brings back a run: a command for a scenario that is shipped, else Python. A scenario of the
    caller's is called `scenario` in it.
    """
    from tiltyard.testing.simulation.scenarios import SCENARIOS  # it imports this module

    short = trimmed(choices)
    make = SCENARIOS.get(scenario.name)
    made = make() if make is not None else None
    ours = made is not None and type(made) is type(scenario) and _differ(made, scenario) <= {"settings"}
    if made is not None and ours and made.settings == scenario.settings:
        events = ",".join(map(str, short))
        return f"python -m tiltyard.testing replay {scenario.name} --seed {seed} --choices {events}"
    lines = ["from tiltyard.testing.simulation.explore import replay"]
    if ours:
        lines += [
            "from tiltyard.testing.faults import Fault",
            "from tiltyard.testing.simulation.scenarios import SCENARIOS",
            "from tiltyard.testing.simulation.storm import Weather",
            "from tiltyard.testing.simulation.world import FileSystem, Settings",
            f"scenario = SCENARIOS[{scenario.name!r}]()",
            f"scenario.settings = {code(scenario.settings)}",
        ]
    else:
        owner = f"{type(scenario).__module__}.{type(scenario).__qualname__}"
        lines.append(f"# scenario: your {owner} {scenario.name!r}, made as for this run")
    return "\n".join([*lines, f"print(replay(scenario, {seed}, {list(short)}))"])


def _differ(one: object, other: object) -> set[str]:
    """Names of attributes in which two scenarios of a class differ."""
    mine, theirs = dict(vars(one)), dict(vars(other))
    return {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}


def code(value: object) -> str:
    """Python that makes settings, as far as they are not the defaults."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(map(code, value)))}}})" if value else "frozenset()"
    if is_dataclass(value):
        told = [
            f"{each.name}={code(getattr(value, each.name))}"
            for each in fields(value)
            if getattr(value, each.name) != each.default
        ]
        return f"{type(value).__name__}({', '.join(told)})"
    return repr(value)


def trimmed(choices: Sequence[int]) -> tuple[int, ...]:
    """Choices without the zeros at their end, which a replay adds."""
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    return tuple(choices[:end])
