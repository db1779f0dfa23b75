"""The shards of a table at a glance: whose they are, what is published, what waits, and for how long.

Reads names, manifests, and the sizes of what is not in the base yet; no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tiltyard.errors import CorruptFile, ObjectNotFound, ShardingChanging, StoreError
from tiltyard.format.mem_wal import ShardingSpec
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest, SsTable
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.identity import Streamed, streamed
from tiltyard.memwal.lag import measured
from tiltyard.memwal.life import lives, readable
from tiltyard.memwal.routing import Router, is_closed, own_value, router_of
from tiltyard.memwal.sharding import BUCKET, IDENTITY, num_buckets
from tiltyard.memwal.wal import only_sentinels, positions
from tiltyard.store import ObjectStat, Store
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.wording import NS_PER_SECOND

MAX_SENTINEL_BYTES = 1024
"""An entry that is larger holds rows; of others that is looked at."""


NEW = "not claimed yet"


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the rows of a table are shared out: `kind` is `bucket`, `identity`, `unsharded` or `by hand`.

    `count`: how many shards that makes, None where it is open. `changing`: whether another sharding is on its
    way; the facts are those of the one to come then, and nobody may write until it is in force.
    """

    kind: str
    column: str | None
    count: int | None
    spec_id: int
    changing: bool


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One shard as it is now.

    `value`: which rows it has, as `shard_of` tells it of a row; None where it does not say, or is of another
    sharding. `status`: `active`, `sealed`, `sealed, not emptied` (by another program, which left its log),
    or why it cannot be told. `epoch`: how often it was claimed.

    `published`: generations that the manifest names; `waiting`: those of them that are not in the base, with
    their rows (puts and deletes, superseded ones too) and bytes in memory. `log_entries`: entries above the
    replay cursor, which are in no generation, and their bytes. `lag_seconds`: how long the oldest of what is
    not in the base has waited, by the store's clock.
    """

    shard_id: str
    spec_id: int | None = None
    value: Any = None
    status: str = "active"
    epoch: int = 0
    generation: int = 0
    published: int = 0
    waiting: int = 0
    waiting_rows: int = 0
    waiting_bytes: int = 0
    compacted_to: int = 0
    log_cursor: int = 0
    log_entries: int = 0
    log_bytes: int = 0
    lag_seconds: float | None = None


def sharding_of(base: Snapshot) -> Sharding | None:
    """The sharding of a version; None where it is not streamed into."""
    if entry_of(base.manifest) is None:
        return None
    found = streamed(base)
    spec, changing = _in_force(found)
    if spec is None or not spec.fields:
        return Sharding("by hand", None, None, 0, changing)
    field = spec.fields[0]
    column = next((each.name for each in base.schema.fields if each.id in field.source_ids), None)
    counts = {BUCKET: num_buckets(field) if field.transform == BUCKET else 1, IDENTITY: None}
    return Sharding(str(field.transform), column, counts.get(str(field.transform), 1), spec.spec_id, changing)


def shard_facts(base: Snapshot) -> list[ShardFacts]:
    """Every shard that lies beside the table, also those that are not its own, by id."""
    root = base.store.at(layout.ROOT)
    there = layout.shard_ids(root.list_names(""))
    manifests, problems = readable(base.store)
    base = open_latest(base.store, base.session)  # after the manifests: rows move that way
    found = streamed(base) if entry_of(base.manifest) is not None else None
    router = _router(base, found)
    facts = [
        ShardFacts(each, status="cannot be read: see `tiltyard shard check`" if each in problems else NEW)
        for each in there
        if each not in manifests
    ]
    facts += [
        _facts(root.at(shard_id), shard_id, manifest, found, router)
        for shard_id, manifest in manifests.items()
    ]
    return sorted(facts, key=lambda each: each.shard_id)


def _in_force(found: Streamed) -> tuple[ShardingSpec | None, bool]:
    """The spec in force, or to come, and which of the two."""
    try:
        return found.spec, False
    except ShardingChanging:
        return found.coming, True


def _router(base: Snapshot, found: Streamed | None) -> Router:
    """What says the values of shards."""
    spec = None if found is None else _in_force(found)[0]
    return router_of(spec if spec is not None and len(spec.fields) == 1 else None, base.schema)


def _facts(
    shard: Store, shard_id: str, manifest: ShardManifest, found: Streamed | None, router: Router
) -> ShardFacts:
    mark = 0 if found is None else found.details.marks.get(shard_id, 0)
    standing = positions(shard)
    ahead = measured(manifest, mark)
    logged = list(_logged(shard, [each for each in standing if each > manifest.replay_after]))
    waiting = [each for each in manifest.sstables if each.generation > mark]
    times = [*(each.mtime_ns for each in logged), *_published_at(shard, waiting)]
    value = None
    if router.spec is not None and router.spec.spec_id == manifest.shard_spec_id:
        with suppress(CorruptFile):  # it is but shown
            value = router.shown(own_value(manifest))
    return ShardFacts(
        shard_id,
        manifest.shard_spec_id,
        value,
        _status(manifest, found),
        manifest.writer_epoch,
        manifest.current_generation,
        len(manifest.sstables),
        ahead.generations,
        ahead.rows,
        ahead.nbytes,
        mark,
        manifest.replay_after,
        len(logged),
        sum(each.size for each in logged),
        max(0.0, (shard.now_ns() - min(times)) / NS_PER_SECOND) if times else None,
    )


def _logged(shard: Store, standing: list[int]) -> Iterator[ObjectStat]:
    """Those entries that hold rows, as far as can be told."""
    for position in standing:
        with suppress(ObjectNotFound):  # collected since
            entry = shard.stat(layout.entry_path(position))
            if entry.size > MAX_SENTINEL_BYTES or not only_sentinels(shard, [position]):
                yield entry


def _published_at(shard: Store, waiting: list[SsTable]) -> Iterator[int]:
    for each in waiting[:1]:  # the oldest
        with suppress(ObjectNotFound, StoreError):
            yield shard.stat(f"{each.path}/{layout.BLOOM_FILTER}").mtime_ns


def _status(manifest: ShardManifest, found: Streamed | None) -> str:
    incarnation = None if found is None else found.details.writer_defaults.get(INCARNATION)
    if found is None or not lives(manifest, incarnation):
        return "of an earlier table at this place"
    if manifest.status == SEALED:
        return "sealed" if is_closed(manifest) else "sealed, not emptied"
    return "active" if manifest.status == ACTIVE else f"unknown ({manifest.status})"
