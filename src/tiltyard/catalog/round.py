"""Changes of the register: callers describe them as functions of a draft, and rounds carry them out (decision
D23).

The callers of one process that arrive together are served in one round: a leader takes all, looks at the
newest version *afterwards*, applies the changes in order in memory and publishes one rewrite. When another
process takes the version first, all run again on what it made. Invariants, checked by
tests/catalog/test_round.py:

1. A change is decided on exactly the version that its rewrite builds on.
2. A change that raises is left out, whole, and only its own caller is told.
3. An answer that rests on changes which did not come to stand is not given.
4. Where nothing changes nothing is written.
5. A change is tried for 30 seconds, then `CatalogThrottled` says that nothing was done.

Whose turn it is does the work of other processes with its own, where that is a new row (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog import register as facts
from tiltyard.catalog.names import SEPARATOR, Id, object_id
from tiltyard.catalog.register import Register, RegisterTable
from tiltyard.catalog.rewrite import Rewrite
from tiltyard.catalog.rows import REPAIR, TABLE, Row, Rows
from tiltyard.catalog.waiting import Fate, NewRow, Request, Served, request
from tiltyard.errors import CatalogDamaged, CatalogThrottled, OutcomeUnknown, TiltyardError
from tiltyard.runtime.collector import collector_held_back
from tiltyard.runtime.combine import CombiningQueue
from tiltyard.table.back_off import back_off
from tiltyard.table.hint import write_hint
from tiltyard.table.turnstile import queue_up, try_turn_first

T = TypeVar("T")

BUDGET_SECONDS = 30.0
"""How long a change is tried; the first round is never cut short."""

MAX_CHANGES = 256
"""Changes of one round."""

QUEUE_BYTES = 1024
"""What a queue is accounted as in the session's cache; losing one costs sharing, never a change."""

MAX_DAMAGE_SHOWN = 5


class DraftRows:
    """The rows as a draft leaves them: those of its version, with what was put and removed since."""

    def __init__(self, base: Rows) -> None:
        self.base = base
        self.changes: dict[str, Row | None] = {}

    def find(self, object_id: str) -> Row | None:
        """The row of an id. Raises `CatalogDamaged` where there are several."""
        if object_id in self.changes:
            return self.changes[object_id]
        return self.base.find(object_id)

    def all(self, object_id: str) -> tuple[Row, ...]:
        """Every row of an id: none, one, or more where the catalog is damaged."""
        if object_id in self.changes:
            row = self.changes[object_id]
            return () if row is None else (row,)
        return self.base.all(object_id)

    def children(self, namespace: Id, object_type: str) -> list[str]:
        """Names of one type directly in a namespace, sorted."""
        if not self.changes:
            return self.base.children(namespace, object_type)
        prefix = object_id((*namespace, "")) if namespace else ""
        names = set(self.base.children(namespace, object_type))
        for each, row in self.changes.items():
            name = each[len(prefix) :]
            if each.startswith(prefix) and SEPARATOR not in name:
                names.discard(name)
                if row is not None and row.object_type == object_type:
                    names.add(name)
        return sorted(names)

    def below(self, object_id: str) -> list[Row]:
        """The rows whose id lies below an id, of every type."""
        prefix = object_id + SEPARATOR
        kept = [row for row in self.base.below(object_id) if row.object_id not in self.changes]
        put = [row for row in self.changes.values() if row is not None]
        return kept + [row for row in put if row.object_id.startswith(prefix)]

    def by_location(self, location: str) -> list[Row]:
        """The table rows with this very location."""
        kept = [row for row in self.base.by_location(location) if row.object_id not in self.changes]
        put = [row for row in self.changes.values() if row is not None]
        return kept + [row for row in put if row.location == location and row.object_type == TABLE]

    def duplicates(self) -> dict[str, int]:
        """Ids that still stand in several rows, and in how many."""
        return {each: n for each, n in self.base.duplicates().items() if each not in self.changes}

    def __iter__(self) -> Iterator[Row]:
        for row in self.base:
            if row.object_id not in self.changes:
                yield row
        yield from (row for row in self.changes.values() if row is not None)


