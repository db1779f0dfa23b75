"""Mending a shard's log so that it can be opened again (decision D32).

Only what no owner could replay is touched: an entry that cannot be read, a position without an entry. A
sentinel takes their place, in one step, so that no hole is open in between; the old bytes are kept. Entries
that can be read are never changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tiltyard import runtime
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, StoreError, TiltyardError
from tiltyard.format.names import PRIVATE_DIR
from tiltyard.memwal import layout
from tiltyard.memwal.claim import claim
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.identity import identity_of, resolved_spec, streamed
from tiltyard.memwal.log_schema import log_schema, reconciled
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.wal import positions, put_sentinel, read_entry
from tiltyard.store import Created, Store
from tiltyard.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Step:
    """One position that gets a sentinel. `nbytes` None: there is no entry; else the entry cannot be read."""

    position: int
    nbytes: int | None
    why: str

    def __str__(self) -> str:
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
    manifest = newest(shard)
    if manifest is None:
        raise InvalidInput(f"{base.store.uri} has no shard {shard_id}")
    return _steps(base, shard, manifest.replay_after)


def repair(base: Snapshot, shard_id: str) -> Repaired:
    """Mend a shard's log: claims it (which fences its owner), then puts sentinels. Raises as `claim` does."""
    shard_id = layout.parse_shard_id(shard_id)
    if not plan_repair(base, shard_id):
        return Repaired((), None)
    shard = base.store.at(layout.shard_dir(shard_id))
    found = streamed(base)
    identity = identity_of(found, shard_id, resolved_spec(found, None, shard_id))
    manifest = claim(shard, identity, lambda _: None)
    put_sentinel(shard, manifest)  # now the log grows no more
    steps = _steps(base, shard, manifest.replay_after)
    directory = f"{PRIVATE_DIR}/repair/{runtime.uuid4()}"
    kept = base.store.at(directory)
    for step in steps:
        if step.nbytes is not None:
            kept.put(f"{layout.digits(step.position)}.arrow", shard.read(layout.entry_path(step.position)))
    told = {"shard": shard_id, "epoch": manifest.writer_epoch, "steps": [asdict(each) for each in steps]}
    kept.put("steps.json", json.dumps(told, indent=1).encode())
    sentinel = encode_sentinel(manifest.writer_epoch)
    for step in steps:
        path = layout.entry_path(step.position)
        if step.nbytes is not None:
            shard.put(path, sentinel)
        elif shard.create(path, sentinel) not in (Created.WON, Created.EXISTS):
            raise StoreError(
                f"the sentinel at position {step.position} could not be put: {shard.failure(path)}"
            )
    return Repaired(steps, directory)


def _steps(base: Snapshot, shard: Store, after: int) -> list[Step]:
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
        except (CorruptFile, TiltyardError) as error:
            steps.append(Step(position, shard.stat(layout.entry_path(position)).size, str(error)))
    return steps
