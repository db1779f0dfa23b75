"""Where the rows of rewritten fragments are: from old addresses to new ones by arithmetic, without a table of
all rows.

Invariant M1: live rows of the old fragments, in the order of the group, lie one after another in the new
ones. Everything here follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

FRAGMENT_SHIFT = 32
_SHIFT = np.uint64(FRAGMENT_SHIFT)
_OFFSET = np.uint64((1 << FRAGMENT_SHIFT) - 1)

Addresses = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint32]


class GroupMoves:
    """The moves of one group. `old`: (id, physical rows, deleted offsets ascending) in the order in which
    they were read; `new`: (id, rows) in the order in which they were written.
    """

    def __init__(
        self, old: Sequence[tuple[int, int, Offsets | None]], new: Sequence[tuple[int, int]]
    ) -> None:
        ids = np.array([id for id, _, _ in old], np.uint64)
        deleted = [np.empty(0, np.uint32) if gone is None else gone for _, _, gone in old]
        rows = np.array([count for _, count, _ in old], np.int64)
        live = rows - np.array([len(gone) for gone in deleted], np.int64)
        firsts = np.cumsum(live) - live
        order = np.argsort(ids, kind="stable")
        self._ids, self._rows, self._firsts = ids[order], rows[order], firsts[order]
        gone = [(ids[at] << _SHIFT) + deleted[at].astype(np.uint64) for at in order]
        self._gone: Addresses = np.concatenate(gone) if gone else np.empty(0, np.uint64)
        self._gone_before = np.searchsorted(self._gone, self._ids << _SHIFT)
        self.new = tuple(new)
        """Ids and rows of the new fragments, in order."""
        self._new_ids = np.array([id for id, _ in new], np.uint64)
        counts = np.array([count for _, count in new], np.int64)
        self._new_firsts = np.cumsum(counts) - counts
        self.rows = int(live.sum())
        """Rows that survived."""

    def moved(self, addresses: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """Which of some addresses (uint64, any order) are of surviving rows of the old fragments, and where
        those are now.
        """
        if not len(self._ids):
            return np.zeros(len(addresses), np.bool_), addresses[:0]
        owners = addresses >> _SHIFT
        at = np.minimum(np.searchsorted(self._ids, owners), len(self._ids) - 1)
        offsets = (addresses & _OFFSET).astype(np.int64)
        before = np.searchsorted(self._gone, addresses)
        found = (self._ids[at] == owners) & (offsets < self._rows[at])
        if len(self._gone):
            found &= self._gone[np.minimum(before, len(self._gone) - 1)] != addresses
        kept = at[found]
        positions = self._firsts[kept] + offsets[found] - (before[found] - self._gone_before[kept])
        return found, self.at(positions)

    def at(self, positions: npt.NDArray[np.int64]) -> Addresses:
        """The new addresses of surviving rows by their number in the group."""
        if not len(positions):
            return np.empty(0, np.uint64)
        which = np.searchsorted(self._new_firsts, positions, side="right") - 1
        return (self._new_ids[which] << _SHIFT) + (positions - self._new_firsts[which]).astype(np.uint64)

    def survivors(self) -> Addresses:
        """The old addresses (uint64) of all surviving rows, ascending."""
        parts = [np.empty(0, np.uint64)]
        for id, rows in zip(self._ids.tolist(), self._rows.tolist(), strict=True):
            low, high = np.searchsorted(self._gone, [id << FRAGMENT_SHIFT, (id + 1) << FRAGMENT_SHIFT])
            keep = np.ones(rows, np.bool_)
            keep[(self._gone[low:high] & _OFFSET).astype(np.int64)] = False
            parts.append((np.uint64(id) << _SHIFT) + np.flatnonzero(keep).astype(np.uint64))
        return np.concatenate(parts)


class Moves:
    """The moves of several groups."""

    def __init__(self, groups: Sequence[GroupMoves], owner: Mapping[int, int]) -> None:
        self._groups = groups
        self._ids = np.array(sorted(owner), np.uint64)
        self._owner = np.array([owner[int(id)] for id in self._ids], np.int64)

    def moved(self, addresses: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """As `GroupMoves.moved`."""
        if len(self._groups) == 1:
            return self._groups[0].moved(addresses)
        found = np.zeros(len(addresses), np.bool_)
        new = addresses.copy()
        if len(self._ids):
            owners = addresses >> _SHIFT
            at = np.minimum(np.searchsorted(self._ids, owners), len(self._ids) - 1)
            group = np.where(self._ids[at] == owners, self._owner[at], -1)
            for number in np.unique(group[group >= 0]).tolist():
                here = np.flatnonzero(group == number)
                kept, moved = self._groups[number].moved(addresses[here])
                found[here] = kept
                new[here[kept]] = moved
        return found, new[found]
