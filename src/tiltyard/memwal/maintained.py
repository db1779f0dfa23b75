"""Which of the table's indices an SSTable gets too (MemWAL, section 4.8). Ours are B-trees."""

from __future__ import annotations

from collections.abc import Sequence

from tiltyard.errors import IndexNotFound, UnsupportedFeature, nearest
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.table.snapshot import Snapshot

BTREE = "BTreeIndexDetails"
MIRRORED_ELSEWHERE = ("InvertedIndexDetails", "VectorIndexDetails")
"""Kinds that the official writer keeps for SSTables, and whose readers rely on that."""


def maintained(snapshot: Snapshot, details: MemWalDetails) -> list[IndexMetadata]:
    """One entry for each B-tree that SSTables get, by name.

    Raises `UnsupportedFeature` for a text or vector index that SSTables should get: readers that use it would
    miss our rows. Raises `IndexNotFound` for a name that the table never had.
    """
    entries = {each.name: each for each in snapshot.manifest.indices if not each.is_system}
    named = None if details.maintain_all_indexes else details.maintained_indexes
    found: list[IndexMetadata] = []
    for name in sorted(entries) if named is None else named:
        entry = entries.get(name)
        if entry is None:
            continue  # dropped since: its SSTables need none
        kind = kind_of(entry)
        if kind in MIRRORED_ELSEWHERE:
            raise UnsupportedFeature(
                f"index {name!r} is kept for streamed rows too, and is of a kind ({kind}) that this version "
                "does not write: the table can be read, but streamed into only by the official package"
            )
        if kind == BTREE and len(entry.fields) == 1:
            found.append(entry)
        elif named is not None:
            raise UnsupportedFeature(f"index {name!r} is of a kind ({kind}) that SSTables cannot have")
    return found


def kind_of(entry: IndexMetadata) -> str:
    """The name of the message that describes the index, without its package."""
    return "" if entry.details is None else entry.details.type_name.rpartition(".")[2]


def check_maintainable(snapshot: Snapshot, wanted: Sequence[str]) -> None:
    """Raise `IndexNotFound` or `UnsupportedFeature` for a name that cannot be maintained."""
    entries = {each.name: each for each in snapshot.manifest.indices if not each.is_system}
    for name in wanted:
        if name not in entries:
            raise IndexNotFound(
                f"Index '{name}' from maintained_indexes not found on dataset; "
                f"{nearest(name, sorted(entries))}"
            )
        kind = kind_of(entries[name])
        if kind != BTREE and kind not in MIRRORED_ELSEWHERE:
            raise UnsupportedFeature(f"index {name!r} is of a kind ({kind}) that SSTables cannot have")
