"""Fields to and from the wire: a flat list of messages in pre-order that name their parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.field import STRUCT_VECTOR, Field
from tiltyard.format.logical_types import EXTENSION_NAME
from tiltyard.format.protos import file_pb2

MAX_DEPTH = 100
"""Levels of nesting that a schema may have."""

_ONE_CHILD = ("list", "list.struct", "large_list", "large_list.struct", "map")
"""Logical types with one field below them: the item, or the entries."""

_NO_METADATA: Mapping[str, str] = {}


def encode_schema(messages: list[Any], metadata: Mapping[str, bytes]) -> bytes:
    whole = file_pb2.Schema(fields=messages, metadata=metadata)
    return whole.SerializeToString(deterministic=True)


def tree_of(messages: Sequence[Any], unknown: bool) -> tuple[Field, ...]:
    """Fields from their flattened form: each belongs to the one whose id is its `parent_id`."""
    below: dict[int, list[Any]] = {}
    seen: set[int] = set()
    holder = None
    for message in messages:
        parent, id = message.parent_id, message.id
        if id < 0:
            # Files with blob v2 columns list the descriptor's parts without ids, right after their parent.
            if holder is None:
                raise CorruptFile(f"field {message.name!r} has id {id} and no parent")
            below.setdefault(holder, []).append(message)
            continue
        if parent != -1 and parent not in seen:
            raise CorruptFile(f"field {message.name!r} names parent {parent}, which does not come before it")
        if id in seen:
            raise CorruptFile(f"two fields have id {id}")
        seen.add(id)
        holder = id
        below.setdefault(parent, []).append(message)
    return tuple(_from_message(message, below, unknown, 1) for message in below.get(-1, ()))


def _from_message(message: Any, below: dict[int, list[Any]], unknown: bool, depth: int) -> Field:
    id = message.id
    if depth > MAX_DEPTH:
        raise CorruptFile(f"field {message.name!r} is nested more than {MAX_DEPTH} levels deep")
    metadata = _NO_METADATA
    if message.metadata:
        metadata = {key: value.decode("utf-8", "surrogateescape") for key, value in message.metadata.items()}
    extension = message.extension_name
    if extension and EXTENSION_NAME not in metadata:
        metadata = {**metadata, EXTENSION_NAME: extension}
    children = below.get(id) if id >= 0 else None
    kind = message.logical_type
    if (kind in _ONE_CHILD or kind.startswith(STRUCT_VECTOR)) and len(children or ()) != 1:
        raise CorruptFile(f"field {message.name!r} is a {kind} of {len(children or ())} fields, expected 1")
    return Field(
        message.name,
        id,
        message.parent_id,
        message.logical_type,
        message.nullable,
        metadata,
        tuple(_from_message(child, below, unknown, depth + 1) for child in children) if children else (),
        extension,
        message.encoding,
        message.primary_key,
        message.primary_key_position,
        message.clustering_key,
        message.clustering_key_position,
        wire.unknown_fields(message) if unknown else b"",
    )


def message_of(each: Field) -> Any:
    message = file_pb2.Field(
        name=each.name,
        id=each.id,
        parent_id=each.parent_id,
        logical_type=each.logical_type,
        nullable=each.nullable,
        encoding=each.encoding,
        extension_name=each.extension_name,
        primary_key=each.primary_key,
        primary_key_position=each.primary_key_position,
        clustering_key=each.clustering_key,
        clustering_key_position=each.clustering_key_position,
    )
    for key, value in each.metadata.items():
        message.metadata[key] = value.encode("utf-8", "surrogateescape")
    if each.unknown:
        message.MergeFromString(each.unknown)
    return message
