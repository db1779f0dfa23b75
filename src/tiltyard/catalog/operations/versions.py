"""Versions of a table: listed, described, restored, and their manifests removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.catalog.found import find_table
from tiltyard.catalog.names import object_id
from tiltyard.catalog.operations.opening import chain_of, open_found, opened, refuse_branch, transaction_of
from tiltyard.errors import InvalidInput, ObjectNotFound, VersionNotFound
from tiltyard.store import object_key
from tiltyard.table.cleanup.run import check_removable, remove_versions
from tiltyard.table.cleanup.survey import place_of
from tiltyard.table.versions import VersionLocation, latest, list_versions, locate

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.dataset import LanceDataset
    from tiltyard.store import Store

MAX_RANGE_VERSIONS = 1_000_000
"""How many versions the bounded ranges of one request may name together."""
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version: its manifest's key, bytes, tag, and when it was written (ms)."""

    version: int
    manifest_path: str
    manifest_size: int
    e_tag: str
    timestamp_millis: int


def list_table_versions(
    catalog: Catalog,
    id: Id,
    *,
    branch: str | None = None,
    descending: bool = False,
    after: int | None = None,
    limit: int | None = None,
) -> tuple[list[TableVersion], int | None]:
    """Versions in order, at most `limit` of them after version `after`; and, where more follow, the last
    version given, which the next call takes as `after`.
    """
    store = chain_of(catalog, find_table(catalog, id), branch)
    found = list_versions(store)
    if descending:
        found.reverse()
    if after is not None:
        found = [each for each in found if (each.version < after if descending else each.version > after)]
    page = found if limit is None else found[:limit]
    shown = [told for each in page if (told := _told(store, each)) is not None]
    return shown, page[-1].version if page and len(page) < len(found) else None


def describe_table_version(
    catalog: Catalog, id: Id, version: int | None = None, *, branch: str | None = None
) -> TableVersion:
    """One version, the newest without a number. Raises `VersionNotFound`."""
    store = chain_of(catalog, find_table(catalog, id), branch)
    if version is not None and version < 1:
        raise VersionNotFound(f"version {version} for table id {object_id(id)!r}: versions begin at 1")
    location = latest(store, catalog.session) if version is None else locate(store, version)
    told = _told(store, location)
    if told is None:
        raise VersionNotFound(f"version {location.version} for table id {object_id(id)!r} was removed")
    return told


def restore(catalog: Catalog, id: Id, version: int, *, branch: str | None = None) -> tuple[int, str | None]:
    """Make an old version the newest again; the new version and the uuid of its transaction."""
    refuse_branch(branch, "restore_table")
    if version < 1:
        raise VersionNotFound(f"version {version} for table id {object_id(id)!r}: versions begin at 1")
    table = opened(catalog, id, version=version)
    table.restore()
    return table._held.version, transaction_of(table)


def delete_table_versions(
    catalog: Catalog, id: Id, ranges: Sequence[tuple[int, int]], *, branch: str | None = None
) -> int:
    """Remove the manifests of versions and say how many went; data files stay for a cleanup.

    Each range ends before its second number; a negative one takes all through the newest. The newest version
    itself must stay, and so must those that tags and branches hold: raises `InvalidInput` and
    `CleanupRefused` before anything is removed.
    """
    table, chosen = _to_delete(catalog, id, ranges, branch)
    if not chosen:
        return 0
    return len(remove_versions(place_of(table._held, table._root), table._held.version, chosen))


def check_deletion(
    catalog: Catalog, id: Id, ranges: Sequence[tuple[int, int]], to_come: int | None = None
) -> None:
    """Raise what `delete_table_versions` would raise once a version `to_come` was published, if any: nothing
    is removed.
    """
    table, chosen = _to_delete(catalog, id, ranges, None, to_come)
    check_removable(place_of(table._held, table._root), table._held.version, chosen)


def _to_delete(
    catalog: Catalog,
    id: Id,
    ranges: Sequence[tuple[int, int]],
    branch: str | None,
    to_come: int | None = None,
) -> tuple[LanceDataset, set[int]]:
    """The table, and those of its versions that lie in the ranges."""
    named = 0
    for start, end in ranges:
        named += max(0, end - start) if end >= 0 else 0
    if named > MAX_RANGE_VERSIONS:
        raise InvalidInput(
            f"the ranges name {named} versions; one request removes at most {MAX_RANGE_VERSIONS}"
        )
    table = open_found(catalog, find_table(catalog, id), branch=branch)
    there = {each.version for each in list_versions(table._store)}
    newest = table._held.version
    if to_come is not None:
        newest = to_come
        there.add(to_come)
    chosen = {
        each for each in there if any(start <= each and (end < 0 or each < end) for start, end in ranges)
    }
    if newest in chosen:
        raise InvalidInput(
            f"version {newest} is the newest of table id {object_id(id)!r} and must stay: end the range "
            "before it, or drop the table"
        )
    return table, chosen


def _told(store: Store, location: VersionLocation) -> TableVersion | None:
    """What an answer says about a version; None where it was removed meanwhile."""
    try:
        stat = store.stat(location.path)
    except ObjectNotFound:
        return None
    return TableVersion(
        location.version,
        object_key(store, location.path),
        stat.size,
        f'"{stat.tag}"',
        stat.mtime_ns // NS_PER_MS,
    )
