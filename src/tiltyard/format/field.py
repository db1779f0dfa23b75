"""One field of a schema: name, id, type, keys and what is below it (table format, section 11).

Fields are frozen values. Which of them own columns in a data file is decided here (file format, 3 and 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.logical_types import leaf_type

STRUCT_VECTOR = "fixed_size_list:struct:"
"""Logical type of a fixed-size list of structs, less its dimension."""

BLOB_EXTENSION = "lance.blob.v2"
"""Extension name of a blob column of files of version 2.2 and later."""

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION = "lance-schema:unenforced-clustering-key:position"

_TRUE = ("true", "1", "yes")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the tree. `parent_id` is -1 at the top; `metadata` includes the extension entries."""

    name: str
    id: int
    parent_id: int
    logical_type: str
    nullable: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Field, ...] = ()
    extension_name: str = ""
    encoding: int = 0
    primary_key: bool = False
    primary_key_position: int = 0  # 1-based; 0 = unordered
    clustering_key: bool = False
    clustering_key_position: int = 0  # 1-based; 0 = none
    unknown: bytes = field(default=b"", repr=False)

    @property
    def is_packed(self) -> bool:
        """Whether a struct is stored as one column."""
        return self._says("lance-encoding:packed") or self._says("packed")

    @property
    def is_blob(self) -> bool:
        """Whether the column holds blob descriptors."""
        return self._says("lance-encoding:blob") or self.extension_name == BLOB_EXTENSION

    def _says(self, key: str) -> bool:
        return bool(self.metadata) and self.metadata.get(key, "").lower() == "true"

    @property
    def is_leaf(self) -> bool:
        """Whether the field owns a column in files of version 2.1 and later."""
        return not self.children or self.is_packed or self.is_blob

    def leaves(self) -> list[Field]:
        """The fields that own columns, in pre-order (this one alone when it is a leaf)."""
        if self.is_leaf:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def walk(self) -> Iterator[Field]:
        """This field and all below it, in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def arrow_type(self) -> Any:
        """The `pa.DataType` of the storage; extension types come back as their storage."""
        kind = self.logical_type
        if not self.children:
            return pa.struct([]) if kind == "struct" else leaf_type(kind)
        if kind == "struct":
            return pa.struct([child.arrow_field for child in self.children])
        inner = self.children[0]
        if kind in ("list", "list.struct"):
            return pa.list_(inner.arrow_field)
        if kind in ("large_list", "large_list.struct"):
            return pa.large_list(inner.arrow_field)
        if kind == "map" and len(inner.children) == 2 and inner.children[0].logical_type != "null":
            key, value = inner.children
            return pa.map_(key.arrow_field.with_nullable(False), value.arrow_field)
        if kind.startswith(STRUCT_VECTOR):
            dimension = kind[len(STRUCT_VECTOR) :]
            if dimension.isascii() and dimension.isdigit() and 0 < int(dimension) < 2**31:
                return pa.list_(inner.arrow_field, int(dimension))
        raise UnsupportedFeature(f"field {self.name!r}: logical type {kind!r} is not known to this version")

    @property
    def arrow_field(self) -> Any:
        """The `pa.Field`: name, storage type, nullability, metadata."""
        metadata = {key: value.encode("utf-8", "surrogateescape") for key, value in self.metadata.items()}
        return pa.field(
            self.name, self.arrow_type, self.nullable or self.logical_type == "null", metadata or None
        )

    def with_metadata(self, metadata: Mapping[str, str]) -> Field:
        """The same field with other metadata; the key markers follow from it (table format, section 11.4)."""
        return replace(self, metadata=dict(metadata), **key_markers(metadata, self.name))


def key_markers(metadata: Mapping[str, str], column: str) -> dict[str, Any]:
    """The markers of fields 12, 13 and 15 that the metadata asks for."""
    primary = _position(metadata, PRIMARY_KEY_POSITION, column)
    return {
        "primary_key": primary > 0 or metadata.get(PRIMARY_KEY, "").lower() in _TRUE,
        "primary_key_position": primary,
        "clustering_key_position": _position(metadata, CLUSTERING_KEY_POSITION, column),
    }


def _position(metadata: Mapping[str, str], key: str, column: str) -> int:
    text = metadata.get(key)
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**32:
        raise InvalidInput(f"column {column!r}: metadata {key!r} must be a number from 1, found {text!r}")
    return int(text)


def column_type(owner: Field) -> tuple[str, ...]:
    """The logical types in the column that a field owns: one, or those of a packed struct, in pre-order."""
    return tuple([each.logical_type for each in owner.walk()]) if owner.is_leaf else (owner.logical_type,)


def headers_and_leaves(each: Field, found: list[Field]) -> None:
    """Add the field and all below it that own columns in files of version 2.0, in column order."""
    found.append(each)
    if not each.is_leaf:
        for child in each.children:
            headers_and_leaves(child, found)
