"""Declaring, registering and deregistering tables: what changes in the catalog without any data.

Where a row decides (tables of namespaces, and all while directories are not listed), one round of the
register does it, and whoever loses has made nothing. A root table that is found by its name is decided by its
marker files, which every program creates with put-if-absent:

- *declare*: who creates `.lance-reserved` in a directory without versions.
- *deregister*: who creates `.lance-deregistered`; then the row goes. Until the marker stands the table is
  there, from then on it is not, for us and for the official readers of the default mode.
- *register*: the marker goes first, then the row is put, which decides among those who register.

Invariants, and the tests that check them (tests/catalog/test_tables_declare.py):
1. Of all that declare one name at most one succeeds, and none while there is a table.
2. Of all that deregister one table exactly one succeeds; its files stay as they are.
3. Where only a marker stands without a row, or a row beside a marker, the next call for that name finishes
   what was begun: nothing is blocked for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.creating import checked_properties
from tiltyard.catalog.found import (
    Found,
    directory_table,
    find_or_none,
    find_table,
    has_versions,
    is_directory,
    no_table,
    register_of,
    table_row,
)
from tiltyard.catalog.markers import DEREGISTERED, RESERVED, put_marker, remove_marker
from tiltyard.catalog.names import (
    Id,
    check_new_id,
    hashed_location,
    location_uri,
    object_id,
    resolve,
    root_location,
    shown,
)
from tiltyard.catalog.rows import TABLE, Row, properties_text
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import Look, check_parents, look, taken
from tiltyard.errors import (
    CommitConflict,
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
    text = properties_text(checked_properties(properties))
    seen = look(catalog)
    register = seen.register
    found = find_or_none(catalog, register, id)
    if found is not None:
        raise _exists(catalog, id)
    check_parents(register.rows, id)
    row = register.rows.find(object_id(id))
    if row is not None and row.object_type != TABLE:
        raise taken(row)
    check_new_id(id, "a table")
    by_name = is_by_name(catalog, id)
    place = root_location(id[0]) if by_name else hashed_location(id)
    check_location(catalog, id, location, place)
    new = Row(object_id(id), TABLE, place, text)
    if by_name:
        _declare_by_name(seen, new)
    else:
        seen.mutate(lambda draft: put_new(draft, id, new))
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
        raise taken(now)
    draft.put(row)


def _exists(catalog: Catalog, id: Id) -> TableAlreadyExists:
    return TableAlreadyExists(f"table {object_id(id)!r} exists already in {catalog.store.uri}")


def check_location(catalog: Catalog, id: Id, given: str | None, place: str) -> None:
    if given is None:
        return
    root = catalog.store.uri.rstrip("/")
    expected = location_uri(catalog.store.uri, place)
    if given.rstrip("/") not in (place, f"{root}/{place}", f"file://{root}/{place}", expected):
        raise InvalidInput(
            f"Cannot declare table {id[-1]} at location {given}, must be at location {expected}: leave the "
            "location out, or register a table that lies elsewhere below the root"
        )


def _declare_by_name(seen: Look, row: Row) -> None:
    catalog = seen.catalog
    store = catalog.store.at(str(row.location))
    name = row.object_id
    hidden = store.exists(DEREGISTERED)
    if has_versions(store, ""):
        raise files_in_the_way(catalog, row) if hidden else _exists(catalog, (name,))
    won = put_marker(store, RESERVED)
    if not won and not hidden:
        raise _exists(catalog, (name,))
    if has_versions(store, ""):  # a creator was first
        if won:
            _take_back(store, RESERVED)
        raise _exists(catalog, (name,))
    if catalog.settings.mode is not Mode.V1:
        try:
            seen.mutate(lambda draft: _declare_row(draft, row, hidden=hidden, won=won))
        except OutcomeUnknown:
            raise
        except TiltyardError:
            if won:
                _take_back(store, RESERVED)
            raise
    if hidden and not remove_marker(store, DEREGISTERED) and catalog.settings.mode is Mode.V1:
        raise _exists(catalog, (name,))  # in a catalog without rows, whoever takes the marker away has won


def _declare_row(draft: Draft, row: Row, *, hidden: bool, won: bool) -> None:
    now = draft.rows.find(row.object_id)
    if now is not None and not (hidden and won and now.object_type == TABLE and now.location == row.location):
        raise taken(now)
    draft.put(row)


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
    text = properties_text(checked_properties(properties))
    place = checked_location(location)
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
    shows = found is None and len(id) == 1 and _show_again(seen, id, place)

    def put(draft: Draft) -> None:
        now = draft.rows.find(new.object_id)
        if overwrite and now is not None and now.object_type == TABLE:
            draft.put(new)
        else:
            put_new(draft, id, new)

    try:
        seen.mutate(put)
    except (CommitConflict, StoreError) as error:
        if not shows:
            raise
        raise OutcomeUnknown(
            f"table {object_id(id)!r} is visible again, but its row could not be written ({error})"
        ) from error
    return Found(id, place, location_uri(catalog.store.uri, place), new, None)


def checked_location(location: Any) -> str:
    """A location as given by a caller. Raises InvalidInput for what does not lie below the root."""
    if not isinstance(location, str):
        raise WrongType(f"a table's location must be text, found {location!r}")
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


def _show_again(seen: Look, id: Id, place: str) -> bool:
    """Let the directory of a name be seen, which was deregistered; whether it had been hidden."""
    catalog, register, own = seen.catalog, seen.register, root_location(id[0])
    store = catalog.store.at(own)
    hidden = store.exists(DEREGISTERED)
    stale = table_row(register, id)
    if hidden and stale is not None:  # whoever deregistered it has not come to removing the row

        def remove(draft: Draft) -> None:
            if draft.register.version != register.version:
                raise _exists(catalog, id)  # others are at it, and one of them registers
            draft.remove(stale.object_id)

        seen.mutate(remove)
    return hidden and place == own and remove_marker(store, DEREGISTERED)


# -- deregister ----------------------------------------------------------------------------------


def deregister_table(catalog: Catalog, id: Id) -> Found:
    """Take a table out of the catalog and leave its files. Raises TableNotFound."""
    seen = look(catalog)
    register = seen.register
    found = find_or_none(catalog, register, id)
    if found is None:
        raise no_table(catalog, register, id)
    by_name = is_by_name(catalog, id)
    store = catalog.store.at(found.location)  # the marker goes where this leads, wherever that is moved
    if not by_name or found.location != root_location(id[0]) or not is_directory(store, ""):
        seen.mutate(lambda draft: _remove_row(draft, found))
        if len(id) == 1:
            _hide_own(catalog, id)
        return found
    won = put_marker(store, DEREGISTERED)
    if not won and (found.row is None or catalog.settings.mode is not Mode.MIGRATION):
        raise TableNotFound(f"Table is already deregistered: {id[-1]}")
    if catalog.settings.mode is Mode.V1:
        return found
    try:
        kept = seen.mutate(lambda draft: _remove_hidden(draft, seen, found))
    except OutcomeUnknown:
        raise
    except TiltyardError as error:
        raise OutcomeUnknown(
            f"table {object_id(id)!r} is deregistered for readers of the default mode, but its row could not "
            f"be removed ({error}); register it again, or deregister it once more"
        ) from error
    if not kept:
        if won:
            _take_back(store, DEREGISTERED)
        raise no_table(catalog, register_of(catalog), id)
    return found


def _remove_row(draft: Draft, found: Found) -> None:
    now = draft.rows.find(object_id(found.id))
    if now is None or now.object_type != TABLE:
        raise TableNotFound(f"no table {shown(found.id)}: it was dropped or deregistered meanwhile")
    draft.remove(now.object_id)


def _remove_hidden(draft: Draft, seen: Look, found: Found) -> bool:
    """Remove the row of a table that the marker hides; whether it was still there to be deregistered."""
    name = object_id(found.id)
    now = draft.rows.find(name)
    if now is not None and now.object_type == TABLE and now.location == found.location:
        draft.remove(name)
        return True
    return found.row is None and not seen.has_left(draft, found.id, found.location)


def _hide_own(catalog: Catalog, id: Id) -> None:
    """A root table of another place is gone; the directory of its name must not show up instead."""
    register = catalog.register()
    left = directory_table(catalog, register, id) if table_row(register, id) is None else None
    if left is not None:
        with suppress(StoreError):
            put_marker(catalog.store.at(left.location), DEREGISTERED)


def table_exists(catalog: Catalog, id: Id, *, version: int | None = None) -> bool:
    """Whether there is a table of this id, declared ones included; with `version`, that version of it."""
    try:
        found = find_table(catalog, id)
    except TableNotFound:
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
