"""Blob columns as they are read: a descriptor a row, which says where the bytes of the value are (file format
7.6 and 7.7; table format 12).

There are two kinds of them. Of version 1 a descriptor is (position, size), and the bytes are in the data file
itself. Of version 2 it has five parts; the bytes may be in the data file, in a file beside it, or elsewhere.
The schema of a table says what users write; `described` says what a scan gives.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from tiltyard.errors import UnsupportedFeature
from tiltyard.format.field import Field
from tiltyard.format.logical_types import EXTENSION_NAME

BLOB = "lance-encoding:blob"
PACKED = "lance-encoding:packed"

_PARTS_1 = (("position", "uint64"), ("size", "uint64"))
_PARTS_2 = (
    ("kind", "uint8"),
    ("position", "uint64"),
    ("size", "uint64"),
    ("blob_id", "uint32"),
    ("blob_uri", "string"),
)
_PART_NAMES = [[name for name, _ in parts] for parts in (_PARTS_1, _PARTS_2)]


class BlobKind(IntEnum):
    """Where the bytes of a blob of version 2 are."""

    INLINE = 0  # in the data file
    PACKED = 1  # in a file beside it, with others
    DEDICATED = 2  # in a file of its own beside it
    EXTERNAL = 3  # at a URI, or at a path below a base
    MANAGED = 4  # at a path below a base, which the table looks after


def is_version_2(field: Field) -> bool:
    """Whether a blob column is of version 2."""
    return field.logical_type == "struct"


def described(field: Field) -> Field:
    """The field with the descriptors of its blob columns in the place of what users write."""
    if field.is_blob:
        exact = is_version_2(field)
        parts = _PARTS_2 if exact else _PARTS_1
        children = tuple(
            [
                # Parts have no ids of their own; those below -1 tell them apart.
                Field(name, -2 - len(_PARTS_2) * field.id - at, field.id, kind, nullable=not exact)
                for at, (name, kind) in enumerate(parts)
            ]
        )
        metadata = {BLOB: "true", PACKED: "true"} if exact else field.metadata
        return Field(field.name, field.id, field.parent_id, "struct", field.nullable, metadata, children)
    if not field.children:
        return field
    children = tuple([described(child) for child in field.children])
    if all(new is old for new, old in zip(children, field.children, strict=True)):
        return field
    return replace(field, children=children)


def check_described(field: Field) -> None:
    """Raise `UnsupportedFeature` for a blob column that is not to be read as descriptors."""
    if field.is_blob and [each.name for each in field.children] not in _PART_NAMES:
        raise UnsupportedFeature(
            f"column {field.name!r} holds blobs, which this version reads and does not write: rows of the "
            "table can be read and deleted, and not rewritten"
        )


def not_written(path: str) -> UnsupportedFeature:
    """The error for a blob column that is to be written."""
    return UnsupportedFeature(
        f"column {path!r} holds blobs (lance-encoding:blob, lance.blob.v2), which this version reads and "
        "does not write; a table of plain large_binary values can be written"
    )


def as_bytes(field: Field) -> Field:
    """The field with the bytes of its blob columns: large binary values."""
    if field.is_blob:
        metadata = field.metadata
        if is_version_2(field):
            gone = (BLOB, PACKED, EXTENSION_NAME)
            metadata = {key: value for key, value in metadata.items() if key not in gone}
        return replace(field, logical_type="large_binary", children=(), metadata=metadata, extension_name="")
    if not field.children:
        return field
    return replace(field, children=tuple([as_bytes(child) for child in field.children]))


def blob_paths(field: Field) -> list[tuple[str, ...]]:
    """The paths of the blob columns in a field, its own name first."""
    if field.is_blob:
        return [(field.name,)]
    return [(field.name, *below) for child in field.children for below in blob_paths(child)]
