"""What every operation's function gets and gives: the inputs beside the manifest, and small shared rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.format.fragment import MAX_FRAGMENT_ID, TOMBSTONE, DataFile, Fragment
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.manifest import DataFormat, Manifest
from tiltyard.format.operations import DataOverlays, Operation
from tiltyard.format.schema import Schema

LEGACY_VERSION = "0.1"


@dataclass(frozen=True, slots=True)
class NewTable:
    """How a table is made by its first commit; ignored by every later one."""

    data_version: str | None = None
    """Version of the data files, such as `2.2`; None: that of the files in the first commit."""
    stable_row_ids: bool = False
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What `apply` needs beside the previous manifest and the operation."""

    version: int
    timestamp_ns: int
    restored: Manifest | None = None
    """The manifest that a Restore brings back."""
    source: Manifest | None = None
    """The manifest that a Clone copies."""
    read: Manifest | None = None
    """The manifest of the transaction's read version, for the catch-up of indices; None when it is gone."""
    new_table: NewTable | None = None
    reuse_entry: IndexMetadata | None = None
    """The fragment-reuse index that a Rewrite with deferred remapping built (not on the wire)."""


def name_of(operation: Operation) -> str:
    """The operation's name in the words of the format."""
    return "DataOverlay" if isinstance(operation, DataOverlays) else type(operation).__name__


def assign_ids(fragments: Iterable[Fragment], max_fragment_id: int | None) -> tuple[Fragment, ...]:
    """Fragments with id 0 take the next free ids; a non-zero id was reserved and stays."""
    next_id = 0 if max_fragment_id is None else max_fragment_id + 1
    assigned: list[Fragment] = []
    for fragment in fragments:
        if fragment.id == 0:
            assigned.append(replace(fragment, id=next_id))
            next_id += 1
        else:
            assigned.append(fragment)
    if next_id > MAX_FRAGMENT_ID + 1:
        raise InvalidInput(
            f"the table has used up its fragment ids ({MAX_FRAGMENT_ID}); overwrite it into a new table"
        )
    return tuple(assigned)


def highest_id(max_fragment_id: int | None, fragments: Iterable[Fragment]) -> int | None:
    """The high-water mark of fragment ids after these fragments joined."""
    ids = [fragment.id for fragment in fragments]
    if max_fragment_id is not None:
        ids.append(max_fragment_id)
    return max(ids, default=None)


def live_files(fragment: Fragment) -> Fragment:
    """The fragment without data files of which every field was superseded."""
    kept = tuple(file for file in fragment.files if not _superseded(file))
    return fragment if len(kept) == len(fragment.files) else replace(fragment, files=kept)


def _superseded(file: DataFile) -> bool:
    return bool(file.fields) and all(field_id == TOMBSTONE for field_id in file.fields)


def check_unique(fragments: Sequence[Fragment], what: str) -> None:
    """Refuse a list that names one fragment twice."""
    seen: set[int] = set()
    for fragment in fragments:
        if fragment.id in seen:
            raise InvalidInput(
                f"{what}: fragment {fragment.id} is listed twice; each fragment may appear once"
            )
        seen.add(fragment.id)


def check_file_versions(fragments: Iterable[Fragment], data_format: DataFormat | None) -> None:
    """Refuse files of the legacy format (0.x) beside files of format 2.x, and fragments that list a field
    twice.
    """
    data_version = LEGACY_VERSION if data_format is None else data_format.version
    legacy_table = data_version == LEGACY_VERSION
    for fragment in fragments:
        seen: set[int] = set()
        for file in fragment.files:
            if file.is_legacy != legacy_table:
                raise InvalidInput(
                    f"data file {file.path} has version {file.major}.{file.minor}, but the table's files are "
                    f"version {data_version}: legacy and 2.x files cannot be mixed; write the data again"
                )
            if not file.is_legacy and len(file.fields) != len(file.column_indices):
                raise CorruptFile(
                    f"{len(file.fields)} fields but {len(file.column_indices)} column indices", path=file.path
                )
            for field_id in file.fields:
                if field_id >= 0 and field_id in seen:
                    raise InvalidInput(
                        f"fragment {fragment.id}: field {field_id} is in two data files, the second is "
                        f"{file.path}"
                    )
                seen.add(field_id)


def without_dropped_files(fragment: Fragment, schema: Schema) -> Fragment:
    """The fragment without data files of which no field is left in the schema (system columns count as
    used).
    """
    kept_ids = {field.id for field in schema.walk()}
    kept = tuple(
        file
        for file in fragment.files
        if not file.fields or any(field_id in kept_ids or field_id < TOMBSTONE for field_id in file.fields)
    )
    return fragment if len(kept) == len(fragment.files) else replace(fragment, files=kept)
