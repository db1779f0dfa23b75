"""A perfect catalog: namespaces and tables by id, what was dropped, one call after the other.

The catalog of the product is checked against it call by call (`linear`). Every step takes a `Shelf` and gives
the shelf afterwards with the answer of a caller. A table is known by its content: each writing call of a
scenario writes a number of its own, so that the number says whose data somebody met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
class Item:
    """A namespace or a table. `seat`: the root name whose directory holds the table's data, None where they
    lie in a directory that no name is taken by. `home`: the seat that a dropped table had and gets again.
    """

    content: int
    maker: int = NAMESPACE
    """The content that it was made with, which tells it from every other."""
    seat: Id | None = None
    home: Id | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a catalog holds: items by id, what was dropped and can be brought back, and the root names whose
    directories hold the files of tables that were deregistered.

    `seated`: root tables lie in directories of their names. `moves`: such a directory can be renamed, so that
    a dropped or renamed table leaves its seat. `registered`: a table that finds its seat taken gets a
    directory of its own; without a register there is none but the seat.
    """

    seated: bool = False
    moves: bool = True
    registered: bool = True
    items: frozenset[tuple[Id, Item]] = frozenset()
    dropped: tuple[tuple[Id, Item], ...] = ()
    left: frozenset[Id] = frozenset()
    writing: frozenset[tuple[int, int]] = frozenset()
    """Contents of overwrites that have found their table, and its maker."""

    def get(self, id: Id) -> Item | None:
        """What has an id."""
        return next((item for each, item in self.items if each == id), None)

    def table(self, id: Id) -> Item | None:
        """A table; None for anything else."""
        found = self.get(id)
        return None if found is None or found.content == NAMESPACE else found

    def is_namespace(self, id: Id) -> bool:
        """Whether a namespace has this id."""
        found = self.get(id)
        return found is not None and found.content == NAMESPACE

    def has_parent(self, id: Id) -> bool:
        """Whether every namespace above an id is there."""
        return all(self.is_namespace(id[:length]) for length in range(1, len(id)))

    def children(self, id: Id) -> list[Id]:
        """The ids of everything below a namespace."""
        return sorted(each for each, _ in self.items if len(each) > len(id) and each[: len(id)] == id)

    def seat_of(self, id: Id) -> Id | None:
        """Where a new table of this id lies: not where a dropped or renamed table could not leave."""
        seat = self.seat_at(id)
        return None if seat is None or (self.registered and self._is_occupied(seat)) else seat

    def seat_at(self, id: Id) -> Id | None:
        """The seat of a root name."""
        return id if self.seated and len(id) == 1 else None

    def is_seat_free(self, seat: Id | None) -> bool:
        """Whether nothing lies in a root name's directory."""
        return seat is None or (seat not in self.left and not self._is_occupied(seat))

    def _is_occupied(self, seat: Id) -> bool:
        return any(item.seat == seat for _, item in (*self.items, *self.dropped))

    def put(self, id: Id, item: Item) -> Shelf:
        """With this item, in the place of another of its id."""
        return replace(self, items=self.without(id).items | {(id, item)})

    def without(self, id: Id) -> Shelf:
        """Without this item."""
        return replace(self, items=frozenset(each for each in self.items if each[0] != id))


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
    seat = shelf.seat_of(id)
    taken = TABLE_EXISTS if shelf.get(id) is not None or not shelf.is_seat_free(seat) else None
    refused = _refused(shelf, taken, _no_parent(shelf, id))
    return refused or (shelf.put(id, Item(content, content, seat)), Done())


