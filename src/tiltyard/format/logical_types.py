"""Logical type strings and their Arrow types, for every type without child fields (table format, section
11.2).

A type with children (struct, list, map, fixed-size list of struct) is built by `schema.py` from its fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import UnsupportedFeature

TYPE_CACHE_ENTRIES = 1024

EXTENSION_NAME = "ARROW:extension:name"
EXTENSION_METADATA = "ARROW:extension:metadata"
BFLOAT16 = "lance.bfloat16"
JSON_NAMES = ("lance.json", "arrow.json")
_JSON_MARKS = frozenset(name.encode() for name in JSON_NAMES)

_PLAIN: dict[str, Any] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "json": pa.large_binary(),  # the binary form of JSON; the extension name stands in the field's metadata
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    **{f"duration:{unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
}
_STRINGS = {str(arrow): text for text, arrow in _PLAIN.items() if text != "json"}
_STRINGS["string_view"] = "string"
_STRINGS["binary_view"] = "binary"

# Parameters of a dictionary type are separated by colons, so that a value type with parameters of its own
# cannot be told apart by the official reader: it refuses those.
_DICTIONARY_VALUES = frozenset(text for text in _PLAIN if ":" not in text and text not in ("null", "json"))
_VECTOR_REFUSED = ("string", "large_string", "binary", "large_binary", "null")

# Field.encoding as the official writer fills it in (section 9.3); nobody reads it.
ENCODING_NONE, ENCODING_PLAIN, ENCODING_VAR_BINARY, ENCODING_DICTIONARY = range(4)


def says_json(field: Any) -> bool:
    """Whether the metadata of an Arrow field calls its values JSON, in text or in the binary form."""
    return (field.metadata or {}).get(EXTENSION_NAME.encode()) in _JSON_MARKS


@lru_cache(maxsize=TYPE_CACHE_ENTRIES)
def leaf_type(logical_type: str) -> Any:
    """The Arrow type that a logical type without child fields stands for.

    Raises `UnsupportedFeature` naming the text when no type of ours has it.
    """
    arrow = _PLAIN.get(logical_type)
    if arrow is not None:
        return arrow
    kind, _, rest = logical_type.partition(":")
    try:
        parsed = _parse(kind, rest)
    except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        parsed = None
    if parsed is None:
        raise UnsupportedFeature(f"logical type {logical_type!r} is not known to this version")
    return parsed


def _parse(kind: str, rest: str) -> Any:
    if kind == "timestamp":
        unit, _, zone = rest.partition(":")
        if not zone:
            return None
        return pa.timestamp(unit) if zone == "-" else pa.timestamp(unit, zone)
    if kind == "fixed_size_list":
        inner, _, dimension = rest.rpartition(":")
        if not inner or int(dimension) <= 0:
            return None
        if inner == BFLOAT16:
            item = pa.field("item", pa.binary(2), metadata={EXTENSION_NAME: BFLOAT16})
            return pa.list_(item, int(dimension))
        return pa.list_(pa.field("item", leaf_type(inner)), int(dimension))
    if kind == "fixed_size_binary":
        width = int(rest)
        return pa.binary(width) if width >= 0 else None
    if kind == "decimal":
        bits, precision, scale = rest.split(":")
        make = {"128": pa.decimal128, "256": pa.decimal256}.get(bits)
        return make(int(precision), int(scale)) if make else None
    if kind == "dict":
        value, index, ordered = rest.rsplit(":", 2)
        return pa.dictionary(leaf_type(index), leaf_type(value), ordered == "true")
    return None


def leaf_text(arrow: Any, column: str) -> str | None:
    """The logical type of an Arrow type that needs no child fields; `None` for struct, list, map and FSL of
    struct.

    `column` names the column in messages. Raises `UnsupportedFeature` for types that have no place in the
    format.
    """
    text = _STRINGS.get(str(arrow))
    if text is not None:
        return text
    if types.is_timestamp(arrow):
        return f"timestamp:{arrow.unit}:{arrow.tz or '-'}"
    if types.is_fixed_size_binary(arrow):
        return f"fixed_size_binary:{arrow.byte_width}"
    if types.is_decimal128(arrow):
        return f"decimal:128:{arrow.precision}:{arrow.scale}"
    if types.is_decimal256(arrow):
        return f"decimal:256:{arrow.precision}:{arrow.scale}"
    if types.is_dictionary(arrow):
        return _dictionary_text(arrow, column)
    if types.is_fixed_size_list(arrow):
        return _vector_text(arrow, column)
    if types.is_struct(arrow) or types.is_list(arrow) or types.is_large_list(arrow) or types.is_map(arrow):
        return None
    raise UnsupportedFeature(f"column {column!r}: type {arrow} has no place in the Lance format")


def _dictionary_text(arrow: Any, column: str) -> str:
    value = _STRINGS.get(str(arrow.value_type), "")
    if value not in _DICTIONARY_VALUES:
        raise UnsupportedFeature(
            f"column {column!r}: type {arrow} has no place in the Lance format: values of a dictionary must "
            "be of a simple type; decode the dictionary before writing"
        )
    return f"dict:{value}:{_STRINGS[str(arrow.index_type)]}:false"


def _vector_text(arrow: Any, column: str) -> str | None:
    if arrow.list_size == 0:
        raise UnsupportedFeature(f"column {column!r}: type {arrow} has dimension 0; it must be at least 1")
    item = arrow.value_type
    if types.is_struct(item):
        return None
    name, storage = extension_of(arrow.value_field)
    if name == BFLOAT16:
        return f"fixed_size_list:{BFLOAT16}:{arrow.list_size}"
    inner = leaf_text(storage, column)
    # A nested vector of structs, or items of variable width, cannot be read back by the official reader.
    if inner is None or inner in _VECTOR_REFUSED or inner.startswith("dict:"):
        raise UnsupportedFeature(
            f"column {column!r}: type {arrow} has no place in the Lance format: items of a fixed-size list "
            "must be of a fixed width; use list instead"
        )
    return f"fixed_size_list:{inner}:{arrow.list_size}"


def extension_of(field: Any) -> tuple[str, Any]:
    """Name ("" when none) and storage type of a `pa.Field` that may be of an extension type."""
    arrow = field.type
    if isinstance(arrow, pa.BaseExtensionType):
        return arrow.extension_name, arrow.storage_type
    metadata = field.metadata or {}
    return metadata.get(EXTENSION_NAME.encode(), b"").decode(), arrow


def extension_metadata(field: Any) -> str:
    """The serialized parameters of a `pa.Field` of an extension type.

    Arrow's own extension types do not offer them in Python, so they are read from the C form of the field.
    """
    if isinstance(field.type, pa.ExtensionType):
        serialized: bytes = field.type.__arrow_ext_serialize__()
        return serialized.decode("utf-8", "surrogateescape")
    import ctypes  # only columns of Arrow's extension types need it

    exported = (ctypes.c_void_p * _C_SCHEMA_POINTERS)()
    address = ctypes.addressof(exported)
    field._export_to_c(address)
    try:
        found = _c_metadata(exported[_C_SCHEMA_METADATA], ctypes.string_at)
    finally:
        pa.Field._import_from_c(address)  # takes the export back and frees it
    return found.get(EXTENSION_METADATA.encode(), b"").decode("utf-8", "surrogateescape")


_C_SCHEMA_POINTERS = 9
"""Size of the Arrow C schema struct, in pointers."""
_C_SCHEMA_METADATA = 2
"""Where the pointer to the metadata stands in it."""


def _c_metadata(address: int | None, read: Callable[[int, int], bytes]) -> dict[bytes, bytes]:
    """Key-value pairs in the Arrow C form: a count, then length and bytes of each key and value (32-bit
    lengths).
    """
    if not address:
        return {}
    at = address

    def number() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(read(at - 4, 4), sys.byteorder)

    def text() -> bytes:
        nonlocal at
        length = number()
        at += length
        return read(at - length, length)

    return {text(): text() for _ in range(number())}


def encoding_number(logical_type: str) -> int:
    """What `Field.encoding` holds for a logical type (table format, section 9.3)."""
    if logical_type in ("null", "struct"):
        return ENCODING_NONE
    if logical_type in ("string", "large_string", "binary", "large_binary", "json"):
        return ENCODING_VAR_BINARY
    return ENCODING_DICTIONARY if logical_type.startswith("dict:") else ENCODING_PLAIN
