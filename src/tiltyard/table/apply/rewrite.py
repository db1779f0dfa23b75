"""Rewrite: groups of fragments replaced by new ones with the same rows (compaction)."""

from __future__ import annotations

from dataclasses import replace

from tiltyard.errors import InvalidInput
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import Rewrite
from tiltyard.table.apply import indices
from tiltyard.table.apply.draft import (
    Inputs,
    assign_ids,
    check_file_versions,
    check_unique,
    highest_id,
)


def rewrite(previous: Manifest, operation: Rewrite, inputs: Inputs) -> Manifest:
    """Each group's old fragments out, its new ones in; row lineage is what the rewriter carried."""
    old = [fragment for group in operation.groups for fragment in group.old_fragments]
    check_unique(old, "the rewrite")
    new = [fragment for group in operation.groups for fragment in group.new_fragments]
    check_file_versions(new, previous.data_format)
    missing = {fragment.id for fragment in old} - set(previous.fragments.ids.tolist())
    if missing:
        raise InvalidInput(
            f"the rewrite replaces fragment {min(missing)}, which version {previous.version} lacks"
        )
    if uses_stable_row_ids(previous):
        _check_row_ids(new)
    added = assign_ids(new, previous.max_fragment_id)
    check_unique(added, "the rewrite")
    remaining = previous.fragments.without({fragment.id for fragment in old})
    for fragment in added:
        if remaining.position(fragment.id) is not None:
            raise InvalidInput(
                f"fragment id {fragment.id} of the rewrite is already in the table; reserve ids first"
            )
    groups: list[tuple[frozenset[int], frozenset[int]]] = []
    taken = 0
    for group in operation.groups:
        ids = [fragment.id for fragment in added[taken : taken + len(group.new_fragments)]]
        taken += len(group.new_fragments)
        groups.append((frozenset(fragment.id for fragment in group.old_fragments), frozenset(ids)))
    result = replace(
        previous,
        fragments=remaining.appended(added),
        max_fragment_id=highest_id(previous.max_fragment_id, added),
    )
    return indices.after_rewrite(result, groups, operation.rewritten_indices, inputs)


def _check_row_ids(new: list[Fragment]) -> None:
    for fragment in new:
        if not fragment.has_row_ids:
            raise InvalidInput(
                "a rewrite of a table with stable row ids must carry the row ids of its rows; new fragment "
                f"{fragment.id} has none"
            )
