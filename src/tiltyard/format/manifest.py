"""Manifests: one version of a table, to and from bytes (table format, sections 6 and 7.1).

A manifest file holds, in this order: the index section (optional), the transaction (optional), the manifest
message, each led by its length in 4 bytes, and a footer of 16 bytes. Fragments are decoded on demand (D43).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format import wire
from tiltyard.format.base_paths import BasePath, decode_base, encode_base
from tiltyard.format.fragment import FragmentList
from tiltyard.format.index_metadata import IndexMetadata, decode_index_section, encode_index_section
from tiltyard.format.protos import table_pb2 as pb
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction, decode_transaction

MAGIC = b"LANC"
FOOTER_BYTES = 16
LENGTH_BYTES = 4
MAX_INLINE_TRANSACTION_BYTES = 20 * 1024 * 1024
"""A longer transaction stands in its own file only."""
NANOSECONDS = 1_000_000_000
FIRST_SECOND, LAST_SECOND = -62_135_510_400, 253_402_214_400
"""Commit times that a calendar can show: a day from the ends of the years 1 and 9999, for any time zone (s
since the epoch).
"""
MAX_NEXT_ROW_ID = 2**63 - 1

_FOOTER = struct.Struct("<QHH4s")
_FOOTER_VERSION = (0, 2)
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class WriterVersion:
    """Who wrote a manifest."""

    library: str
    version: str
    prerelease: str | None = None
    build_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class DataFormat:
    """The default format and version of new data files."""

    file_format: str = "lance"
    version: str = "2.2"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table.

    `timestamp_ns` is the commit time (ns since the epoch, UTC). `max_fragment_id` is the greatest id ever
    used, `None` while there never was a fragment. `transaction_file` is a name in `_transactions/`, empty
    when there is none. `next_row_id` counts stable row ids. `unknown` keeps the bytes of fields that this
    version does not know.
    """

    schema: Schema
    fragments: FragmentList
    version: int
    timestamp_ns: int = 0
    reader_flags: int = 0
    writer_flags: int = 0
    max_fragment_id: int | None = None
    transaction_file: str = ""
    writer_version: WriterVersion | None = None
    next_row_id: int = 0
    data_format: DataFormat | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None
    max_allocated_field_id: int | None = None
    indices: tuple[IndexMetadata, ...] = ()
    tag: str = ""
    unknown: bytes = field(default=b"", repr=False)

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.fragments.num_rows


TransactionLoader = Callable[[], Transaction | None]


def decode_manifest(
    data: Any, path: str, known: Manifest | None = None
) -> tuple[Manifest, TransactionLoader]:
    """The manifest in the bytes of a whole file, and a function that decodes its inline transaction.

    The function returns `None` when the transaction stands in a file of its own. `known` is another version
    of the table: where this one begins with the same bytes, as it does after appends, only what follows is
    decoded. Raises `CorruptFile` naming `path` and what was expected, `UnsupportedFeature` for experimental
    forms.
    """
    view = memoryview(data)
    end, body = _manifest_span(view, path)
    message = view[end - body : end]
    shared = b"" if known is None else known.schema.encode_fields() + known.fragments.encode()
    if not shared or bytes(message[: len(shared)]) != shared:
        known, shared = None, b""
    m = wire.parse(pb.Manifest, message[len(shared) :], path, "the manifest")
    if known is not None and (m.fields or dict(m.schema_metadata) != known.schema.metadata):
        known, m = None, wire.parse(pb.Manifest, message, path, "the manifest")
    if m.HasField("fragment_tree"):
        raise UnsupportedFeature(f"{path}: tables with a fragment tree are not supported by this version")
    # Sections stand before the length prefix of the manifest itself.
    sections = view[: end - body - LENGTH_BYTES]
    indices: tuple[IndexMetadata, ...] = ()
    if m.HasField("index_section"):
        indices = decode_index_section(_section(sections, m.index_section, path, "index section"), path)
    inline = _transaction_offset(m)

    def load_transaction() -> Transaction | None:
        if inline is None:
            return None
        return decode_transaction(_section(sections, inline, path, "transaction section"), path)

    return _from_message(m, indices, path, known), load_transaction


