"""Arrow schemas to and from the JSON form of the official package, which the REST catalog speaks too.

A type is an object with `type`, the format's logical type (table format, section 11.1), and where it needs
them `fields` (children), `length` (of fixed-size types).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, TiltyardError, UnsupportedFeature
from tiltyard.format.logical_types import extension_of, leaf_text, leaf_type

MAX_DEPTH = 100
"""Levels of nesting that a schema may have."""


def schema_to_json(schema: Any) -> dict[str, Any]:
    """The JSON form of a `pa.Schema`. Raises `UnsupportedFeature` for types that it has no words for."""
    found = arguments.instance("schema", schema, pa.Schema)
    made: dict[str, Any] = {"fields": [_field_to_json(each) for each in found]}
    if found.metadata:
        made["metadata"] = _metadata_to_json(found.metadata)
    return made


def json_to_schema(schema_json: Mapping[str, Any]) -> Any:
    """The `pa.Schema` of a JSON form. Raises `InvalidInput` for what is none, naming the place."""
    value = arguments.mapping("schema_json", schema_json)
    metadata = arguments.text_map("metadata", value["metadata"]) if value.get("metadata") else None
    return pa.schema(_fields_of(value, "the schema", 0), metadata)


def _metadata_to_json(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in metadata.items()
    }


def _field_to_json(field: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": field.name, "type": _type_to_json(field), "nullable": field.nullable}
    if field.metadata:
        made["metadata"] = _metadata_to_json(field.metadata)
    return made


def _type_to_json(field: Any) -> dict[str, Any]:
    _, arrow = extension_of(field)
    if types.is_map(arrow):
        raise UnsupportedFeature(f"field {field.name!r}: maps have no JSON form")
    if types.is_struct(arrow):
        below = [_field_to_json(arrow.field(at)) for at in range(arrow.num_fields)]
        return {"type": "struct", "fields": below}
    if types.is_fixed_size_list(arrow):
        item = [_field_to_json(arrow.value_field)]
        return {"type": "fixed_size_list", "fields": item, "length": arrow.list_size}
    if types.is_list(arrow) or types.is_large_list(arrow):
        name = "list" if types.is_list(arrow) else "large_list"
        return {"type": name, "fields": [_field_to_json(arrow.value_field)]}
    if types.is_fixed_size_binary(arrow):
        return {"type": "fixed_size_binary", "length": arrow.byte_width}
    text = leaf_text(arrow, field.name)
    if text is None:
        raise UnsupportedFeature(f"field {field.name!r}: {arrow} has no JSON form")
    return {"type": text}


def _fields_of(value: Mapping[str, Any], of: str, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{of} is nested more than {MAX_DEPTH} levels deep")
    if "fields" not in value:
        raise InvalidInput(f"{of} has no 'fields'")
    return [_field_of(each, depth) for each in arguments.items(f"the fields of {of}", value["fields"], dict)]


def _field_of(value: dict[str, Any], depth: int) -> Any:
    name = arguments.text("the name of a field", value.get("name"))
    for key in ("type", "nullable"):
        if key not in value:
            raise InvalidInput(f"field {name!r} has no {key!r}")
    metadata = (
        arguments.text_map(f"the metadata of {name!r}", value["metadata"]) if value.get("metadata") else None
    )
    arrow = _type_of(arguments.mapping(f"the type of {name!r}", value["type"]), name, depth)
    return pa.field(name, arrow, arguments.flag(f"nullable of {name!r}", value["nullable"]), metadata)


def _type_of(value: dict[str, Any], name: str, depth: int) -> Any:
    kind = arguments.text(f"the type of {name!r}", value.get("type"))
    if kind == "struct":
        return pa.struct(_fields_of(value, f"struct {name!r}", depth + 1))
    if kind in ("list", "large_list", "fixed_size_list"):
        below = _fields_of(value, f"list {name!r}", depth + 1)
        if len(below) != 1:
            raise InvalidInput(f"list {name!r} must have one field, found {len(below)}")
        if kind == "fixed_size_list":
            return pa.list_(
                below[0], arguments.whole(f"length of {name!r}", value.get("length"), 1, (1 << 31) - 1)
            )
        return pa.list_(below[0]) if kind == "list" else pa.large_list(below[0])
    if kind == "fixed_size_binary":
        return pa.binary(arguments.whole(f"length of {name!r}", value.get("length"), 0, (1 << 31) - 1))
    try:
        return leaf_type(kind)
    except TiltyardError as error:
        raise InvalidInput(f"field {name!r}: the type {kind!r} is not known") from error
