"""Upkeep of the MemWAL index entry by every commit: compaction marks, and the catch-up of indices.

MemWAL, sections 7.3 and 7.5; decision D29: a catch-up that is not derived anew is a promise nobody made, and
an absent one is always safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiltyard import runtime
from tiltyard.errors import IncompatibleTransaction, InvalidInput
from tiltyard.format.index_metadata import MEM_WAL, IndexMetadata
from tiltyard.format.manifest import Manifest
from tiltyard.format.mem_wal import Marks, MemWalDetails
from tiltyard.format.operations import CompactedSsTable, UpdateMemWalState
from tiltyard.table.apply.draft import Inputs
from tiltyard.table.index_entries import covered_fragments


def entry_of(manifest: Manifest) -> IndexMetadata | None:
    """The MemWAL index entry; None when the table has none."""
    return next((entry for entry in manifest.indices if entry.name == MEM_WAL), None)


def update_mem_wal_state(previous: Manifest, operation: UpdateMemWalState, inputs: Inputs) -> Manifest:
    """Move compaction marks forward; nothing else changes."""
    return advanced(previous, operation.compacted_sstables, inputs)


def advanced(manifest: Manifest, marks: Sequence[CompactedSsTable], inputs: Inputs) -> Manifest:
    """The manifest with compaction marks moved forward; a mark that does not advance is refused."""
    entry = entry_of(manifest)
    if entry is None:
        raise InvalidInput(
            f"Cannot record SSTable compaction progress: the {MEM_WAL} system index does not exist on this "
            "table"
        )
    details = MemWalDetails.of(entry)
    new = dict(details.marks)
    seen: set[str] = set()
    for mark in marks:
        if mark.shard_id in seen:
            raise InvalidInput(
                f"Duplicate shard {mark.shard_id} in one SSTable compaction update; each shard may advance "
                "at most once per transaction"
            )
        seen.add(mark.shard_id)
        recorded = new.get(mark.shard_id)
        if recorded is not None and mark.generation <= recorded:
            raise IncompatibleTransaction(
                f"Stale SSTable compaction for shard {mark.shard_id}: proposed generation {mark.generation} "
                f"is not greater than the recorded generation {recorded}"
            )
        new[mark.shard_id] = mark.generation
    return _with_details(manifest, entry, details.changed(new, details.catch_up), inputs)


def keeping_marks(manifest: Manifest, previous: Manifest, inputs: Inputs) -> Manifest:
    """A restored version with the marks of the version before: what has been compacted is gone from its
    shards, and is not asked for again. Those of another life of the table's streams do not count.
    """
    entry, before = entry_of(manifest), entry_of(previous)
    if entry is None or before is None:
        return manifest
    details, known = MemWalDetails.of(entry), MemWalDetails.of(before)
    if details.incarnation != known.incarnation:
        return manifest
    marks = {shard: max(mark, details.marks.get(shard, 0)) for shard, mark in known.marks.items()}
    if marks == dict(details.marks):
        return manifest
    return _with_details(
        manifest, entry, details.changed({**details.marks, **marks}, details.catch_up), inputs
    )


def _with_details(
    manifest: Manifest, entry: IndexMetadata, details: MemWalDetails, inputs: Inputs
) -> Manifest:
    changed = replace(
        entry,
        uuid=str(runtime.uuid4()),  # a rewritten entry is a new one
        dataset_version=inputs.version,
        details=details.encode(),
    )
    return replace(manifest, indices=tuple(changed if e.uuid == entry.uuid else e for e in manifest.indices))


def with_catch_up(manifest: Manifest, previous: Manifest, inputs: Inputs) -> Manifest:
    """Derive anew up to which generations each index covers the rows that were compacted into the table.

    An index whose segments together cover every fragment live at the read version is credited with the marks
    of that version. Otherwise it keeps what it had, if its segments and their bitmaps are unchanged.
    """
    entry = entry_of(manifest)
    if entry is None:
        return manifest
    details = MemWalDetails.of(entry)
    catch_up: dict[str, Marks] = {}
    for name in sorted({e.name for e in manifest.indices if not e.is_system}):
        marks = _credited(manifest, name, inputs.read, details.marks)
        if _segments(manifest, name) == _segments(previous, name):
            for shard, generation in details.catch_up.get(name, {}).items():
                marks[shard] = max(generation, marks.get(shard, 0))
        if marks:
            catch_up[name] = marks
    if catch_up == {name: dict(marks) for name, marks in details.catch_up.items()}:
        return manifest
    return _with_details(manifest, entry, details.changed(details.marks, catch_up), inputs)


def _credited(manifest: Manifest, name: str, read: Manifest | None, marks: Marks) -> dict[str, int]:
    """Marks of the read version that the index covers, none above the committing version's own."""
    if read is None or not len(read.fragments):
        return {}
    entry = entry_of(read)
    if entry is None:
        return {}
    covered: set[int] = set()
    for segment in manifest.indices:
        if segment.name == name:
            covered |= covered_fragments(segment) or frozenset()
    if not covered.issuperset(read.fragments.ids.tolist()):
        return {}
    known: Mapping[str, int] = MemWalDetails.of(entry).marks
    return {shard: min(generation, marks[shard]) for shard, generation in known.items() if shard in marks}


def _segments(manifest: Manifest, name: str) -> dict[str, bytes | None]:
    return {e.uuid: e.fragment_bitmap for e in manifest.indices if e.name == name}
