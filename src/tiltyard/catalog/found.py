"""What a table is, in each of the four modes: the one place that decides it (pack 4.1, 11.3; cases N05, N06).

Listing, describing, opening, creating and dropping all ask here, so that they agree. A *row* of the register
is a table. Where the root is also read by names (all modes but manifest-only), `<name>.lance` without a row
is one if it holds a version or a reserved marker; a file, an empty directory or the remains of something is
none. The deregistered marker hides a directory that is found by its name; in the default mode also one that a
row names, as the official readers do, unless the marker is one of ours, which decide nothing beside a row.

1. Whatever `root_names` gives and `find_or_none` finds is listed, described and opened under that name, and
   nothing else is. Tests: tests/catalog/test_found.py, tests/cases/test_n_catalog.py.
2. A reader that meets a move half-way looks where it goes, then where it comes from; what is about to leave a
   name is no longer a table of that name (decisions D24, D25).
3. Nothing is created by looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from tiltyard.catalog import moves
from tiltyard.catalog.dropped import parsed
from tiltyard.catalog.markers import DEREGISTERED, RESERVED, nonce_of, read_marker
from tiltyard.catalog.names import (
    REGISTER,
    SUFFIX,
    checked_id,
    inside_table,
    is_private,
    location_uri,
    object_id,
    resolve,
    root_location,
)
from tiltyard.catalog.register import absent
from tiltyard.catalog.rows import REPAIR, TABLE
from tiltyard.catalog.settings import Mode
from tiltyard.errors import (
    CatalogDamaged,
    InvalidInput,
    ObjectNotFound,
    TableNotFound,
    UnsupportedFeature,
    nearest,
)
from tiltyard.format.names import VERSIONS_DIR, manifest_path, parse_manifest_name
from tiltyard.store.paths import joined

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.rows import Row
    from tiltyard.store import Store

MAX_DIRECTORY_BYTES = 255
"""No directory has a longer name; to look for one is an error for some stores."""

MAX_COMPARED = 1000
"""With more names none is looked for that is like the one that is not there: it would take long."""

FIRST_VERSION = manifest_path(1)
"""Mostly still there: one look says that a directory holds versions."""

KEPT_CHARACTERS = "!$&'()+,-./:;=@_ "
"""What the official programs write into paths as it is, beside letters and digits; they look for the rest
under its percent-encoded form."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table: where it is, and what the catalog says about it."""

    id: Id
    location: str
    """Its directory below the root, as it is on disk."""
    uri: str
    """The same as a URL, for other programs."""
    row: Row | None
    """What the register says; None for a directory that is a table by its name alone."""
    declared_only: bool | None
    """Whether no version was written yet; None where nobody looked."""

    @property
    def properties(self) -> dict[str, str] | None:
        """The table's properties; None when it has none. Raises CatalogDamaged where they cannot be read."""
        return None if self.row is None else self.row.properties


def find_table(catalog: Catalog, id: Id, *, check_declared: bool = False) -> Found:
    """The table of an id. Raises TableNotFound (naming what is near), CatalogDamaged, InvalidInput."""
    id = checked_id(id, "a table's id")
    register = register_of(catalog)
    found = find_or_none(catalog, register, id)
    if found is None:
        raise no_table(catalog, register, id)
    return with_declared(catalog, found) if check_declared else found


def register_of(catalog: Catalog) -> Register:
    """The newest version of the register, an empty one for a catalog that has none."""
    if catalog.settings.mode.has_register:
        return catalog.register()
    catalog.follow()
    return absent()


def find_or_none(catalog: Catalog, register: Register, id: Id) -> Found | None:
    """As `find_table`, by what a version of the register says; None where there is no table."""
    mode = catalog.settings.mode
    if not id:
        raise InvalidInput("Table ID cannot be empty: a table has a name, and the root namespace is none")
    if mode is Mode.V1:
        return directory_table(catalog, register, id)
    row = register.rows.find(object_id(id))
    if row is not None and row.object_type != TABLE:
        return None  # also where a creator left a directory of this name, after the namespace was made
    if len(id) > 1 or mode is Mode.MANIFEST:
        return None if row is None else _found(catalog, register, id, row)
    if row is None:
        if mode is Mode.MIGRATION and register.rows.by_location(root_location(id[0])):
            return None  # there under the name that its row has
        return directory_table(catalog, register, id)
    if (
        mode is Mode.MIXED
        and row.location == root_location(id[0])
        and is_hidden_by_others(catalog, row.location)
    ):
        return None
    return _found(catalog, register, id, row)


def table_row(register: Register, id: Id) -> Row | None:
    """The row of a table of this id; None where there is none, or another kind of object."""
    row = register.rows.find(object_id(id))
    return row if row is not None and row.object_type == TABLE else None


def _found(catalog: Catalog, register: Register, id: Id, row: Row) -> Found:
    location = _where(catalog, register, row)
    return Found(id, location, location_uri(catalog.store.uri, location), row, None)


def _where(catalog: Catalog, register: Register, row: Row) -> str:
    """The directory of a row: where it is going, where it comes from, or its percent-encoded name."""
    if row.location is None:
        raise CatalogDamaged(
            f"the register of {catalog.store.uri} has table {row.object_id!r} without a location; "
            "`tiltyard catalog check` shows all such rows"
        )
    try:
        place = resolve(moves.standing(catalog.store, register, row.location))
    except InvalidInput as error:
        raise CatalogDamaged(
            f"the register of {catalog.store.uri} has table {row.object_id!r} at an impossible place: {error}"
        ) from error
    above = inside_table(catalog.store, place)
    if is_private(place) or above is not None:
        told = "the catalog or of a table" if above is None else f"the table at {above!r}"
        raise CatalogDamaged(
            f"the register of {catalog.store.uri} has table {row.object_id!r} at {place!r}, a part of "
            f"{told}: what is done to the one would be done to the other. {REPAIR} takes the row away"
        )
    encoded = quote(place, safe=KEPT_CHARACTERS)
    if encoded != place and not is_directory(catalog.store, place) and is_directory(catalog.store, encoded):
        return encoded
    return place


