"""Who a writer of a table is: its sharding spec, resolved from the table before a shard is looked at.

A table's MemWAL is described by one index entry (`format.mem_wal`). While its sharding is being revised, that
has the old spec and the new one, and notes the old one as draining: nobody may write (decision D31). Other
programs refuse to write wherever they find more than one spec (decision D4).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from tiltyard.errors import CorruptFile, InvalidInput, ShardingChanging, ShardSpecMismatch, WrongType
from tiltyard.format.mem_wal import MemWalDetails, ShardingSpec
from tiltyard.memwal.claim import INCARNATION, Identity
from tiltyard.memwal.merge_functions import Functions, functions_of
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot

LAST_SPEC = "tiltyard.spec.last"
"""Writer default: the greatest spec id that was ever given, so that none is given twice."""

ACTIVE_SPEC = "tiltyard.spec.active"
"""Writer default: of several specs the id of the one that writers claim with, 0 for shards named by hand;
without it the only one.
"""

DRAINING_SPEC = "tiltyard.spec.draining"
"""Writer default: ids of specs whose shards are being emptied, with commas; there only during a revision."""

NOT_INITIALIZED = "MemWAL is not initialized on this dataset. Call initialize_mem_wal() first."


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a version of a table says of its MemWAL."""

    entry_uuid: str
    details: MemWalDetails

    @property
    def spec(self) -> ShardingSpec | None:
        """The spec that writers claim with; None where shards are named by hand. Raises `ShardingChanging`,
        and `CorruptFile` where the note of the active spec names none.
        """
        specs = self.details.sharding_specs
        active = self.details.writer_defaults.get(ACTIVE_SPEC)
        if self.draining or (len(specs) > 1 and active is None):
            raise ShardingChanging(
                f"opening a MemWAL writer requires at most one sharding spec, found {len(specs)}: the "
                "table's sharding is being revised; open the writer again when that is done (`tiltyard "
                "shard revise TABLE --resume` does what is left of it, `--abandon` calls it off)"
            )
        if active is None or len(specs) < 2:
            return specs[0] if specs else None
        if active == "0":
            return None
        found = [each for each in specs if str(each.spec_id) == active]
        if len(found) != 1:
            raise CorruptFile(
                f"the table's MemWAL notes {active!r} as its active sharding spec, and has "
                f"{', '.join(str(each.spec_id) for each in specs)}"
            )
        return found[0]

    @property
    def coming(self) -> ShardingSpec:
        """While the sharding is being revised, the spec to come: the one that was made last."""
        return max(self.details.sharding_specs, key=lambda each: each.spec_id)

    @property
    def draining(self) -> frozenset[int]:
        """Ids of specs whose shards are being emptied; empty where no revision is under way."""
        text = self.details.writer_defaults.get(DRAINING_SPEC, "")
        parts = text.split(",") if text else []
        if not all(each.isascii() and each.isdigit() for each in parts):
            raise CorruptFile(f"the table's MemWAL notes {text!r} as its draining sharding specs")
        return frozenset(map(int, parts))


def streamed(snapshot: Snapshot) -> Streamed:
    """The MemWAL of a version. Raises `InvalidInput` where it has none."""
    entry = entry_of(snapshot.manifest)
    if entry is None:
        raise InvalidInput(NOT_INITIALIZED)
    return Streamed(entry.uuid, MemWalDetails.of(entry))


def spec_in_force(snapshot: Snapshot) -> int | None:
    """The id of the spec that writers claim with, 0 where shards are named by hand; None while it changes."""
    try:
        spec = streamed(snapshot).spec
    except ShardingChanging:
        return None
    return 0 if spec is None else spec.spec_id


def resolved_spec(found: Streamed, requested: int | None, shard_id: str) -> int:
    """The spec id of a writer: the table's, or the one that was asked for where that is the table's.

    None: whatever the table has. Raises `WrongType`, `ShardSpecMismatch`, `ShardingChanging`.
    """
    if requested is not None and (isinstance(requested, bool) or not isinstance(requested, Integral)):
        raise WrongType(f"shard_spec_id must be a whole number, found a {type(requested).__name__}")
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


def merge_functions(snapshot: Snapshot) -> Functions | None:
    """How rows of a key are merged; None where the newest one counts. Raises as `functions_of` does."""
    entry = entry_of(snapshot.manifest)
    return None if entry is None else functions_of(MemWalDetails.of(entry).writer_defaults)
