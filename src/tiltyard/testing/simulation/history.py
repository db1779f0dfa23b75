"""What actors did and what they were told: done at a version, failed for certain, or unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tiltyard.errors import OutcomeUnknown, TiltyardError
from tiltyard.testing.simulation.scheduler import SimulationError
from tiltyard.testing.simulation.world import World

Rows = Mapping[int, tuple[int, ...]]
"""Values by key, sorted; more than one value for a key are doubled rows."""

Effect = Callable[[Rows, Callable[[int], Rows]], Rows]
"""The rows after an operation, from those before and those of any version."""


@dataclass(frozen=True, slots=True)
class Saw:
    """What an operation was shown of the table: a version and, where it read, the rows of `keys` (None: all
    of them). `tag`: it asked for what this tag names.
    """

    version: int
    rows: Rows | None = None
    keys: range | None = None
    tag: str | None = None


class Outcome(Enum):
    """What an actor was told."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """For certain: nothing of it may ever be seen."""
    UNKNOWN = "unknown"


@dataclass(eq=False)
class Operation:
    """One operation of one actor."""

    name: str
    actor: str
    effect: Effect | None
    """None for what changes no row."""
    groups: bool
    """Whether several of the kind may share a version."""
    tagged: tuple[str, int] | None = None
    """The tag that it makes, and the version that this is to name."""
    outcome: Outcome = Outcome.RUNNING
    version: int | None = None
    saw: Saw | None = None
    error: BaseException | None = None
    begun: int = 0
    ended: int | None = None
    """Scheduling points at which it began and was answered."""
    made_from: int = 0
    made_before: int = 0
    """How many names had been given in the world when it began, and when the answer came."""
    ended_ns: int = 0

    @property
    def process(self) -> str:
        """The process of its actor."""
        return self.actor.partition("/")[0]

    def may_have_made(self, order: int, at_ns: int, late_ns: int) -> bool:
        """Whether the name of this number, given at this time, may be its work: given while it ran, or where
        its outcome is unknown by a request of it that was on its way for up to `late_ns` longer.
        """
        if order < self.made_from:
            return False
        if self.outcome is Outcome.RUNNING or order < self.made_before:
            return True
        return self.outcome is Outcome.UNKNOWN and bool(late_ns) and at_ns <= self.ended_ns + late_ns

    def __str__(self) -> str:
        where = f" as version {self.version}" if self.version is not None else ""
        why = f" ({type(self.error).__name__}: {self.error})" if self.error is not None else ""
        return f"{self.actor}: {self.name}: {self.outcome.value}{where}{why}"


@dataclass(eq=False)
class History:
    """All operations of a run, in the order in which they began."""

    world: World
    operations: list[Operation] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What operations themselves found to be wrong."""

    def newest_acknowledged(self, *, seen: bool = True) -> int:
        """The greatest version that anybody was told of so far, or (`seen`) shown; 0 for none."""
        done = [each for each in self.operations if each.outcome is Outcome.DONE]
        told = [each.version or 0 for each in done]
        shown = [each.saw.version for each in done if each.saw is not None] if seen else []
        return max([*told, *shown], default=0)

    def perform(
        self,
        name: str,
        run: Callable[[], Any],
        *,
        effect: Effect | None = None,
        groups: bool = False,
        tagged: tuple[str, int] | None = None,
    ) -> Any:
        """Run an operation of the actor that runs. `run` gives the version that it made, what it saw, or
        None.

        A `TiltyardError` is its definite failure and not raised, but for `OutcomeUnknown`.
        """
        scheduler = self.world.scheduler
        actor = scheduler.running
        assert actor is not None
        mine = Operation(name, actor.name, effect, groups, tagged, begun=scheduler.steps)
        mine.made_from = self.world.names_given
        self.operations.append(mine)
        scheduler.note(f"begins: {name}")
        try:
            answer = run()
            if isinstance(answer, Saw):
                mine.saw = answer
            else:
                mine.version = answer
            mine.outcome = Outcome.DONE
        except OutcomeUnknown as error:
            mine.outcome, mine.error = Outcome.UNKNOWN, error
        except TiltyardError as error:
            mine.outcome, mine.error = Outcome.FAILED, error
        except SimulationError:
            raise
        except BaseException as error:
            mine.outcome, mine.error = Outcome.UNKNOWN, error
            raise
        finally:
            mine.made_before, mine.ended = self.world.names_given, scheduler.steps
            mine.ended_ns = scheduler.now_ns
            self.world.outcomes[f"{name.partition(' ')[0]} {mine.outcome.value}"] += 1
            scheduler.note(f"ends: {mine}")
        return mine.version
