"""Becoming the owner of a shard: nothing is written before the right to write is shown (decision D17).

The epoch in the newest manifest says who owns a shard. A claim makes the next version with the next epoch,
and from then on fences the owner before; so it must not be made by somebody who may not write. All that can
refuse a claim is looked at before the first write, and again on whatever stands there after a lost race.

Invariants, and their tests in tests/memwal/test_claim.py and tests/simulation/test_streams.py:
1. A claim that is refused leaves the shard byte for byte as it was, and its owner unfenced.
2. A spec id is an identity: 0 (shards named by hand) matches 0 only.
3. Of claims that meet, one succeeds for each version; one that was overtaken says so and is not tried again.
4. A claim whose answer was lost is known by its nonce.
5. A shard that did not exist gets exactly one identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiltyard import runtime
from tiltyard.errors import (
    ClaimLost,
    CorruptFile,
    OutcomeUnknown,
    ShardContention,
    ShardError,
    ShardSealed,
    ShardSpecMismatch,
    StoreError,
    UnsupportedFeature,
)
from tiltyard.format import mem_wal
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.manifest import newest, of_begun, on_newest, publish, write_hint
from tiltyard.store import Created, Store
from tiltyard.table.back_off import back_off

MAX_CLAIMS = 16
"""How often a claim is tried on a manifest that others change meanwhile."""

INCARNATION = mem_wal.INCARNATION
"""Shard field entry and writer default: which life of the table a shard belongs to (decision D21)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a claimant says it is: the shard, its sharding spec, the table's incarnation where it has one.

    `field_entries`: the sharding values of all rows of the shard, for one that does not exist yet.
    `may_be_sealed`: the claimant puts no rows in, and empties a shard whoever sealed it (decision D31).
    """

    shard_id: str
    spec_id: int
    incarnation: str | None = None
    field_entries: tuple[tuple[str, bytes], ...] = ()
    may_be_sealed: bool = False


def check(found: ShardManifest, identity: Identity) -> None:
    """Refuse a claim on this manifest: another shard's, sealed, unknown status, spec or incarnation.

    Raises `CorruptFile`, `ShardSealed`, `UnsupportedFeature`, `ShardSpecMismatch`, `ShardError`.
    """
    shard = identity.shard_id
    if found.shard_id != shard:
        raise CorruptFile(
            f"the manifest in the directory of shard {shard} is that of shard {found.shard_id or 'none'}: it "
            "was copied here, or is damaged; nothing was changed",
            layout.manifest_path(found.version),
        )
    if found.status == SEALED and not identity.may_be_sealed:
        raise ShardSealed(f"shard {shard} is sealed; refusing claim (drop in flight)")
    if found.status not in (ACTIVE, SEALED):
        raise UnsupportedFeature(
            f"shard {shard} has status {found.status}, which this version does not know: it does not "
            "write there"
        )
    if found.shard_spec_id != identity.spec_id:
        raise ShardSpecMismatch(
            f"shard {shard} belongs to sharding spec {_named(found.shard_spec_id)}, and a writer for spec "
            f"{_named(identity.spec_id)} was to be opened: it was not, and the shard's owner goes on. Open "
            f"it with spec {found.shard_spec_id}, or choose another shard id",
            shard,
            identity.spec_id,
            found.shard_spec_id,
        )
    theirs = dict(found.field_entries).get(INCARNATION)
    if theirs is not None and theirs != (identity.incarnation or "").encode():
        raise ShardError(
            f"shard {shard} was left by another table at this place (incarnation "
            f"{theirs.decode('utf-8', 'replace')}, this table's is {identity.incarnation or 'none'}): its "
            "rows are not this table's; set the shard aside, or take another shard id"
        )


def claim(shard: Store, identity: Identity, rehearse: Callable[[ShardManifest], None]) -> ShardManifest:
    """Make the caller the owner of the shard; its manifest as of the claim.

    `rehearse(manifest)` reads the log that the new owner would have to replay, and raises where it could not.
    It is called once, before anything is written. Raises what `check` and `rehearse` do, `ClaimLost`,
    `ShardContention`, `OutcomeUnknown`, and StoreError where the manifest cannot be written.
    """
    rehearsed = False
    failed: BaseException | None = None
    for attempt in range(MAX_CLAIMS):
        found = of_begun(shard) if attempt == 0 else newest(shard)
        if found is not None:
            check(found, identity)
            if not rehearsed:
                on_newest(shard, found, rehearse)
                rehearsed = True
        wanted = _next(found, identity)
        answer = publish(shard, wanted)
        if answer is Created.WON:
            write_hint(shard, wanted.version)
            return wanted
        if answer is Created.UNKNOWN:
            raise OutcomeUnknown(
                f"the claim of shard {identity.shard_id} (version {wanted.version}, epoch "
                f"{wanted.writer_epoch}) may or may not have been made; open it again",
                version=wanted.version,
            )
        failed = shard.failure(layout.manifest_path(wanted.version)) if answer is Created.NOT_DONE else failed
        standing = newest(shard)
        if standing is not None:
            check(standing, identity)
            if standing.writer_epoch >= wanted.writer_epoch:
                raise ClaimLost(
                    f"Failed to claim shard {identity.shard_id} (version {wanted.version}): another writer "
                    f"claimed epoch {standing.writer_epoch} (>= our target {wanted.writer_epoch}); open it "
                    "again to take it over from that writer"
                )
        back_off(0.0, attempt + 1)
    told = f"Failed to claim shard {identity.shard_id} after {MAX_CLAIMS} tries"
    if failed is not None:
        raise StoreError(
            f"{told}, whose manifest could not be written to {shard.uri}: {failed}; nothing was claimed. See "
            "to it that there is room and that this process may write there, then try again"
        ) from failed
    raise ShardContention(f"{told} due to manifest contention; nothing was claimed, try again")


def _next(found: ShardManifest | None, identity: Identity) -> ShardManifest:
    nonce = runtime.uuid4().bytes
    if found is not None:
        return replace(
            found, version=found.version + 1, writer_epoch=found.writer_epoch + 1, claim_nonce=nonce
        )
    entries = identity.field_entries
    if identity.incarnation is not None:
        entries += ((INCARNATION, identity.incarnation.encode()),)
    return ShardManifest(
        identity.shard_id,
        writer_epoch=1,
        shard_spec_id=identity.spec_id,
        field_entries=entries,
        claim_nonce=nonce,
    )


def _named(spec: int) -> str:
    return f"{spec} (shards named by hand)" if spec == 0 else str(spec)