def directory_table(catalog: Catalog, register: Register, id: Id) -> Found | None:
    """A table by its name alone."""
    if len(id) > 1:
        if catalog.settings.mode is Mode.V1:
            raise UnsupportedFeature(
                "Child namespaces are only supported when manifest mode is enabled: "
                f"{object_id(id)!r} has a parent, and this catalog was opened with manifest_enabled=false"
            )
        return None
    location = root_location(id[0])
    if len(location.encode()) > MAX_DIRECTORY_BYTES:
        return None
    store = catalog.store
    if moves.leaving(store, register, location) or store.exists(f"{location}/{DEREGISTERED}"):
        return None
    if _is_anothers(store, register, id[0], location):
        return None
    if has_versions(store, location):
        declared = False
    elif store.exists(f"{location}/{RESERVED}"):
        declared = True
    else:
        return None
    return Found(id, location, location_uri(store.uri, location), None, declared)


def _is_anothers(store: Store, register: Register, name: str, location: str) -> bool:
    """Whether the register says that a directory is that of a renamed table, or of a dropped one.

    Then a marker hides it. But who takes a marker away reads it first, and where directories cannot be
    renamed it may have become another one since: the register says what it would have said.
    """
    if any(row.object_id != name for row in register.rows.by_location(location)):
        notes = store.list_names(f"{location}/{moves.PRIVATE}")
        if any(each.startswith(moves.HIDDEN_NOTE) for each in notes):
            return True  # else another program's row, beside the table that the directory is by its name
    for key, text in register.metadata.items():
        if key.startswith(moves.TRASH_PREFIX) and location in text:
            record = parsed(key, text)
            if record is not None and record.location == location:
                return True
    return False


def is_hidden_by_others(catalog: Catalog, location: str) -> bool:
    """Whether another program's marker hides a directory that a row names."""
    store = catalog.store
    if not store.exists(f"{location}/{DEREGISTERED}"):
        return False
    content = read_marker(store.at(location), DEREGISTERED)
    return content is not None and nonce_of(content) is None


def has_versions(store: Store, location: str) -> bool:
    """Whether a directory holds a version of a table; '' is the store's own."""
    if store.exists(joined(location, FIRST_VERSION)):
        return True
    for name in store.list_names(joined(location, VERSIONS_DIR)):
        parsed = parse_manifest_name(name)
        if parsed is not None and parsed[1] != "detached":
            return True
    return False


def is_directory(store: Store, location: str) -> bool:
    """Whether there is a directory of this name."""
    try:
        store.dir_stat(location)
    except ObjectNotFound:
        return False
    return True


def check_apart(catalog: Catalog, register: Register, location: str) -> None:
    """Raise CatalogDamaged where the directory of a table's name is, by a link, the catalog's root or its
    register: what is written to the table would be written over those.
    """
    store, what = catalog.store, None
    if location in store.list_names(location):
        what = "the catalog's root"
    else:
        path = FIRST_VERSION if register.snapshot is None else register.snapshot.location.path
        with suppress(ObjectNotFound):
            if store.stat(f"{location}/{path}").tag == store.stat(f"{REGISTER}/{path}").tag:
                what = "the catalog's register"
    if what is not None:
        raise CatalogDamaged(
            f"{store.uri}/{location} is a link to {what}, expected the directory of a table: look at it, and "
            "remove the link; nothing was written"
        )


def with_declared(catalog: Catalog, found: Found) -> Found:
    """The same with `declared_only` known."""
    if found.declared_only is not None:
        return found
    return replace(found, declared_only=not has_versions(catalog.store, found.location))


def root_names(catalog: Catalog, register: Register) -> list[str]:
    """Names below the root that may be tables, sorted: `find_or_none` says of each whether it is."""
    mode = catalog.settings.mode
    if mode is Mode.MANIFEST:
        return register.rows.children((), TABLE)
    found = set(_directory_names(catalog.store))
    if mode is not Mode.V1:
        found.update(register.rows.children((), TABLE))
    return sorted(found)


def _directory_names(store: Store) -> Iterator[str]:
    for name in store.list_names(""):
        if name.endswith(SUFFIX) and name != SUFFIX:
            yield name[: -len(SUFFIX)]


def no_table(catalog: Catalog, register: Register, id: Id) -> TableNotFound:
    """The error for an id that no table has; names those that are near."""
    names = root_names(catalog, register) if len(id) == 1 else register.rows.children(id[:-1], TABLE)
    if id[-1] in names:  # a directory that is hidden, or that holds no version
        return TableNotFound(
            f"no table {object_id(id)!r} in the catalog {catalog.store.uri}, though something has its name: "
            "a deregistered table, or what is left of one; `tiltyard catalog check` tells more"
        )
    near = nearest(id[-1], names) if len(names) <= MAX_COMPARED else f"there are {len(names)}"
    return TableNotFound(f"no table {object_id(id)!r} in the catalog {catalog.store.uri}; {near}")


def table_store(catalog: Catalog, found: Found) -> Store:
    """The store of a table's directory. It stays with the directory when that is moved aside, so that
    whoever has opened the table reads on.
    """
    return catalog.store.at(found.location)
