"""Scenarios of one tag that many create, move, delete and read: a single name, checked for linearizability.

N1  Of several creators of one tag exactly one succeeds while the name is not free again.
N2  Every answer about a tag fits one order of all calls on it (`linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tiltyard.errors import TagAlreadyExists, TagNotFound
from tiltyard.testing.simulation.history import History, Operation, Outcome
from tiltyard.testing.simulation.linear import Call, is_linearizable
from tiltyard.testing.simulation.tables import FIRST_KEYS, Client, create
from tiltyard.testing.simulation.world import Settings, World

TAG = "gold"

Answer = tuple[str, int | None]
"""What a call on the tag gave: done with a version, or why not."""

DONE, TAKEN, MISSING = "done", "taken", "missing"


def created(version: int, before: int | None) -> tuple[int | None, Answer]:
    """The model of a creation."""
    return (version, (DONE, None)) if before is None else (before, (TAKEN, None))


def moved(version: int, before: int | None) -> tuple[int | None, Answer]:
    """The model of a move."""
    return (None, (MISSING, None)) if before is None else (version, (DONE, None))


def deleted(before: int | None) -> tuple[int | None, Answer]:
    """The model of a deletion."""
    return None, (MISSING if before is None else DONE, None)


def looked_up(before: int | None) -> tuple[int | None, Answer]:
    """The model of a read."""
    return before, ((MISSING, None) if before is None else (DONE, before))


@dataclass(eq=False)
class Tagger:
    """One process's calls on the tag."""

    client: Client
    steps: dict[Operation, Callable[[Any], tuple[Any, Answer]]]

    def _call(self, name: str, step: Callable[[Any], tuple[Any, Answer]], run: Callable[[Any], Any]) -> None:
        history = self.client.history
        tags = self.client.table().tags
        count = len(history.operations)
        try:
            history.perform(name, lambda: run(tags))
        finally:
            mine = next(each for each in history.operations[count:] if each.name == name)
            self.steps[mine] = step

    def create(self, version: int) -> None:
        """Create the tag for a version."""
        self._call(f"create {version}", partial(created, version), lambda tags: tags.create(TAG, version))

    def move(self, version: int) -> None:
        """Let the tag name another version."""
        self._call(f"move {version}", partial(moved, version), lambda tags: tags.update(TAG, version))

    def delete(self) -> None:
        """Delete the tag."""
        self._call("delete", deleted, lambda tags: tags.delete(TAG))

    def read(self) -> None:
        """Look up what the tag names."""
        self._call("read", looked_up, lambda tags: tags.get_version(TAG))


Script = Sequence[Callable[[Tagger], None]]


@dataclass(eq=False)
class NameScenario:
    """Actors with a script of calls each on one tag of a table with three versions."""

    name: str
    actors: Mapping[str, Script]
    settings: Settings = field(default_factory=Settings)

    def run(self, world: World) -> list[str]:
        """Set up, act, check."""
        history = History(world)
        steps: dict[Operation, Callable[[Any], tuple[Any, Answer]]] = {}

        def start() -> None:
            store, session = world.store(), world.session()
            create(store, session, {key: key for key in FIRST_KEYS})
            setup = Client(world, History(world), store, session)
            setup.append(10)
            setup.append(11)

        def act(script: Script) -> None:
            tagger = Tagger(Client(world, history, world.store(), world.session()), steps)
            for step in script:
                step(tagger)

        world.calmly("setup", start)
        world.do({name: partial(act, script) for name, script in self.actors.items()})
        tagger = Tagger(Client(world, history, world.store(), world.session()), steps)
        world.calmly("check", tagger.read)
        wrong: list[str] = []
        calls = [_call(each, steps[each]) for each in history.operations if each in steps]
        if not is_linearizable(calls, None):
            told = "; ".join(map(str, history.operations))
            wrong.append(f"N2: no order of the calls explains the answers: {told}")
        return wrong


def _answer(operation: Operation) -> Answer | None:
    """What the caller was told; None when that says nothing."""
    if operation.outcome is Outcome.DONE:
        return DONE, operation.version
    if isinstance(operation.error, TagAlreadyExists):
        return TAKEN, None
    if isinstance(operation.error, TagNotFound):
        return MISSING, None
    return None


def _call(operation: Operation, step: Callable[[Any], tuple[Any, Answer]]) -> Call:
    answer = _answer(operation)
    if answer is None:  # a store that failed may have done it all the same
        return Call(operation.name, operation.begun, None, step, None)
    return Call(operation.name, operation.begun, operation.ended, step, partial(_is, answer))


def _is(expected: Answer, answer: Answer) -> bool:
    return answer == expected
