"""Taking a shard over: from the table's word on it to a writer's first state (decisions D17, D21, D31).

Everything that could refuse is asked before the claim, the log's replay included; the claim fences the owner
before; the sentinel closes its log; then the log is replayed to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tiltyard.errors import InvalidInput, ShardingChanging, WrongType
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import Identity, check, claim
from tiltyard.memwal.config import WriterConfig, writer_config
from tiltyard.memwal.identity import Streamed, identity_of, resolved_spec, streamed
from tiltyard.memwal.keys import check_key_types
from tiltyard.memwal.log_schema import LogSchema, log_schema
from tiltyard.memwal.maintained import maintained
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.memtable import MemTable
from tiltyard.memwal.merge_functions import functions_of
from tiltyard.memwal.replay import Replay
from tiltyard.memwal.routing import Router, Value, router_of
from tiltyard.memwal.wal import Log, Persistence, put_sentinel
from tiltyard.table.snapshot import Snapshot, open_latest

if TYPE_CHECKING:
    from tiltyard.format.index_metadata import IndexMetadata
    from tiltyard.session import Session
    from tiltyard.store import Store


@runtime_checkable
class Streamable(Protocol):
    """A handle on a table: what a dataset is to a writer."""

    @property
    def _store(self) -> Store: ...
    @property
    def _session(self) -> Session: ...


@dataclass(frozen=True, slots=True)
class Owned:
    """A shard that this process has just become the owner of."""

    shard_id: str
    shard: Store
    base: Snapshot
    """The table as it was when the shard was claimed."""
    config: WriterConfig
    schema: LogSchema
    maintained: Sequence[IndexMetadata]
    manifest: ShardManifest
    log: Log
    router: Router
    memtables: Sequence[MemTable]
    """What the log held, oldest first; the last is the active one."""


def take_over(
    table: Streamable,
    shard_id: str,
    shard_spec_id: int | None,
    options: Mapping[str, Any],
    value: Value = (),
) -> Owned:
    """Become the owner of a shard. Raises before the claim whatever refuses it; see `claim`."""
    if not isinstance(table, Streamable):
        raise WrongType(f"a writer is opened of a dataset, found a {type(table).__name__}")
    shard_id = layout.parse_shard_id(shard_id)
    base = open_latest(table._store, table._session)
    found = streamed(base)
    spec_id = resolved_spec(found, shard_spec_id, shard_id)
    identity = identity_of(found, shard_id, spec_id, value)
    router = router_of(found.spec, base.schema)

    def check_table() -> None:
        _check_unchanged(table, found.entry_uuid, spec_id)

    return _taken_over(base, found, identity, router, options, check_table)


def take_over_to_empty(table: Streamable, shard_id: str) -> Owned:
    """Become the owner of a shard to publish what its log holds and no more: of any sharding spec that the
    table has had, sealed ones too. Raises `InvalidInput` where there is no shard; see `claim`.
    """
    shard_id = layout.parse_shard_id(shard_id)
    base = open_latest(table._store, table._session)
    found = streamed(base)
    manifest = newest(base.store.at(layout.shard_dir(shard_id)))
    if manifest is None:
        raise no_shard(base, shard_id)
    identity = replace(identity_of(found, shard_id, manifest.shard_spec_id), may_be_sealed=True)
    return _taken_over(base, found, identity, router_of(None, base.schema), {}, lambda: None)


def no_shard(base: Snapshot, shard_id: str) -> InvalidInput:
    """The error for a shard that there is not."""
    return InvalidInput(
        f"{base.store.uri} has no shard {shard_id}; `tiltyard shards` lists those that there are"
    )


def _taken_over(
    base: Snapshot,
    found: Streamed,
    identity: Identity,
    router: Router,
    options: Mapping[str, Any],
    check_table: Callable[[], None],
) -> Owned:
    """Claim, sentinel, replay. `check_table` is called between claim and replay."""
    config = writer_config(found.details.writer_defaults, options)
    check_key_types(base.schema)
    schema = log_schema(base.schema, functions_of(found.details.writer_defaults))
    indices = maintained(base, found.details)
    shard = base.store.at(layout.shard_dir(identity.shard_id))

    replay: Replay | None = None

    def rehearsed(manifest: ShardManifest) -> None:
        nonlocal replay
        replay = _replayed(shard, schema, config, manifest)

    manifest = claim(shard, identity, rehearsed)
    if manifest.writer_epoch > 1:
        put_sentinel(shard, manifest)
    check_table()
    if replay is None or replay.after != manifest.replay_after:
        replay = Replay(shard, schema, manifest.replay_after, config.rows, config.entries)
    replay.read()
    memtables = replay.memtables(manifest)
    persistence = Persistence(config.max_wal_persist_retries, config.wal_persist_retry_base_delay_ms / 1000)
    log = Log(shard, manifest, replay.tip + 1, schema.entry, persistence, base.store)
    return Owned(identity.shard_id, shard, base, config, schema, indices, manifest, log, router, memtables)


def _replayed(shard: Store, schema: LogSchema, config: WriterConfig, manifest: ShardManifest) -> Replay:
    """The log above the cursor. Raises where an owner after this manifest could not replay it."""
    replay = Replay(shard, schema, manifest.replay_after, config.rows, config.entries)
    replay.read()
    if replay.highest_epoch > manifest.writer_epoch + 1:
        replay.check_epochs(newest(shard) or manifest)  # it may have been claimed meanwhile
    return replay


def rehearse(base: Snapshot, manifest: ShardManifest) -> None:
    """Raise what would keep `take_over_to_empty` from taking this shard over; changes nothing."""
    found = streamed(base)
    identity = identity_of(found, manifest.shard_id, manifest.shard_spec_id)
    check(manifest, replace(identity, may_be_sealed=True))
    check_key_types(base.schema)
    maintained(base, found.details)
    shard = base.store.at(layout.shard_dir(manifest.shard_id))
    schema = log_schema(base.schema, functions_of(found.details.writer_defaults))
    _replayed(shard, schema, writer_config(found.details.writer_defaults, {}), manifest)


def _check_unchanged(table: Streamable, entry_uuid: str, spec_id: int) -> None:
    """Raise `ShardingChanging` where the table's sharding was changed while the shard was claimed."""
    now = streamed(open_latest(table._store, table._session))
    if now.entry_uuid == entry_uuid:
        return
    spec = now.spec
    if (0 if spec is None else spec.spec_id) != spec_id:
        raise ShardingChanging(
            f"the table's sharding changed from spec {spec_id} while the shard was claimed; open the "
            "writer again"
        )
