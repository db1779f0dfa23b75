"""Looking at a catalog for damage: gathers the facts, and has `findings` judge them. Nothing is written.

Everything is read once and no lock is taken, so that what others change meanwhile can make a finding; what is
younger than the grace is only a notice for that reason, and `repair` looks again before it changes a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from tiltyard.catalog import batch_intents, moves, trash
from tiltyard.catalog.catalog import Catalog
from tiltyard.catalog.facts import GRACE_NS, Facts, Place
from tiltyard.catalog.findings import Finding, find
from tiltyard.catalog.found import KEPT_CHARACTERS, is_directory, register_of
from tiltyard.catalog.markers import DEREGISTERED, RESERVED
from tiltyard.catalog.names import SUFFIX, resolve
from tiltyard.catalog.register import check_place
from tiltyard.catalog.rows import NAMESPACE, TABLE
from tiltyard.errors import (
    CatalogDamaged,
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from tiltyard.session import Session
from tiltyard.table.row_counts import live_rows
from tiltyard.table.snapshot import open_latest
from tiltyard.table.versions import list_names

if TYPE_CHECKING:
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.rows import Row
    from tiltyard.store import Store

HASHED = re.compile(r"[0-9a-f]{8}_.*", re.ASCII | re.DOTALL)
"""Names of directories that catalogs give to tables of namespaces."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found; `tables` and `namespaces`: how many the register has."""

    findings: tuple[Finding, ...]
    version: int
    tables: int
    namespaces: int
    rows: tuple[Row, ...]
    """As they were: what a repair builds on."""

    @property
    def damaged(self) -> bool:
        return any(each.damage for each in self.findings)


def check(catalog: Catalog, *, grace_seconds: float | None = None) -> Report:
    """Look at everything that a catalog consists of. `grace_seconds`: directories younger than this may be of
    somebody at work (an hour without it). Raises `StoreError` where storage cannot be read.
    """
    facts = gather(catalog)
    if grace_seconds is not None:
        facts = replace(facts, grace_ns=round(grace_seconds * 1e9))
    tables, namespaces = (sum(row.object_type == kind for row in facts.rows) for kind in (TABLE, NAMESPACE))
    return Report(find(facts), facts.version, tables, namespaces, facts.rows)


def gather(catalog: Catalog) -> Facts:
    """The facts of a catalog as it is now. Of a catalog without a register there are those of directories."""
    store = catalog.store
    catalog = Catalog(store, catalog.settings, Session())  # what is there counts, not what is remembered
    nothing = Facts(0, (), {}, grace_ns=GRACE_NS)
    try:
        register = register_of(catalog)
        if catalog.settings.mode.has_register and not register.version:
            check_place(store, thoroughly=True)
        rows = tuple(register.rows)
    except UnsupportedFeature as error:
        return replace(nothing, unsupported=str(error))
    except (CorruptFile, CatalogDamaged, VersionNotFound) as error:
        return replace(nothing, unreadable=str(error))
    facts = _of_register(catalog, register)
    places, files = _places(store, rows, facts.named)
    for location in _disputed(rows):
        if location in places and places[location].is_table:
            places[location] = replace(places[location], rows=_count(catalog, location))
    batches, unreadable_batches = _batches(store)
    return replace(
        facts,
        rows=rows,
        elsewhere=_elsewhere(register, rows),
        places=places,
        files=files,
        batches=batches,
        unreadable_batches=unreadable_batches,
        torn=tuple(batch_intents.torn(store)),
        root_is_listed=catalog.settings.mode.lists_directories,
        has_register=catalog.settings.mode.has_register,
    )


def _of_register(catalog: Catalog, register: Register) -> Facts:
    """What the register says besides its rows, and what form it has."""
    metadata = register.metadata
    dropped = trash.records(metadata)
    under_way = moves.pending(metadata)
    named = {each.location for each in dropped} | {each.home for each in dropped if each.home is not None}
    for location in _locations(tuple(register.rows)):
        first = location.partition("/")[0]
        named |= {location, first, quote(first, safe=KEPT_CHARACTERS)}
    for move in under_way:
        named |= {move.source, move.target}
    facts = Facts(
        register.version,
        (),
        {},
        named=frozenset(named),
        dropped={
            each.key: (each.object_id, (each.location, each.home or ""))
            for each in dropped
            if each.state == trash.DROPPED  # of others the data are to be gone
        },
        purged=tuple((each.object_id, each.location) for each in dropped if each.state == trash.PURGING),
        moves=tuple(_told(each) for each in under_way if _is_to_do(catalog.store, each)),
        unreadable_records={
            key: metadata[key] for key in (*trash.unreadable(metadata), *moves.unreadable(metadata))
        },
        extra_columns=tuple(register.rows.extra_columns),
    )
    if register.snapshot is None:
        return facts
    manifest = register.snapshot.manifest
    return replace(
        facts,
        primary_key=manifest.schema.fields[0].primary_key,
        fragments=len(manifest.fragments),
        deletions=manifest.fragments.any_deletions,
        indices=tuple(sorted(each.name for each in manifest.indices)),
        versions=len(list_names(catalog.register_store)),
    )


