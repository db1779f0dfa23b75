"""Which rows a merge takes away, writes and inserts, decided purely from the keys that met.

A *pair* is a row of the table and the source row whose key it has. Addresses are uint64, in table order;
source rows are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiltyard.errors import AmbiguousMerge
from tiltyard.table.merge.join import NO_KEY, Ints, KeyIndex
from tiltyard.table.merge.settings import Duplicates
from tiltyard.table.system_columns import FRAGMENT_SHIFT

Addresses = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint32]
ShowKey = Callable[[int], str]
"""The key of a source row as messages show it."""

ONE_EACH = (
    "Give each key once, or let merge choose: .source_dedupe_behavior('first_seen'), or 'last_seen', before "
    "execute"
)

_OFFSET = np.uint64((1 << FRAGMENT_SHIFT) - 1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Matched rows of the table, by address, and the source row of each."""

    addresses: Addresses
    rows: Ints

    def __len__(self) -> int:
        return len(self.addresses)

    def where(self, keep: npt.NDArray[np.bool_]) -> Pairs:
        return self if keep.all() else Pairs(self.addresses[keep], self.rows[keep])


NO_PAIRS = Pairs(np.empty(0, np.uint64), np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class MergePlan:
    """`updated`: pairs whose table row takes the source row's values. `inserted`: source rows, ascending.
    `deleted`: addresses, ascending. `skipped`: source rows that did not count (`Duplicates`).
    """

    updated: Pairs
    inserted: Ints
    deleted: Addresses
    skipped: int = 0

    @property
    def statistics(self) -> dict[str, int]:
        """As `execute` gives them."""
        return {
            "num_inserted_rows": len(self.inserted),
            "num_updated_rows": len(self.updated),
            "num_deleted_rows": len(self.deleted),
        }


def pairs_of(index: KeyIndex, addresses: Addresses, codes: Ints, duplicates: Duplicates) -> Pairs:
    """The pairs of table rows (`addresses`, ascending, with the code of the key that each has)."""
    if not index.has_duplicates or duplicates is not Duplicates.FAIL:
        rows = index.last_rows() if duplicates is Duplicates.LAST else index.first_rows()
        return Pairs(addresses, rows[codes])
    rows, starts = index.rows_by_code()
    counts = starts[codes + 1] - starts[codes]
    spread = np.repeat(starts[codes], counts)
    within = np.arange(len(spread)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Pairs(np.repeat(addresses, counts), rows[spread + within])


def check_one_each(pairs: Pairs, show: ShowKey) -> None:
    """Raise `AmbiguousMerge` where two source rows are to change one row of the table."""
    again = np.flatnonzero(pairs.addresses[1:] == pairs.addresses[:-1])
    if len(again):
        key = show(int(pairs.rows[again[0]]))
        raise AmbiguousMerge(
            f"Ambiguous merge: several rows of the data are for one row of the table, {key}; nothing was "
            f"changed. {ONE_EACH}"
        )


def unmatched_rows(index: KeyIndex, codes: Ints, duplicates: Duplicates, show: ShowKey) -> tuple[Ints, int]:
    """Source rows whose key no row of the table has, ascending; null keys are among them. Also how many were
    left out as duplicates.

    Raises `AmbiguousMerge` for two new rows of one key (case G02) unless one of them is chosen.
    """
    met = np.zeros(index.distinct + 1, np.bool_)  # the last one stands for rows without a key
    met[codes] = True
    unmatched = ~met[index.codes]
    if not index.has_duplicates:
        return np.flatnonzero(unmatched), 0
    if duplicates is not Duplicates.FAIL:
        chosen = index.last_rows() if duplicates is Duplicates.LAST else index.first_rows()
        counts = index.codes == NO_KEY
        counts[chosen] = True
        skipped = int(np.count_nonzero(~counts))
        return np.flatnonzero(unmatched & counts), skipped
    rows = np.flatnonzero(unmatched)
    refuse_duplicates(index.codes[rows], rows, show)
    return rows, 0


def refuse_duplicates(codes: Ints, rows: Ints, show: ShowKey) -> None:
    """Raise `AmbiguousMerge` where two of these source rows have one key."""
    keyed = rows[codes != NO_KEY]
    of = codes[codes != NO_KEY]
    order = np.argsort(of, kind="stable")
    again = np.flatnonzero(of[order][1:] == of[order][:-1])
    if len(again):
        key = show(int(keyed[order[again[0]]]))
        raise AmbiguousMerge(
            f"Ambiguous merge: several rows of the data have the key {key}; nothing was changed. {ONE_EACH}"
        )


def by_fragment(addresses: Addresses) -> dict[int, Offsets]:
    """Physical offsets (uint32) by fragment id, of addresses in ascending order."""
    if not len(addresses):
        return {}
    found: dict[int, Offsets] = {}
    low = 0
    while low < len(addresses):
        id = int(addresses[low]) >> FRAGMENT_SHIFT
        high = int(np.searchsorted(addresses, np.uint64(id << FRAGMENT_SHIFT) | _OFFSET, side="right"))
        found[id] = (addresses[low:high] & _OFFSET).astype(np.uint32)
        low = high
    return found


def without(places: Mapping[int, Offsets], matched: Addresses) -> Addresses:
    """Addresses of the rows at these places (by fragment id) that are not among `matched` (ascending)."""
    parts = []
    for id in sorted(places):
        every = places[id].astype(np.uint64) | np.uint64(id << FRAGMENT_SHIFT)
        at = np.searchsorted(matched, every)
        at[at == len(matched)] = max(len(matched) - 1, 0)
        parts.append(every[matched[at] != every] if len(matched) else every)
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
