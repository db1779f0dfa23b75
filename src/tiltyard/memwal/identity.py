"""Who a writer of a table is: its sharding spec, resolved from the table before a shard is looked at.

A table's MemWAL is described by one index entry (`format.mem_wal`). With more than one spec in it, the
table's sharding is being revised, and nobody may write (decision D31).
"""

from __future__ import annotations

from dataclasses import dataclass

from tiltyard.errors import InvalidInput, ShardingChanging, ShardSpecMismatch
from tiltyard.format.mem_wal import MemWalDetails, ShardingSpec
from tiltyard.memwal.claim import INCARNATION, Identity
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot

NOT_INITIALIZED = "MemWAL is not initialized on this dataset. Call initialize_mem_wal() first."


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a version of a table says of its MemWAL."""

    entry_uuid: str
    details: MemWalDetails

    @property
    def spec(self) -> ShardingSpec | None:
        """The one spec; None where shards are named by hand. Raises `ShardingChanging`."""
        specs = self.details.sharding_specs
        if len(specs) > 1:
            raise ShardingChanging(
                f"opening a MemWAL writer requires at most one sharding spec, found {len(specs)}: the "
                "table's sharding is being revised; open the writer again when that is done"
            )
        return specs[0] if specs else None


def streamed(snapshot: Snapshot) -> Streamed:
    """The MemWAL of a version. Raises `InvalidInput` where it has none."""
    entry = entry_of(snapshot.manifest)
    if entry is None:
        raise InvalidInput(NOT_INITIALIZED)
    return Streamed(entry.uuid, MemWalDetails.of(entry))


def resolved_spec(found: Streamed, requested: int | None, shard_id: str) -> int:
    """The spec id of a writer: the table's, or the one that was asked for where that is the table's.

    None: whatever the table has. Raises `ShardSpecMismatch`, `ShardingChanging`.
    """
    spec = found.spec
    active = 0 if spec is None else spec.spec_id
    if requested is None or requested == active:
        return active
    if spec is None:
        told = f"shard_spec_id {requested} is invalid for manual sharding; expected 0"
    else:
        told = (
            f"shard_spec_id {requested} does not match the MemWAL index sharding spec id {active}; open the "
            f"writer with {active}, or without a spec id"
        )
    raise ShardSpecMismatch(told, shard_id, requested, active)


def identity_of(
    found: Streamed, shard_id: str, spec_id: int, value: tuple[tuple[str, bytes], ...] = ()
) -> Identity:
    """What a writer of the shard claims with; `value`: what its rows have in common, where it is new."""
    return Identity(shard_id, spec_id, found.details.writer_defaults.get(INCARNATION), value)
