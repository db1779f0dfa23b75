"""Dropping tables and bringing them back (decision D24).

A dropped table leaves its namespace at once and its data stay for a grace period. The rewrite that takes the
row out leaves a record in the register's metadata, `tiltyard.trash.<uuid>`, with all that is needed to put it
back; other programs keep such keys and never look at them. A directory that programs would find by its name
is moved aside (`moves`), or hidden where directories cannot be renamed, so that the name is free.

1. Of all that drop one table exactly one is told so, the others get TableNotFound: who takes the row out, or
   for a table without a row who puts the first move of its directory, has dropped it.
2. Until its data are given up (state `purging`, see `purging`) a dropped table can be brought back, by one of
   all that try: if its id is free and its namespace there.
3. Nothing is deleted here unless asked for, and then after the decision.
4. A drop or undrop that was decided is carried out by whoever changes the catalog next if its caller dies.
Tests: tests/catalog/test_trash.py, tests/catalog/test_trash_crashes.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import Found, find_or_none, has_versions, is_directory, no_table
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.moves import Kind, Move, State
from tiltyard.catalog.names import Id, dropped_location, object_id, parts, root_location
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.settings import DEFAULT_GRACE_SECONDS, Mode
from tiltyard.catalog.taking import check_parents, look, taken
from tiltyard.errors import (
    CatalogThrottled,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    StoreError,
    TableAlreadyExists,
    TableNotDropped,
    TiltyardError,
    nearest,
)
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft
    from tiltyard.store import Store

PREFIX = moves.TRASH_PREFIX
DROPPED = "dropped"
"""The data are there, and the table can be brought back."""
PURGING = "purging"
"""The data are being deleted."""

MAX_PLANS = 32
"""How often a drop, undrop or rename is planned again because others changed the table meanwhile."""

BUSY_SECONDS = 5.0
"""How long a rename or undrop waits for somebody who may be creating a table of the same name."""
FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1

DEBRIS_SECONDS = 3_600.0
"""A directory without a version in which nothing was written for so long is nobody's who is at work."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that was dropped, as its record in the register says. Times are nanoseconds of the store's
    clock since 1970 UTC.
    """

    trash: str
    """The uuid of this drop: what undrop takes where one name was dropped several times."""
    object_id: str
    location: str
    """Where the data are."""
    dropped_ns: int
    until_ns: int
    """When the data may be given up."""
    state: str = DROPPED
    home: str | None = None
    """Where the directory was, and goes again; None where it never left."""
    metadata: str | None = None
    base_objects: tuple[str | None, ...] | None = None
    hidden: bool = False
    """Whether a marker hides the directory, which could not be moved aside."""
    emptied_ns: int | None = None
    """When the last file was deleted."""

    @property
    def id(self) -> Id:
        """What the table was called."""
        return parts(self.object_id)

    @property
    def key(self) -> str:
        """Where the record stands in the register's metadata."""
        return PREFIX + self.trash

    @property
    def row(self) -> Row:
        """The row that brings the table back."""
        return Row(self.object_id, TABLE, self.home or self.location, self.metadata, self.base_objects)

    def text(self) -> str:
        """The value in the register's metadata."""
        bases = None if self.base_objects is None else list(self.base_objects)
        values: dict[str, Any] = {
            "id": self.object_id,
            "location": self.location,
            "metadata": self.metadata,
            "time": self.dropped_ns,
            "until": self.until_ns,
            "state": self.state,
        }
        more = {"home": self.home, "base_objects": bases, "emptied": self.emptied_ns}
        values |= {name: value for name, value in more.items() if value is not None}
        if self.hidden:
            values["hidden"] = True
        return json.dumps(values, separators=(",", ":"))


# -- records -------------------------------------------------------------------------------------


