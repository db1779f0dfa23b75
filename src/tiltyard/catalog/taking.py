"""Taking an id in the register: what everything that gives a name to something checks, on each retry anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from tiltyard.catalog import moves
from tiltyard.catalog.names import Id, object_id, shown
from tiltyard.catalog.register import absent, check_place, check_writer
from tiltyard.catalog.rows import NAMESPACE, Row, damaged_twice
from tiltyard.errors import NamespaceNotFound, StoreError, TableAlreadyExists

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft
    from tiltyard.catalog.waiting import NewRow
    from tiltyard.store import Store

    class HasRows(Protocol):
        """Rows of a version, or of a draft."""

        def all(self, object_id: str) -> Sequence[Row]: ...


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """A catalog as a change found it, with moves that were begun carried out."""

    catalog: Catalog
    register: Register
    root: Store

    def mutate(self, mutation: Callable[[Draft], T], new: NewRow | None = None) -> T:
        """Carry out a change (`Catalog.mutate`) of the catalog that was looked at. Raises StoreError where
        that was removed.
        """
        self.catalog.follow()
        if self.catalog.store is not self.root:
            raise StoreError(
                f"the catalog at {self.root.uri} was removed while it was to be changed; nothing was changed "
                "in what stands there now, if anything: try again"
            )
        return self.catalog.mutate(mutation, new=new)

    def has_left(self, draft: Draft, id: Id, location: str) -> bool:
        """Whether a table, or its directory, was dropped, renamed or moved since this look."""
        return moves.left_since(self.register, draft.metadata, object_id(id), location)

    def is_outdated(self, location: str) -> bool:
        """Whether a table has left or got a location since this look."""
        if not self.catalog.settings.mode.has_register:
            return False
        return moves.changed_since(self.register, self.catalog.register().metadata, location)


def look(catalog: Catalog) -> Look:
    """The newest version of the register, of which changes may be made.

    Raises CatalogDamaged and UnsupportedFeature where no change will be possible: before anything is written.
    """
    if not catalog.settings.mode.has_register:
        catalog.follow()
        catalog.finish_batches()
        return Look(catalog, absent(), catalog.store)
    register = catalog.register()
    root = catalog.store
    if register.version:
        check_writer(register.metadata, catalog.store.uri)
        for twice, count in register.rows.duplicates().items():
            raise damaged_twice(twice, count)
    else:
        check_place(catalog.store, thoroughly=True)
    return Look(catalog, moves.roll_forward(catalog, register), root)


def glance(catalog: Catalog, id: Id) -> Look | None:
    """The register as it was not long ago, for a new row that is decided in its round and nowhere else; None
    where that does not say that the id is free: look then.

    While others change the catalog a look reads what they have made, only to read it again in the round, or
    not at all where another process puts the row.
    """
    if not catalog.settings.mode.has_register:
        return None
    catalog.follow()
    register = catalog.register_of_late()
    if register is None or register.rows.duplicates() or moves.moves_of(register):
        return None
    try:
        check_parents(register.rows, id)
    except NamespaceNotFound:
        return None
    return None if register.rows.all(object_id(id)) else Look(catalog, register, catalog.store)


def check_parents(rows: HasRows, id: Id) -> None:
    """Raise NamespaceNotFound unless every namespace above an id exists."""
    for depth in range(1, len(id)):
        above = object_id(id[:depth])
        if not any(row.object_type == NAMESPACE for row in rows.all(above)):
            raise NamespaceNotFound(
                f"parent namespace {above!r} of {shown(id)} does not exist; create it first"
            )


FREE_FOR_RENAME = "; choose another name, or rename or drop what has this one first"
"""What to do where the new name of a table is taken."""

FREE_FOR_UNDROP = "; a dropped table comes back under its own name: rename or drop what has it first"
"""What to do where the name of a dropped table is taken."""


def taken(row: Row, advice: str = "") -> TableAlreadyExists:
    """The error for an id that a table was to get, and that something has; `advice` for what to do next."""
    what = "a namespace" if row.object_type == NAMESPACE else f"a {row.object_type}"
    return TableAlreadyExists(f"{row.object_id!r} exists already: {what} has this id{advice}")
