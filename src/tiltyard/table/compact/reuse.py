"""Writing the fragment-reuse index: a compaction that leaves indices as they are notes where rows went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import UnsupportedFeature
from tiltyard.format.fragment_reuse import (
    KNOWN_VERSION,
    External,
    FragmentDigest,
    ReuseGroup,
    ReuseVersion,
    encode_survivors,
    encode_versions,
    external_details,
    inline_details,
)
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexFile, IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.format.operations import RewriteGroup
from tiltyard.format.roaring import encode_roaring
from tiltyard.table.compact.moves import GroupMoves
from tiltyard.table.compact.results import Rewritten
from tiltyard.table.fragment_reuse import reuse_versions

if TYPE_CHECKING:
    from tiltyard.format.fragment import Fragment
    from tiltyard.table.snapshot import Snapshot

INLINE_BYTES = 200 << 10
"""Notes larger than this stand in a file of their own, so that manifests stay small."""

DETAILS_FILE = "details.binpb"


def reuse_group(before: Rewritten, moves: GroupMoves, after: RewriteGroup) -> ReuseGroup:
    """The note for one group: rows that survived the rewrite, also those deleted since."""
    deleted = {
        fragment.id: fragment.deletion.rows
        for fragment in after.new_fragments
        if fragment.deletion is not None
    }
    return ReuseGroup(
        encode_survivors(moves.survivors()),
        tuple(_digest(fragment) for fragment in before.old),
        tuple(FragmentDigest(id, rows, deleted.get(id, 0)) for id, rows in moves.new),
    )


def _digest(fragment: Fragment) -> FragmentDigest:
    deleted = 0 if fragment.deletion is None else fragment.deletion.rows
    return FragmentDigest(fragment.id, fragment.physical_rows, deleted)


def reuse_entry(
    snapshot: Snapshot, noted: Sequence[tuple[ReuseGroup, RewriteGroup]], written: list[str]
) -> IndexMetadata:
    """The index entry with a version's notes and one more. A file that it needs is written first and added
    to `written`.

    Raises `UnsupportedFeature` where the table's notes are of a later form.
    """
    current = next((e for e in snapshot.manifest.indices if e.name == FRAGMENT_REUSE), None)
    if current is not None and (current.index_version or 0) > KNOWN_VERSION:
        raise UnsupportedFeature(
            f"the fragment-reuse index of {snapshot.store.uri} has version {current.index_version}, which is "
            "not known here: compact with defer_index_remap=False"
        )
    version = ReuseVersion(snapshot.version, tuple(group for group, _ in noted))
    versions = (*(() if current is None else reuse_versions(snapshot, current)), version)
    uuid = str(runtime.uuid4())
    details = inline_details(versions)
    files: tuple[IndexFile, ...] = ()
    if len(details.value) > INLINE_BYTES:
        data = encode_versions(versions)
        path = f"{index_directory(uuid)}/{DETAILS_FILE}"
        written.append(path)
        with snapshot.store.writer(path) as writer:
            writer.write([data])
            writer.commit()
        details = external_details(External(DETAILS_FILE, 0, len(data)))
        files = (IndexFile(DETAILS_FILE, len(data)),)
    new = sorted(fragment.id for _, group in noted for fragment in group.new_fragments)
    return IndexMetadata(
        uuid=uuid,
        fields=(),
        name=FRAGMENT_REUSE,
        dataset_version=snapshot.version,
        fragment_bitmap=encode_roaring(new),
        details=details,
        index_version=KNOWN_VERSION,
        created_at=runtime.now_ns() // 1_000_000,
        files=files,
    )
