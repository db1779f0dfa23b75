"""Fragment bitmaps of index entries, and what the conditions need to know about an entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiltyard.errors import CorruptFile
from tiltyard.format.index_metadata import IndexMetadata


def covered_fragments(entry: IndexMetadata) -> frozenset[int] | None:
    """Ids of the fragments that the segment covers; None when it does not say. Vanished fragments are
    included.
    """
    if entry.fragment_bitmap is None:
        return None
    from pyroaring import BitMap  # lazily: tables without indices never need it

    try:
        return frozenset(BitMap.deserialize(entry.fragment_bitmap))
    except (ValueError, MemoryError) as error:
        raise CorruptFile(f"the fragment bitmap of index {entry.name} cannot be decoded: {error}") from error


def covering(entry: IndexMetadata, fragments: Iterable[int]) -> IndexMetadata:
    """The entry with another set of covered fragments."""
    from pyroaring import BitMap

    return replace(entry, fragment_bitmap=bytes(BitMap(sorted(fragments)).serialize()))


def kind_of(entry: IndexMetadata) -> str:
    """The kind of index in lower case, such as `btree`; empty when the entry has no details."""
    if entry.details is None:
        return ""
    return entry.details.type_name.rpartition(".")[2].lower().removesuffix("indexdetails")
