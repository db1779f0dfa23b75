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
    outcome: Outcome = Outcome.RUNNING
    version: int | None = None
    error: BaseException | None = None
    begun: int = 0
    ended: int | None = None
    """Scheduling points at which it began and was answered."""
    made_before: int = 0
    """How many names had been given in the world when the answer came."""

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

    def newest_acknowledged(self) -> int:
        """The greatest version that anybody was told of so far; 0 for none."""
        return max((each.version or 0 for each in self.operations if each.outcome is Outcome.DONE), default=0)

    def perform(
        self, name: str, run: Callable[[], Any], *, effect: Effect | None = None, groups: bool = False
    ) -> Any:
        """Run an operation of the actor that runs. `run` gives the version that it made, or None.

        A `TiltyardError` is its definite failure and not raised, but for `OutcomeUnknown`.
        """
        scheduler = self.world.scheduler
        actor = scheduler.running
        assert actor is not None
        mine = Operation(name, actor.name, effect, groups, begun=scheduler.steps)
        self.operations.append(mine)
        scheduler.note(f"begins: {name}")
        try:
            mine.version = run()
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
            self.world.outcomes[f"{name.partition(' ')[0]} {mine.outcome.value}"] += 1
            scheduler.note(f"ends: {mine}")
        return mine.version
