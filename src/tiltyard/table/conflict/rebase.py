"""Rebase of a Delete or Update: our deleted rows merged into the deletion vectors that others left meanwhile.

Transactions pack, section 7. Everything here is a function of values: the loop in `table.commit` reads the
current vectors before and writes the merged ones after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tiltyard.format.fragment import DeletionFile, Fragment
from tiltyard.format.index_metadata import MEM_WAL, IndexMetadata
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import CreateIndex, Delete, Operation, Update
from tiltyard.table.conflict.touched import listed
from tiltyard.table.conflict.verdict import Verdict, retry
from tiltyard.table.index_entries import covered_fragments, covering


@dataclass(frozen=True, slots=True)
class Merged:
    """What the merge asks for: vectors to write and fragments that have no live row left."""

    rewritten: Mapping[int, np.ndarray] = field(default_factory=dict)
    """Fragment id -> all its deleted offsets, sorted uint32."""
    emptied: tuple[int, ...] = ()


def stale_fragments(
    operation: Operation, planned: Mapping[int, DeletionFile | None], current: Mapping[int, Fragment]
) -> tuple[int, ...]:
    """Ids of the fragments that we change and whose deletion file is no longer the one that we planned on.

    `planned`: deletion file per fragment id at the version that our copies were made from.
    """
    if not isinstance(operation, Delete | Update):
        return ()
    return tuple(
        fragment.id
        for fragment in operation.updated_fragments
        if fragment.id in current and current[fragment.id].deletion != planned.get(fragment.id)
    )


def merge_deletions(
    operation: Delete | Update,
    stale: Sequence[int],
    affected: Mapping[int, np.ndarray] | None,
    current: Mapping[int, np.ndarray],
) -> Merged | Verdict:
    """Merge our rows into the current vectors of the stale fragments; a row that both touch is a conflict.

    `affected` and `current`: fragment id -> sorted uint32 offsets (ours; those deleted at the newest
    version).
    """
    if not stale:
        return Merged()
    if affected is None:
        return retry(f"rows of fragments {listed(stale)} were deleted, and the rows we change are not known")
    copies = {fragment.id: fragment for fragment in operation.updated_fragments}
    rewritten: dict[int, np.ndarray] = {}
    emptied: list[int] = []
    for fragment_id in stale:
        ours = np.asarray(affected.get(fragment_id, ()), dtype=np.uint32)
        theirs = np.asarray(current[fragment_id], dtype=np.uint32)
        both = np.intersect1d(ours, theirs)
        if both.size:
            return retry(f"both change rows of fragment {fragment_id}, at offsets {listed(both.tolist())}")
        merged = np.union1d(theirs, ours).astype(np.uint32)
        if merged.size == copies[fragment_id].physical_rows:
            emptied.append(fragment_id)
        else:
            rewritten[fragment_id] = merged
    return Merged(rewritten, tuple(emptied))


def with_deletions(
    operation: Delete | Update, files: Mapping[int, DeletionFile], emptied: Sequence[int]
) -> Delete | Update:
    """The operation with the merged deletion files in its fragment copies, emptied fragments moved to
    removed.
    """
    if not files and not emptied:
        return operation
    kept = tuple(
        replace(fragment, deletion=files[fragment.id]) if fragment.id in files else fragment
        for fragment in operation.updated_fragments
        if fragment.id not in emptied
    )
    if isinstance(operation, Delete):
        return replace(
            operation,
            updated_fragments=kept,
            deleted_fragment_ids=(*operation.deleted_fragment_ids, *emptied),
        )
    return replace(
        operation, updated_fragments=kept, removed_fragment_ids=(*operation.removed_fragment_ids, *emptied)
    )


def rebase_operation(mine: Operation, theirs: Operation, indices: Sequence[IndexMetadata]) -> Operation:
    """Our operation adjusted to one that was committed meanwhile; most need nothing.

    A new index loses the fragments whose indexed columns an update rewrote (condition b). A new MemWAL entry
    takes the place of the current one and keeps the highest compaction marks. `indices`: those of the newest
    version.
    """
    if not isinstance(mine, CreateIndex):
        return mine
    new = mine.new_indices
    if isinstance(theirs, Update) and theirs.fields_modified:
        new = _without_updated(new, theirs)
    removed = mine.removed_indices
    current = [entry for entry in indices if entry.name == MEM_WAL]
    if current and any(entry.name == MEM_WAL for entry in new):
        new = tuple(_with_marks(entry, current[0]) if entry.name == MEM_WAL else entry for entry in new)
        known = {entry.uuid for entry in removed}
        removed = (*removed, *(entry for entry in current if entry.uuid not in known))
    if new == mine.new_indices and removed == mine.removed_indices:
        return mine
    return replace(mine, new_indices=new, removed_indices=removed)


def _without_updated(entries: tuple[IndexMetadata, ...], update: Update) -> tuple[IndexMetadata, ...]:
    changed = frozenset(update.fields_modified)
    gone = frozenset(fragment.id for fragment in update.updated_fragments)
    kept: list[IndexMetadata] = []
    for entry in entries:
        covered = covered_fragments(entry) if changed.intersection(entry.fields) else None
        kept.append(covering(entry, covered - gone) if covered is not None and covered & gone else entry)
    return tuple(kept)


def _with_marks(entry: IndexMetadata, current: IndexMetadata) -> IndexMetadata:
    details, now = MemWalDetails.of(entry), MemWalDetails.of(current)
    marks = dict(details.marks)
    for shard, generation in now.marks.items():
        marks[shard] = max(generation, marks.get(shard, 0))
    if marks == details.marks:
        return entry
    return replace(entry, details=details.changed(marks, details.catch_up).encode())
