"""Arrow schemas in the JSON form of namespace answers (namespace pack, appendix C).

The form says less than a schema: units, time zones and dictionaries are lost. It is for people and for
choosing columns, never for making a table; that is why there is no way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

DECIMAL_PRECISION_STEP = 1000
"""A decimal's `length` is its precision times this, plus its scale."""

_WORDS = {
    pa.null(): "null",
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.string(): "utf8",
    pa.large_string(): "large_utf8",
    pa.string_view(): "utf8",
    pa.binary(): "binary",
    pa.large_binary(): "large_binary",
    pa.binary_view(): "binary",
    pa.date32(): "date32",
    pa.date64(): "date64",
}


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """The JSON form of a schema."""
    made: dict[str, Any] = {"fields": [_field(each) for each in schema]}
    if schema.metadata:
        made["metadata"] = _metadata(schema.metadata)
    return made


def _metadata(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in metadata.items()
    }


def _field(field: pa.Field) -> dict[str, Any]:
    made: dict[str, Any] = {"name": field.name, "nullable": field.nullable, "type": _type(field.type)}
    if field.metadata:
        made["metadata"] = _metadata(field.metadata)
    return made


def _type(kind: Any) -> dict[str, Any]:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    word = _WORDS.get(kind)
    if word is not None:
        return {"type": word}
    if types.is_dictionary(kind):
        return _type(kind.value_type)
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(at)) for at in range(kind.num_fields)]}
    if types.is_fixed_size_list(kind):
        return {"type": "fixed_size_list", "fields": [_field(kind.value_field)], "length": kind.list_size}
    if types.is_map(kind):
        entries = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        return {"type": "map", "fields": [_field(entries)]}
    if types.is_list(kind) or types.is_large_list(kind):
        name = "list" if types.is_list(kind) else "large_list"
        return {"type": name, "fields": [_field(kind.value_field)]}
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    if types.is_decimal(kind):
        bits = 256 if types.is_decimal256(kind) else 128
        return {"type": f"decimal{bits}", "length": kind.precision * DECIMAL_PRECISION_STEP + kind.scale}
    for word, test in (
        ("timestamp", types.is_timestamp),
        ("duration", types.is_duration),
        ("time32", types.is_time32),
        ("time64", types.is_time64),
    ):
        if test(kind):
            return {"type": word}
    return {"type": str(kind)}
