"""Upkeep of the index list: CreateIndex, rule P, fragment bitmaps, Rewrite (transactions pack, sections
3.1-3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tiltyard.errors import CorruptFile, InvalidInput, RetryableConflict
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment_reuse import KNOWN_VERSION, decode_details
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexMetadata
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import CreateIndex, RewrittenIndex
from tiltyard.table.apply.draft import Inputs
from tiltyard.table.index_entries import covered_fragments, covering, stores_addresses


def create_index(previous: Manifest, operation: CreateIndex, inputs: Inputs) -> Manifest:
    """Entries out by uuid, new ones in."""
    out = {entry.uuid for entry in (*operation.removed_indices, *operation.new_indices)}
    kept = tuple(entry for entry in previous.indices if entry.uuid not in out)
    for entry in operation.new_indices:
        for field_id in entry.fields:
            if not previous.schema.has_id(field_id):
                raise InvalidInput(f"index {entry.name} is on field {field_id}, which the table lacks")
    return replace(previous, indices=(*kept, *operation.new_indices))


def pruned(manifest: Manifest) -> Manifest:
    """Rule P: entries of fields that are gone leave; of several segments those that cover nothing any more
    leave.

    The only segment of an index stays even when it covers nothing; when all cover nothing, the oldest stays.
    """
    if not manifest.indices:
        return manifest
    valid = [e for e in manifest.indices if e.is_system or all(manifest.schema.has_id(f) for f in e.fields)]
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in valid:
        by_name.setdefault(entry.name, []).append(entry)
    kept: set[str] = set()
    live: frozenset[int] | None = None
    for segments in by_name.values():
        if len(segments) > 1:
            if live is None:
                live = with_origins(manifest, frozenset(manifest.fragments.ids.tolist()))
            segments = _still_covering(segments, live)
        kept.update(entry.uuid for entry in segments)
    indices = tuple(entry for entry in valid if entry.uuid in kept)
    return manifest if len(indices) == len(manifest.indices) else replace(manifest, indices=indices)


def _still_covering(segments: Sequence[IndexMetadata], live: frozenset[int]) -> list[IndexMetadata]:
    kept = [e for e in segments if (covered := covered_fragments(e)) is None or covered & live]
    return kept or [min(segments, key=lambda entry: entry.dataset_version)]


def without_fragments(manifest: Manifest, fields: Iterable[int], fragment_ids: Collection[int]) -> Manifest:
    """Indices on any of the fields no longer cover these fragments: their values changed in place."""
    changed = frozenset(fields)
    gone = frozenset(fragment_ids)
    if not changed or not gone:
        return manifest
    if not any(changed.intersection(entry.fields) for entry in manifest.indices):
        return manifest
    gone = with_origins(manifest, gone)
    indices = tuple(_less(e, gone) if changed.intersection(e.fields) else e for e in manifest.indices)
    return replace(manifest, indices=indices)


def with_origins(manifest: Manifest, fragment_ids: frozenset[int]) -> frozenset[int]:
    """Some fragments, and those whose rows came into them in compactions that left indices as they were: an
    entry that names the latter answers for the former (indices, 1.7). Where the notes of these compactions
    are not in the manifest itself, every fragment that is gone counts as one of the latter.
    """
    notes = next((entry for entry in manifest.indices if entry.name == FRAGMENT_REUSE), None)
    if notes is None:
        return fragment_ids
    try:
        versions = decode_details(notes.details) if (notes.index_version or 0) <= KNOWN_VERSION else None
    except CorruptFile:
        versions = None
    if not isinstance(versions, tuple):
        named = (covered_fragments(entry) or frozenset() for entry in manifest.indices)
        live = frozenset(manifest.fragments.ids.tolist())
        return fragment_ids | (frozenset[int]().union(*named) - live)
    found = fragment_ids
    for version in reversed(versions):
        for group in version.groups:
            if not found.isdisjoint(digest.id for digest in group.new):
                found |= frozenset(digest.id for digest in group.old)
    return found


def _less(entry: IndexMetadata, gone: frozenset[int]) -> IndexMetadata:
    covered = covered_fragments(entry)
    if covered is None or not covered & gone:
        return entry
    return covering(entry, covered - gone)


def after_rewrite(
    manifest: Manifest,
    groups: Sequence[tuple[frozenset[int], frozenset[int]]],
    rewritten: Sequence[RewrittenIndex],
    inputs: Inputs,
) -> Manifest:
    """Index entries after a rewrite; `groups` are pairs of (old ids, new ids)."""
    stable = uses_stable_row_ids(manifest)
    by_old: Mapping[str, RewrittenIndex] = {entry.old_id: entry for entry in rewritten}
    indices: list[IndexMetadata] = []
    for entry in manifest.indices:
        new = by_old.get(entry.uuid)
        if new is not None:
            entry = replace(
                entry,
                uuid=new.new_id,
                base_id=None,  # what was rewritten lies in the table itself
                details=new.new_index_details if new.new_index_details is not None else entry.details,
                index_version=new.new_index_version,
                files=new.new_index_files or (),
            )
            indices.append(_swapped(entry, groups))
        elif entry.is_system or inputs.reuse_entry is not None:
            indices.append(entry)  # with a reuse index, readers translate the old addresses
        elif stable and not stores_addresses(entry):
            indices.append(_swapped(entry, groups))
        elif stable:
            gone = frozenset(i for old, _ in groups for i in old)
            indices.append(_less(entry, gone))
        else:
            indices.append(
                entry
            )  # still right: it covers fragments that are gone, and the new ones are scanned
    if inputs.reuse_entry is not None:
        if inputs.read is not None and reuse_uuid(inputs.read) != reuse_uuid(manifest):
            raise RetryableConflict(
                "the rewrite leaves notes of where rows went, and another compaction left some meanwhile; "
                "plan it again on the latest version"
            )
        indices = [entry for entry in indices if entry.name != FRAGMENT_REUSE]
        indices.append(inputs.reuse_entry)
    return replace(manifest, indices=tuple(indices))


def reuse_uuid(manifest: Manifest) -> str | None:
    """The fragment-reuse entry of a version; None when it has none."""
    return next((entry.uuid for entry in manifest.indices if entry.name == FRAGMENT_REUSE), None)


def _swapped(entry: IndexMetadata, groups: Sequence[tuple[frozenset[int], frozenset[int]]]) -> IndexMetadata:
    before = covered_fragments(entry)
    if before is None:
        return entry
    covered = before
    for old, new in groups:
        inside = old & covered
        if not inside:
            continue
        if inside != old:
            raise InvalidInput(
                f"the rewrite merges fragments that index {entry.name} covers with others "
                f"({sorted(old - covered)[:5]}); rewrite them apart"
            )
        covered = (covered - old) | new
    return entry if covered == before else covering(entry, covered)
