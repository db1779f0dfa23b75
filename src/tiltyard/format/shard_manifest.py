"""The manifest of one shard: its owner's epoch, what was published, from where the log is replayed (MemWAL,
section 1.3).

A value that came from a message keeps what we have no name for, and writes it again. Other writers drop the
claim's nonce with their next version: it decides only right after a claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tiltyard.format import wire
from tiltyard.format.index_metadata import uuid_bytes, uuid_text
from tiltyard.format.protos import index_pb2, mem_wal_pb2

ACTIVE = 0
SEALED = 1


@dataclass(frozen=True, slots=True)
class SsTable:
    """One published generation. Sizes are estimates; None where its writer did not measure."""

    generation: int
    path: str
    """The name of its directory, in the shard's."""
    in_memory_bytes: int | None = None
    physical_rows: int | None = None
    primary_key_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """One version of a shard's manifest.

    `shard_id` is UUID text, empty where the message has none. `replay_after`: all log positions up to it are
    in published SSTables. `status` is `ACTIVE`, `SEALED` or a number that we do not know.
    """

    shard_id: str
    version: int = 1
    writer_epoch: int = 0
    replay_after: int = 0
    last_seen: int = 0
    current_generation: int = 1
    sstables: tuple[SsTable, ...] = ()
    shard_spec_id: int = 0
    field_entries: tuple[tuple[str, bytes], ...] = ()
    status: int = ACTIVE
    claim_nonce: bytes = b""
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)


def decode_shard_manifest(data: Any, path: str) -> ShardManifest:
    """A manifest from the bytes of its file. Raises `CorruptFile`."""
    message = wire.parse(mem_wal_pb2.ShardManifest, data, path, "a shard manifest")
    shard = uuid_text(message.shard_id.uuid, f"the shard id of {path}") if message.shard_id.uuid else ""
    return ShardManifest(
        shard,
        message.version,
        message.writer_epoch,
        message.replay_after_wal_entry_position,
        message.wal_entry_position_last_seen,
        message.current_generation,
        tuple(_sstable(each) for each in message.sstables),
        message.shard_spec_id,
        tuple((each.field_id, each.value) for each in message.shard_field_entries),
        message.status,
        message.claim_nonce,
        _source=message,
    )


def encode_shard_manifest(manifest: ShardManifest) -> bytes:
    """The bytes of a manifest's file: known fields in ascending order, then those of other writers."""
    message = mem_wal_pb2.ShardManifest(
        version=manifest.version,
        writer_epoch=manifest.writer_epoch,
        replay_after_wal_entry_position=manifest.replay_after,
        wal_entry_position_last_seen=manifest.last_seen,
        current_generation=manifest.current_generation,
        shard_spec_id=manifest.shard_spec_id,
        status=manifest.status,
        claim_nonce=manifest.claim_nonce,
    )
    if manifest.shard_id:
        message.shard_id.CopyFrom(index_pb2.Uuid(uuid=uuid_bytes(manifest.shard_id)))
    known = {} if manifest._source is None else {each.generation: each for each in manifest._source.sstables}
    for each in manifest.sstables:
        written = message.sstables.add(
            generation=each.generation,
            path=each.path,
            in_memory_bytes=each.in_memory_bytes,
            physical_rows=each.physical_rows,
            primary_key_bytes=each.primary_key_bytes,
        )
        wire.carry_unknown(known.get(each.generation), written)
    for name, value in manifest.field_entries:
        message.shard_field_entries.add(field_id=name, value=value)
    wire.carry_unknown(manifest._source, message)
    return message.SerializeToString(deterministic=True)


def _sstable(message: Any) -> SsTable:
    def measured(name: str) -> int | None:
        return getattr(message, name) if message.HasField(name) else None

    return SsTable(
        message.generation,
        message.path,
        measured("in_memory_bytes"),
        measured("physical_rows"),
        measured("primary_key_bytes"),
    )
