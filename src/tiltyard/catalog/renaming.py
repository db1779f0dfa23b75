"""Renaming tables, across namespaces too, without copying anything (decision D25).

One rewrite takes the old row out and puts the new one, and decides. The directory stays where it is when
nobody finds it by its name; else it moves along (`moves`): `<old>.lance` to `<new>.lance`, out of the root to
a location of its own, and a table that comes to the root to the name under which every program finds it.
Where the store cannot rename directories it stays, and a marker takes it out of the sight of programs that
look by names.

1. Of all that rename one table, or give one name, exactly one succeeds; the others get TableNotFound or
   TableAlreadyExists.
2. Parents are looked for in the rewrite: a renamed table is never below a namespace that is not there.
3. If something takes the new directory's name between the rewrite and the directory's move, the renamed table
   gets a directory of its own.
Tests: tests/catalog/test_renaming.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import Found, find_or_none, no_table
from tiltyard.catalog.moves import Kind, Move
from tiltyard.catalog.names import (
    Id,
    check_new_id,
    hashed_location,
    location_uri,
    object_id,
    root_location,
    shown,
)
from tiltyard.catalog.planning import (
    NamePlace,
    Outdated,
    check_place,
    deciding,
    finish,
    name_place,
    planned,
    planned_move,
)
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import FREE_FOR_RENAME, check_parents, look, taken
from tiltyard.errors import InvalidInput, TableAlreadyExists

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft


def rename_table(catalog: Catalog, id: Id, new_id: Id) -> Found:
    """Give a table another id, its namespace and its name or one of them; where it is now.

    Raises TableNotFound, TableAlreadyExists (something has the new id), NamespaceNotFound (its parent is
    missing), InvalidName, CatalogThrottled and StoreError (nothing was changed), OutcomeUnknown.
    """
    if not new_id:
        raise InvalidInput("the new id of a table cannot be empty: a table has a name")
    check_new_id(new_id, "a table")
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.rename_table(catalog, id, new_id)

    def attempt() -> Found:
        register = look(catalog).register
        found = find_or_none(catalog, register, id)
        if found is None:
            raise no_table(catalog, register, id)
        return _Rename(catalog, register, found, new_id).run()

    return planned(catalog, id, "renamed", attempt)


class _Rename:
    """One plan of a rename."""

    def __init__(self, catalog: Catalog, register: Register, found: Found, new_id: Id) -> None:
        self.catalog = catalog
        self.register = register
        self.found = found
        self.new_id = new_id
        self.row_location = None if found.row is None else found.row.location
        self.source = found.location
        self.target = self.source
        self.move: Move | None = None
        self.place: NamePlace | None = None

    def _target(self) -> str:
        """The directory that the table is to have."""
        mode, source = self.catalog.settings.mode, self.source
        if not mode.lists_directories:
            return source
        self.place = name_place(self.catalog, self.new_id, source)
        if len(self.new_id) == 1 and (self.place is None or self.place.is_free):
            return root_location(self.new_id[0])
        return hashed_location(self.new_id) if moves.is_visible(source) else source

    def run(self) -> Found:
        catalog = self.catalog
        self._check_free()
        self.target = self._target()
        table = None
        if self.target != self.source:
            name = object_id(self.new_id)
            self.move, table = planned_move(catalog, self.source, self.target, name)
            if self.move is None and not moves.is_visible(self.source):
                self.target = self.source  # registered before anything is there: it is written to that place
            if self.move is not None and self.move.kind is Kind.HIDE:
                self.target = self.source
                if not moves.is_visible(self.source):
                    self.move = None
        elif moves.is_visible(self.source):
            nonce = moves.marker_nonce(catalog.store, self.source)
            if nonce is not None:  # hidden when it was renamed away, where directories cannot be renamed
                name = object_id(self.new_id)
                self.move = Move(str(runtime.uuid4()), Kind.SHOW, "", self.source, name, nonce=nonce)
        with deciding(self.move, table):
            row = catalog.mutate(self._change)
        if self.move is not None:
            self.target = finish(catalog, self.move, runtime.monotonic()) or self.source
        uri = location_uri(catalog.store.uri, self.target)
        return Found(self.new_id, self.target, uri, row, self.found.declared_only)

    def _check_free(self) -> None:
        """Raise TableAlreadyExists where the id is not free, also for tables without a row."""
        catalog, register = self.catalog, self.register
        row = register.rows.find(object_id(self.new_id))
        if row is not None:
            raise taken(row, FREE_FOR_RENAME)
        check_parents(register.rows, self.new_id)
        if find_or_none(catalog, register, self.new_id) is not None:
            raise TableAlreadyExists(
                f"table {shown(self.new_id)} exists already in {catalog.store.uri}{FREE_FOR_RENAME}"
            )

    def _change(self, draft: Draft) -> Row:
        found, new = self.found, object_id(self.new_id)
        old = object_id(found.id)
        row = draft.rows.find(old)
        if (row is None) != (found.row is None):
            raise Outdated
        if row is not None and (row.object_type != TABLE or row.location != self.row_location):
            raise Outdated
        there = draft.rows.find(new)
        if there is not None:
            raise taken(there, FREE_FOR_RENAME)
        check_parents(draft.rows, self.new_id)
        check_place(self.catalog, self.place)
        for place in (self.source, self.target):
            if moves.is_visible(place) and moves.changed_since(self.register, draft.metadata, place):
                raise Outdated  # also where no directory was seen: it may have been away for a moment
        if self.move is None and found.row is None:
            raise Outdated  # the directory went away while we looked
        made = Row(new, TABLE, self.target) if row is None else replace(row, object_id=new)
        draft.remove(old)
        if self.move is not None:
            if self.move.kind is Kind.MOVE:
                moves.relocate(draft, self.move.source, self.move.target)
            moves.add(draft.metadata, self.move)
        made = replace(made, location=self.target)
        draft.put(made)
        return made
