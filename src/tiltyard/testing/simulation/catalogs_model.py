"""A perfect catalog: namespaces and tables by id, what was dropped, one call after the other.

The catalog of the product is checked against it call by call (`linear`). Every step takes a `Shelf` and gives
the shelf afterwards with the answer of a caller. A table is known by its content: each writing call of a
scenario writes a number of its own, so that the number says whose data somebody met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from tiltyard.testing.simulation.linear import Call

Id: TypeAlias = tuple[str, ...]

NAMESPACE = -1
"""What stands in the place of a content where the entry is a namespace."""

NO_NAMESPACE, NAMESPACE_EXISTS, NOT_EMPTY, NO_TABLE, TABLE_EXISTS = 1, 2, 3, 4, 5
"""The codes of the specification with which a caller may be refused."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a catalog holds: contents by id, what was dropped and can be brought back, and what was
    registered away: its data are still in the directory that a root table of that name would have.
    """

    entries: frozenset[tuple[Id, int]] = frozenset()
    dropped: tuple[tuple[Id, int], ...] = ()

    def get(self, id: Id) -> int | None:
        """The content of an entry, NAMESPACE, or None."""
        return next((content for each, content in self.entries if each == id), None)

    def table(self, id: Id) -> int | None:
        """The content of a table; None for anything else."""
        found = self.get(id)
        return None if found == NAMESPACE else found

    def has_parent(self, id: Id) -> bool:
        """Whether every namespace above an id is there."""
        return all(self.get(id[:length]) == NAMESPACE for length in range(1, len(id)))

    def children(self, id: Id) -> list[Id]:
        """The ids of everything below a namespace."""
        return sorted(each for each, _ in self.entries if len(each) > len(id) and each[: len(id)] == id)

    def put(self, id: Id, content: int) -> Shelf:
        """With this entry, in the place of another of its id."""
        return replace(self.without(id), entries=self.without(id).entries | {(id, content)})

    def without(self, id: Id) -> Shelf:
        """Without this entry."""
        return replace(self, entries=frozenset(each for each in self.entries if each[0] != id))


@dataclass(frozen=True, slots=True)
class Done:
    """A caller got what it asked for; `value` is what it saw there, None where it looked at nothing."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A caller was refused for one of these reasons: more than one where several hold at once."""

    codes: frozenset[int]

    def __str__(self) -> str:
        return f"refused with {sorted(self.codes)}"


Answer: TypeAlias = Done | Refused
Step: TypeAlias = Callable[[Shelf], tuple[Shelf, Answer]]


def _refused(shelf: Shelf, *reasons: int | None) -> tuple[Shelf, Answer] | None:
    codes = frozenset(each for each in reasons if each is not None)
    return (shelf, Refused(codes)) if codes else None


def _no_parent(shelf: Shelf, id: Id) -> int | None:
    return None if shelf.has_parent(id) else NO_NAMESPACE


