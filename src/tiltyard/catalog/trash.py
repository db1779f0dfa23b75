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

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.dropped import DROPPED, PREFIX, PURGING, Dropped, parsed, records, unreadable
from tiltyard.catalog.found import (
    KEPT_CHARACTERS,
    Found,
    find_or_none,
    has_versions,
    is_directory,
    no_table,
)
from tiltyard.catalog.moves import Kind, Move, State
from tiltyard.catalog.names import Id, dropped_location, object_id
from tiltyard.catalog.planning import (
    MAX_PLANS,
    NamePlace,
    Outdated,
    check_place,
    deciding,
    finish,
    is_free,
    name_place,
    planned,
    planned_move,
    throttled,
)
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.settings import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS, Mode
from tiltyard.catalog.taking import FREE_FOR_UNDROP, check_parents, look, taken
from tiltyard.errors import (
    InvalidInput,
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

__all__ = [
    "DROPPED",
    "PREFIX",
    "PURGING",
    "Dropped",
    "discard",
    "drop_table",
    "dropped_tables",
    "is_kept",
    "parsed",
    "records",
    "undrop_table",
    "unreadable",
]

# -- looking -------------------------------------------------------------------------------------


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


def drop_table(
    catalog: Catalog, id: Id, *, grace_seconds: float | None = None, purge: bool = False
) -> Dropped:
    """Drop a table: for everybody it is gone when this returns. What undrop needs is in the answer.

    The data stay for `grace_seconds` (of the catalog's settings without it, a week by default); with `purge`
    they are deleted now, or by the next purge where somebody is at work in them. Raises TableNotFound (also
    for everybody but one of several that drop the table at once), CatalogThrottled and StoreError (nothing
    was dropped), OutcomeUnknown.
    """
    grace_ns = grace_of(catalog, grace_seconds)
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.drop_table(catalog, id, grace_ns, purge=purge)
    record = _drop(catalog, id, grace_ns, PURGING if purge else DROPPED)
    if purge:
        from tiltyard.catalog.purging import finish_purging

        with suppress(TiltyardError):  # it is dropped; what is not deleted now, the next purge deletes
            finish_purging(catalog)
    return record


def grace_of(catalog: Catalog, seconds: float | None) -> int:
    """A grace period in nanoseconds. Raises InvalidInput for what is none."""
    if seconds is None:
        seconds = catalog.settings.grace_seconds
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= MAX_GRACE_SECONDS
    ):
        raise InvalidInput(
            "a grace period is a number of seconds from 0 to a hundred years, found "
            f"{seconds if isinstance(seconds, float) else type(seconds).__name__}"
        )
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
        except Outdated:
            continue
        if plan.carried_out:
            return record
        if found.row is not None:
            removed = record  # what the row spoke of is gone; something else came under the name
    raise throttled(catalog, id, "dropped")


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
            has_versions=has_versions(self.catalog.store, location),
        )
        with deciding(self.move, table):
            record = self.catalog.mutate(self._change)
        self._finish(runtime.monotonic())
        return record

    def _change(self, draft: Draft) -> Dropped:
        found, record = self.found, self.record
        row = draft.rows.find(record.object_id)
        if (row is None) != (found.row is None):
            raise Outdated
        if row is not None and found.row is not None:
            if row.object_type != TABLE or row.location != found.row.location:
                raise Outdated
            draft.remove(row.object_id)
            record = replace(record, metadata=row.metadata, base_objects=row.base_objects)
        visible = moves.is_visible(found.location)
        if visible and moves.changed_since(self.register, draft.metadata, found.location):
            raise Outdated  # also where no directory was seen: it may have been away for a moment
        if self.move is not None:
            moves.add(draft.metadata, self.move)
            if self.move.kind is Kind.MOVE:
                moves.relocate(draft, self.move.source, self.move.target)
        elif found.row is None:
            raise Outdated  # the directory went away while we looked
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
            f"{what} of {catalog.store.uri} cannot be brought back: it was purged, by the drop itself or "
            "when its grace was over, and its files are being deleted"
        )
    known = sorted({each.object_id for each in found if each.state == DROPPED})
    raise TableNotDropped(
        f"{what} of {catalog.store.uri} cannot be brought back, for there is no record of its drop; of "
        f"dropped tables, {nearest(name or '', known)}"
    )


def _places(register: Register, record: Dropped) -> list[str]:
    """Where a dropped table's directory may be: at its location, where that is still to be moved from, at its
    location after all, or under the percent-encoded name that other programs give it.
    """
    location = record.location
    found = [location, *moves.places(register, Row(record.object_id, TABLE, location))[1:], location]
    encoded = quote(location, safe=KEPT_CHARACTERS)
    return found if encoded == location else [*found, encoded]


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
        self._check_data()
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
        with deciding(self.move, table):
            catalog.mutate(self._change)
        if self.move is not None:
            finish(catalog, self.move, runtime.monotonic())
        return record

    def _check_free(self) -> None:
        """Raise TableAlreadyExists where the id is not free, also for tables without a row."""
        catalog, record = self.catalog, self.record
        check_parents(self.register.rows, record.id)
        row = self.register.rows.find(record.object_id)
        if row is not None:
            raise taken(row, FREE_FOR_UNDROP)
        if not record.hidden and find_or_none(catalog, self.register, record.id) is not None:
            raise TableAlreadyExists(
                f"table {record.object_id!r} exists already in {catalog.store.uri}{FREE_FOR_UNDROP}"
            )

    def _check_data(self) -> None:
        """Raise TableNotDropped where the data of the dropped table are gone: its row would name nothing."""
        catalog, record = self.catalog, self.record
        if record.has_versions is False:
            return  # only its name was dropped
        for place in _places(self.register, record):
            if has_versions(catalog.store, place):
                return
            if record.has_versions is None and is_directory(catalog.store, place):
                return
        if record.key not in catalog.register().metadata:
            raise Outdated  # somebody else has brought it back, or given it up, since
        raise TableNotDropped(
            f"table {record.object_id!r} of {catalog.store.uri} cannot be brought back: nothing of it is "
            f"left at {record.location}; another program, or a hand, deleted its files. Nothing was "
            "changed; `tiltyard catalog purge` forgets the drop after its grace"
        )

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
                raise taken(row, FREE_FOR_UNDROP)
            raise Outdated
        if text != record.text():
            raise Outdated
        check_parents(draft.rows, record.id)
        if row is not None:
            raise taken(row, FREE_FOR_UNDROP)
        check_place(self.catalog, self.place)
        del draft.metadata[record.key]
        if self.move is not None:
            if moves.changed_since(self.register, draft.metadata, self.move.target):
                raise Outdated
            if self.move.kind is Kind.MOVE:
                moves.relocate(draft, self.move.source, self.move.target)
            moves.add(draft.metadata, self.move)
        draft.put(self.row)
