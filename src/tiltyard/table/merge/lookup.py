"""Rows of a version by key: through a B-tree index where that is cheaper, else by reading the key columns.

The answer is that of reading them all. What an index finds is exact for a key of one column; of several, the
other columns are read where it hit. Fragments that it does not cover are scanned.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature
from tiltyard.expr.arrays import plain
from tiltyard.kernels.distinct import distinct
from tiltyard.table.deletions import load_deletions, physical_offsets, without_deleted
from tiltyard.table.index_entries import is_btree
from tiltyard.table.merge.join import Ints, KeyIndex
from tiltyard.table.merge.key_scan import found_unpacking
from tiltyard.table.merge.keys import Key, column_at, is_word
from tiltyard.table.merge.plan import by_fragment
from tiltyard.table.scan import Scan, ScanRequest, live_rows
from tiltyard.table.system_columns import FRAGMENT_SHIFT
from tiltyard.table.touched_rows import read_touched

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.table.index_segments import Segment
    from tiltyard.table.snapshot import Snapshot

INDEX_COST = {True: 512, False: 1024}
"""Looking one key up in an index costs about as much as reading and comparing so many keys of the table: of
plain numbers (True) and of all others. Measured with 1,000 keys spread over an index of a million.
"""

SCAN_ROWS = 1 << 18
"""Rows of key columns that are looked up at a time."""

Addresses = npt.NDArray[np.uint64]
_UNREADABLE = (CorruptFile, ObjectNotFound, UnsupportedFeature)


@dataclass(frozen=True, slots=True)
class Found:
    """Live rows with one of the keys: addresses (uint64, ascending) and the code of each one's key.
    `index`: the name of the index that was used, None where all keys were read.
    """

    addresses: Addresses
    codes: Ints
    index: str | None = None


def find_rows(
    snapshot: Snapshot,
    key: Key,
    keys: KeyIndex,
    columns: Sequence[Any],
    *,
    use_index: bool = True,
    fragments: Sequence[int] | None = None,
) -> Found:
    """The live rows whose key is one of `keys`, which were made of `columns` (a `pa.Array` per key column).

    `fragments`: ids to look in, all for None.
    """
    if not keys.distinct:
        return Found(np.empty(0, np.uint64), np.empty(0, np.int64))
    chosen = _choose_index(snapshot, key, keys) if use_index and fragments is None else None
    if chosen is not None:
        at, segments = chosen
        try:
            return _through_index(snapshot, key, keys, columns, at, segments)
        except _UNREADABLE as error:
            warnings.warn(f"the merge reads all keys: {error}", stacklevel=2)
    return _scanned(snapshot, key, keys, fragments)


def _choose_index(snapshot: Snapshot, key: Key, keys: KeyIndex) -> tuple[int, list[Segment]] | None:
    """The key column with the index that covers most rows, where looking up is the cheaper way."""
    if not any(map(is_btree, snapshot.manifest.indices)):
        return None
    from tiltyard.table.index_segments import btree_segments  # tables without an index load none of it

    best: tuple[int, int, list[Segment]] | None = None
    for at, field in enumerate(key.fields):
        segments = btree_segments(snapshot, field.id)
        if not segments:
            continue
        rows = _covered_rows(snapshot, segments)
        if best is None or rows > best[0]:
            best = (rows, at, segments)
    if best is None or keys.distinct * index_cost(key.fields[best[1]]) >= best[0]:
        return None
    return best[1], best[2]


def index_cost(field: Field) -> int:
    """Rows that are read as fast as one key of this column is looked up."""
    return INDEX_COST[is_word(field.arrow_type)]


def _covered_rows(snapshot: Snapshot, segments: Sequence[Segment]) -> int:
    ids = np.asarray(snapshot.fragments.ids)
    covered = np.isin(ids, np.concatenate([each.fragments for each in segments]).astype(ids.dtype))
    return int(np.asarray(live_rows(snapshot))[covered].sum())


def _through_index(
    snapshot: Snapshot,
    key: Key,
    keys: KeyIndex,
    columns: Sequence[Any],
    at: int,
    segments: Sequence[Segment],
) -> Found:
    wanted = columns[at].take(pa.array(keys.first_rows()))  # one of each key: positions are codes
    addresses: list[Addresses] = []
    codes: list[Ints] = []
    for segment in segments:
        positions, rows = segment.find(wanted)
        addresses.append(rows)
        codes.append(positions)
    found, which = _live(snapshot, np.concatenate(addresses), np.concatenate(codes))
    if len(key.fields) > 1:
        found, which = _compared(snapshot, key, keys, distinct(found))
    covered = {int(id) for segment in segments for id in segment.fragments}
    rest = [int(id) for id in snapshot.fragments.ids if int(id) not in covered]
    if rest:
        more = _scanned(snapshot, key, keys, rest)
        found, which = np.concatenate([found, more.addresses]), np.concatenate([which, more.codes])
    order = np.argsort(found, kind="stable")
    return Found(found[order], which[order], segments[0].entry.name)


def _live(snapshot: Snapshot, addresses: Addresses, codes: Ints) -> tuple[Addresses, Ints]:
    """Those of the rows that are not deleted, by address."""
    order = np.argsort(addresses, kind="stable")
    addresses, codes = addresses[order], codes[order]
    keep = np.ones(len(addresses), np.bool_)
    start = 0
    for id, offsets in by_fragment(addresses).items():
        fragment = snapshot.fragment(id)
        deleted = None if fragment is None else load_deletions(snapshot, fragment)
        if deleted is not None:
            keep[start : start + len(offsets)] = without_deleted(deleted, offsets.astype(np.int64))
        start += len(offsets)
    return addresses[keep], codes[keep]


def _compared(snapshot: Snapshot, key: Key, keys: KeyIndex, addresses: Addresses) -> tuple[Addresses, Ints]:
    """Those of the rows, ascending, whose whole key is one of the keys."""
    fields = tuple(snapshot.schema.project(key.paths).fields)
    found: list[Addresses] = [np.empty(0, np.uint64)]
    codes: list[Ints] = [np.empty(0, np.int32)]
    for rows in read_touched(snapshot, by_fragment(addresses), fields):
        hit, which = keys.find([column_at(rows.batch, path) for path in key.paths])
        found.append(rows.addresses[hit])
        codes.append(which)
    return np.concatenate(found), np.concatenate(codes)


def _scanned(snapshot: Snapshot, key: Key, keys: KeyIndex, fragments: Sequence[int] | None) -> Found:
    unpacked = found_unpacking(snapshot, key, keys, fragments)
    if unpacked is None:
        return _compared_all(snapshot, key, keys, fragments)
    addresses, codes, rest = unpacked
    if rest:
        more = _compared_all(snapshot, key, keys, rest)
        addresses, codes = np.concatenate([addresses, more.addresses]), np.concatenate([codes, more.codes])
    order = np.argsort(addresses, kind="stable")
    return Found(addresses[order], codes[order])


def _compared_all(snapshot: Snapshot, key: Key, keys: KeyIndex, fragments: Sequence[int] | None) -> Found:
    places = Places(snapshot, fragments)
    addresses: list[Addresses] = [np.empty(0, np.uint64)]
    codes: list[Ints] = [np.empty(0, np.int32)]
    first = 0
    for columns, rows in key_columns(snapshot, key, fragments):
        hit, which = keys.find(columns)
        if len(hit):
            addresses.append(places.addresses(hit + first))
            codes.append(which)
        first += rows
    every, of_row = np.concatenate(addresses), np.concatenate(codes)
    addresses.clear()  # there may be millions
    if not bool((every[1:] >= every[:-1]).all()):  # another writer has listed fragments out of order
        order = np.argsort(every, kind="stable")
        every, of_row = every[order], of_row[order]
    return Found(every, of_row)


def key_columns(
    snapshot: Snapshot, key: Key, fragments: Sequence[int] | None = None
) -> Iterator[tuple[list[Any], int]]:
    """The key columns of all live rows in table order: a plain `pa.Array` per column and how many rows."""
    scan = Scan(snapshot, ScanRequest(columns=list(key.names), batch_rows=SCAN_ROWS, fragments=fragments))
    for batch in scan.batches():
        yield [plain(column) for column in batch.columns], batch.num_rows


class Places:
    """Where the live rows of some fragments (ids; all for None) stand, by their number in a scan of them."""

    def __init__(self, snapshot: Snapshot, fragments: Sequence[int] | None = None) -> None:
        live = np.asarray(live_rows(snapshot))
        self._snapshot = snapshot
        self._order = np.arange(len(live))
        if fragments is not None:
            known = {int(id): at for at, id in enumerate(snapshot.fragments.ids)}
            self._order = np.array([known[id] for id in fragments], dtype=np.int64)
        self._ends = np.cumsum(live[self._order])
        self._starts = self._ends - live[self._order]

    def addresses(self, numbers: npt.NDArray[np.int64]) -> Addresses:
        """Addresses (uint64) of the rows with these numbers, ascending."""
        found = np.empty(len(numbers), np.uint64)
        if not len(numbers):
            return found
        first = int(np.searchsorted(self._ends, numbers[0], side="right"))
        last = int(np.searchsorted(self._ends, numbers[-1], side="right"))
        bounds = np.searchsorted(numbers, self._ends[first : last + 1])
        low = 0
        for at, high in zip(range(first, last + 1), bounds.tolist(), strict=True):
            if high > low:
                fragment = self._snapshot.fragments[int(self._order[at])]
                offsets = numbers[low:high] - self._starts[at]
                deleted = load_deletions(self._snapshot, fragment)
                if deleted is not None:
                    offsets = physical_offsets(deleted, offsets)
                found[low:high] = offsets.astype(np.uint64) | np.uint64(fragment.id << FRAGMENT_SHIFT)
            low = high
        return found
