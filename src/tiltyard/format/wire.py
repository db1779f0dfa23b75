"""Protobuf parsing with typed errors, and the unknown fields of a message, kept across a rewrite.

Other writers may know fields that we do not. A value of ours that came from a message keeps those bytes and
puts them back when it is written.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

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
