"""One entry of a shard's log as bytes: an Arrow stream with the writer's epoch in its schema (MemWAL, 3.1).

An entry of ours holds one batch, or none when it is a *sentinel*: what a new owner puts at the tip, so that
the owner before it collides there. It carries no key of ours: other writers compare schemas (decision D2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.memwal.joining import has_dictionary

EPOCH = b"writer_epoch"
GENERATION = b"generation"
SENTINEL = b"fence_sentinel"
TARGETS = frozenset(
    f"mem_wal_target_{each}".encode()
    for each in ("generation", "generation_dir", "data_file", "creator_epoch", "batch_capacity")
)
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
MAX_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that was read. `batches` is empty for a sentinel; `generation` None where its writer gave
    none.
    """

    position: int
    epoch: int
    generation: int | None
    batches: tuple[Any, ...]

    @property
    def rows(self) -> int:
        """Rows in all batches."""
        return sum(each.num_rows for each in self.batches)


@dataclass(frozen=True, slots=True)
class Head:
    """What an entry is, without its rows. `has_target`: whether it says into which directory they go."""

    epoch: int
    has_rows: bool
    has_target: bool


class EntryHead:
    """The beginning that all data entries of one epoch and generation have."""

    def __init__(self, schema: Any, epoch: int, generation: int) -> None:
        """`schema`: the columns (`LogSchema.entry`)."""
        self.epoch, self.generation = epoch, generation
        metadata = {**(schema.metadata or {}), EPOCH: b"%d" % epoch, GENERATION: b"%d" % generation}
        self._schema = schema.with_metadata(metadata)
        is_plain = not any(has_dictionary(each.type) for each in schema)
        self._head = self._schema.serialize() if is_plain else None

    def encoded(self, batch: Any) -> Sequence[Any]:
        """The bytes of an entry with one `pa.RecordBatch` in these columns, as buffers."""
        if self._head is not None:  # what a stream holds, without one
            return [self._head, batch.serialize(), END_OF_STREAM]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        return [sink.getvalue()]


def encode_sentinel(epoch: int) -> bytes:
    """The bytes of a sentinel."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([], metadata={EPOCH: b"%d" % epoch, SENTINEL: b"true"})
    with pa.ipc.new_stream(sink, schema):
        pass
    return sink.getvalue().to_pybytes()


def decode_entry(data: Any, position: int, where: str) -> Entry:
    """An entry from its file's bytes.

    Raises `CorruptFile` for one that is cut short, garbage, or without a writer's epoch, and
    `UnsupportedFeature` for one of a table with blobs.
    """
    data = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    like = _decoded_like_the_last(data, position)
    if like is not None:
        return like
    what = f"the log entry at position {position} ({where})"
    try:
        with pa.ipc.open_stream(data) as stream:
            schema = stream.schema
            metadata = schema.metadata or {}
            _names(schema)
            batches = tuple(each for each in stream if each.num_rows)
        for each in batches:
            each.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(
            f"{what} cannot be read: {error}. It was cut short or damaged; `tiltyard shard check` tells what "
            "it means for the shard",
            where,
        ) from error
    epoch = _number(metadata, EPOCH, what, where)
    if epoch is None:
        raise CorruptFile(f"{what}: WAL entry missing writer_epoch metadata", where)
    generation = _number(metadata, GENERATION, what, where)
    if not batches and generation is not None and not _is_ended(data):
        raise CorruptFile(f"{what} was cut short: it names a generation and holds no rows", where)
    if batches and SENTINEL in metadata:
        raise CorruptFile(f"{what} calls itself a sentinel and holds rows", where)
    given = TARGETS & metadata.keys()
    if given and given != TARGETS:
        raise CorruptFile(f"{what}: WAL entry has incomplete MemTable target metadata", where)
    if given:
        raise UnsupportedFeature(f"{what} is of a table with blobs, which this version does not replay")
    if batches:
        begins = schema.serialize()
        if data.size >= begins.size and begins.equals(data.slice(0, begins.size)):
            _last[:] = [_Beginning(begins, schema, epoch, generation)]
    return Entry(position, epoch, generation, batches)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """How an entry began that was found to be right, and what that says."""

    data: Any
    schema: Any
    epoch: int
    generation: int | None


_last: list[_Beginning] = []
"""That of the last one: entries of one epoch and generation have the same, to the byte."""


def _decoded_like_the_last(data: Any, position: int) -> Entry | None:
    """An entry that begins like the last one, and then holds one batch and no more; None for any other, and
    for one with which anything is wrong.
    """
    for known in _last:
        size = known.data.size
        if data.size < size or not known.data.equals(data.slice(0, size)):
            return None
        with suppress(pa.ArrowException, OSError, EOFError, ValueError):
            rest = pa.BufferReader(data.slice(size))
            message = pa.ipc.read_message(rest)
            if message.type != "record batch" or bytes(rest.read()) != END_OF_STREAM:
                return None
            batch = pa.ipc.read_record_batch(message, known.schema)
            batch.validate(full=True)
            return Entry(position, known.epoch, known.generation, (batch,)) if batch.num_rows else None
    return None


def decode_head(data: Any, position: int, where: str) -> Head:
    """What an entry is, from its file's bytes (a `pa.Buffer`), looked at as far as its first rows.

    Raises `CorruptFile`.
    """
    what = f"the log entry at position {position} ({where})"
    try:
        with pa.ipc.open_stream(data) as stream:
            metadata = stream.schema.metadata or {}
            has_rows = any(each.num_rows for each in stream)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{what} cannot be read: {error}", where) from error
    epoch = _number(metadata, EPOCH, what, where)
    if epoch is None:
        raise CorruptFile(f"{what}: WAL entry missing writer_epoch metadata", where)
    return Head(epoch, has_rows, bool(TARGETS & metadata.keys()))


def _names(fields: Iterable[Any]) -> list[str]:
    """The names of all fields, those inside others too. Raises `UnicodeDecodeError` for one that is no text,
    which Arrow finds out only when it is asked for.
    """
    found = []
    for field in fields:
        kind = field.type
        found += [field.name, *_names(kind.field(at) for at in range(kind.num_fields))]
    return found


def _number(metadata: Any, key: bytes, what: str, where: str) -> int | None:
    text = metadata.get(key)
    if text is None:
        return None
    if not text.isdigit() or len(text) > MAX_DIGITS or int(text) >= 2**64:
        raise CorruptFile(f"{what}: WAL entry has malformed {key.decode()} metadata: {text!r}", where)
    return int(text)


def _is_ended(data: Any) -> bool:
    return bytes(memoryview(data)[-len(END_OF_STREAM) :]) == END_OF_STREAM
