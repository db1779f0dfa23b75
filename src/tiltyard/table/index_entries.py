"""Fragment bitmaps of index entries, and what the conditions need to know about an entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.roaring import decode_roaring, encode_roaring
from tiltyard.index.btree.layout import LOOKUP_FILE


def covered_fragments(entry: IndexMetadata) -> frozenset[int] | None:
    """Ids of the fragments that the segment covers, vanished ones included; None when it does not say."""
    if entry.fragment_bitmap is None:
        return None
    what = f"the fragment bitmap of index {entry.name}"
    return frozenset(decode_roaring(entry.fragment_bitmap, what).tolist())


def covering(entry: IndexMetadata, fragments: Iterable[int]) -> IndexMetadata:
    """The entry with another set of covered fragments."""
    return replace(entry, fragment_bitmap=encode_roaring(sorted(fragments)))


def kind_of(entry: IndexMetadata) -> str:
    """The kind of index in lower case, such as `btree`; empty when the entry has no details."""
    if entry.details is None:
        return ""
    return entry.details.type_name.rpartition(".")[2].lower().removesuffix("indexdetails")


def is_btree(entry: IndexMetadata) -> bool:
    """Whether the segment is one of a B-tree index: by its details, or, from old writers, by its files."""
    if entry.details is None:
        return any(file.path == LOOKUP_FILE for file in entry.files)
    return kind_of(entry) == "btree"


def stores_addresses(entry: IndexMetadata) -> bool:
    """Whether the index of a table with stable row ids holds row addresses (indices pack, section 1.3)."""
    if is_btree(entry):
        return (entry.index_version or 0) >= 1
    return kind_of(entry) in ("zonemap", "bloomfilter")
