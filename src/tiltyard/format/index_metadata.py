"""What a manifest says about the segments of indices (table format, section 7.6; indices, section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.protos import file_pb2
from tiltyard.format.protos import index_pb2 as pb
from tiltyard.format.roaring import decode_roaring

FRAGMENT_REUSE = "__lance_frag_reuse"
MEM_WAL = "__lance_mem_wal"
SYSTEM_INDICES = frozenset((FRAGMENT_REUSE, MEM_WAL))


@dataclass(frozen=True, slots=True)
class TypedBytes:
    """A value of a message type that is named by a URL."""

    type_url: str
    value: bytes = b""

    @property
    def type_name(self) -> str:
        """The name after the last slash."""
        return self.type_url.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a segment: path relative to the segment's directory, size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """One segment of an index; segments of one name form a logical index.

    `uuid` (text, lower case) names its directory; `fields` are the indexed field ids; `fragment_bitmap` holds
    the covered fragments (portable Roaring), `None` when unknown; `created_at` in milliseconds since the
    epoch.
    """

    uuid: str
    fields: tuple[int, ...]
    name: str
    dataset_version: int
    fragment_bitmap: bytes | None = None
    details: TypedBytes | None = None
    index_version: int | None = None
    created_at: int | None = None
    base_id: int | None = None
    files: tuple[IndexFile, ...] = ()
    covering_fields: tuple[int, ...] = ()
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def is_system(self) -> bool:
        """Whether the entry holds state of the table instead of an index on columns."""
        return self.name in SYSTEM_INDICES

    def fragment_ids(self) -> npt.NDArray[np.uint32] | None:
        """The covered fragments, ascending; `None` when unknown. Raises `CorruptFile` for damage."""
        if self.fragment_bitmap is None:
            return None
        return decode_roaring(self.fragment_bitmap, f"the fragment bitmap of index {self.name!r}")


def uuid_text(data: bytes, what: str) -> str:
    """The usual form of a UUID's 16 bytes. Raises `CorruptFile` for another length."""
    if len(data) != 16:
        raise CorruptFile(f"{what} has a UUID of {len(data)} bytes, expected 16")
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a UUID in its usual form."""
    data = bytes.fromhex(text.replace("-", ""))
    if len(data) != 16:
        raise ValueError(f"{text!r} is not a UUID")
    return data


def decode_typed(m: Any) -> TypedBytes:
    """A typed value from its message."""
    return TypedBytes(m.type_url, m.value)


def encode_typed(each: TypedBytes) -> Any:
    """The message of a typed value."""
    return file_pb2.TypedBytes(type_url=each.type_url, value=each.value)


def decode_index(m: Any) -> IndexMetadata:
    """A segment from its message."""
    return IndexMetadata(
        uuid_text(m.uuid.uuid, f"index {m.name!r}"),
        tuple(m.fields),
        m.name,
        m.dataset_version,
        m.fragment_bitmap or None,
        decode_typed(m.index_details) if m.HasField("index_details") else None,
        m.index_version if m.HasField("index_version") else None,
        m.created_at if m.HasField("created_at") else None,
        m.base_id if m.HasField("base_id") else None,
        decode_files(m.files),
        tuple(m.covering_fields),
        _source=m,
    )


def decode_files(messages: Iterable[Any]) -> tuple[IndexFile, ...]:
    """The files of a segment from their messages."""
    return tuple([IndexFile(each.path, each.size_bytes) for each in messages])


def encode_files(files: Iterable[IndexFile]) -> list[Any]:
    """The messages of a segment's files."""
    return [pb.IndexFile(path=each.path, size_bytes=each.size) for each in files]


def encode_index(each: IndexMetadata) -> Any:
    """The message of a segment, with the unknown fields of the one it came from."""
    m = pb.IndexMetadata(
        uuid=pb.Uuid(uuid=uuid_bytes(each.uuid)),
        fields=each.fields,
        name=each.name,
        dataset_version=each.dataset_version,
        fragment_bitmap=each.fragment_bitmap,
        index_details=encode_typed(each.details) if each.details is not None else None,
        index_version=each.index_version,
        created_at=each.created_at,
        base_id=each.base_id,
        files=encode_files(each.files),
        covering_fields=each.covering_fields,
    )
    wire.carry_unknown(each._source, m)
    return m


def decode_index_section(data: Any, path: str) -> tuple[IndexMetadata, ...]:
    """The segments of an index section. Raises `CorruptFile` naming `path`."""
    section = wire.parse(pb.IndexSection, data, path, "the index section")
    try:
        return tuple([decode_index(each) for each in section.indices])
    except CorruptFile as error:
        raise CorruptFile(str(error), path) from error


def encode_index_section(indices: Iterable[IndexMetadata]) -> bytes:
    """The bytes of an index section."""
    return pb.IndexSection(indices=[encode_index(each) for each in indices]).SerializeToString()
