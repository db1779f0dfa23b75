"""What a version's indices are, and how much of the table they answer for (indices, 5.2 and 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.table.index_entries import is_btree, kind_of
from tiltyard.table.index_segments import covered_now, is_usable, segment_of
from tiltyard.table.indexing.create import entries_named
from tiltyard.table.indexing.source import path_of
from tiltyard.table.row_counts import live_rows_by_id

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

KIND_NAMES = {
    "btree": "BTree",
    "bitmap": "Bitmap",
    "labellist": "LabelList",
    "ngram": "NGram",
    "zonemap": "ZoneMap",
    "bloomfilter": "BloomFilter",
    "inverted": "Inverted",
    "rtree": "RTree",
    "json": "Json",
    "vector": "Vector",
    "fm": "Fm",
    "minhashlsh": "MinHashLsh",
}
"""Kinds as people write them."""

NOT_KNOWN = "N/A"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment: the fragments of the version that it covers (`fragment_ids` also names vanished ones),
    its size in bytes where the manifest says it."""

    uuid: str
    fragment_ids: frozenset[int]
    dataset_version_at_last_update: int
    index_version: int
    created_at: datetime | None
    base_id: int | None
    size_bytes: int | None
    covering_fields: tuple[int, ...]
    entry: IndexMetadata


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One index with all its segments. `rows_indexed`: live rows of the fragments that it covers."""

    name: str
    type_url: str
    index_type: str
    fields: tuple[int, ...]
    field_names: tuple[str, ...]
    rows_indexed: int
    rows_unindexed: int
    segments: tuple[SegmentFacts, ...]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all segments, None where one does not say."""
        sizes = [segment.size_bytes for segment in self.segments]
        return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


def indices(snapshot: Snapshot, *, with_system: bool = False) -> list[IndexFacts]:
    """The indices of a version by name. State of the table that is kept like an index is left out."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for entry in snapshot.manifest.indices:
        if with_system or not entry.is_system:
            by_name.setdefault(entry.name, []).append(entry)
    if not by_name:
        return []
    live = live_rows_by_id(snapshot)
    return [_facts(snapshot, name, by_name[name], live) for name in sorted(by_name)]


def _facts(snapshot: Snapshot, name: str, entries: list[IndexMetadata], live: dict[int, int]) -> IndexFacts:
    first = entries[0]
    segments = tuple(_segment_facts(snapshot, entry) for entry in entries)
    covered = frozenset[int]().union(*(_answered(snapshot, entry) for entry in entries))
    indexed = sum(rows for id, rows in live.items() if id in covered)
    schema = snapshot.schema
    names = tuple(path_of(schema, id) if schema.has_id(id) else f"<field {id}>" for id in first.fields)
    return IndexFacts(
        name,
        first.details.type_url if first.details is not None else "",
        type_name(first),
        first.fields,
        names,
        indexed,
        sum(live.values()) - indexed,
        segments,
    )


def _answered(snapshot: Snapshot, entry: IndexMetadata) -> frozenset[int]:
    """The fragments of the version that a segment answers for."""
    if is_usable(entry):
        return frozenset(segment_of(snapshot, entry).fragments.tolist())
    return covered_now(snapshot, entry) & frozenset(snapshot.fragments.ids.tolist())


def _segment_facts(snapshot: Snapshot, entry: IndexMetadata) -> SegmentFacts:
    created = entry.created_at
    return SegmentFacts(
        entry.uuid,
        covered_now(snapshot, entry),
        entry.dataset_version,
        entry.index_version or 0,
        None if created is None else datetime.fromtimestamp(created / 1000, UTC),
        entry.base_id,
        sum(file.size for file in entry.files) if entry.files else None,
        entry.covering_fields,
        entry,
    )


def type_name(entry: IndexMetadata) -> str:
    """The kind of an index as people write it."""
    if is_btree(entry):
        return KIND_NAMES["btree"]
    kind = kind_of(entry)
    return KIND_NAMES.get(kind, kind or NOT_KNOWN)


def index_statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Counts of rows and fragments that an index answers for, and per segment what its files say.

    Segments of kinds that this version does not read say nothing but their kind. Raises `IndexNotFound`, and
    for a damaged index `CorruptFile`.
    """
    entries = entries_named(snapshot, name)
    live = live_rows_by_id(snapshot)
    covered = [_answered(snapshot, entry) for entry in entries]
    every = frozenset[int]().union(*covered)
    segments = [_segment_statistics(snapshot, entry) for entry in entries]
    indexed = sum(live[id] for id in every)
    created = [entry.created_at for entry in entries if entry.created_at is not None]
    return {
        "index_type": type_name(entries[0]),
        "name": name,
        "num_indices": len(entries),
        "num_segments": len(entries),
        "indices": segments,
        "segments": [dict(each) for each in segments],
        "num_indexed_fragments": len(every),
        "num_indexed_rows": indexed,
        "num_unindexed_fragments": len(live) - len(every),
        "num_unindexed_rows": sum(live.values()) - indexed,
        "num_indexed_rows_per_delta": [sum(live[id] for id in each) for each in covered],
        "updated_at_timestamp_ms": max(created) if created else None,
    }


def _segment_statistics(snapshot: Snapshot, entry: IndexMetadata) -> dict[str, Any]:
    if not is_usable(entry):
        return {}
    tree = segment_of(snapshot, entry).tree()
    if not tree.rows:
        return {}
    found = tree.statistics
    return {"min": _shown(found.min), "max": _shown(found.max), "num_pages": found.pages}


def _shown(value: pa.Scalar) -> str:
    """A value as the statistics of indices show it: physical numbers, hexadecimal bytes, dates as such."""
    if not value.is_valid:
        return "NULL"
    kind = value.type
    if pa.types.is_boolean(kind):
        return str(value.as_py()).lower()
    if pa.types.is_floating(kind):
        return _number(value)
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return str(value.as_py())
    if pa.types.is_temporal(kind):
        return str(value.value)
    found = value.as_py()
    return found.hex().upper() if isinstance(found, bytes) else str(found)


def _number(value: pa.Scalar) -> str:
    found = float(value.as_py())
    if np.isnan(found):
        return "NaN"
    return str(int(found)) if found.is_integer() and abs(found) < 1e15 and found else repr(found)


def prewarm(snapshot: Snapshot, name: str, uuids: Sequence[str] | None = None) -> None:
    """Read an index, or some of its segments, into the session's cache, as far as it has room. Segments of
    kinds that this version does not read are passed over. Raises `IndexNotFound`."""
    for entry in entries_named(snapshot, name):
        if is_usable(entry) and (uuids is None or entry.uuid in uuids):
            segment_of(snapshot, entry).tree().prewarm()