def create(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a table where nothing is."""
    taken = TABLE_EXISTS if shelf.get(id) is not None else None
    return _refused(shelf, taken, _no_parent(shelf, id)) or (shelf.put(id, content), Done())


def create_or_open(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a table, or give the one that is there."""
    there = shelf.table(id)
    if there is not None:
        return shelf, Done(there)
    after, answer = create(id, content, shelf)
    return after, Done(content) if isinstance(answer, Done) else answer


def overwrite(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a table, or replace the content of the one that is there."""
    return (shelf.put(id, content), Done()) if shelf.table(id) is not None else create(id, content, shelf)


def drop(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Take a table away; it can be brought back."""
    there = shelf.table(id)
    if there is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    after = shelf.without(id)
    return replace(after, dropped=tuple(sorted((*after.dropped, (id, there))))), Done()


def undrop(id: Id, content: int | None, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Bring a dropped table back; `content` says which of those with the id, None for a call that was refused
    or saw nothing.
    """
    mine = [each for each in shelf.dropped if each[0] == id and content in (None, each[1])]
    taken = TABLE_EXISTS if shelf.get(id) is not None else None
    refused = _refused(shelf, NO_TABLE if not mine else None, taken, _no_parent(shelf, id))
    if refused is not None:
        return refused
    left = list(shelf.dropped)
    left.remove(mine[-1])
    return replace(shelf.put(*mine[-1]), dropped=tuple(left)), Done(mine[-1][1])


def purge(entry: tuple[Id, int], shelf: Shelf) -> tuple[Shelf, Answer]:
    """Give up one dropped table for good."""
    return replace(shelf, dropped=tuple(each for each in shelf.dropped if each != entry)), Done()


def rename(id: Id, new: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Give a table another id."""
    there = shelf.table(id)
    missing = NO_TABLE if there is None else None
    more = _missing(shelf, id) if there is None else ()
    taken = TABLE_EXISTS if shelf.get(new) is not None else None
    refused = _refused(shelf, missing, *more, taken, _no_parent(shelf, new))
    if refused is not None or there is None:
        return refused or (shelf, Refused(frozenset({NO_TABLE})))
    return shelf.without(id).put(new, there), Done()


def deregister(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Forget a table; its data stay."""
    if shelf.table(id) is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    return shelf.without(id), Done()


def create_namespace(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a namespace where nothing is."""
    taken = NAMESPACE_EXISTS if shelf.get(id) is not None else None
    return _refused(shelf, taken, _no_parent(shelf, id)) or (shelf.put(id, NAMESPACE), Done())


def drop_namespace(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Take an empty namespace away."""
    if shelf.get(id) != NAMESPACE:
        return shelf, Refused(frozenset({NO_NAMESPACE}))
    return _refused(shelf, NOT_EMPTY if shelf.children(id) else None) or (shelf.without(id), Done())


def read(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The content of a table."""
    there = shelf.table(id)
    if there is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    return shelf, Done(there)


def exists(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Whether there is a table, without opening it."""
    return shelf, Done(shelf.table(id) is not None)


def list_tables(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The names of the tables of a namespace; of one that is not there, none or a refusal."""
    names = tuple(
        each[-1] for each in shelf.children(id) if len(each) == len(id) + 1 and shelf.get(each) != NAMESPACE
    )
    return shelf, Done(names)


def list_namespaces(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The names of the namespaces directly in another."""
    names = tuple(
        each[-1] for each in shelf.children(id) if len(each) == len(id) + 1 and shelf.get(each) == NAMESPACE
    )
    return shelf, Done(names)


def nothing(shelf: Shelf) -> tuple[Shelf, Answer]:
    """A call that was given up for certain."""
    return shelf, Done()


def _missing(shelf: Shelf, id: Id) -> tuple[int, ...]:
    """A table that is not there may also be told by the namespace that is not."""
    return () if shelf.has_parent(id) else (NO_NAMESPACE,)


@dataclass(eq=False)
class Asked:
    """A call as its caller saw it. `answer` is None where it says nothing about what happened."""

    name: str
    begun: int
    ended: int | None
    step: Step
    answer: Answer | None
    alternatives: tuple[Step, ...] = field(default=())
    """For a call that was never answered: what else it may have done."""

    def __str__(self) -> str:
        return f"{self.name} [{self.begun}, {'?' if self.ended is None else self.ended}]: {self.answer}"


def explains(told: Answer, model: Answer) -> bool:
    """Whether what a caller was told is what the model says."""
    if isinstance(told, Refused):
        return isinstance(model, Refused) and told.codes <= model.codes
    return isinstance(model, Done) and told.value in (None, model.value)


def calls(asked: Iterable[Asked]) -> list[Call]:
    """What `linear` takes."""
    made = []
    for each in asked:
        if each.answer is None:
            made += [
                Call(each.name, each.begun, None, step, None) for step in (each.step, *each.alternatives)
            ]
        else:
            made.append(Call(each.name, each.begun, each.ended, each.step, partial(explains, each.answer)))
    return made
