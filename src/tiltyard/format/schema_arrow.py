"""Fields from those of an Arrow schema, numbered in pre-order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.field import STRUCT_VECTOR, Field, key_markers
from tiltyard.format.logical_types import (
    EXTENSION_METADATA,
    EXTENSION_NAME,
    JSON_NAMES,
    encoding_number,
    extension_metadata,
    extension_of,
    leaf_text,
)


def check_names(names: Sequence[str], where: str) -> None:
    seen = set()
    for name in names:
        if not name:
            raise InvalidInput(f"{where} has a column with an empty name; give every column a name")
        if "\0" in name:
            raise InvalidInput(f"{where} has a column named {name!r}; names must not contain NUL characters")
        if name in seen:
            raise InvalidInput(f"{where} has two columns named {name!r}; names must be unique")
        seen.add(name)


def metadata_of(holder: Any, of: str) -> dict[str, str]:
    """The metadata of a `pa.Schema` or `pa.Field` as text. Raises `InvalidInput` for what is not UTF-8, which
    the official package cannot read.
    """
    found = {}
    for key, value in (holder.metadata or {}).items():
        try:
            found[key.decode()] = value.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"metadata {key!r} of {of} is not UTF-8; write bytes as text, as base64 does"
            ) from error
    return found


def field_from_arrow(arrow: Any, parent: int, ids: Iterator[int], above: str) -> Field:
    column = f"{above}.{arrow.name}" if above else arrow.name
    id = next(ids)
    metadata = metadata_of(arrow, f"column {column!r}")
    name, storage = extension_of(arrow)
    if isinstance(arrow.type, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = name
        metadata[EXTENSION_METADATA] = extension_metadata(arrow)
    if name in JSON_NAMES:
        _check_json(storage, column)
        logical: str | None = "json"
        name = metadata[EXTENSION_NAME] = JSON_NAMES[0]
    else:
        logical = leaf_text(storage, column)
    children: tuple[Field, ...] = ()
    if logical is None:
        logical, children = _nested(storage, id, ids, column)
    keys = key_markers(metadata, column)
    return Field(
        arrow.name,
        id,
        parent,
        logical,
        arrow.nullable,
        metadata,
        children,
        name,
        encoding_number(logical),
        **keys,
    )


def _check_json(storage: Any, column: str) -> None:
    if not (
        types.is_string(storage)
        or types.is_large_string(storage)
        or types.is_string_view(storage)
        or types.is_large_binary(storage)
    ):
        raise UnsupportedFeature(
            f"column {column!r}: JSON stored as {storage} has no place in the Lance format"
        )


def _nested(arrow: Any, id: int, ids: Iterator[int], column: str) -> tuple[str, tuple[Field, ...]]:
    if types.is_struct(arrow):
        below = [arrow.field(i) for i in range(arrow.num_fields)]
        check_names([each.name for each in below], f"struct column {column!r}")
        return "struct", tuple(field_from_arrow(each, id, ids, column) for each in below)
    if types.is_map(arrow):
        if arrow.keys_sorted:
            raise UnsupportedFeature(
                f"column {column!r}: {arrow} with sorted keys has no place in the Lance format"
            )
        entries = pa.field("entries", pa.struct([arrow.key_field, arrow.item_field]), False)
        return "map", (field_from_arrow(entries, id, ids, column),)
    item = field_from_arrow(arrow.value_field, id, ids, column)
    if types.is_fixed_size_list(arrow):
        return f"{STRUCT_VECTOR}{arrow.list_size}", (item,)
    large = "large_list" if types.is_large_list(arrow) else "list"
    return (f"{large}.struct" if item.logical_type == "struct" else large), (item,)