def create_or_open(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a table, or give the one that is there."""
    there = shelf.table(id)
    if there is not None:
        return shelf, Done(there.content)
    after, answer = create(id, content, shelf)
    return after, Done(content) if isinstance(answer, Done) else answer


def overwrite(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Find the table that is there, or make one, also in the place of a deregistered one. What is found gets
    the content by `written`: at a later moment, wherever the table is by then.
    """
    there = shelf.table(id)
    if there is not None:
        return replace(shelf, writing=shelf.writing | {(content, there.maker)}), Done()
    seat = shelf.seat_of(id)
    cleared = replace(shelf, left=shelf.left - {seat}) if seat is not None else shelf
    after, answer = create(id, content, cleared)
    if not isinstance(answer, Done):
        return shelf, answer
    return replace(after, writing=after.writing | {(content, content)}), answer


def written(content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """An overwrite's content comes to be that of the table which it found."""
    maker = next((maker for each, maker in shelf.writing if each == content), None)
    if maker is None:
        return shelf, Refused(frozenset())  # it has found none yet

    def new(item: Item) -> Item:
        return replace(item, content=content) if item.maker == maker else item

    items = frozenset((id, new(item)) for id, item in shelf.items)
    dropped = _sorted(*((id, new(item)) for id, item in shelf.dropped))
    return replace(shelf, items=items, dropped=dropped, writing=shelf.writing - {(content, maker)}), Done()


def register(id: Id, content: int, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Give a table that lies in a directory of its own an id, unless a dropped table is to get that back."""
    held = any(item.maker == content for _, item in shelf.dropped)
    taken = TABLE_EXISTS if held or shelf.get(id) is not None else None
    return _refused(shelf, taken, _no_parent(shelf, id)) or (shelf.put(id, Item(content, content)), Done())


def drop(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Take a table away; it can be brought back."""
    there = shelf.table(id)
    if there is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    after, gone = shelf.without(id), replace(there, home=there.seat)
    if shelf.moves:
        gone = replace(gone, seat=None)
    return replace(after, dropped=_sorted(*after.dropped, (id, gone))), Done()


def _sorted(*dropped: tuple[Id, Item]) -> tuple[tuple[Id, Item], ...]:
    return tuple(sorted(dropped, key=lambda each: (each[0], each[1].content, each[1].seat or ())))


def undrop(id: Id, content: int | None, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Bring a dropped table back; `content` says which of those with the id, None for a call that was refused
    or saw nothing.
    """
    every = [each for each in shelf.dropped if each[0] == id]
    # Whoever looked may have seen what was written into it since.
    mine = [each for each in every if each[1].content == content] or every
    taken = TABLE_EXISTS if shelf.get(id) is not None else None
    refused = _refused(shelf, NO_TABLE if not mine else None, taken, _no_parent(shelf, id))
    if refused is not None:
        return refused
    left = list(shelf.dropped)
    left.remove(mine[-1])
    without, item = replace(shelf, dropped=tuple(left)), mine[-1][1]
    seat = item.home if without.is_seat_free(item.home) else None
    if seat is None and not shelf.registered:
        return shelf, Refused(frozenset({TABLE_EXISTS}))
    return without.put(id, replace(item, seat=seat, home=None)), Done(item.content)


def purge(entry: tuple[Id, int], shelf: Shelf) -> tuple[Shelf, Answer]:
    """Give up one dropped table for good."""
    kept = tuple(each for each in shelf.dropped if (each[0], each[1].content) != entry)
    return replace(shelf, dropped=kept), Done()


def rename(id: Id, new: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Give a table another id."""
    there = shelf.table(id)
    missing = NO_TABLE if there is None else None
    more = _missing(shelf, id) if there is None else ()
    taken = TABLE_EXISTS if shelf.get(new) is not None else None
    refused = _refused(shelf, missing, *more, taken, _no_parent(shelf, new))
    if refused is not None or there is None:
        return refused or (shelf, Refused(frozenset({NO_TABLE})))
    seat = there.seat
    if shelf.moves:
        seat = shelf.seat_at(new)
        seat = seat if shelf.is_seat_free(seat) else None
        if seat is None and not shelf.registered:
            return shelf, Refused(frozenset({TABLE_EXISTS}))
    return shelf.without(id).put(new, replace(there, seat=seat)), Done()


def deregister(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Forget a table; its data stay."""
    there = shelf.table(id)
    if there is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    after = shelf.without(id)
    return (after if there.seat is None else replace(after, left=after.left | {there.seat})), Done()


def create_namespace(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Make a namespace where nothing is."""
    taken = NAMESPACE_EXISTS if shelf.get(id) is not None else None
    return _refused(shelf, taken, _no_parent(shelf, id)) or (shelf.put(id, Item(NAMESPACE)), Done())


def drop_namespace(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Take an empty namespace away."""
    if not shelf.is_namespace(id):
        return shelf, Refused(frozenset({NO_NAMESPACE}))
    return _refused(shelf, NOT_EMPTY if shelf.children(id) else None) or (shelf.without(id), Done())


def read(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The content of a table."""
    there = shelf.table(id)
    if there is None:
        return shelf, Refused(frozenset({NO_TABLE, *_missing(shelf, id)}))
    return shelf, Done(there.content)


def exists(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """Whether there is a table, without opening it."""
    return shelf, Done(shelf.table(id) is not None)


def list_tables(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The names of the tables of a namespace; of one that is not there, none or a refusal."""
    inside = (each for each in shelf.children(id) if len(each) == len(id) + 1)
    names = tuple(each[-1] for each in inside if not shelf.is_namespace(each))
    return shelf, Done(names)


def list_namespaces(id: Id, shelf: Shelf) -> tuple[Shelf, Answer]:
    """The names of the namespaces directly in another."""
    inside = (each for each in shelf.children(id) if len(each) == len(id) + 1)
    names = tuple(each[-1] for each in inside if shelf.is_namespace(each))
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
    then: Step | None = None
    """What it does at a later moment than its step, where it is no single one."""

    def __str__(self) -> str:
        return f"{self.name} [{self.begun}, {'?' if self.ended is None else self.ended}]: {self.answer}"


def explains(told: Answer, model: Answer) -> bool:
    """Whether what a caller was told is what the model says."""
    if isinstance(told, Refused):
        return isinstance(model, Refused) and told.codes <= model.codes
    return isinstance(model, Done) and told.value in (None, model.value)


def calls(asked: Sequence[Asked]) -> list[Call]:
    """What `linear` takes."""
    made = []
    for each in asked:
        if each.then is not None and not isinstance(each.answer, Refused):
            accepts = None if each.answer is None else partial(explains, Done())
            made.append(Call(each.name, each.begun, each.ended if accepts else None, each.then, accepts))
        if each.answer is None:
            made += [
                Call(each.name, each.begun, None, step, None) for step in (each.step, *each.alternatives)
            ]
        else:
            made.append(Call(each.name, each.begun, each.ended, each.step, partial(explains, each.answer)))
    return made
