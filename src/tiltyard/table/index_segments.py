"""The segments of B-tree indices that a version can use: which fragments each answers for, and the rows it
finds in them.

A segment's file never changes; what it may answer for does. Rows outside of the fragments that its entry
still covers are left out of every answer (indices, 1.5), so that values rewritten in place, moved rows and
vanished fragments cannot come back from an old file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, ObjectNotFound, TiltyardError, UnsupportedFeature
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.index_metadata import FRAGMENT_REUSE
from tiltyard.format.names import index_directory
from tiltyard.index.btree.layout import READABLE_VERSIONS
from tiltyard.index.btree.search import BTree, open_btree
from tiltyard.kernels.distinct import distinct
from tiltyard.table.bases import base_place
from tiltyard.table.deletions import deleted_addresses, load_deletions, without_deleted
from tiltyard.table.index_entries import covered_fragments, is_btree, stores_addresses
from tiltyard.table.system_columns import FRAGMENT_SHIFT, row_ids

if TYPE_CHECKING:
    from tiltyard.expr.index_query import ColumnQuery
    from tiltyard.format.fragment import Fragment
    from tiltyard.format.index_metadata import IndexMetadata
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.fragment_reuse import FragmentReuse
    from tiltyard.table.snapshot import Snapshot

SEGMENT_BYTES = 512
"""What a segment is accounted as in the cache, besides 4 bytes for each fragment and 16 for each row id."""

Addresses = npt.NDArray[np.uint64]
_SHIFT = np.uint64(FRAGMENT_SHIFT)
_OFFSET = np.uint64((1 << FRAGMENT_SHIFT) - 1)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a B-tree index in one version: `fragments` (uint32, ascending) are those of the version
    that it answers for."""

    entry: IndexMetadata
    fragments: npt.NDArray[np.uint32]
    _rows: npt.NDArray[np.uint64] = field(repr=False)
    """Physical rows of each of `fragments`."""
    _places: tuple[Addresses, Addresses] | None = field(repr=False)
    """Where the index holds row ids that are not addresses: live ids, ascending, and the address of each."""
    _reuse: FragmentReuse | None = field(repr=False)
    """Where rows went whose addresses the index holds, if a compaction left it as it was."""
    _type: pa.DataType = field(repr=False)
    _store: Store = field(repr=False)
    _directory: str = field(repr=False)
    _session: Session = field(repr=False)

    def tree(self) -> BTree:
        """The open index. Raises `CorruptFile`, `ObjectNotFound`, `UnsupportedFeature`, with what to do."""
        sizes = {file.path: file.size for file in self.entry.files}
        try:
            found = open_btree(self._store, self._directory, self._session, sizes=sizes)
            if found.type != self._type:
                raise CorruptFile(f"it holds {found.type}, the column is {self._type}", self._directory)
            return found
        except (CorruptFile, ObjectNotFound, UnsupportedFeature) as error:
            raise self.advised(error) from error

    def search(self, query: ColumnQuery) -> Addresses:
        """Addresses (uint64, ascending) of the rows of `fragments` that answer the question. Deleted rows may
        be among them."""
        tree = self.tree()
        try:
            found = tree.search(query)
        except (CorruptFile, ObjectNotFound) as error:
            raise self.advised(error) from error
        located = self.located(found)[1]
        return np.sort(located) if self._places is not None or self._reuse is not None else located

    def find(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], Addresses]:
        """Rows of `fragments` by key: positions in `keys` (int64) and the address (uint64) of a row beside
        each; see `BTree.find`. Deleted rows may be among them."""
        tree = self.tree()
        try:
            positions, ids = tree.find(keys)
        except (CorruptFile, ObjectNotFound) as error:
            raise self.advised(error) from error
        keep, addresses = self.located(ids)
        return positions[keep], addresses

    def estimate(self, query: ColumnQuery) -> int:
        """An upper bound of the rows that `search` gives, from the page lookup alone."""
        return self.tree().estimate(query)

    def located(self, ids: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """Which ids of the index are of rows that it still answers for, and where those rows are now (uint64
        addresses). Ids of deleted rows may be among them where they are addresses."""
        if self._places is not None:
            known, addresses = self._places
            at = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
            keep = known[at] == ids if len(known) else np.zeros(len(ids), np.bool_)
            return keep, addresses[at[keep]]
        if self._reuse is None:
            inside = self._covered(ids)
            return inside, ids[inside]
        keep, now = self._reuse.translate(ids)
        inside = self._covered(now)
        keep[np.flatnonzero(keep)[~inside]] = False
        return keep, now[inside]

    def _covered(self, addresses: Addresses) -> npt.NDArray[np.bool_]:
        if not len(self.fragments):
            return np.zeros(len(addresses), np.bool_)
        owners = (addresses >> _SHIFT).astype(np.uint32)
        at = np.minimum(np.searchsorted(self.fragments, owners), len(self.fragments) - 1)
        inside: npt.NDArray[np.bool_] = self.fragments[at] == owners
        beyond = inside & ((addresses & _OFFSET) >= self._rows[at])
        if beyond.any():
            bad = int(addresses[beyond][0])
            raise self.advised(
                CorruptFile(
                    f"the index names row {bad & int(_OFFSET)} of fragment {bad >> FRAGMENT_SHIFT}, which "
                    "has fewer rows",
                    self._directory,
                )
            )
        return inside

    def advised(self, error: TiltyardError) -> TiltyardError:
        """The error with the name of the index and a way to go on."""
        name = self.entry.name
        text = (
            f"index {name!r} cannot be used: {error}; read without it (use_scalar_index=False), and drop it "
            f"(drop_index({name!r})) or build it again (create_scalar_index with replace=True)"
        )
        if isinstance(error, CorruptFile):
            return CorruptFile(text, error.path)
        return type(error)(text)


def btree_segments(snapshot: Snapshot, field_id: int) -> list[Segment]:
    """Segments of B-tree indices on one field that this version can use, in the order of their entries; of
    several indices on the field, those of the one whose segments cover most fragments.

    Entries of versions that we do not know, and those that do not say what they cover, are passed over: their
    fragments are scanned.
    """
    by_name: dict[str, list[Segment]] = {}
    for entry in snapshot.manifest.indices:
        if entry.fields == (field_id,) and is_usable(entry):
            by_name.setdefault(entry.name, []).append(segment_of(snapshot, entry))
    if not by_name:
        return []
    return max(by_name.values(), key=lambda segments: sum(len(each.fragments) for each in segments))


def is_usable(entry: IndexMetadata) -> bool:
    """Whether an entry is of a B-tree segment that this version reads."""
    return (
        is_btree(entry)
        and len(entry.fields) == 1
        and (entry.index_version or 0) in READABLE_VERSIONS
        and entry.fragment_bitmap is not None
    )


def segment_of(snapshot: Snapshot, entry: IndexMetadata) -> Segment:
    """The segment of an entry as a version sees it; kept in the session."""
    manifest = snapshot.manifest
    key = (snapshot.store.identity, entry.uuid, "segment", (snapshot.location.path, manifest.timestamp_ns))

    def made() -> tuple[Segment, int]:
        found = _proven(snapshot, _segment(snapshot, entry))
        held = 0 if found._places is None else 2 * found._places[0].nbytes
        return found, SEGMENT_BYTES + found.fragments.nbytes + held

    segment: Segment = snapshot.session.cache.get_or(key, made)
    return segment


def covered_now(snapshot: Snapshot, entry: IndexMetadata) -> frozenset[int]:
    """The fragments that a segment answers for: those that its entry names and, where compactions left notes
    of where rows went, their successors. Vanished fragments may be among them."""
    covered = covered_fragments(entry) or frozenset()
    reuse = _reuse(snapshot)
    return covered if reuse is None else reuse.covered(covered)


def _reuse(snapshot: Snapshot) -> FragmentReuse | None:
    """The notes of a version; None also where they cannot be read: then new fragments count as not
    indexed."""
    if all(entry.name != FRAGMENT_REUSE for entry in snapshot.manifest.indices):
        return None
    from tiltyard.table.fragment_reuse import reuse_of

    with suppress(CorruptFile, UnsupportedFeature):
        return reuse_of(snapshot)
    return None


def _segment(snapshot: Snapshot, entry: IndexMetadata) -> Segment:
    covered = np.array(sorted(covered_now(snapshot, entry)), np.uint32)
    fragments = snapshot.fragments
    ids = np.asarray(fragments.ids).astype(np.uint32)
    keep = np.isin(ids, covered)
    order = np.argsort(ids[keep], kind="stable")
    live = ids[keep][order]
    rows = np.asarray(fragments.physical_rows).astype(np.uint64)[keep][order]
    rows[rows == 0] = np.iinfo(np.uint64).max  # very old manifests do not say
    directory = index_directory(entry.uuid)
    store = snapshot.store
    if entry.base_id is not None:
        store, is_root = base_place(
            store, snapshot.session, snapshot.manifest, entry.base_id, f"index {entry.name}"
        )
        directory = directory if is_root else entry.uuid
    translated = uses_stable_row_ids(snapshot.manifest) and not stores_addresses(entry)
    places = _places(snapshot, live) if translated else None
    kind = snapshot.schema.by_id(entry.fields[0]).arrow_type
    reuse = None if translated else _reuse(snapshot)
    return Segment(entry, live, rows, places, reuse, kind, store, directory, snapshot.session)


def _proven(snapshot: Snapshot, segment: Segment) -> Segment:
    """The segment, answering only for fragments of which it holds every live row.

    The official writer's compaction, run where an earlier one has left notes, gives indices the new fragments
    and the old addresses: row ids of fragments that neither the entry nor the version has. Where there are
    such, the rows of every fragment are counted. They are looked for on the first page, and, where there are
    notes and the entry names fragments that came after them, on all.
    """
    if segment._places is not None or not len(segment.fragments):
        return segment
    try:
        tree = segment.tree()
        named = covered_fragments(segment.entry) or frozenset()
        held = tree.fragments if _may_be_mixed_up(snapshot, named) else tree.first_fragments
        strangers = held - named
        if not strangers or not strangers.difference(snapshot.fragments.ids.tolist()):
            return segment
        found = [segment.located(ids)[1] for ids in tree.ids()]
    except (CorruptFile, ObjectNotFound, UnsupportedFeature):
        return segment  # whoever asks it gets the error
    addresses = distinct(np.concatenate(found))
    deleted = deleted_addresses(snapshot, segment.fragments.tolist())
    live = addresses[without_deleted(deleted, addresses)]
    owners = np.searchsorted(segment.fragments, (live >> _SHIFT).astype(np.uint32))
    counts = np.bincount(owners, minlength=len(segment.fragments))
    complete = counts >= [_fragment(snapshot, id).num_rows for id in segment.fragments.tolist()]
    if complete.all():
        return segment
    return replace(segment, fragments=segment.fragments[complete], _rows=segment._rows[complete])


def _may_be_mixed_up(snapshot: Snapshot, named: frozenset[int]) -> bool:
    """Whether a compaction that knows nothing of a version's notes may have given an entry its fragments."""
    if all(entry.name != FRAGMENT_REUSE for entry in snapshot.manifest.indices):
        return False
    reuse = _reuse(snapshot)
    return reuse is None or max(named, default=-1) >= reuse.first_new


def _fragment(snapshot: Snapshot, id: int) -> Fragment:
    found = snapshot.fragment(id)
    assert found is not None
    return found


def _places(snapshot: Snapshot, fragments: npt.NDArray[np.uint32]) -> tuple[Addresses, Addresses]:
    """Row ids of the live rows of some fragments, ascending, and the address of each."""
    ids: list[Any] = [np.empty(0, np.uint64)]
    addresses: list[Any] = [np.empty(0, np.uint64)]
    for fragment_id in fragments.tolist():
        fragment = _fragment(snapshot, fragment_id)
        found = row_ids(snapshot, fragment)
        if found is None:
            continue
        offsets = np.arange(len(found), dtype=np.int64)
        live = offsets[without_deleted(load_deletions(snapshot, fragment), offsets)]
        ids.append(found[live])
        addresses.append((np.uint64(fragment_id) << _SHIFT) + live.astype(np.uint64))
    every, at = np.concatenate(ids), np.concatenate(addresses)
    order = np.argsort(every, kind="stable")
    return every[order], at[order]
