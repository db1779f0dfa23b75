"""Deletion vectors of fragments: loading, caching, and the arithmetic between live and physical rows.

A *physical offset* counts all rows of a fragment, a *live position* only those that are not deleted. Deletion
files have random names, so the path is the whole cache key (table format, section 4; decision D37).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, ObjectNotFound
from tiltyard.format.deletion import decode_deletions
from tiltyard.format.fragment import DeletionFile, Fragment
from tiltyard.table.bases import deletion_place
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.format.manifest import Manifest
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

ENTRY_BYTES = 128
"""What a cached vector is accounted as beside its offsets (bytes)."""

Offsets = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]


def load_deletions(snapshot: Snapshot, fragment: Fragment) -> npt.NDArray[np.uint32] | None:
    """Sorted physical offsets of the deleted rows of one of the snapshot's fragments; None when none is
    deleted.
    """
    if fragment.deletion is None:
        return None
    offsets = read_deletions(snapshot.store, snapshot.session, snapshot.manifest, fragment)
    return offsets if len(offsets) else None


def read_deletions(
    store: Store, session: Session, manifest: Manifest, fragment: Fragment
) -> npt.NDArray[np.uint32]:
    """Sorted physical offsets of the deleted rows of a fragment, through the session's cache.

    Raises `CorruptFile` when the file is missing, disagrees with the manifest or names rows that the fragment
    does not have.
    """
    deletion = fragment.deletion
    if deletion is None:
        return np.empty(0, dtype=np.uint32)
    place, path = deletion_place(store, session, manifest, fragment)

    def make() -> tuple[Any, int]:
        try:
            data = place.read(path)
        except ObjectNotFound as error:
            raise CorruptFile(
                f"deletion file of fragment {fragment.id} is missing in version {manifest.version} of "
                f"{store.uri}",
                path=path,
            ) from error
        offsets = decode_deletions(data, deletion.kind, path)
        return offsets, offsets.nbytes + ENTRY_BYTES

    found: npt.NDArray[np.uint32] = session.cache.get_or_once((place.identity, path, "deletions", ""), make)
    _check(found, deletion, fragment, path)  # each time: another manifest may say other things about the file
    return found


def _check(offsets: npt.NDArray[np.uint32], deletion: DeletionFile, fragment: Fragment, path: str) -> None:
    if len(offsets) != deletion.rows:
        raise CorruptFile(
            f"deletion file of fragment {fragment.id} lists {len(offsets)} rows where the manifest says "
            f"{deletion.rows}",
            path=path,
        )
    if len(offsets) and fragment.physical_rows and int(offsets[-1]) >= fragment.physical_rows:
        raise CorruptFile(
            f"deletion file names row {int(offsets[-1])} of fragment {fragment.id}, "
            f"which has {fragment.physical_rows}",
            path=path,
        )


def physical_offsets(deleted: npt.NDArray[np.uint32], positions: Offsets) -> Offsets:
    """Physical offsets of the rows at these live positions, any order (int64 in, int64 out)."""
    before = deleted.astype(np.int64) - np.arange(len(deleted), dtype=np.int64)
    return positions + np.searchsorted(before, positions, side="right")


def live_offsets(deleted: npt.NDArray[np.uint32], start: int, stop: int) -> Offsets:
    """Physical offsets of the live rows `start` to `stop`, ascending."""
    if stop <= start:
        return np.empty(0, dtype=np.int64)
    ends = physical_offsets(deleted, np.array([start, stop - 1], dtype=np.int64))
    first, last = int(ends[0]), int(ends[1])
    if last - first == stop - start - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    low, high = np.searchsorted(deleted, [first, last + 1])
    keep = np.ones(last + 1 - first, dtype=bool)
    keep[deleted[low:high].astype(np.int64) - first] = False
    return np.flatnonzero(keep) + first


def rows_to_read(deleted: npt.NDArray[np.uint32] | None, start: int, stop: int) -> slice | Offsets:
    """The physical rows behind a live range: a slice when nothing inside it is deleted."""
    if deleted is None:
        return slice(start, stop)
    offsets = live_offsets(deleted, start, stop)
    if len(offsets) == 0:
        return slice(0, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    return slice(first, last + 1) if last - first == len(offsets) - 1 else offsets


def without_deleted(
    deleted: npt.NDArray[np.uint32] | Addresses | None, offsets: Offsets | Addresses
) -> npt.NDArray[np.bool_]:
    """Which of these physical offsets of one fragment, or addresses of any, are live."""
    if deleted is None:
        return np.ones(len(offsets), dtype=bool)
    at = np.searchsorted(deleted, offsets)
    at[at == len(deleted)] = len(deleted) - 1
    live: npt.NDArray[np.bool_] = deleted[at] != offsets
    return live


def deleted_addresses(snapshot: Snapshot, ids: Iterable[int]) -> Addresses | None:
    """Addresses (uint64, ascending) of the deleted rows of the fragments with these ids; None when none is
    deleted. An id that the version does not have has no rows.
    """
    found: list[Addresses] = []
    for id in sorted(ids):
        fragment = snapshot.fragment(id)
        deleted = None if fragment is None else load_deletions(snapshot, fragment)
        if deleted is not None:
            found.append(deleted | np.uint64(id << FRAGMENT_SHIFT))
    return np.concatenate(found) if found else None


def union(deleted: npt.NDArray[np.uint32] | None, more: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Both sets of offsets, sorted, each once."""
    both = more if deleted is None else np.concatenate((deleted, more))
    if not bool((both[1:] > both[:-1]).all()):
        both = np.sort(both, kind="stable")  # two ascending runs are merged, not sorted
        fresh = np.ones(len(both), dtype=bool)
        np.not_equal(both[1:], both[:-1], out=fresh[1:])
        both = both[fresh]
    return both.astype(np.uint32, copy=False)