def _batches(store: Store) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The intents of batches that are under way, and those that cannot be read."""
    sound, unreadable = [], []
    for path in batch_intents.pending(store):
        try:
            if batch_intents.read_intent(store, path) is not None:
                sound.append(path)
        except CorruptFile:
            unreadable.append(path)
    return tuple(sound), tuple(unreadable)


def _is_to_do(store: Store, move: moves.Move) -> bool:
    """Whether a move was decided and not yet carried out; its record stays until the next change."""
    match move.kind:
        case moves.Kind.MOVE:
            return store.exists(f"{move.source}/{move.witness}")
        case moves.Kind.HIDE:
            return is_directory(store, move.source) and not store.exists(f"{move.source}/{DEREGISTERED}")
        case _:
            return store.exists(f"{move.target}/{DEREGISTERED}")


def _told(move: moves.Move) -> str:
    return f"{move.object_id}: {move.kind.value} {move.source or move.target} {move.target}".rstrip()


def _elsewhere(register: Register, rows: tuple[Row, ...]) -> dict[str, tuple[str, ...]]:
    """By location of a row: every place where its directory may be just now."""
    found = {}
    for row in rows:
        if row.object_type == TABLE and row.location is not None:
            encoded = quote(row.location, safe=KEPT_CHARACTERS)
            places = dict.fromkeys((*moves.places(register, row), encoded))
            if len(places) > 1:
                found[row.location] = tuple(places)
    return found


def _places(
    store: Store, rows: tuple[Row, ...], named: frozenset[str]
) -> tuple[dict[str, Place], tuple[str, ...]]:
    """Every directory that looks like a table's, or that a row names; and files named like tables."""
    places: dict[str, Place] = {}
    files = []
    for name in store.list_names(""):
        if not (name.endswith(SUFFIX) and name != SUFFIX) and not HASHED.fullmatch(name):
            continue
        if store.exists(name):
            files.append(name)
        else:
            places[name] = _place(store, name, name in named)
    for location in sorted(set(_locations(rows)) - set(places)):
        if is_directory(store, location):
            places[location] = _place(store, location, True)
    for row in rows:  # a row may write its place in another way
        if row.location is not None and row.location not in places:
            for location in _locations((row,)):
                if location in places:
                    places[row.location] = places[location]
    return places, tuple(each for each in files if each.endswith(SUFFIX))


def _locations(rows: tuple[Row, ...]) -> Iterator[str]:
    for row in rows:
        if row.object_type == TABLE and row.location is not None:
            try:
                yield resolve(row.location)
            except InvalidInput:
                continue  # there is nothing at such a place


def _place(store: Store, location: str, used: bool) -> Place:
    names = store.list_names(location)
    versions = list_names(store.at(location))
    return Place(
        entries=len(names),
        latest=versions[-1].version if versions else 0,
        reserved=RESERVED in names,
        deregistered=DEREGISTERED in names,
        # How old a table is does not matter; a directory without a version may be somebody's at work.
        age_ns=0 if used or (versions and location.endswith(SUFFIX)) else _age(store, location),
    )


def _age(store: Store, location: str) -> int:
    """How long ago anything in a directory was last written (ns, store clock)."""
    written = [each.mtime_ns for each in store.list(location)]
    if not written:
        try:
            written = [store.dir_stat(location) or 0]
        except ObjectNotFound:
            return 0  # gone meanwhile: somebody is at work
    return store.now_ns() - max(written)


def _disputed(rows: tuple[Row, ...]) -> set[str]:
    """Locations of tables that share their id with another table."""
    by_id: dict[str, set[str]] = {}
    for row in rows:
        if row.object_type == TABLE and row.location is not None:
            by_id.setdefault(row.object_id, set()).add(row.location)
    return {location for each in by_id.values() if len(each) > 1 for location in each}


def _count(catalog: Catalog, location: str) -> int:
    """Live rows of a table's newest version; 0 where it cannot be read."""
    try:
        return int(live_rows(open_latest(catalog.store.at(location), catalog.session)).sum())
    except (CorruptFile, TableNotFound, VersionNotFound, UnsupportedFeature):
        return 0
