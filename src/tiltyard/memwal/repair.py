"""Mending a shard's log so that it can be opened again (decision D32).

Only what no owner could replay is touched: an entry that cannot be read, a position without an entry. A
sentinel takes their place, in one step, so that no hole is open in between; the old bytes are kept. Entries
that can be read are never changed: where one is of an epoch that no manifest has come to (manifests were
lost), the shard's epoch is raised to it. Generations that were taken away before they were in the table keep
what comes after them from it: the mark moves over them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from tiltyard import runtime
from tiltyard.errors import (
    ObjectNotFound,
    SchemaMismatch,
    ShardContention,
    StoreError,
    TiltyardError,
)
from tiltyard.format.names import PRIVATE_DIR
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import claim
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.identity import identity_of, streamed
from tiltyard.memwal.log_schema import log_schema, reconciled
from tiltyard.memwal.manifest import newest, of_begun, publish, write_hint
from tiltyard.memwal.marks import gap, give_up, marks_of, resumed
from tiltyard.memwal.owner import no_shard
from tiltyard.memwal.wal import positions, put_sentinel, read_entry
from tiltyard.store import Created, Store
from tiltyard.table.snapshot import Snapshot, open_latest


@dataclass(frozen=True, slots=True)
class Step:
    """One position that gets a sentinel. `nbytes` None: there is no entry; else the entry cannot be read.
    With an `epoch`, that of its entry: the entry stays, the shard's epoch is raised. With a `generation` it
    is no position: what is missing up to that one is given up, so that what comes after it can be compacted.
    """

    position: int
    nbytes: int | None
    why: str
    epoch: int | None = None
    generation: int | None = None

    def __str__(self) -> str:
        if self.generation is not None:
            return f"{self.why}: compaction goes on after generation {self.generation}, without their rows"
        if self.epoch is not None:
            return f"the entry at position {self.position} is of epoch {self.epoch}: {self.why}"
        if self.nbytes is None:
            return f"position {self.position} has no entry: a sentinel is put there"
        return (
            f"the entry at position {self.position} ({self.nbytes} bytes) cannot be read and is put aside, "
            f"its rows with it: {self.why}"
        )


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done, and where the old bytes and the list of steps are (below the table's root)."""

    steps: Sequence[Step]
    kept_in: str | None


def plan_repair(base: Snapshot, shard_id: str) -> list[Step]:
    """What would be mended; reads only. Raises `InvalidInput` where there is no shard."""
    shard = base.store.at(layout.shard_dir(layout.parse_shard_id(shard_id)))
    manifest = of_begun(shard)
    if manifest is None:
        raise no_shard(base, shard_id)
    steps = _steps(base, shard, manifest)
    now = newest(shard) if steps else None
    if now is not None and now.replay_after > manifest.replay_after:
        manifest, steps = now, _steps(base, shard, now)  # what was missing is published, and collected
    return [*_missing(base, manifest), *steps]


def _missing(base: Snapshot, manifest: ShardManifest) -> list[Step]:
    """Generations that are neither in the base nor named by the shard, and that no version had."""
    now = open_latest(base.store, base.session)
    mark = marks_of(now).get(manifest.shard_id, 0)
    last = gap(manifest, resumed(now, manifest, mark))
    told = f"generations {mark + 1} to {last}" if last > mark + 1 else f"generation {last}"
    return (
        [Step(0, None, f"{told} of the shard, in no version of the table", generation=last)] if last else []
    )


def repair(base: Snapshot, shard_id: str) -> Repaired:
    """Mend a shard's log: claims it (which fences its owner), then puts sentinels. Raises as `claim` does."""
    shard_id = layout.parse_shard_id(shard_id)
    planned = plan_repair(base, shard_id)
    if not planned:
        return Repaired((), None)
    missing = [each for each in planned if each.generation is not None]
    for each in missing:
        give_up(base.store, base.session, shard_id, each.generation or 0)
    shard = base.store.at(layout.shard_dir(shard_id))
    directory = f"{PRIVATE_DIR}/repair/{runtime.uuid4()}"
    kept = base.store.at(directory)
    if missing == planned:
        kept.put("steps.json", _told(shard_id, missing))
        return Repaired(missing, directory)
    found = streamed(base)
    stored = newest(shard)
    assert stored is not None  # `plan_repair` has read it
    # Of the shard's own spec: one that is being emptied must be mended too, whoever sealed it.
    identity = replace(identity_of(found, shard_id, stored.shard_spec_id), may_be_sealed=True)
    manifest = claim(shard, identity, lambda _: None)
    raised = [each for each in _steps(base, shard, manifest) if each.epoch is not None]
    if raised:
        manifest = _raised(shard, manifest, max(each.epoch or 0 for each in raised))
    put_sentinel(shard, manifest)  # now the log grows no more
    steps = [*missing, *raised, *_steps(base, shard, manifest)]
    for step in steps:
        if step.nbytes is not None:
            kept.put(f"{layout.digits(step.position)}.arrow", shard.read(layout.entry_path(step.position)))
    kept.put("steps.json", _told(shard_id, steps, epoch=manifest.writer_epoch))
    sentinel = encode_sentinel(manifest.writer_epoch)
    for step in steps:
        path = layout.entry_path(step.position)
        if step.epoch is not None or step.generation is not None:
            continue
        if step.nbytes is not None:
            shard.put(path, sentinel)
        elif shard.create(path, sentinel) not in (Created.WON, Created.EXISTS):
            raise StoreError(
                f"the sentinel at position {step.position} could not be put: {shard.failure(path)}"
            )
    return Repaired(steps, directory)


def _told(shard_id: str, steps: Sequence[Step], **facts: int) -> bytes:
    told = {"shard": shard_id, **facts, "steps": [asdict(each) for each in steps]}
    return json.dumps(told, indent=1).encode()


def _raised(shard: Store, manifest: ShardManifest, epoch: int) -> ShardManifest:
    """The shard is this owner's still, under an epoch that is not below that of any entry."""
    wanted = replace(
        manifest, version=manifest.version + 1, writer_epoch=epoch, claim_nonce=runtime.uuid4().bytes
    )
    if publish(shard, wanted) is not Created.WON:
        raise ShardContention(
            f"the epoch of the shard at {shard.uri} could not be raised to {epoch}: somebody else changed "
            "its manifest; call repair again"
        )
    write_hint(shard, wanted.version)
    return wanted


def _steps(base: Snapshot, shard: Store, manifest: ShardManifest) -> list[Step]:
    after = manifest.replay_after
    schema = log_schema(base.schema)
    standing = [each for each in positions(shard) if each > after]
    there = set(standing)
    last = standing[-1] if standing else after
    steps = []
    for position in range(after + 1, last + 1):
        if position not in there:
            steps.append(Step(position, None, "a hole"))
            continue
        try:
            entry = read_entry(shard, position)
            for batch in entry.batches:
                reconciled(batch, schema, f"{shard.uri}/{layout.entry_path(position)}")
        except ObjectNotFound:
            steps.append(Step(position, None, "a hole"))
        except SchemaMismatch:  # the entry is whole; what was streamed under another key is no damage
            raise
        except TiltyardError as error:
            steps.append(Step(position, shard.stat(layout.entry_path(position)).size, str(error)))
        else:
            if entry.epoch > manifest.writer_epoch + 1:
                told = f"the shard's is {manifest.writer_epoch}, which is raised"
                steps.append(Step(position, None, told, entry.epoch))
    return steps
