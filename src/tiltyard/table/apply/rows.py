"""Operations on rows: Append, Delete, Update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tiltyard.errors import InvalidInput
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import Fragment, FragmentList
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import REWRITE_COLUMNS, Append, Delete, Update
from tiltyard.table.apply import indices, lineage, mem_wal
from tiltyard.table.apply.draft import (
    Inputs,
    assign_ids,
    check_file_versions,
    check_unique,
    highest_id,
    live_files,
)


def append(previous: Manifest, operation: Append, inputs: Inputs) -> Manifest:
    """The old fragments, then the new ones; indices do not cover them yet."""
    return with_new_fragments(previous, operation.fragments, inputs)


def with_new_fragments(manifest: Manifest, fragments: Sequence[Fragment], inputs: Inputs) -> Manifest:
    """The manifest with fragments of new rows: ids assigned, row ids and versions stamped where the table has
    them.
    """
    if not fragments:
        return manifest
    check_file_versions(fragments, manifest.data_format)
    for fragment in fragments:
        if not fragment.physical_rows:
            raise InvalidInput(
                "a new fragment says that it has no rows; leave empty fragments out of the transaction"
            )
    added = assign_ids((live_files(fragment) for fragment in fragments), manifest.max_fragment_id)
    check_unique(added, "the transaction")
    for fragment in added:
        if manifest.fragments.position(fragment.id) is not None:
            raise InvalidInput(f"fragment id {fragment.id} is already in the table; new fragments have id 0")
    next_row_id = manifest.next_row_id
    if uses_stable_row_ids(manifest):
        added, next_row_id = lineage.stamp_new(added, next_row_id, inputs.version)
    return replace(
        manifest,
        fragments=manifest.fragments.appended(added),
        max_fragment_id=highest_id(manifest.max_fragment_id, added),
        next_row_id=next_row_id,
    )


def delete(previous: Manifest, operation: Delete, inputs: Inputs) -> Manifest:
    """Fragments with a new deletion file replaced, emptied ones taken out."""
    changed = replaced(previous, operation.updated_fragments, operation.deleted_fragment_ids)
    return indices.pruned(changed)


def update(previous: Manifest, operation: Update, inputs: Inputs) -> Manifest:
    """Touched fragments replaced or removed, moved and inserted rows appended, marks and index bitmaps kept
    right.
    """
    copies = list(operation.updated_fragments)
    new = list(operation.new_fragments)
    if uses_stable_row_ids(previous):
        if operation.update_mode == REWRITE_COLUMNS:
            copies = [
                lineage.stamp_offsets(f, lineage.rewritten_offsets(operation, f.id), inputs.version)
                for f in copies
            ]
        touched = [*(f.id for f in operation.updated_fragments), *operation.removed_fragment_ids]
        new = lineage.carry_created(new, previous, touched)
    changed = replaced(previous, copies, operation.removed_fragment_ids)
    changed = with_new_fragments(changed, new, inputs)
    if operation.compacted_sstables:
        changed = mem_wal.advanced(changed, operation.compacted_sstables, inputs)
    if operation.update_mode == REWRITE_COLUMNS:
        changed = indices.without_fragments(
            changed, operation.fields_modified, [f.id for f in operation.updated_fragments]
        )
    return indices.pruned(changed)


def replaced(manifest: Manifest, copies: Sequence[Fragment], removed: Iterable[int]) -> Manifest:
    """The manifest with some fragments replaced by the transaction's copies and others removed.

    Overlays stay those of the current fragment: a copy made before an overlay was committed must not undo it.
    """
    check_unique(copies, "the transaction")
    gone = frozenset(removed)
    if not copies and not gone:
        return manifest
    check_file_versions(copies, manifest.data_format)
    fragments = manifest.fragments
    for fragment_id in [*(f.id for f in copies), *gone]:
        if fragments.position(fragment_id) is None:
            raise InvalidInput(
                f"the transaction changes fragment {fragment_id}, which version {manifest.version} lacks"
            )
    if copies:
        changed = {f.id: live_files(_keeping_overlays(f, fragments)) for f in copies}
        fragments = fragments.replaced(changed)
    return replace(manifest, fragments=fragments.without(gone) if gone else fragments)


def _keeping_overlays(copy: Fragment, fragments: FragmentList) -> Fragment:
    current = fragments.by_id(copy.id)
    if current is None or current.overlays == copy.overlays:
        return copy
    return replace(copy, overlays=current.overlays)
