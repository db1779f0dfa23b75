"""Giving up the data of dropped tables, and of directories that nobody knows (decision D24).

1. First the record of the drop says `purging`, in a rewrite: from then on nobody brings the table back.
   Only then files are deleted, and what is not there any more does not matter.
2. The emptied directory of a table that was moved aside stays for one more while: a move that comes late
   finds its target taken. Then it goes, and the record with it.
3. A directory that a row or another dropped table still names, or that holds one that they name, is left
   alone.
4. Where a table's directory is a symbolic link, only the link goes: what it leads to is not ours to delete,
   and may be another table's.
5. Whoever is stopped half-way leaves the record, and the next purge goes on. One who slept looks again
   whether there is still something to delete.
Tests: tests/catalog/test_trash_purge.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import register_of
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.names import inside_table, is_inside, is_private, resolve
from tiltyard.catalog.rows import TABLE
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import look
from tiltyard.catalog.trash import DROPPED, PURGING, Dropped, grace_of, parsed, records
from tiltyard.errors import InvalidInput, ObjectNotFound, StoreError
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft
    from tiltyard.catalog.rows import Row
    from tiltyard.store import Store

EMPTY_SECONDS = 3_600.0
"""How long an emptied directory stays in the way of a late move."""

ORPHAN_SECONDS = 7 * 24 * 3_600.0
"""So old are directories that nobody knows when they go: a creator works in one before its row names it."""

LOOK_AGAIN_SECONDS = 10.0
"""How long files are deleted on the strength of one look at the record."""

AT_ONCE = 1000
"""Files that go between two looks at the clock."""

_HASHED = re.compile(r"[0-9a-f]{8}_.+", re.ASCII | re.DOTALL)


@dataclass(slots=True)
class Purged:
    """What a purge did."""

    given_up: list[Dropped] = field(default_factory=list)
    """Tables that can no longer be brought back."""
    removed: list[str] = field(default_factory=list)
    """Directories that are gone."""
    emptied: list[str] = field(default_factory=list)
    """Directories that hold no file any more, and go with a later purge."""
    waiting: list[str] = field(default_factory=list)
    """Those that an earlier purge emptied, and that stay until `EMPTY_SECONDS` are over."""


def purge(catalog: Catalog, grace_seconds: float | None = None) -> Purged:
    """Delete the data of dropped tables whose grace is over, and finish what earlier purges began.

    Without `grace_seconds` each table has the grace that it was dropped with; else what was dropped longer
    ago than that goes. Raises what a change of the catalog raises, and `StoreError` where files cannot be
    deleted: purge again.
    """
    if grace_seconds is not None:
        grace_of(catalog, grace_seconds)
    if catalog.settings.mode is Mode.V1:
        from tiltyard.catalog import unregistered

        return unregistered.purge(catalog, grace_seconds)
    done = Purged()
    metadata = look(catalog).register.metadata
    now_ns = catalog.store.now_ns()
    due = [
        each.key
        for each in records(metadata)
        if each.state == DROPPED and until(each, grace_seconds) <= now_ns
    ]
    if due:
        done.given_up = catalog.mutate(lambda draft: _given_up(draft, due))
    return finish_purging(catalog, done)


def until(record: Dropped, grace_seconds: float | None) -> int:
    """When a table's data may be given up (ns, store clock)."""
    if grace_seconds is None:
        return record.until_ns
    return record.dropped_ns + round(grace_seconds * NS_PER_SECOND)


def _given_up(draft: Draft, keys: Iterable[str]) -> list[Dropped]:
    """The decision for each of these records that still can be undone."""
    given_up = []
    for key in keys:
        record = parsed(key, draft.metadata.get(key, ""))
        if record is None or record.state != DROPPED:
            continue
        given_up.append(record)
        draft.metadata[key] = replace(record, state=PURGING).text()
    return given_up


def finish_purging(catalog: Catalog, done: Purged | None = None) -> Purged:
    """Delete what records say is to be deleted, and take out the records of what is gone."""
    done = Purged() if done is None else done
    register = look(catalog).register
    found = [each for each in records(register.metadata) if each.state == PURGING]
    if not found:
        return done
    now_ns = catalog.store.now_ns()
    gone: list[str] = []
    emptied: list[str] = []
    for record in found:
        step = _Step(catalog, register, record, now_ns)
        if step.run(done):
            gone.append(record.key)
        elif record.emptied_ns is None and step.is_empty:
            emptied.append(record.key)
    if gone or emptied:
        catalog.mutate(lambda draft: _noted(draft, gone, emptied, now_ns))
    return done


def _noted(draft: Draft, gone: Iterable[str], emptied: Iterable[str], now_ns: int) -> None:
    for key in gone:
        draft.metadata.pop(key, None)
    for key in emptied:
        record = parsed(key, draft.metadata.get(key, ""))
        if record is not None and record.emptied_ns is None:
            draft.metadata[key] = replace(record, emptied_ns=now_ns).text()


