"""Closing a shard for good, opening it again, and dropping it (decision D31).

To seal is to take over: the claim and its sentinel fence whoever writes, the log is replayed and published,
and only then the manifest says SEALED. Who seals notes the epoch with which it was done; a shard that others
sealed without a take-over may still have a writer, and rows in its log, and is taken over when it is sealed
here. One that is sealed because the sharding changes says so, too: where that change is called off, it is
opened again.

The manifest of a sealed shard stays for ever, that of a dropped one too: were it deleted, the same id could
begin again at epoch 1, below writers that are asleep.

Invariants, and their tests in tests/memwal/test_sealing.py:
1. The log of a shard that is closed (`is_closed`) holds no row that is not published, and nobody can add one.
2. A seal that stopped half-way loses nothing, and the next one finishes it; of several at once one does.
3. What refuses a seal, an unseal or a drop changes no byte.
4. Of a shard that is dropped no row is lost, or the caller gave them up and is told how many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiltyard.errors import (
    ClaimLost,
    InvalidInput,
    ShardContention,
    ShardError,
    ShardSpecMismatch,
    TiltyardError,
    UndrainedRows,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.ending import Undrained, undrained
from tiltyard.memwal.identity import Streamed, streamed
from tiltyard.memwal.life import check_names, lives, manifests, of_this_life
from tiltyard.memwal.manifest import newest, update
from tiltyard.memwal.marks import give_up
from tiltyard.memwal.owner import Owned, Streamable, no_shard, take_over_to_empty
from tiltyard.memwal.publishing import publish_generation
from tiltyard.memwal.routing import SEALED_BY, SEALED_FOR, is_closed, own_value, router_of, sealed_for
from tiltyard.store import Store
from tiltyard.table.back_off import back_off
from tiltyard.table.snapshot import open_latest
from tiltyard.table.wording import counted

MAX_SEALS = 16
"""How often a shard is taken over to be sealed while others open it."""


def seal(table: Streamable, shard_id: str, *, coming: int | None = None) -> ShardManifest:
    """Take a shard over, publish what its log holds, and let nobody write there any more; its manifest.

    Whoever writes gets `WriterFenced`. Nothing for a shard that is closed; one that another program sealed is
    emptied. `coming`: the sharding spec that it is sealed for; None where it is to stay sealed whatever
    becomes of a change of the sharding. Raises as `ShardWriter.open` does, leaving the shard as it was; after
    other errors call it again.
    """
    shard_id = layout.parse_shard_id(shard_id)
    base = open_latest(table._store, table._session)
    shard = base.store.at(layout.shard_dir(shard_id))
    failed: TiltyardError | None = None
    for attempt in range(MAX_SEALS):
        found = newest(shard)
        if found is None:
            raise no_shard(base, shard_id)
        _check_life(streamed(base), found, shard_id)
        if is_closed(found) and (coming is not None or sealed_for(found) is None):
            return found
        try:
            if is_closed(found):
                return update(shard, found, _for_itself)
            return _closed(take_over_to_empty(table, shard_id), coming)
        except (ClaimLost, WriterFenced) as error:
            failed = error
            back_off(0.0, attempt + 1)
    raise ShardContention(
        f"shard {shard_id} was opened by others {MAX_SEALS} times while it was to be sealed; it is as they "
        "have it: stop them, then seal it again"
    ) from failed


def publish_replayed(owned: Owned) -> ShardManifest:
    """Publish what the log of a shard held when it was taken over; its manifest."""
    manifest = owned.manifest
    for table in owned.memtables:
        if table.rows:
            manifest = publish_generation(owned, manifest, table)
    return manifest


def _closed(owned: Owned, coming: int | None) -> ShardManifest:
    """Publish what was replayed, then say so."""
    manifest = publish_replayed(owned)
    notes: tuple[tuple[str, bytes], ...] = ((SEALED_BY, b"%d" % manifest.writer_epoch),)
    if coming is not None:
        notes += ((SEALED_FOR, b"%d" % coming),)

    def sealed(now: ShardManifest) -> ShardManifest:
        return replace(now, status=SEALED, field_entries=(*_without(now, SEALED_BY, SEALED_FOR), *notes))

    return update(owned.shard, manifest, sealed)


def _for_itself(now: ShardManifest) -> ShardManifest:
    if not is_closed(now) or sealed_for(now) is None:
        return now
    return replace(now, field_entries=_without(now, SEALED_FOR))


def _without(manifest: ShardManifest, *notes: str) -> tuple[tuple[str, bytes], ...]:
    return tuple(entry for entry in manifest.field_entries if entry[0] not in notes)


# -- opening again ------------------------------------------------------------------------------


def unseal(table: Streamable, shard_id: str) -> ShardManifest:
    """Let writers open a sealed shard again; its manifest. Nothing for a shard that is not sealed.

    Raises, changing nothing: `InvalidInput` where there is no such shard, or another one has taken its rows
    since; `ShardSpecMismatch` for a shard of an earlier sharding, `ShardingChanging`, `UnsupportedFeature`.
    """
    shard_id = layout.parse_shard_id(shard_id)
    shard, found = _checked_to_unseal(table, shard_id)
    for attempt in range(MAX_SEALS):
        if found.status == ACTIVE:
            return found
        try:
            made = update(shard, found, _unsealed)
        except WriterFenced:  # claimed meanwhile, to be sealed again
            back_off(0.0, attempt + 1)
            shard, found = _checked_to_unseal(table, shard_id)
            continue
        try:
            _checked_to_unseal(table, shard_id)
        except TiltyardError:  # the sharding was changed, or another shard began, since we looked
            seal(table, shard_id, coming=sealed_for(found))
            raise
        return made
    raise ShardContention(f"shard {shard_id} was sealed again {MAX_SEALS} times while it was to be unsealed")


def _unsealed(now: ShardManifest) -> ShardManifest:
    if now.status == ACTIVE:
        return now
    return replace(now, status=ACTIVE, field_entries=_without(now, SEALED_BY, SEALED_FOR))


def _checked_to_unseal(table: Streamable, shard_id: str) -> tuple[Store, ShardManifest]:
    known = manifests(table._store.at(layout.ROOT))
    base = open_latest(table._store, table._session)
    found = known.get(shard_id)
    if found is None:
        raise no_shard(base, shard_id)
    memwal = streamed(base)
    _check_life(memwal, found, shard_id)
    if found.status not in (ACTIVE, SEALED):
        raise UnsupportedFeature(f"shard {shard_id} has status {found.status}, which is not known")
    spec = memwal.spec
    active = 0 if spec is None else spec.spec_id
    if found.shard_spec_id != active:
        raise ShardSpecMismatch(
            f"shard {shard_id} belongs to sharding spec {found.shard_spec_id}, and the table is sharded by "
            f"spec {active} since: the shard stays sealed, its rows go to other shards",
            shard_id,
            active,
            found.shard_spec_id,
        )
    incarnation = memwal.details.writer_defaults.get(INCARNATION)
    value = own_value(found)
    successors = [
        other.shard_id
        for other in known.values()
        if other.shard_id != shard_id
        and other.shard_spec_id == active
        and other.status == ACTIVE
        and lives(other, incarnation)
        and (own_value(other) == value if value else router_of(spec, base.schema).is_constant and spec)
    ]
    if successors:
        raise InvalidInput(
            f"shard {shard_id} stays sealed: its rows go to shard {successors[0]} since, and keys would come "
            "into both"
        )
    return table._store.at(layout.shard_dir(shard_id)), found


# -- dropping -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dropped:
    """A shard that was dropped: `lost` is what it held that was not in the base."""

    shard_id: str
    lost: Undrained
    manifest: ShardManifest

    def __str__(self) -> str:
        if not self.lost:
            return f"shard {self.shard_id} was dropped; everything that it held is in the base"
        return f"shard {self.shard_id} was dropped; {counted(self.lost.rows, 'row')} of it are lost"


def drop_shard(table: Streamable, shard_id: str, *, discard: bool = False) -> Dropped:
    """Take a sealed shard's generations out of the table; its files go with the next collection, its manifest
    stays, so that nobody can write under its id unseen.

    With `discard` a shard that is not sealed is sealed first, and rows (puts and deletes) that are not in the
    base are given up: older rows of their keys are seen again. Raises, changing nothing: `InvalidInput` where
    there is no such shard, `ShardError` for one that is not sealed, `UndrainedRows`.
    """
    shard_id = layout.parse_shard_id(shard_id)
    base = open_latest(table._store, table._session)
    shard = base.store.at(layout.shard_dir(shard_id))
    found = newest(shard)
    if found is None:
        raise no_shard(base, shard_id)
    _check_life(streamed(base), found, shard_id)
    if not is_closed(found):
        if not discard:
            raise ShardError(
                f"shard {shard_id} is not sealed, or was sealed by a program that left its log as it was: "
                "nothing was dropped; seal it first (`tiltyard shard seal`)"
            )
        found = seal(table, shard_id)
    base = open_latest(table._store, table._session)  # after the manifest: what it does not name is in there
    lost = undrained(base, of_this_life(base, {shard_id: found}))
    if lost and not discard:
        raise UndrainedRows(
            f"shard {shard_id} is not dropped: {counted(lost.rows, 'row')} of it are not in the base of "
            f"{base.store.uri} yet and would be lost. Compact the table first; discard_streamed=True gives "
            "them up",
            lost.rows,
        )

    def emptied(now: ShardManifest) -> ShardManifest:
        if not is_closed(now):
            raise ShardContention(f"shard {shard_id} was unsealed while it was to be dropped; it stays")
        now = _for_itself(now)
        return replace(now, sstables=()) if now.sstables else now

    made = update(shard, found, emptied)
    # What comes later, where it is opened again, is compacted after what there is no more.
    give_up(table._store, table._session, shard_id, made.current_generation - 1)
    return Dropped(shard_id, lost, made)


def _check_life(memwal: Streamed, found: ShardManifest, shard_id: str) -> None:
    """Refuse a shard that an earlier table left, or that does not say rightly whose it is."""
    check_names(found, shard_id)
    incarnation = memwal.details.writer_defaults.get(INCARNATION)
    if not lives(found, incarnation):
        raise ShardError(
            f"shard {found.shard_id} was left by another table at this place (this one's incarnation is "
            f"{incarnation or 'none'}): its rows are not this table's, and nothing was changed"
        )