def decode_only_transaction(data: Any, path: str) -> tuple[Transaction | None, str]:
    """The inline transaction in the bytes of a whole manifest file, and the name of its file in
    `_transactions/`.

    For who checks against many versions: fragments and schema are skipped. Raises `CorruptFile` naming
    `path`.
    """
    view = memoryview(data)
    end, body = _manifest_span(view, path)
    m = wire.parse(pb.ManifestSections, view[end - body : end], path, "the manifest")
    inline = _transaction_offset(m)
    if inline is None:
        return None, m.transaction_file
    section = _section(view[: end - body - LENGTH_BYTES], inline, path, "transaction section")
    return decode_transaction(section, path), m.transaction_file


def _transaction_offset(m: Any) -> int | None:
    if m.HasField("transaction_section"):
        return int(m.transaction_section)
    return int(m.old_transaction_section) if m.HasField("old_transaction_section") else None


def _manifest_span(view: memoryview, path: str) -> tuple[int, int]:
    """Where the manifest message ends, and its length; everything about the footer checked."""
    size = len(view)
    if size < FOOTER_BYTES + LENGTH_BYTES:
        raise CorruptFile(f"the manifest has {size} bytes; it was cut short or never finished", path)
    position, major, minor, magic = _FOOTER.unpack(view[size - FOOTER_BYTES :])
    if magic != MAGIC:
        raise CorruptFile(
            f"expected {MAGIC!r} at the end of a manifest, found {bytes(magic)!r}: "
            "it was cut short or is damaged",
            path,
        )
    if major != 0:
        raise UnsupportedFeature(f"{path}: manifest format {major}.{minor} is not known to this version")
    end = size - FOOTER_BYTES
    if position + LENGTH_BYTES > end:
        raise CorruptFile(f"the manifest should start at byte {position} of {size}", path)
    (length,) = _LENGTH.unpack(view[position : position + LENGTH_BYTES])
    if position + LENGTH_BYTES + length != end:
        raise CorruptFile(
            f"the manifest says it has {length} bytes, found {end - position - LENGTH_BYTES}: "
            "the file is damaged",
            path,
        )
    return end, length


def _section(sections: memoryview, offset: int, path: str, what: str) -> memoryview:
    if offset + LENGTH_BYTES > len(sections):
        raise CorruptFile(
            f"the {what} should start at byte {offset}, past its end at byte {len(sections)}", path
        )
    (length,) = _LENGTH.unpack(sections[offset : offset + LENGTH_BYTES])
    start = offset + LENGTH_BYTES
    if start + length > len(sections):
        raise CorruptFile(f"the {what} says it has {length} bytes, {len(sections) - start} are there", path)
    return sections[start : start + length]


def _from_message(m: Any, indices: tuple[IndexMetadata, ...], path: str, known: Manifest | None) -> Manifest:
    """The manifest of a message; with `known`, whose schema and fragments come before those of the
    message.
    """
    if known is None:
        schema, fragments = _schema(m, path), FragmentList(list(m.fragments), path)
    else:
        schema, fragments = known.schema, known.fragments.followed_by(list(m.fragments), path)
    fragments.check()
    stamp = m.timestamp
    if not FIRST_SECOND <= stamp.seconds <= LAST_SECOND or not 0 <= stamp.nanos < NANOSECONDS:
        raise CorruptFile(
            f"the commit time is said to be {stamp.seconds} s and {stamp.nanos} ns from 1970, which is in no "
            "calendar",
            path,
        )
    if m.next_row_id > MAX_NEXT_ROW_ID:
        raise CorruptFile(f"{m.next_row_id} row ids are said to be in use, more than there are", path)
    return Manifest(
        schema,
        fragments,
        m.version,
        stamp.seconds * NANOSECONDS + stamp.nanos,
        m.reader_feature_flags,
        m.writer_feature_flags,
        m.max_fragment_id if m.HasField("max_fragment_id") else None,
        m.transaction_file,
        _writer_version(m.writer_version) if m.HasField("writer_version") else None,
        m.next_row_id,
        DataFormat(m.data_format.file_format, m.data_format.version) if m.HasField("data_format") else None,
        dict(m.config),
        dict(m.table_metadata),
        tuple([decode_base(each) for each in m.base_paths]),
        m.branch if m.HasField("branch") else None,
        m.max_allocated_field_id if m.HasField("max_allocated_field_id") else None,
        indices,
        m.tag,
        wire.unknown_fields(m),
    )


