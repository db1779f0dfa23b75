"""Protobuf parsing with typed errors, and the unknown fields of a message, kept across a rewrite.

Other writers may know fields that we do not. A value of ours that came from a message keeps those bytes and
puts them back when it is written.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from tiltyard.errors import CorruptFile

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: Any, path: str, what: str) -> M:
    """A message of `kind` from `data` (bytes-like). Raises `CorruptFile` naming `path` and `what`."""
    try:
        return kind.FromString(data if type(data) is bytes else bytes(memoryview(data)))
    except (DecodeError, ValueError, RecursionError) as error:
        raise CorruptFile(f"{what} cannot be decoded ({error}); the file is damaged", path) from error


def unknown_fields(message: Message) -> bytes:
    """The bytes of the fields of `message` itself (not of messages inside it) that we have no name for."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializeToString()


def has_unknown_fields(message: Message) -> bool:
    """Whether `message` or any message inside it carries fields that we have no name for."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() != message.ByteSize()


def carry_unknown(source: Message | None, target: Message) -> None:
    """Put the unknown fields of the message that a value came from into the one that is written for it."""
    if source is not None:
        rest = unknown_fields(source)
        if rest:
            target.MergeFromString(rest)


def read_varint(data: bytes) -> int | None:
    """The base-128 number at the start of `data`; `None` when there is none."""
    value = 0
    for place, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value
    return None


def first_field_number(data: bytes) -> int | None:
    """The number of the first field in wire bytes; `None` when there is none."""
    tag = read_varint(data)
    return None if tag is None else tag >> 3