def parsed(key: str, text: str) -> Dropped | None:
    """A record from the register's metadata; None for what cannot be read."""
    try:
        values = json.loads(text)
        bases = values.get("base_objects")
        found = Dropped(
            key.removeprefix(PREFIX),
            values["id"],
            values["location"],
            int(values["time"]),
            int(values["until"]),
            values["state"],
            values.get("home"),
            values.get("metadata"),
            None if bases is None else tuple(bases),
            values.get("hidden") is True,
            None if values.get("emptied") is None else int(values["emptied"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    words = (found.object_id, found.location, found.state)
    optional = (found.home, found.metadata)
    sound = all(isinstance(each, str) for each in words)
    return found if sound and all(each is None or isinstance(each, str) for each in optional) else None


def records(metadata: Mapping[str, str]) -> tuple[Dropped, ...]:
    """Every dropped table that a register speaks of, the oldest drop first; unreadable ones are left out."""
    found = [parsed(key, metadata[key]) for key in metadata if key.startswith(PREFIX)]
    return tuple(sorted((each for each in found if each), key=lambda each: (each.dropped_ns, each.trash)))


def unreadable(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of records that cannot be read."""
    return tuple(key for key in metadata if key.startswith(PREFIX) and parsed(key, metadata[key]) is None)


def dropped_tables(catalog: Catalog, namespace: Id | None = None) -> tuple[Dropped, ...]:
    """The tables that can be brought back, the newest drop last; with `namespace` those directly in it."""
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        found = unregistered.dropped_tables(catalog)
    else:
        found = records(catalog.register().metadata)
    return tuple(
        each for each in found if each.state == DROPPED and (namespace is None or each.id[:-1] == namespace)
    )


def is_kept(register: Register, location: str) -> bool:
    """Whether the directory at a location belongs to a table of another name or to a dropped one, because it
    could not be moved aside: then a new table of that name gets a directory of its own.
    """
    if register.rows.by_location(location):
        return True
    return any(each.location == location for each in records(register.metadata))


# -- dropping ------------------------------------------------------------------------------------


class _Outdated(TiltyardError):
    """The table is no longer what was planned for; never leaves this package."""


class _Busy(TiltyardError):
    """Somebody may be creating a table of the name that one is to get; never leaves this package."""


def drop_table(
    catalog: Catalog, id: Id, *, grace_seconds: float | None = None, purge: bool = False
) -> Dropped:
    """Drop a table: for everybody it is gone when this returns. What undrop needs is in the answer.

    The data stay for `grace_seconds` (of the catalog's settings without it, a week by default); with `purge`
    they are deleted now. Raises TableNotFound (also for everybody but one of several that drop the table at
    once), CatalogThrottled and StoreError (nothing was dropped), OutcomeUnknown.
    """
    grace_ns = grace_of(catalog, grace_seconds)
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.drop_table(catalog, id, grace_ns, purge=purge)
    record = _drop(catalog, id, grace_ns, PURGING if purge else DROPPED)
    if purge:
        from tiltyard.catalog.purging import finish_purging

        finish_purging(catalog)
    return record


def grace_of(catalog: Catalog, seconds: float | None) -> int:
    """A grace period in nanoseconds. Raises InvalidInput for what is none."""
    if seconds is None:
        seconds = catalog.settings.grace_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidInput(f"a grace period is a number of seconds from 0 on, found {seconds!r}")
    return round(seconds * NS_PER_SECOND)


def _drop(catalog: Catalog, id: Id, grace_ns: int, state: str) -> Dropped:
    removed: Dropped | None = None
    for _ in range(MAX_PLANS):
        register = look(catalog).register
        found = find_or_none(catalog, register, id)
        if found is None:
            if removed is not None:
                return removed
            raise no_table(catalog, register, id)
        plan = _Drop(catalog, register, found, grace_ns, state)
        try:
            record = plan.run()
        except _Outdated:
            continue
        if plan.carried_out:
            return record
        if found.row is not None:
            removed = record  # what the row spoke of is gone; something else came under the name
    raise throttled(catalog, id, "dropped")


def throttled(catalog: Catalog, id: Id, what: str) -> CatalogThrottled:
    """The error for a table that others changed each time."""
    return CatalogThrottled(
        f"table {object_id(id)!r} of {catalog.store.uri} was changed by others each of the {MAX_PLANS} times "
        f"that it was to be {what}; nothing was changed, try again"
    )


def planned(catalog: Catalog, id: Id, what: str, attempt: Callable[[], T]) -> T:
    """What an attempt gives, planned again while others change the table, or make one of the name that it is
    to have.
    """
    plans, began, pause = 0, runtime.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        try:
            return attempt()
        except _Outdated as outdated:
            plans += 1
            if plans >= MAX_PLANS:
                raise throttled(catalog, id, what) from outdated
        except _Busy as busy:
            if runtime.monotonic() - began > BUSY_SECONDS:
                raise CatalogThrottled(
                    f"table {object_id(id)!r} of {catalog.store.uri} cannot be {what}: {busy}; nothing was "
                    "changed, try again later"
                ) from busy
            runtime.sleep(pause * (0.5 + runtime.random().random()))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def planned_move(catalog: Catalog, source: str, target: str, name: str) -> tuple[Move | None, Store | None]:
    """How the directory at a visible location leaves it: moved, hidden, or not at all where there is none;
    with the directory, in which a witness stands. Raises StoreError.
    """
    uuid, store = str(runtime.uuid4()), catalog.store
    if not is_directory(store, source):
        return None, None
    if not moves.can_move(store):
        return Move(uuid, Kind.HIDE, source, "", name), None
    move = Move(uuid, Kind.MOVE, source, target, name)
    table = moves.put_witness(store, move)
    return (move, table) if table is not None else (None, None)


def forget_witness(move: Move | None, table: Store | None) -> None:
    """Take the witness of a move that was not decided out of the directory, wherever that is by now."""
    if move is not None and table is not None:
        with suppress(StoreError):  # alone it means nothing; the next move of the directory takes it along
            table.delete(move.witness)


class _Drop:
    """One plan of a drop, and what became of it."""

    def __init__(self, catalog: Catalog, register: Register, found: Found, grace_ns: int, state: str) -> None:
        self.catalog = catalog
        self.register = register
        self.found = found
        self.state = state
        self.trash = str(runtime.uuid4())
        self.now_ns = catalog.store.now_ns()
        self.until_ns = self.now_ns + (grace_ns if state == DROPPED else 0)
        self.move: Move | None = None
        self.carried_out = True
        self.text = ""
        """The record as it was last put."""

    def run(self) -> Dropped:
        location, name = self.found.location, self.found.id[-1]
        table = None
        aside = location
        if moves.is_visible(location):
            aside = dropped_location(name)
            self.move, table = planned_move(self.catalog, location, aside, object_id(self.found.id))
            if self.move is not None and self.move.kind is Kind.HIDE:
                self.move, aside = replace(self.move, trash=self.trash), location
        hidden = self.move is not None and self.move.kind is Kind.HIDE
        self.record = Dropped(
            self.trash,
            object_id(self.found.id),
            aside,
            self.now_ns,
            self.until_ns,
            self.state,
            home=location if aside != location else None,
            hidden=hidden,
        )
        try:
            record = self.catalog.mutate(self._change)
        except OutcomeUnknown:
            raise  # the move may have been decided: its witness stays
        except Exception:
            forget_witness(self.move, table)
            raise
        self._finish(runtime.monotonic())
        return record

    def _change(self, draft: Draft) -> Dropped:
        found, record = self.found, self.record
        row = draft.rows.find(record.object_id)
        if (row is None) != (found.row is None):
            raise _Outdated
        if row is not None and found.row is not None:
            if row.object_type != TABLE or row.location != found.row.location:
                raise _Outdated
            draft.remove(row.object_id)
            record = replace(record, metadata=row.metadata, base_objects=row.base_objects)
        visible = moves.is_visible(found.location)
        if visible and moves.changed_since(self.register, draft.metadata, found.location):
            raise _Outdated  # also where no directory was seen: it may have been away for a moment
        if self.move is not None:
            moves.add(draft.metadata, self.move)
            if self.move.kind is Kind.MOVE:
                moves.relocate(draft, self.move.source, self.move.target)
        elif found.row is None:
            raise _Outdated  # the directory went away while we looked
        self.text = draft.metadata[record.key] = record.text()
        return record

    def _finish(self, decided_at: float) -> None:
        """Carry the decision out; what the store refuses now, the next change of the catalog does."""
        if self.move is None:
            return
        with suppress(StoreError):
            state = moves.finish(self.catalog, self.move, decided_at)
            if state is State.VOID and not is_directory(self.catalog.store, self.record.location):
                self.carried_out = not self.catalog.mutate(self._forget)

    def _forget(self, draft: Draft) -> bool:
        """Whether nothing was moved aside, because what was dropped had been replaced under its name. Then
        the record goes. If it is gone already, the drop was carried out and undone by others.
        """
        if draft.metadata.get(self.record.key) != self.text:
            return False
        del draft.metadata[self.record.key]
        if self.move is not None:
            draft.metadata.pop(self.move.key, None)
        return True


def discard(draft: Draft, row: Row, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> Dropped:
    """Drop a table as part of another change, such as the drop of its namespace. Its directory stays."""
    now_ns, uuid = runtime.now_ns(), str(runtime.uuid4())
    until_ns = now_ns + round(grace_seconds * NS_PER_SECOND)
    record = Dropped(uuid, row.object_id, row.location or "", now_ns, until_ns)
    record = replace(record, metadata=row.metadata, base_objects=row.base_objects)
    draft.remove(row.object_id)
    draft.metadata[record.key] = record.text()
    return record


# -- bringing back -------------------------------------------------------------------------------


def undrop_table(catalog: Catalog, id: Id | None = None, *, trash: str | None = None) -> Dropped:
    """Bring a dropped table back under its id; the record of the drop that was undone.

    By id: its newest drop; by `trash`, the uuid of a drop: that one. Raises TableNotDropped (none, or its
    data is being deleted), TableAlreadyExists (the id is taken), NamespaceNotFound (its namespace is gone),
    CatalogThrottled, OutcomeUnknown.
    """
    if id is None and trash is None:
        raise InvalidInput("undrop takes the id of a table, or the uuid of a drop: see dropped_tables")
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.undrop_table(catalog, id, trash)

    def attempt() -> Dropped:
        register = look(catalog).register
        record = chosen(catalog, records(register.metadata), id, trash)
        return _Undrop(catalog, register, record).run()

    return planned(catalog, id if id is not None else (str(trash),), "brought back", attempt)


def chosen(catalog: Catalog, found: tuple[Dropped, ...], id: Id | None, trash: str | None) -> Dropped:
    """The drop that is to be undone. Raises TableNotDropped."""
    name = None if id is None else object_id(id)
    mine = [each for each in found if trash in (None, each.trash) and name in (None, each.object_id)]
    ready = [each for each in mine if each.state == DROPPED]
    if ready:
        return ready[-1]
    what = f"table {name!r}" if name is not None else f"drop {trash!r}"
    if mine:
        raise TableNotDropped(
            f"{what} of {catalog.store.uri} cannot be brought back: its grace is over and its files are "
            "being deleted"
        )
    known = sorted({each.object_id for each in found if each.state == DROPPED})
    raise TableNotDropped(
        f"{what} of {catalog.store.uri} cannot be brought back, for there is no record of its drop; of "
        f"dropped tables, {nearest(name or '', known)}"
    )


class _Undrop:
    """One plan of an undrop."""

    def __init__(self, catalog: Catalog, register: Register, record: Dropped) -> None:
        self.catalog = catalog
        self.register = register
        self.record = record
        self.row = record.row
        self.move: Move | None = None
        self.place: NamePlace | None = None

    def run(self) -> Dropped:
        catalog, record = self.catalog, self.record
        self._check_free()
        table = None
        self.place = name_place(catalog, record.id, record.location)
        if record.home is not None:
            if is_free(catalog, record.home):
                self.move, table = self._planned_move(record.home)
            else:
                self.row = replace(self.row, location=record.location)
        elif record.hidden:
            uuid = str(runtime.uuid4())
            show = Move(uuid, Kind.SHOW, "", record.location, record.object_id, trash=record.trash)
            self.move = replace(show, nonce=moves.marker_nonce(catalog.store, record.location))
        try:
            catalog.mutate(self._change)
        except OutcomeUnknown:
            raise
        except Exception:
            forget_witness(self.move, table)
            raise
        if self.move is not None:
            finish(catalog, self.move, runtime.monotonic())
        return record

    def _check_free(self) -> None:
        """Raise TableAlreadyExists where the id is not free, also for tables without a row."""
        catalog, record = self.catalog, self.record
        check_parents(self.register.rows, record.id)
        row = self.register.rows.find(record.object_id)
        if row is not None:
            raise taken(row)
        if not record.hidden and find_or_none(catalog, self.register, record.id) is not None:
            raise TableAlreadyExists(f"table {record.object_id!r} exists already in {catalog.store.uri}")

    def _planned_move(self, home: str) -> tuple[Move | None, Store | None]:
        record, store = self.record, self.catalog.store
        if not is_directory(store, record.location):
            return None, None  # it was declared, and nobody wrote it
        move = Move(str(runtime.uuid4()), Kind.MOVE, record.location, home, record.object_id)
        table = moves.put_witness(store, move)
        return (move, table) if table is not None else (None, None)

    def _change(self, draft: Draft) -> None:
        record = self.record
        text = draft.metadata.get(record.key)
        row = draft.rows.find(record.object_id)
        if text is None:
            if row is not None:
                raise taken(row)
            raise _Outdated
        if text != record.text():
            raise _Outdated
        check_parents(draft.rows, record.id)
        if row is not None:
            raise taken(row)
        check_place(self.catalog, self.place)
        del draft.metadata[record.key]
        if self.move is not None:
            if moves.changed_since(self.register, draft.metadata, self.move.target):
                raise _Outdated
            if self.move.kind is Kind.MOVE:
                moves.relocate(draft, self.move.source, self.move.target)
            moves.add(draft.metadata, self.move)
        draft.put(self.row)


# -- the place under a root table's name ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamePlace:
    """What has the name of a root table's directory: nothing, or something lasting that is no table."""

    location: str
    is_free: bool


def is_free(catalog: Catalog, location: str) -> bool:
    """Whether nothing has a directory's name. Raises `_Busy` where a creator may be at work in it.

    Files, what a deregistered table left, and old remains of dead creators are left alone: a table that is to
    have that name keeps, or gets, a directory of its own.
    """
    store = catalog.store
    if store.exists(location):
        return False
    try:
        changed_ns = store.dir_stat(location) or 0
    except ObjectNotFound:
        return True
    if store.exists(f"{location}/{DEREGISTERED}"):
        return False
    changed_ns = max([changed_ns, *(each.mtime_ns for each in store.list(location))])
    if has_versions(store, location) or store.now_ns() - changed_ns < DEBRIS_SECONDS * NS_PER_SECOND:
        raise _Busy(f"somebody is creating a table in {location}, or died there not long ago")
    return False


def name_place(catalog: Catalog, id: Id, own: str) -> NamePlace | None:
    """The place of a table's name, where a creator may decide without a row. `own`: where the table is."""
    location = root_location(id[0])
    if len(id) > 1 or not catalog.settings.mode.lists_directories or own == location:
        return None
    return NamePlace(location, is_free(catalog, location))


def check_place(catalog: Catalog, place: NamePlace | None) -> None:
    """Look again within the round, as late as can be: raise `_Outdated` where somebody came."""
    if place is not None:
        try:
            changed = is_free(catalog, place.location) is not place.is_free
        except _Busy as busy:
            raise _Outdated from busy
        if changed:
            raise _Outdated


def finish(catalog: Catalog, move: Move, decided_at: float) -> str:
    """Carry out the move of a table that got a new name; where its directory is then. What the store refuses
    now, the next change of the catalog does: readers find the table where it is.
    """
    for _ in range(MAX_PLANS):
        try:
            if moves.finish(catalog, move, decided_at) is not State.BLOCKED:
                break
        except StoreError:
            break
        catalog.mutate(lambda draft: None)  # the round makes way for what came between
        metadata = catalog.register().metadata
        again = next((each for each in moves.pending(metadata) if each.uuid == move.uuid), None)
        if again is None:
            return move.source  # it stays where nobody finds it by its name, or others have moved it
        move = again
    return move.target
