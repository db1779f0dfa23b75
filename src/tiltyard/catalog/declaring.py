"""Declaring, registering and deregistering tables: what changes in the catalog without any data.

Where there is a register one round of it does it, and whoever loses has made nothing. The exception is a root
table that is found by its name: who creates `.lance-reserved` in a directory without versions has declared
it, as with every other program, and its row follows. Marker files that hide or show a directory to others
follow the rewrite (`hiding`). In a catalog without a register the markers decide.

Invariants, and the tests that check them (tests/catalog/test_tables_declare.py):
1. Of all that declare one name at most one succeeds, and none while there is a table.
2. Of all that deregister one table exactly one succeeds; its files stay as they are.
3. Where only a marker stands without a row, or a row beside a marker, the next call for that name finishes
   what was begun: nothing is blocked for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.creating import checked_properties
from tiltyard.catalog.found import (
    Found,
    check_apart,
    directory_table,
    find_or_none,
    has_versions,
    no_table,
    register_of,
    table_row,
)
from tiltyard.catalog.hiding import carry_out, hidden, hide
from tiltyard.catalog.markers import DEREGISTERED, RESERVED, put_marker, read_marker, remove_marker
from tiltyard.catalog.names import (
    Id,
    check_new_id,
    checked_id,
    hashed_location,
    inside_table,
    is_inside,
    is_private,
    location_uri,
    object_id,
    resolve,
    root_location,
    shown,
)
from tiltyard.catalog.rows import TABLE, Row, properties_text
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import Look, check_parents, glance, look, taken
from tiltyard.catalog.trash import is_kept, records
from tiltyard.catalog.waiting import NewRow
from tiltyard.dataset import arguments
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
    WrongType,
)

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft
    from tiltyard.store import Store


# -- declare -------------------------------------------------------------------------------------


def declare_table(
    catalog: Catalog,
    id: Id,
    *,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Found:
    """Reserve a name, and the place of a table that is written later.

    `location`, where given, must be the one that the catalog chooses. Raises TableAlreadyExists,
    NamespaceNotFound, InvalidName, InvalidInput, CatalogThrottled, OutcomeUnknown.
    """
    id = checked_id(id, "a table's id")
    text = properties_text(checked_properties(properties))
    seen = (None if is_by_name(catalog, id) else glance(catalog, id)) or look(catalog)
    register = seen.register
    found = find_or_none(catalog, register, id)
    if found is not None:
        raise _exists(catalog, id)
    check_parents(register.rows, id)
    row = register.rows.find(object_id(id))
    if row is not None and row.object_type != TABLE:
        raise taken(row)
    check_new_id(id, "a table")
    by_name = is_by_name(catalog, id) and not is_kept(register, root_location(id[0]))
    place = root_location(id[0]) if by_name else hashed_location(id)
    check_location(catalog, id, location, place)
    new = Row(object_id(id), TABLE, place, text)
    if by_name:
        _declare_by_name(seen, new)
    else:
        seen.mutate(lambda draft: put_new(draft, id, new), NewRow(new, None, refused=refuse))
        # Peers drop a declared table together with its directory, which must be there for them.
        with suppress(StoreError, OutcomeUnknown):
            put_marker(catalog.store.at(place), RESERVED)
    made = None if catalog.settings.mode is Mode.V1 else new
    return Found(id, place, location_uri(catalog.store.uri, place), made, True)


def is_by_name(catalog: Catalog, id: Id) -> bool:
    """Whether a new table of this id gets the directory of its name, where every program finds it."""
    return len(id) == 1 and catalog.settings.mode.lists_directories


def put_new(draft: Draft, id: Id, row: Row) -> None:
    """Put the row of a new table: parents exist and the id is free, or NamespaceNotFound,
    TableAlreadyExists.
    """
    check_parents(draft.rows, id)
    now = draft.rows.find(row.object_id)
    if now is not None:
        refuse(now)
    draft.put(row)


def refuse(now: Row) -> NoReturn:
    """Raise TableAlreadyExists for the row that the id of a new table has."""
    raise taken(now)


def _exists(catalog: Catalog, id: Id) -> TableAlreadyExists:
    return TableAlreadyExists(f"table {object_id(id)!r} exists already in {catalog.store.uri}")


def check_location(catalog: Catalog, id: Id, given: str | None, place: str) -> None:
    if given is None:
        return
    arguments.text("a table's location", given)
    root = catalog.store.uri.rstrip("/")
    expected = location_uri(catalog.store.uri, place)
    if given.rstrip("/") not in (place, f"{root}/{place}", f"file://{root}/{place}", expected):
        raise InvalidInput(
            f"Cannot declare table {id[-1]} at location {given}, must be at location {expected}: leave the "
            "location out, or register a table that lies elsewhere below the root"
        )


def _declare_by_name(seen: Look, row: Row) -> None:
    catalog, name, location = seen.catalog, row.object_id, str(row.location)
    check_apart(catalog, seen.register, location)
    marker = hidden(catalog, location, name)
    store = catalog.store.at(location)
    if has_versions(store, ""):
        raise files_in_the_way(catalog, row) if marker.is_there else _exists(catalog, (name,))
    won = put_marker(store, RESERVED)
    if not won and not marker.is_there:
        raise _exists(catalog, (name,))
    if has_versions(store, ""):  # a creator was first
        if won:
            _take_back(store, RESERVED)
        raise _exists(catalog, (name,))
    if catalog.settings.mode is Mode.V1:
        if marker.is_there and not remove_marker(store, DEREGISTERED):
            raise _exists(catalog, (name,))  # whoever took the marker away has won
        return

    def put(seen: Look, draft: Draft) -> bool:
        if won and seen.has_left(draft, (name,), location):
            return False
        now = draft.rows.find(name)
        if now is not None and (now != seen.register.rows.find(name) or not won):
            raise taken(now)
        draft.put(row)
        marker.in_rewrite(draft)
        return True

    try:
        while not seen.mutate(partial(put, seen)):
            seen = look(catalog)
            listed = directory_table(catalog, seen.register, (name,)) is not None
            if not (listed and _is_same_directory(store, catalog.store.at(location))):
                return  # dropped, renamed or deregistered since: whoever did that knows of its marker
    except OutcomeUnknown:
        raise
    except TiltyardError:
        if won:
            _take_back(store, RESERVED)
        raise
    marker.follow()
    marker.remove_others()


def _is_same_directory(ours: Store, there: Store) -> bool:
    """Whether the directory in which we have reserved a name is the one that has the name now."""
    reserved = read_marker(ours, RESERVED)
    return reserved is not None and reserved == read_marker(there, RESERVED)


def _take_back(store: Store, marker: str) -> None:
    """Remove a marker of ours that decided nothing."""
    with suppress(StoreError):
        remove_marker(store, marker)


def files_in_the_way(catalog: Catalog, row: Row) -> TableAlreadyExists:
    return TableAlreadyExists(
        f"{catalog.store.uri}/{row.location} holds the files of table {row.object_id!r}, which was "
        f"deregistered: register it again with location {row.location!r}"
    )


# -- register ------------------------------------------------------------------------------------


def register_table(
    catalog: Catalog,
    id: Id,
    location: str,
    *,
    mode: str = "create",
    properties: Mapping[str, str] | None = None,
) -> Found:
    """Give a name to a table that lies in a directory below the root; the directory need not exist yet.

    `location`: a relative path. `mode`: `create` (the name must be free) or `overwrite` (the name leaves the
    table that it had, whose files stay). Raises TableAlreadyExists, NamespaceNotFound, InvalidInput.
    """
    if catalog.settings.mode is Mode.V1:
        raise UnsupportedFeature(
            "register_table is only supported when manifest mode is enabled: without it a table is found by "
            "the name of its directory"
        )
    id = checked_id(id, "a table's id")
    text = properties_text(checked_properties(properties))
    place = checked_location(location)
    _refuse_inner(catalog, place)
    overwrite = _overwrites(mode)
    seen = look(catalog)
    register = seen.register
    found = find_or_none(catalog, register, id)
    if found is not None and not overwrite:
        raise _exists(catalog, id)
    check_parents(register.rows, id)
    if found is None:
        check_new_id(id, "a table")
    new = Row(object_id(id), TABLE, place, text)
    marker = hidden(catalog, root_location(id[0]), new.object_id) if found is None and len(id) == 1 else None
    own = marker is not None and place == marker.location
    asked_at = runtime.monotonic()
    by_name = found is not None and found.row is None and found.location != place
    replaced = hide(root_location(id[0]), object_id(id)) if by_name else None
    stale = None
    if marker is not None and marker.is_others and (own or row_at_own(register, id)):
        # Readers of the default mode must see it again; whoever takes the marker away may replace the row.
        stale = table_row(register, id) if marker.remove_others() else None

    def put(draft: Draft) -> None:
        now = draft.rows.find(new.object_id)
        _refuse_dropped(draft, place)
        _refuse_overlap(draft, place, new.object_id)
        if now is None or not (overwrite or now == stale) or now.object_type != TABLE:
            put_new(draft, id, new)
        else:
            draft.put(new)
        if marker is not None and own:
            marker.in_rewrite(draft)
        if replaced is not None:
            moves.add(draft.metadata, replaced)

    seen.mutate(put)
    if marker is not None and own:
        marker.follow()
    if replaced is not None:
        carry_out(catalog, replaced, asked_at)
    return Found(id, place, location_uri(catalog.store.uri, place), new, None)


def _refuse_dropped(draft: Draft, place: str) -> None:
    """Raise TableAlreadyExists for a directory that a dropped table is to get back."""
    for each in records(draft.metadata):
        if each.location == place:
            raise TableAlreadyExists(
                f"the directory {place!r} holds the dropped table {each.object_id!r}: bring that back with "
                "undrop, and rename it if it shall have another name"
            )


def _refuse_inner(catalog: Catalog, place: str) -> None:
    """Raise InvalidInput for a directory that belongs to the catalog or to a table: dropping it would take
    away a part of that.
    """
    above = inside_table(catalog.store, place)
    if is_private(place) or above is not None:
        told = "the catalog or of a table" if above is None else f"the table at {above!r}"
        raise InvalidInput(
            f"{place!r} cannot be a table's location: it is a part of {told}. Give a directory of its own"
        )


def _refuse_overlap(draft: Draft, place: str, object_id: str) -> None:
    """Raise InvalidInput where another table's directory lies in this one, or this one in another's."""
    for row in draft.rows:
        if row.object_type != TABLE or row.location is None or row.object_id == object_id:
            continue
        try:
            other = resolve(row.location)
        except InvalidInput:
            continue
        if other != place and (is_inside(place, other) or is_inside(other, place)):
            raise InvalidInput(
                f"{place!r} cannot be a table's location: the table {row.object_id!r} is at {other!r}, and "
                "what happens to one directory would happen to the other"
            )


def row_at_own(register: Register, id: Id) -> bool:
    """Whether a root table has a row that names the directory of its name."""
    row = table_row(register, id)
    return row is not None and row.location == root_location(id[0])


def checked_location(location: Any) -> str:
    """A location as given by a caller. Raises InvalidInput for what does not lie below the root."""
    if not isinstance(location, str):
        raise WrongType(f"a table's location must be text, found {location!r}")
    arguments.text("a table's location", location)
    if "://" in location:
        raise InvalidInput(
            f"Absolute URIs are not allowed for register_table: location {location!r} must be a path "
            "relative to the catalog's root"
        )
    if location.startswith("/"):
        raise InvalidInput(
            f"Absolute paths are not allowed for register_table: location {location!r} must be relative to "
            "the catalog's root"
        )
    if ".." in location.split("/"):
        raise InvalidInput(
            f"Path traversal is not allowed: location {location!r} must lie below the catalog's root"
        )
    return resolve(location)


def _overwrites(mode: Any) -> bool:
    word = mode.lower() if isinstance(mode, str) else ""
    if word not in ("create", "overwrite"):
        raise InvalidInput(f"the mode of register_table is create or overwrite, found {mode!r}")
    return word == "overwrite"


# -- deregister ----------------------------------------------------------------------------------


def deregister_table(catalog: Catalog, id: Id) -> Found:
    """Take a table out of the catalog and leave its files. Raises TableNotFound, CatalogThrottled,
    OutcomeUnknown.
    """
    id = checked_id(id, "a table's id")
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.deregister_table(catalog, id)
    seen = look(catalog)
    register = seen.register
    found = find_or_none(catalog, register, id)
    if found is None:
        raise no_table(catalog, register, id)
    asked_at = runtime.monotonic()
    move = _hiding(catalog, id, found)

    def remove(draft: Draft) -> None:
        now = draft.rows.find(object_id(id))
        if now is not None and now.object_type == TABLE and _is_same(now, found):
            draft.remove(now.object_id)
        elif now is not None or found.row is not None or seen.has_left(draft, id, found.location):
            raise TableNotFound(f"no table {shown(id)}: it was dropped, renamed or deregistered meanwhile")
        if move is not None:
            moves.add(draft.metadata, move)

    seen.mutate(remove)
    if move is not None:
        carry_out(catalog, move, asked_at)
    return found


def _is_same(now: Row, found: Found) -> bool:
    return now.location == (found.location if found.row is None else found.row.location)


def _hiding(catalog: Catalog, id: Id, found: Found) -> moves.Move | None:
    """What hides the directory of a root table's name from those who read the root by names. One that the
    table does not lie in is another's: of a creator who is about to give way, or to get the name next.
    """
    lies = found.location if found.row is None else found.row.location
    own = root_location(id[0])
    return hide(own, object_id(id)) if len(id) == 1 and lies == own else None


def table_exists(catalog: Catalog, id: Id, *, version: int | None = None) -> bool:
    """Whether there is a table of this id, declared ones included; with `version`, that version of it."""
    found = find_or_none(catalog, register_of(catalog), checked_id(id, "a table's id"))
    if found is None:
        return False
    if version is None:
        return True
    from tiltyard.errors import VersionNotFound
    from tiltyard.table.versions import locate

    try:
        locate(catalog.store.at(found.location), version)
    except (VersionNotFound, TableNotFound):
        return False
    return True
