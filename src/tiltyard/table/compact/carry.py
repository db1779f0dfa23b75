"""What others did to the rewritten fragments since they were read (case O05).

A compaction changes no row, so that it need not give way to one who deletes or moves rows meanwhile: rows
that are gone from the old fragments are marked as deleted in the new ones, found through the row map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard.errors import ObjectNotFound, VersionNotFound
from tiltyard.format.fragment import Fragment
from tiltyard.format.operations import Delete, Update
from tiltyard.table.compact.moves import GroupMoves
from tiltyard.table.conflict.touched import removed_fragments
from tiltyard.table.deletions import load_deletions, read_deletions
from tiltyard.table.snapshot import read_transaction
from tiltyard.table.versions import locate

if TYPE_CHECKING:
    from tiltyard.table.compact.results import Rewritten
    from tiltyard.table.snapshot import Snapshot

MAX_VERSIONS_BACK = 1000
"""Versions whose transactions are read to learn how a fragment went; beyond, the group is planned again."""

Offsets = npt.NDArray[np.uint32]
Deletions = Mapping[int, Offsets]


@dataclass(frozen=True, slots=True)
class Carried:
    """A group on the newest version: its old fragments as they stand there (those whose last row went are
    out), and per position in `new` the rows that were deleted meanwhile (sorted uint32 offsets).
    """

    old: tuple[Fragment, ...]
    deleted: Deletions


def planned_deletions(snapshot: Snapshot, rewritten: Rewritten) -> dict[int, Offsets | None]:
    """Deleted offsets of each old fragment when it was read; None where there are none.

    Raises `CorruptFile` when a deletion file is gone.
    """
    return {
        each.id: None
        if each.deletion is None
        else read_deletions(snapshot.store, snapshot.session, snapshot.manifest, each)
        for each in rewritten.old
    }


def group_moves(
    rewritten: Rewritten, deleted: Mapping[int, Offsets | None], new_ids: Sequence[int]
) -> GroupMoves:
    """The row map of a group whose new fragments have these ids."""
    return GroupMoves(
        [(each.id, each.physical_rows, deleted[each.id]) for each in rewritten.old],
        [(id, each.physical_rows) for id, each in zip(new_ids, rewritten.new, strict=True)],
    )


def carry(snapshot: Snapshot, rewritten: Rewritten, planned: Mapping[int, Offsets | None]) -> Carried | str:
    """The group on a newer version, or why it cannot follow: a clause that completes "because ..."."""
    ids = [each.id for each in rewritten.old]
    found = dict(zip(ids, snapshot.fragments.by_ids(ids), strict=True))
    gone = [id for id, now in found.items() if now is None]
    if gone:
        emptied = _emptied_since(snapshot, rewritten.read_version)
        if not emptied.issuperset(gone):
            lost = sorted(set(gone) - emptied)
            return f"fragments {lost[:5]} were rewritten or removed meanwhile"
    old: list[Fragment] = []
    addresses: list[npt.NDArray[np.uint64]] = []
    for each in rewritten.old:
        now = found[each.id]
        if now is each:
            old.append(now)
            continue
        if now is None:
            deleted = np.arange(each.physical_rows, dtype=np.uint32)
        else:
            reason = _changed(each, now)
            if reason:
                return reason
            old.append(now)
            if now.deletion == each.deletion:
                continue
            loaded = load_deletions(snapshot, now)
            deleted = np.empty(0, np.uint32) if loaded is None else loaded
            before = planned[each.id]
            if before is not None and len(np.setdiff1d(before, deleted, assume_unique=True)):
                return f"rows of fragment {each.id} came back meanwhile"
        addresses.append((np.uint64(each.id) << np.uint64(32)) + deleted.astype(np.uint64))
    if not addresses:
        return Carried(tuple(old), {})
    # The new fragments are numbered 0, 1, ... here: which ids they get does not matter.
    moves = group_moves(rewritten, planned, range(len(rewritten.new)))
    _, moved = moves.moved(np.concatenate(addresses))
    owners = (moved >> np.uint64(32)).astype(np.int64)
    return Carried(
        tuple(old),
        {
            int(owner): np.sort((moved[owners == owner] & np.uint64(0xFFFFFFFF)).astype(np.uint32))
            for owner in np.unique(owners)
        },
    )


def _changed(before: Fragment, now: Fragment) -> str:
    """Why a fragment's rows are not those that were rewritten; empty when they are, but for deleted ones."""
    if now.files != before.files or now.physical_rows != before.physical_rows:
        return f"columns of fragment {before.id} were rewritten meanwhile"
    if now.overlays != before.overlays:
        return f"columns of fragment {before.id} were overlaid meanwhile"
    lineage = ("row_ids", "created_versions", "last_updated_versions")
    if any(getattr(now, name) != getattr(before, name) for name in lineage):
        return f"the row lineage of fragment {before.id} changed meanwhile"
    return ""


def _emptied_since(snapshot: Snapshot, version: int) -> frozenset[int]:
    """Fragments whose last rows were deleted or moved away after a version."""
    if snapshot.version - version > MAX_VERSIONS_BACK:
        return frozenset()
    emptied: set[int] = set()
    for number in range(version + 1, snapshot.version + 1):
        try:
            location = locate(snapshot.store, number)
            transaction = read_transaction(snapshot.store, snapshot.session, location)
        except (VersionNotFound, ObjectNotFound):
            continue  # then what it emptied counts as lost
        if transaction is not None and isinstance(transaction.operation, Delete | Update):
            emptied |= removed_fragments(transaction.operation)
    return frozenset(emptied)
