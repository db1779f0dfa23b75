"""The operations of transactions as frozen values (transactions, section 2). `transaction.py` encodes them.

Each has a `name`: the word of the format. Fragments that an operation adds have id 0 (to be assigned) unless
their ids were reserved before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DataOverlay, Fragment
from tiltyard.format.index_metadata import IndexFile, IndexMetadata, TypedBytes
from tiltyard.format.schema import Schema

REWRITE_ROWS = 0
"""`Update.update_mode`: changed rows moved to new fragments."""
REWRITE_COLUMNS = 1
"""`Update.update_mode`: columns rewritten in place."""


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes of a map: pairs of key and new value (`None` deletes). `replace` empties the map first."""

    update_entries: tuple[tuple[str, str | None], ...] = ()
    replace: bool = False

    def apply(self, current: Mapping[str, str]) -> dict[str, str]:
        """The map after the changes."""
        changed = {} if self.replace else dict(current)
        for key, value in self.update_entries:
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = value
        return changed


@dataclass(frozen=True, slots=True)
class BloomKeys:
    """A split-block Bloom filter of inserted keys; 0 items or probability 0 mean the format's defaults."""

    bitmap: bytes
    num_bits: int
    number_of_items: int
    probability: float


@dataclass(frozen=True, slots=True)
class KeyExistenceFilter:
    """The keys that a merge inserted: a Bloom filter, exact hashes, or neither."""

    field_ids: tuple[int, ...]
    bloom: BloomKeys | None = None
    exact: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class CompactedSsTable:
    """A MemWAL generation that was merged into the table."""

    shard_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments and those that take their place."""

    old_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """A segment whose row addresses were mapped to new fragments, and the segment that takes its place."""

    old_id: str
    new_id: str
    new_index_details: TypedBytes | None = None
    new_index_version: int = 0
    new_index_files: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacementFile:
    """A data file that replaces columns of a fragment."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True, slots=True)
class OverlayGroup:
    """Overlays for one fragment."""

    fragment_id: int
    overlays: tuple[DataOverlay, ...] = ()


@dataclass(frozen=True, slots=True)
class Append:
    name: ClassVar[str] = "Append"
    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    name: ClassVar[str] = "Delete"
    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """`schema.metadata` is the `schema_metadata` of the wire."""

    name: ClassVar[str] = "Overwrite"
    fragments: tuple[Fragment, ...] = ()
    schema: Schema = field(default_factory=lambda: Schema(()))
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()

    @property
    def schema_metadata(self) -> Mapping[str, bytes]:
        return self.schema.metadata


@dataclass(frozen=True, slots=True)
class CreateIndex:
    name: ClassVar[str] = "CreateIndex"
    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    name: ClassVar[str] = "Rewrite"
    groups: tuple[RewriteGroup, ...] = ()
    rewritten_indices: tuple[RewrittenIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """`fragments` is the complete list; `schema.metadata` is the `schema_metadata` of the wire."""

    name: ClassVar[str] = "Merge"
    fragments: tuple[Fragment, ...] = ()
    schema: Schema = field(default_factory=lambda: Schema(()))
    preserves_nullability: bool = False

    @property
    def schema_metadata(self) -> Mapping[str, bytes]:
        return self.schema.metadata


@dataclass(frozen=True, slots=True)
class Restore:
    name: ClassVar[str] = "Restore"
    version: int = 0


@dataclass(frozen=True, slots=True)
class ReserveFragments:
    name: ClassVar[str] = "ReserveFragments"
    num_fragments: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """`updated_fragment_offset_bitmaps` maps fragment ids to portable Roaring bitmaps of rows rewritten in
    place.
    """

    name: ClassVar[str] = "Update"
    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    compacted_sstables: tuple[CompactedSsTable, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: int = REWRITE_ROWS
    inserted_rows: KeyExistenceFilter | None = None
    updated_fragment_offsets: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # old form, read only
    updated_fragment_offset_bitmaps: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """The schema's metadata is not part of the operation: the table keeps its own."""

    name: ClassVar[str] = "Project"
    schema: Schema = field(default_factory=lambda: Schema(()))
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """`None` leaves a map as it is. Old forms of the wire are decoded into these."""

    name: ClassVar[str] = "UpdateConfig"
    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None
    schema_metadata_updates: UpdateMap | None = None
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataReplacement:
    name: ClassVar[str] = "DataReplacement"
    replacements: tuple[ReplacementFile, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    name: ClassVar[str] = "UpdateMemWalState"
    compacted_sstables: tuple[CompactedSsTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    name: ClassVar[str] = "Clone"
    is_shallow: bool = False
    ref_name: str | None = None
    ref_version: int = 0
    ref_path: str = ""
    branch_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateBases:
    name: ClassVar[str] = "UpdateBases"
    new_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class DataOverlays:
    """The operation that the wire calls `DataOverlay`; one overlay is a `fragment.DataOverlay`."""

    name: ClassVar[str] = "DataOverlay"
    groups: tuple[OverlayGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation of a newer writer: its field number and its bytes (field and all). Conflicts with
    everything.
    """

    number: int
    data: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        return f"Unknown({self.number})"


Operation = (
    Append
    | Delete
    | Overwrite
    | CreateIndex
    | Rewrite
    | Merge
    | Restore
    | ReserveFragments
    | Update
    | Project
    | UpdateConfig
    | DataReplacement
    | UpdateMemWalState
    | Clone
    | UpdateBases
    | DataOverlays
    | UnknownOperation
)
