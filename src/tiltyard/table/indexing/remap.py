"""Indices after a compaction: the same values, with the addresses that their rows have now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.errors import CorruptFile, ObjectNotFound
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.names import index_directory
from tiltyard.format.operations import RewrittenIndex
from tiltyard.index.btree.written import remap
from tiltyard.table.index_entries import covered_fragments, stores_addresses
from tiltyard.table.index_segments import Segment, is_usable, segment_of
from tiltyard.table.indexing.source import discard_segments
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

Addresses = npt.NDArray[np.uint64]
_SHIFT = np.uint64(FRAGMENT_SHIFT)


class Moves(Protocol):
    """Where rows went. `RowMap` is the plain one."""

    def moved(self, addresses: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """Which of some old addresses of rewritten fragments have a new one, and those."""
        ...


@dataclass(frozen=True, slots=True)
class RowMap:
    """`old`: addresses (uint64, ascending) of rows of rewritten fragments; `new`: beside each, where the row
    is now. Rows that are not listed are gone."""

    old: Addresses
    new: Addresses

    def moved(self, addresses: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """See `Moves`."""
        if not len(self.old):
            return np.zeros(len(addresses), np.bool_), addresses[:0]
        at = np.minimum(np.searchsorted(self.old, addresses), len(self.old) - 1)
        found: npt.NDArray[np.bool_] = self.old[at] == addresses
        return found, self.new[at[found]]


def remap_indices(
    snapshot: Snapshot, moves: Moves, groups: Sequence[tuple[frozenset[int], frozenset[int]]]
) -> list[RewrittenIndex]:
    """Write the segments that hold addresses of rewritten fragments anew, and name them for a Rewrite.

    `groups`: pairs of (ids of fragments that were rewritten together, ids of those in their place). Segments
    of other kinds, those whose entries name none of the fragments, or some whose rows they do not hold, and
    those whose files are damaged are left as they are: a version after the rewrite scans what they no longer
    answer for. On failure nothing is left; `discard_remapped` takes away what a commit did not take.
    """
    rewritten = frozenset(id for old, _ in groups for id in old)
    stable = uses_stable_row_ids(snapshot.manifest)
    made: list[RewrittenIndex] = []
    with _or_nothing(snapshot, made):
        for entry in snapshot.manifest.indices:
            if not is_usable(entry) or (stable and not stores_addresses(entry)):
                continue
            named = rewritten & (covered_fragments(entry) or frozenset())
            if not named:
                continue
            segment = segment_of(snapshot, entry)
            if not named.issubset(segment.fragments.tolist()):
                continue  # it claims more than it holds, and would claim the fragments in their place
            new = _remapped(snapshot, segment, moves, rewritten)
            if new is not None:
                made.append(new)
    return made


def _remapped(
    snapshot: Snapshot, segment: Segment, moves: Moves, rewritten: frozenset[int]
) -> RewrittenIndex | None:
    old = np.array(sorted(rewritten), np.uint32)

    def kept(ids: Addresses) -> tuple[npt.NDArray[np.bool_] | None, Addresses]:
        keep, now = segment.located(ids)
        at = np.flatnonzero(np.isin((now >> _SHIFT).astype(np.uint32), old))
        found, new = moves.moved(now[at])
        now[at[found]] = new
        stays = np.ones(len(now), np.bool_)
        stays[at[~found]] = False
        keep[np.flatnonzero(keep)[~stays]] = False
        return keep, now[stays]

    entry = segment.entry
    uuid = str(runtime.uuid4())
    version = entry.index_version or 0
    try:
        built = remap(snapshot.store, index_directory(uuid), segment.tree(), kept, index_version=version)
    except (CorruptFile, ObjectNotFound):
        return None
    return RewrittenIndex(entry.uuid, uuid, built.details, built.index_version, built.files)


@contextmanager
def _or_nothing(snapshot: Snapshot, made: list[RewrittenIndex]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        discard_remapped(snapshot, made)
        raise


def discard_remapped(snapshot: Snapshot, made: Sequence[RewrittenIndex]) -> None:
    """Remove segments of `remap_indices` that no version names."""
    discard_segments(snapshot.store, [each.new_id for each in made])