def _schema(m: Any, path: str) -> Schema:
    try:
        schema = Schema.from_messages(m.fields, m.schema_metadata, path)
    except CorruptFile as error:
        raise CorruptFile(str(error), path) from error
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise CorruptFile(f"two columns are named {twice!r}", path)
    return schema


def _writer_version(m: Any) -> WriterVersion:
    return WriterVersion(
        m.library,
        m.version,
        m.prerelease if m.HasField("prerelease") else None,
        m.build_metadata if m.HasField("build_metadata") else None,
    )


def encode_manifest(manifest: Manifest, transaction: Transaction | bytes | None) -> list[bytes]:
    """The buffers of a manifest file, in order. A transaction (or its bytes) above 20 MiB is left to its own
    file.
    """
    parts: list[bytes] = []
    at = 0

    def place(data: bytes) -> int:
        nonlocal at
        start = at
        parts.extend((_LENGTH.pack(len(data)), data))
        at += LENGTH_BYTES + len(data)
        return start

    index_section = place(encode_index_section(manifest.indices)) if manifest.indices else None
    inline = transaction.encode() if isinstance(transaction, Transaction) else transaction
    if inline is not None and len(inline) > MAX_INLINE_TRANSACTION_BYTES:
        inline = None
    transaction_section = None if inline is None else place(inline)
    # The message in ascending order of fields: schema, fragments (encoded once, kept), everything else.
    head = manifest.schema.encode_fields()
    fragments = manifest.fragments.encode()
    rest = _rest_message(manifest, index_section, transaction_section).SerializeToString(deterministic=True)
    parts.append(_LENGTH.pack(len(head) + len(fragments) + len(rest)))
    parts.extend((head, fragments, rest, _FOOTER.pack(at, *_FOOTER_VERSION, MAGIC)))
    return parts


def _rest_message(manifest: Manifest, index_section: int | None, transaction_section: int | None) -> Any:
    """Everything but schema fields and fragments."""
    seconds, nanos = divmod(manifest.timestamp_ns, NANOSECONDS)
    writer, data_format = manifest.writer_version, manifest.data_format
    m = pb.Manifest(
        version=manifest.version,
        schema_metadata=manifest.schema.metadata,
        index_section=index_section,
        timestamp=pb.Instant(seconds=seconds, nanos=nanos),
        tag=manifest.tag,
        reader_feature_flags=manifest.reader_flags,
        writer_feature_flags=manifest.writer_flags,
        max_fragment_id=manifest.max_fragment_id,
        transaction_file=manifest.transaction_file,
        writer_version=_writer_message(writer) if writer else None,
        next_row_id=manifest.next_row_id,
        data_format=pb.DataFormat(file_format=data_format.file_format, version=data_format.version)
        if data_format
        else None,
        config=manifest.config,
        base_paths=[encode_base(each) for each in manifest.base_paths],
        table_metadata=manifest.table_metadata,
        branch=manifest.branch,
        transaction_section=transaction_section,
        max_allocated_field_id=manifest.max_allocated_field_id,
    )
    if manifest.unknown:
        m.MergeFromString(manifest.unknown)
    return m


def _writer_message(writer: WriterVersion) -> Any:
    return pb.WriterVersion(
        library=writer.library,
        version=writer.version,
        prerelease=writer.prerelease,
        build_metadata=writer.build_metadata,
    )
