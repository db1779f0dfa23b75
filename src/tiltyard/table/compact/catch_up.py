"""Index segments that a deferred compaction left as they were, written anew with the addresses of today.

Afterwards nobody needs the notes of where rows went for them; where no other index may need them either, the
notes go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import CorruptFile, ObjectNotFound
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.table.index_entries import covered_fragments, covering

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


def catch_up_indices(snapshot: Snapshot) -> Snapshot:
    """Write the B-tree segments of a version that lag behind its notes anew, in one commit; the version after
    it, or the one given where none lags.

    Raises `RetryableConflict` when others changed the indices or compacted meanwhile, and what writing and
    committing raise; then nothing is left.
    """
    entries = snapshot.manifest.indices
    notes = tuple(entry for entry in entries if entry.name == FRAGMENT_REUSE)
    if not notes or uses_stable_row_ids(snapshot.manifest):
        return snapshot
    from tiltyard.index.btree.written import remap
    from tiltyard.table.index_segments import covered_now, is_usable, segment_of
    from tiltyard.table.indexing.source import commit_indices, written_segments

    own = [entry for entry in entries if not entry.is_system]
    # Of an index of another kind only who knows it can tell whether it needs the notes.
    finished = all(map(is_usable, own))
    if not finished:
        own = [e for e in own if is_usable(e) and covered_now(snapshot, e) != covered_fragments(e)]
    new: list[IndexMetadata] = []
    old: list[IndexMetadata] = []
    with written_segments(snapshot.store) as written:
        for entry in own:
            segment = segment_of(snapshot, entry)
            uuid = str(runtime.uuid4())
            written.append(uuid)
            try:
                built = remap(
                    snapshot.store,
                    index_directory(uuid),
                    segment.tree(),
                    segment.located,
                    index_version=entry.index_version or 0,
                )
            except (CorruptFile, ObjectNotFound):
                finished = False  # left as it is: `optimize_indices` builds it anew from the data
                continue
            made = replace(entry, uuid=uuid, details=built.details, files=built.files, base_id=None)
            new.append(covering(made, (int(id) for id in segment.fragments)))
            old.append(entry)
        if finished:
            old += notes
        if not old:
            return snapshot
        return commit_indices(snapshot, new, old)


def lags(snapshot: Snapshot) -> bool:
    """Whether a version has notes, and a B-tree segment whose entry names fragments that they tell of."""
    if all(entry.name != FRAGMENT_REUSE for entry in snapshot.manifest.indices):
        return False
    from tiltyard.table.index_segments import covered_now, is_usable

    return any(
        is_usable(entry) and covered_now(snapshot, entry) != covered_fragments(entry)
        for entry in snapshot.manifest.indices
        if not entry.is_system
    )