class _Metadata(MutableMapping[str, str]):
    """The table metadata of a draft; keeps an undo list."""

    def __init__(self, base: Any, undo: list[Callable[[], None]]) -> None:
        self._values: dict[str, str] = dict(base)
        self._undo = undo

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._remember(key)
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        self._remember(key)
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _remember(self, key: str) -> None:
        values, before = self._values, self._values.get(key)

        def undo() -> None:
            if before is None:
                values.pop(key, None)
            else:
                values[key] = before

        self._undo.append(undo)


class Draft:
    """The next version of the register while changes are made to it."""

    def __init__(self, register: Register) -> None:
        self.register = register
        """The version that it builds on."""
        self.rows = DraftRows(register.rows)
        self._undo: list[Callable[[], None]] = []
        self.metadata: MutableMapping[str, str] = _Metadata(register.metadata, self._undo)
        """The table metadata."""
        self.beside: list[Row] = []
        """See `put_beside`."""
        self.anew = False
        """Whether the register is written even if nothing changes, for the sake of its form."""

    def put(self, row: Row) -> None:
        """Insert a row, in place of every row that its id has."""
        self._change(row.object_id, row)

    def remove(self, object_id: str) -> None:
        """Take out every row of an id; nothing happens if there is none."""
        if self.rows.all(object_id):
            self._change(object_id, None)

    def put_beside(self, row: Row) -> None:
        """Insert a row beside those that its id has: only to take back a repair, for it is damage."""
        self.beside.append(row)
        self._undo.append(lambda: self.beside.remove(row))

    def write_anew(self) -> None:
        """Have the register written in its usual form, also where nothing changes."""
        before, self.anew = self.anew, True
        self._undo.append(lambda: setattr(self, "anew", before))

    def _change(self, object_id: str, row: Row | None) -> None:
        changes, missing = self.rows.changes, object()
        before: Any = changes.pop(object_id, missing)  # last put, last in the rewrite
        changes[object_id] = row

        def undo() -> None:
            del changes[object_id]
            if before is not missing:
                changes[object_id] = before

        self._undo.append(undo)

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to be written."""
        if self.anew or self.beside or dict(self.metadata) != dict(self.register.metadata):
            return True
        base = self.register.rows
        return any(
            base.all(each) != (() if row is None else (row,)) for each, row in self.rows.changes.items()
        )

    @property
    def steps(self) -> int:
        """How many things were put, removed or set: grows with every change."""
        return len(self._undo)

    def attempt(self, mutation: Callable[[Draft], Any]) -> Any:
        """What a change returns; what it raises leaves the draft as it was."""
        mark = self.steps
        try:
            return mutation(self)
        except BaseException:
            while self.steps > mark:
                self._undo.pop()()
            raise


Mutation = Callable[[Draft], T]
"""A change: pure, run again on every version that is tried. What it raises is its own caller's answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """One caller's change. `repairing`: it may be made to a damaged register, for it mends it."""

    table: RegisterTable
    mutation: Mutation[Any]
    repairing: bool = False
    new: NewRow | None = None
    """What the change does if it does anything, where another process may do it."""


def submit(change: Change) -> Any:
    """Have a change made, in a round with those of other threads; what its mutation returns, or raises.

    Raises CatalogThrottled and StoreError (nothing was changed), OutcomeUnknown, UnsupportedFeature (features
    that we do not know), CatalogDamaged (a register that must be repaired first).
    """
    table = change.table
    key = (table.store.identity, "", "change queue", str(table.root.durable))
    queue: CombiningQueue[Change, Any] = table.session.cache.get_or(
        key, lambda: (CombiningQueue(_served, max_items=MAX_CHANGES), QUEUE_BYTES)
    )
    return queue.submit(change)


def _served(changes: list[Change]) -> Sequence[Any]:
    """One answer per change, in order: of those on the same directory together."""
    first = changes[0].table
    here = [change for change in changes if change.table is first or _stands_there(change.table, first)]
    if len(here) == len(changes):
        return _Round(first, changes).run()
    answers = dict(zip(map(id, here), _Round(first, here).run(), strict=True))
    for change in changes:
        if id(change) not in answers:
            answers[id(change)] = _Round(change.table, [change]).run()[0]
    return [answers[id(change)] for change in changes]


def _stands_there(table: RegisterTable, other: RegisterTable) -> bool:
    """Whether two roots of one name are one directory: one opened before a rename is elsewhere."""
    if table.root is other.root:
        return True
    try:
        ours, theirs = table.newest().snapshot, other.newest().snapshot
        if ours is None or theirs is None:
            return False
        return table.store.stat(ours.location.path).tag == other.store.stat(theirs.location.path).tag
    except TiltyardError:
        return False


class _Round:
    """Some changes, until they are made, refused, or out of time."""

    def __init__(self, table: RegisterTable, changes: Sequence[Change]) -> None:
        self.table = table
        self.changes = changes
        self.answers: list[Any] = []
        self.first_change: int | None = None
        """The first change that changed something: answers from there on rest on what is to be written."""
        self.new = changes[0].new if len(changes) == 1 else None
        """What may be asked of another process."""
        self.doubt: Request | None = None
        """A request without an answer."""
        self.served = Served(table)

    def run(self) -> list[Any]:
        try:
            self._run()
            self.served.give_back()
        except TiltyardError as error:
            if not isinstance(error, OutcomeUnknown):
                self.served.give_back()
                if self.doubt is not None:
                    raise self.doubt.unknown(error) from error
            settled = len(self.changes) if self.first_change is None else self.first_change
            settled = min(settled, len(self.answers))
            return self.answers[:settled] + [copied(error) for _ in self.changes[settled:]]
        return self.answers

    def _run(self) -> None:
        began, lost = runtime.monotonic(), 0
        while True:
            looked_at = runtime.monotonic()
            with ExitStack() as after_turn, ExitStack() as turn:
                if self._once(turn, after_turn, lost):
                    return
            lost += 1
            now = runtime.monotonic()
            if now - began >= BUDGET_SECONDS:
                raise CatalogThrottled(
                    f"the catalog at {self.table.root.uri} was changed by others each of the {lost} times "
                    f"that this change was tried, for {now - began:.0f} s; nothing was changed, try again "
                    "when it is quieter"
                )
            back_off(now - looked_at, lost)

    def _once(self, turn: ExitStack, after_turn: ExitStack, lost: int) -> bool:
        """One attempt; whether every change has its answer."""
        table = self.table
        self.answers, self.first_change = [], None
        fate = self._wait(turn, lost > 0)
        if fate in (Fate.DONE, Fate.TAKEN) or (fate is Fate.NO and self._is_refused()):
            return True
        our_turn = fate is Fate.TURN or (fate is Fate.NO and self._queue_up(turn))
        if our_turn:  # a collection takes as long as ten turns, and everybody would wait for it
            after_turn.enter_context(collector_held_back())
        looked_at = runtime.monotonic()
        register = table.newest()
        if register.snapshot is None:
            if self.doubt is not None:
                raise self.doubt.unknown("the register was removed")
            draft = self._drafted(register)
            if not draft.is_changed:
                return True
            self.answers, self.first_change = [], None
            table.make()
            our_turn = our_turn or self._queue_up(turn, lost > 0)
            looked_at = runtime.monotonic()
            register = table.newest()
            if register.snapshot is None:
                return False
        facts.check_writer(register.metadata, table.root.uri)
        if self.doubt is not None and self.doubt.is_in(register):
            self.answers = [self.doubt.new.answer]
            return True
        rolled = moves.roll(table.root, register)
        draft = self._drafted(register, rolled)
        if self.doubt is not None:
            draft.write_anew()
            self.first_change = 0
        if draft.is_changed or self.served.uuids:
            self.served.put(draft, more=our_turn and not register.rows.duplicates())
        # What is put for another may undo what we have done.
        if not (draft.is_changed or self.served.uuids):
            return True
        moves.retire(draft, rolled)
        rewrite = Rewrite(table.store, table.session, table.publish, register, looked_at)
        rows = register.rows.changed(draft.rows.changes, draft.beside)
        made = rewrite.run(rows, dict(draft.metadata), self.served.uuids)
        if made is None:
            return False
        self.served.done()
        if our_turn and rewrite.created_at:
            write_hint(table.store, made.version, rewrite.created_at)
        table.made(made, looked_at)
        return True

    def _queue_up(self, turn: ExitStack, lost: bool = False) -> bool:
        return queue_up(self.table.store, self.table.session, turn, lost=lost)

    def _wait(self, turn: ExitStack, lost: bool) -> Fate:
        """Wait for our turn, or until another process has done our work."""
        table, new = self.table, self.new
        if new is None or self.served:  # others wait for us, who must not wait for others
            return Fate.TURN if self._queue_up(turn, lost) else Fate.ALONE
        came = try_turn_first(table.store, table.session, turn)
        if came:
            return Fate.TURN
        if table.rivals.are_there and self._is_refused():  # mostly it is there already, and nobody need tell
            return Fate.TAKEN
        asked = None if came is None else request(table, new)
        if asked is None:
            return Fate.TURN if self._queue_up(turn, lost) else Fate.ALONE
        fate = asked.wait(turn)
        if fate not in (Fate.TURN, Fate.ALONE):  # else nobody has taken it over: a lost version asks again
            self.new = None
        if fate is Fate.DONE:
            self.answers = [new.answer]
        elif fate is Fate.TAKEN:
            table.rivals.note()
            self.answers = [_refusal(new, asked.found)]
        elif fate is Fate.DOUBT:
            self.doubt = asked
            asked.stop_waiting()
        if fate in (Fate.DOUBT, Fate.REFUSED):
            return Fate.TURN if self._queue_up(turn) else Fate.ALONE
        return fate

    def _is_refused(self) -> bool:
        """Whether the newest version is a reason to refuse what another process has not done for us."""
        register = self.table.newest()
        is_refused = not self._drafted(register).is_changed
        if is_refused:
            self.table.rivals.note()
        else:
            self.answers, self.first_change = [], None
        return is_refused

    def _drafted(self, register: Register, rolled: moves.Rolled = moves.NOTHING_ROLLED) -> Draft:
        """The changes applied in order; each has its answer."""
        draft, twice = Draft(register), register.rows.duplicates()
        if not twice:
            moves.go_elsewhere(draft, rolled)
            if draft.steps:
                self.first_change = 0
        for change in self.changes:
            before = draft.steps
            try:
                if twice and not change.repairing:
                    raise _damaged(self.table.root.uri, twice)
                answer = draft.attempt(change.mutation)
            except Exception as error:  # its own caller's, whatever it is
                answer = error
            self.answers.append(answer)
            if self.first_change is None and draft.steps > before:
                self.first_change = len(self.answers) - 1
        return draft


def _refusal(new: NewRow, found: Row | None) -> Any:
    """What a caller is told whose id has a row in a version that another process made meanwhile."""
    assert new.refused is not None
    assert found is not None
    try:
        return new.refused(found)
    except Exception as error:  # as when the change itself is run
        return error


def copied(error: TiltyardError) -> TiltyardError:
    """The same error for another caller."""
    other = copy(error)
    other.__cause__ = error.__cause__
    return other


def _damaged(uri: str, twice: dict[str, int]) -> CatalogDamaged:
    shown = ", ".join(repr(each) for each in sorted(twice)[:MAX_DAMAGE_SHOWN])
    more = "" if len(twice) <= MAX_DAMAGE_SHOWN else f" and {len(twice) - MAX_DAMAGE_SHOWN} more"
    return CatalogDamaged(
        f"the catalog at {uri} holds several rows for {shown}{more}, where there can be only one: an older "
        f"program wrote them. It can be read, but not changed before {REPAIR} has mended it"
    )
