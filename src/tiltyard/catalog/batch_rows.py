"""The part of a batch that the register decides: tables that are declared and deregistered, in one rewrite.

A root table that is found by its directory leaves with a record in the same rewrite (`moves`, HIDE), so that
ours see all of a batch or nothing of it; programs that read the root by names see such a table go when its
marker comes, right after.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.batch_intents import RowChange
from tiltyard.catalog.batch_members import DeclareTable, DeregisterTable
from tiltyard.catalog.creating import checked_properties
from tiltyard.catalog.declaring import check_location, files_in_the_way, is_by_name, put_new
from tiltyard.catalog.found import find_or_none, has_versions, no_table
from tiltyard.catalog.hiding import carry_out, hide
from tiltyard.catalog.markers import DEREGISTERED, RESERVED, put_marker, remove_marker
from tiltyard.catalog.names import check_new_id, hashed_location, object_id, root_location
from tiltyard.catalog.rows import TABLE, Row, properties_text
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import check_parents, look, taken
from tiltyard.errors import OutcomeUnknown, StoreError, TableAlreadyExists, TableNotFound, UnsupportedFeature
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.moves import Move
    from tiltyard.catalog.names import Id
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft

    RowMember: TypeAlias = DeclareTable | DeregisterTable

MARK = "tiltyard.batch."
"""Keys of the register's metadata that say which batches have had their rewrite."""

MARK_NS = 3_600 * NS_PER_SECOND
"""How long that is remembered: a process that slept for longer finds the intent gone."""


def prepare(catalog: Catalog, members: Sequence[RowMember]) -> tuple[RowChange, ...]:
    """The changes, checked in their order against the catalog as it is; nothing is written.

    Raises what declaring and deregistering raise.
    """
    if not members:
        return ()
    if catalog.settings.mode is Mode.V1:
        raise UnsupportedFeature(
            "a batch declares and deregisters tables in the register only: this catalog was opened with "
            "manifest_enabled=false"
        )
    register = catalog.register()
    gone: set[Id] = set()
    come: set[Id] = set()
    changes = []
    for member in members:
        if isinstance(member, DeclareTable):
            changes.append(_declared(catalog, register, member, gone, come))
            come.add(member.id)
        else:
            changes.append(_deregistered(catalog, register, member.id, gone, come))
            gone.add(member.id)
    return tuple(changes)


def _declared(
    catalog: Catalog, register: Register, member: DeclareTable, gone: set[Id], come: set[Id]
) -> RowChange:
    id = member.id
    text = checked_properties(member.properties)
    if id in come:
        raise TableAlreadyExists(f"the batch declares table {object_id(id)!r} twice")
    if id not in gone:
        if find_or_none(catalog, register, id) is not None:
            raise TableAlreadyExists(f"table {object_id(id)!r} exists already in {catalog.store.uri}")
        row = register.rows.find(object_id(id))
        if row is not None and row.object_type != TABLE:
            raise taken(row)
    check_parents(register.rows, id)
    check_new_id(id, "a table")
    by_name = is_by_name(catalog, id)
    if by_name and id in gone:
        raise UnsupportedFeature(
            f"a batch cannot deregister the root table {id[0]!r} and declare it again: its directory keeps "
            "the name"
        )
    place = root_location(id[0]) if by_name else hashed_location(id)
    check_location(catalog, id, member.location, place)
    return RowChange(id, True, place, text)


def _deregistered(catalog: Catalog, register: Register, id: Id, gone: set[Id], come: set[Id]) -> RowChange:
    found = None if id in gone else find_or_none(catalog, register, id)
    if found is None or id in come:
        raise no_table(catalog, register, id)
    return RowChange(id, False, found.location, None if found.row is None else found.properties)


def reserve(catalog: Catalog, changes: Sequence[RowChange]) -> list[RowChange]:
    """Take the directories of declarations, as far as they decide: those that were taken now.

    Raises `TableAlreadyExists`, `StoreError`, `OutcomeUnknown`; those taken before are released then.
    """
    ours: list[RowChange] = []
    try:
        for each in changes:
            if each.declare and is_by_name(catalog, each.id):
                _reserve(catalog, each)
                ours.append(each)
    except OutcomeUnknown:
        raise
    except (TableAlreadyExists, StoreError):
        release(catalog, ours)
        raise
    return ours


def _reserve(catalog: Catalog, change: RowChange) -> None:
    store = catalog.store.at(change.location)
    exists = TableAlreadyExists(f"table {object_id(change.id)!r} exists already in {catalog.store.uri}")
    if store.exists(DEREGISTERED):
        raise files_in_the_way(catalog, Row(object_id(change.id), TABLE, change.location))
    if has_versions(store, "") or not put_marker(store, RESERVED):
        raise exists
    if has_versions(store, ""):  # a creator was first
        release(catalog, [change])
        raise exists


def release(catalog: Catalog, changes: Sequence[RowChange]) -> None:
    """Take the markers away of declarations that definitely do not happen."""
    for each in changes:
        with suppress(StoreError):  # `check` finds it
            remove_marker(catalog.store.at(each.location), RESERVED)


def change(catalog: Catalog, changes: Sequence[RowChange], batch: str | None = None) -> None:
    """The one rewrite. With `batch`, its uuid, it is made once however often it is asked for.

    Raises what declaring and deregistering raise; then nothing of it happened.
    """
    if not changes:
        return
    look(catalog)  # moves that were begun are carried out
    asked_at, now_ns = runtime.monotonic(), catalog.store.now_ns()
    hides = [hide(each.location, object_id(each.id)) for each in changes]

    def rewrite(draft: Draft) -> list[Move]:
        if batch is not None:
            if MARK + batch in draft.metadata:
                return []
            _forget_old(draft, now_ns)
            draft.metadata[MARK + batch] = json.dumps({"time": now_ns})
        left = []
        for each, move in zip(changes, hides, strict=True):
            if each.declare:
                row = Row(object_id(each.id), TABLE, each.location, properties_text(each.properties))
                put_new(draft, each.id, row)
            elif _remove(catalog, draft, each):
                left.append(moves.add(draft.metadata, move))
        return left

    for move in catalog.mutate(rewrite, in_batch=True):
        carry_out(catalog, move, asked_at)
    for each in changes:
        if each.declare and not is_by_name(catalog, each.id):
            # Peers drop a declared table together with its directory, which must be there for them.
            with suppress(StoreError, OutcomeUnknown):
                put_marker(catalog.store.at(each.location), RESERVED)


def _remove(catalog: Catalog, draft: Draft, change: RowChange) -> bool:
    """Take a table's row out; whether its directory must be hidden, too."""
    id = change.id
    now = draft.rows.find(object_id(id))
    by_name = is_by_name(catalog, id) and change.location == root_location(id[0])
    if now is None and not by_name:
        raise TableNotFound(f"no table {object_id(id)!r}: it was dropped or deregistered meanwhile")
    if now is not None and (now.object_type != TABLE or now.location != change.location):
        raise TableNotFound(f"no table {object_id(id)!r} at {change.location}: it was replaced meanwhile")
    draft.remove(object_id(id))
    return by_name


def _forget_old(draft: Draft, now_ns: int) -> None:
    for key in [key for key in draft.metadata if key.startswith(MARK)]:
        try:
            done_ns = int(json.loads(draft.metadata[key])["time"])
        except (ValueError, TypeError, KeyError):
            continue
        if now_ns - done_ns > MARK_NS:
            del draft.metadata[key]