@dataclass(slots=True)
class _Step:
    """What is to be done next about one record."""

    catalog: Catalog
    register: Register
    record: Dropped
    now_ns: int
    is_empty: bool = False

    def run(self, done: Purged) -> bool:
        """Delete; whether the record has done its service."""
        record, store = self.record, self.catalog.store
        location = _deletable(store, self.register, record)
        if location is None:
            return True
        if record.home is None:
            if not removed_link(store, location) and record.hidden:
                self._empty(store, location)
            store.delete_tree(location)
            done.removed.append(location)
            return True
        if any(move.target == location for move in moves.pending(self.register.metadata)) and not _arrived(
            store, self.register, location
        ):
            return False  # the store refuses the move that was decided: nothing of ours is there yet
        if record.emptied_ns is None:
            if not removed_link(store, location):
                self._empty(store, location)
            self.is_empty = True
            done.emptied.append(location)
            return False
        if record.emptied_ns + round(EMPTY_SECONDS * NS_PER_SECOND) > self.now_ns:
            done.waiting.append(location)
            return False
        store.delete_tree(location)
        done.removed.append(location)
        return True

    def _empty(self, store: Store, location: str) -> None:
        """Delete every file below a directory, a marker that hides it last; the directories stay."""
        looked_at = runtime.monotonic()
        marker = f"{location}/{DEREGISTERED}"
        paths = [each.path for each in store.list(location)]
        going = [path for path in paths if path != marker]
        portions = [going[first : first + AT_ONCE] for first in range(0, len(going), AT_ONCE)]
        if marker in paths:
            portions.append([marker])
        for some in portions:
            if runtime.monotonic() - looked_at > LOOK_AGAIN_SECONDS:
                looked_at = runtime.monotonic()
                if self.record.key not in self.catalog.register().metadata:
                    return  # another purge has finished, and the name may be somebody else's
            store.delete_many(some).check()


def removed_link(store: Store, directory: str) -> bool:
    """Whether there is a link in the place of a directory; it is gone then."""
    try:
        return store.delete(directory)
    except StoreError:
        return False  # a directory


def _arrived(store: Store, register: Register, location: str) -> bool:
    return all(
        move.target != location or not store.exists(f"{move.source}/{move.witness}")
        for move in moves.pending(register.metadata)
    )


def _deletable(store: Store, register: Register, record: Dropped) -> str | None:
    """The directory to delete; None where there is none that is the dropped table's alone."""
    try:
        location = resolve(record.location)
    except InvalidInput:
        return None
    if is_private(location) or inside_table(store, location) is not None:
        return None  # a program that did not look gave a part of something else as the table's place
    if moves.is_visible(location) and not record.hidden:
        return None  # found by its name: whatever is there is a table of that name
    others = {each.location for each in records(register.metadata) if each.trash != record.trash}
    named = [*others, *(place for row in register.rows for place in _place_of(row))]
    if any(is_inside(each, location) or is_inside(location, each) for each in named):
        return None
    return location


def _place_of(row: Row) -> Iterator[str]:
    if row.object_type == TABLE and row.location is not None:
        try:
            yield resolve(row.location)
        except InvalidInput:
            return


# -- directories that nobody knows ---------------------------------------------------------------


def purge_orphans(catalog: Catalog, *, older_than_seconds: float = ORPHAN_SECONDS) -> list[str]:
    """Delete hashed directories at the root that no row, dropped table or move names, once nothing in them
    was written for so long; their names. Creators that died leave them, and lost races of other programs.
    """
    grace_of(catalog, older_than_seconds)
    store = catalog.store
    if not catalog.settings.mode.has_register:
        return []
    candidates = [name for name in store.list_names("") if _HASHED.fullmatch(name)]
    removed = []
    before_ns = store.now_ns() - round(older_than_seconds * NS_PER_SECOND)
    known = _known(register_of(catalog))
    for name in candidates:
        if _is_known(name, known) or _written_ns(store, name) > before_ns:
            continue
        if _is_known(name, _known(register_of(catalog))):
            continue  # a row came while we looked
        store.delete_tree(name)
        removed.append(name)
    return removed


def _known(register: Register) -> frozenset[str]:
    """The first part of every location that the register speaks of."""
    named = [place for row in register.rows for place in _place_of(row)]
    for record in records(register.metadata):
        named += [record.location, record.home or ""]
    for move in moves.pending(register.metadata):
        named += [move.source, move.target]
    return frozenset(each.lstrip("/").split("/")[0] for each in named)


def _is_known(name: str, known: frozenset[str]) -> bool:
    return name in known or unquote(name) in known


def _written_ns(store: Store, directory: str) -> int:
    """When anything in a directory was last written (ns, store clock)."""
    written = [each.mtime_ns for each in store.list(directory)]
    if not written:
        try:
            written = [store.dir_stat(directory) or 0]
        except ObjectNotFound:
            return store.now_ns()  # gone meanwhile: somebody is at work
    return max(written)
