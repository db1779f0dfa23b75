"""Data files of version 2.0 put together by hand: encodings that the official writer no longer chooses, and
pages that nobody would write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from peer import Peer
from tiltyard.format.container import build_tail
from tiltyard.format.protos import encodings20_pb2 as pb
from tiltyard.format.protos import file_pb2
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion

PAGE_URL = "/lance.encodings.ArrayEncoding"
COLUMN = file_pb2.TypedBytes(type_url="/lance.encodings.ColumnEncoding", value=b"\n\x00").SerializeToString()

WRITE = """
import lance.file
with lance.file.LanceFileWriter(path, table.schema, version="2.0", **options) as writer:
    for batch in table.to_batches(max_chunksize=rows):
        writer.write_batch(batch)
"""
READ = "import lance.file\nresult = lance.file.LanceFileReader(path).read_all().to_table()"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of `rows` entries: its encoding (a message, or bytes) and its buffers."""

    rows: int
    encoding: Any
    buffers: Sequence[bytes] = ()


def old_file(
    path: Path, arrow: pa.Schema, rows: int, columns: Sequence[Sequence[Page]], alignment: int = 64
) -> Path:
    """Write a file with these pages of each column, headers of lists and structs included."""
    body = bytearray()
    metadata = []
    for pages in columns:
        message = file_pb2.ColumnMetadata()
        message.encoding.direct.encoding = COLUMN
        for page in pages:
            entry = message.pages.add(length=page.rows)
            value = page.encoding if isinstance(page.encoding, bytes) else page.encoding.SerializeToString()
            entry.encoding.direct.encoding = file_pb2.TypedBytes(
                type_url=PAGE_URL, value=value
            ).SerializeToString()
            for data in page.buffers:
                body += bytes(-len(body) % alignment)
                entry.buffer_offsets.append(len(body))
                entry.buffer_sizes.append(len(data))
                body += data
        metadata.append(message.SerializeToString())
    tail = build_tail(len(body), FileVersion.V2_0, Schema.from_arrow(arrow), rows, metadata)
    path.write_bytes(bytes(body) + tail)
    return path


def write_old(peer: Peer, path: Path, table: pa.Table, rows: int = 1 << 20, **options: Any) -> Path:
    """A file of the official writer's."""
    peer(WRITE, path=str(path), table=table, rows=rows, options=options)
    return path


def flat(bits: int, buffer: int = 0, scheme: str = "") -> pb.ArrayEncoding:
    """Values back to back."""
    made = pb.ArrayEncoding()
    made.flat.bits_per_value = bits
    made.flat.buffer.buffer_index = buffer
    made.flat.buffer.SetInParent()
    if scheme:
        made.flat.compression.scheme = scheme
    return made


def there(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Values of which none is null."""
    made = pb.ArrayEncoding()
    made.nullable.no_nulls.values.CopyFrom(values)
    return made


def some_null(validity: pb.ArrayEncoding, values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Values of which some are null."""
    made = pb.ArrayEncoding()
    made.nullable.some_nulls.validity.CopyFrom(validity)
    made.nullable.some_nulls.values.CopyFrom(values)
    return made


def all_null() -> pb.ArrayEncoding:
    """Nulls, in no buffer."""
    made = pb.ArrayEncoding()
    made.nullable.all_nulls.SetInParent()
    return made


def binary(ends: pb.ArrayEncoding, data: pb.ArrayEncoding, null_adjustment: int) -> pb.ArrayEncoding:
    """Values of varying width."""
    made = pb.ArrayEncoding()
    made.binary.indices.CopyFrom(ends)
    made.binary.bytes.CopyFrom(data)
    made.binary.null_adjustment = null_adjustment
    return made


def lists(ends: pb.ArrayEncoding, items: int) -> pb.ArrayEncoding:
    """Ends of lists."""
    made = pb.ArrayEncoding()
    made.list.offsets.CopyFrom(ends)
    made.list.null_offset_adjustment = items + 1
    made.list.num_items = items
    return made


def vectors(dimension: int, items: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Fixed-size lists."""
    made = pb.ArrayEncoding()
    made.fixed_size_list.dimension = dimension
    made.fixed_size_list.items.CopyFrom(items)
    return made


def dictionary(indices: pb.ArrayEncoding, items: pb.ArrayEncoding, number: int) -> pb.ArrayEncoding:
    """Indices into items."""
    made = pb.ArrayEncoding()
    made.dictionary.indices.CopyFrom(indices)
    made.dictionary.items.CopyFrom(items)
    made.dictionary.num_dictionary_items = number
    return made


def stream(width: int, bits: int, buffer: int = 0, *, signed: bool = False) -> pb.ArrayEncoding:
    """A stream of bits."""
    made = pb.ArrayEncoding()
    made.bitpacked.compressed_bits_per_value = width
    made.bitpacked.uncompressed_bits_per_value = bits
    made.bitpacked.buffer.buffer_index = buffer
    made.bitpacked.buffer.SetInParent()
    made.bitpacked.signed = signed
    return made


def blocks(width: int, bits: int, buffer: int = 0) -> pb.ArrayEncoding:
    """FastLanes blocks of values that are not negative."""
    made = pb.ArrayEncoding()
    made.bitpacked_for_non_neg.compressed_bits_per_value = width
    made.bitpacked_for_non_neg.uncompressed_bits_per_value = bits
    made.bitpacked_for_non_neg.buffer.buffer_index = buffer
    made.bitpacked_for_non_neg.buffer.SetInParent()
    return made


def equal_lengths(data: pb.ArrayEncoding, width: int) -> pb.ArrayEncoding:
    """Values of varying width that are all of one length."""
    made = pb.ArrayEncoding()
    made.fixed_size_binary.bytes.CopyFrom(data)
    made.fixed_size_binary.byte_width = width
    return made
