"""Making a table one that can be streamed into: its MemWAL index entry (MemWAL, section 1.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tiltyard import runtime
from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.format.index_metadata import MEM_WAL, IndexMetadata
from tiltyard.format.mem_wal import MemWalDetails, ShardingField, ShardingSpec
from tiltyard.format.operations import CreateIndex
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.config import HNSW, WriterConfig, writer_config
from tiltyard.memwal.ending import ASIDE
from tiltyard.memwal.identity import ACTIVE_SPEC, LAST_SPEC
from tiltyard.memwal.identity import merge_functions as merged_by
from tiltyard.memwal.keys import check_key_types
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.maintained import check_maintainable
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.merge_functions import SETTING, checked, closing_spec
from tiltyard.memwal.routing import OWN_NOTES
from tiltyard.memwal.sharding import (
    BUCKET,
    FIELD_ID,
    IDENTITY,
    MAX_BUCKETS,
    NUM_BUCKETS,
    UNSHARDED,
    can_be_bucketed,
    can_be_identity,
    num_buckets,
)
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import Snapshot

FIRST_SPEC = 1


def initialise(
    snapshot: Snapshot,
    *,
    bucket_column: str | None = None,
    num_buckets: int | None = None,
    identity_column: str | None = None,
    unsharded: bool = False,
    maintained_indexes: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    set_shards_aside: bool = False,
    merge_functions: Mapping[str, str] | None = None,
) -> Snapshot:
    """Commit a MemWAL for the table; without sharding arguments its shards are named by hand.

    `options`: settings of the table's writers; any of them records all. `set_shards_aside`: shards that an
    earlier life of the table left are put away instead of refused. `merge_functions`: by column, how its
    values are merged (`merge_functions.NAMES`); for all columns outside the key, or none. Raises
    `InvalidInput`, `UnsupportedFeature`, `IndexNotFound`, commit errors.
    """
    specs, shards = _sharding(snapshot, bucket_column, num_buckets, identity_column, unsharded)
    check_key_types(snapshot.schema)
    log_schema(snapshot.schema)
    functions = None if merge_functions is None else checked(merge_functions, snapshot.schema)
    if functions is not None:
        _check_one_shard_a_key(specs, snapshot.schema)
    if entry_of(snapshot.manifest) is not None:
        raise InvalidInput("MemWAL is already initialized on this dataset.")
    if maintained_indexes is not None:
        check_maintainable(snapshot, maintained_indexes)
    defaults = _defaults(options or {})
    _no_shards(snapshot, set_shards_aside)
    defaults[INCARNATION] = runtime.uuid4().hex
    if functions is not None:
        defaults[SETTING] = functions.encode()
        defaults[ACTIVE_SPEC] = str(FIRST_SPEC)
        specs = (*specs, closing_spec(FIRST_SPEC + 1))
    if specs:
        defaults[LAST_SPEC] = str(specs[-1].spec_id)
    details = MemWalDetails.new(
        specs, num_shards=shards, maintained_indexes=maintained_indexes, writer_defaults=defaults
    )
    entry = IndexMetadata(
        uuid=str(runtime.uuid4()),
        fields=(),
        name=MEM_WAL,
        dataset_version=snapshot.version,
        details=details.encode(),
        index_version=0,
        created_at=runtime.now_ns() // 1_000_000,
    )
    transaction = Transaction(snapshot.version, str(runtime.uuid4()), CreateIndex((entry,)))
    return commit(snapshot.store, transaction, session=snapshot.session, base=snapshot)


def wanted_sharding(snapshot: Snapshot, sharding: Mapping[str, Any] | ShardingSpec) -> ShardingSpec:
    """A sharding as a spec of this table, with no id yet (0): from the arguments that `initialise` takes, or
    from a spec.

    Raises `InvalidInput`, `FieldNotFound`, `UnsupportedFeature` for one that rows could not be shared out by.
    """
    field_id = FIELD_ID
    if isinstance(sharding, ShardingSpec):
        field_id, sharding = _arguments(snapshot, sharding)
    specs, _ = _sharding(
        snapshot,
        sharding.get("bucket_column"),
        sharding.get("num_buckets"),
        sharding.get("identity_column"),
        bool(sharding.get("unsharded")),
    )
    if not specs:
        raise InvalidInput(
            "a table's sharding is changed to bucket sharding, to that of an `identity_column`, or to "
            "`unsharded`: shards named by hand have the spec 0, and no spec is ever come back to"
        )
    if merged_by(snapshot) is not None:
        _check_one_shard_a_key(specs, snapshot.schema)
    key = {each.id: each.name for each in snapshot.schema.primary_key}
    strange = [
        each for spec in specs for field in spec.fields for each in field.source_ids if each not in key
    ]
    if key and strange:
        raise InvalidInput(
            f"rows are shared out by a column of their key ({', '.join(key.values())}), found "
            f"{snapshot.schema.by_id(strange[0]).name!r}: rows of one key could come into several shards"
        )
    return ShardingSpec(0, tuple(replace(each, field_id=field_id) for each in specs[0].fields))


def _arguments(snapshot: Snapshot, spec: ShardingSpec) -> tuple[str, dict[str, Any]]:
    """The field id of a spec, and the arguments that make it."""
    if len(spec.fields) != 1:
        raise UnsupportedFeature(f"rows are shared out by specs of one field, found {len(spec.fields)}")
    each = spec.fields[0]
    if not each.field_id or each.field_id.startswith(OWN_NOTES):
        raise InvalidInput(f"a sharding field is named by some text, found {each.field_id!r}")
    if each.expression is not None or each.transform not in (BUCKET, IDENTITY, UNSHARDED):
        raise UnsupportedFeature(
            f"Unsupported MemWAL sharding transform for field '{each.field_id}': {each.transform!r}"
            + ("" if each.expression is None else f", expression {each.expression!r}")
            + f"; there are {BUCKET}, {IDENTITY} and {UNSHARDED}"
        )
    if each.transform == UNSHARDED:
        return each.field_id, {"unsharded": True}
    names = [field.name for field in snapshot.schema.fields if (field.id,) == tuple(each.source_ids)]
    if not names:
        raise FieldNotFound(
            f"sharding field {each.field_id!r} is made from the columns of ids {list(each.source_ids)}, of "
            f"which the table needs exactly one at its top; it has {', '.join(snapshot.schema.names)}"
        )
    if each.transform == IDENTITY:
        return each.field_id, {"identity_column": names[0]}
    return each.field_id, {"bucket_column": names[0], "num_buckets": num_buckets(each)}


def _defaults(options: Mapping[str, Any]) -> dict[str, str]:
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return {}
    plain = {name: value for name, value in given.items() if not name.startswith(HNSW)}
    config: WriterConfig = writer_config({}, plain)
    kept = {name: str(value) for name, value in given.items() if name.startswith(HNSW)}
    return {**config.recorded(), **kept}


def _sharding(
    snapshot: Snapshot,
    bucket_column: str | None,
    count: int | None,
    identity_column: str | None,
    unsharded: bool,
) -> tuple[tuple[ShardingSpec, ...], int]:
    """The spec, and how many shards it has (0: that is open)."""
    bucketed = bucket_column is not None or count is not None
    if bucketed + (identity_column is not None) + bool(unsharded) > 1:
        raise InvalidInput("at most one of bucket sharding, `identity_column`, or `unsharded` may be set")
    if unsharded:
        return _spec(ShardingField(FIELD_ID, (), UNSHARDED, None, "int32")), 1
    if identity_column is not None:
        field = _column(snapshot, identity_column, "identity_sharding", can_be_identity)
        name = {"string": "utf8", "large_string": "large_utf8", "bool": "boolean"}
        kind = name.get(str(field.arrow_type), str(field.arrow_type))
        return _spec(ShardingField(FIELD_ID, (field.id,), IDENTITY, None, kind)), 0
    if not bucketed:
        return (), 0
    if bucket_column is None or count is None:
        raise InvalidInput("bucket sharding requires both `bucket_column` and `num_buckets`")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_BUCKETS:
        raise InvalidInput(f"bucket_sharding: num_buckets must be in [1, {MAX_BUCKETS}], got {count}")
    field = _column(snapshot, bucket_column, "bucket_sharding", can_be_bucketed)
    parameters = {NUM_BUCKETS: str(count)}
    return _spec(ShardingField(FIELD_ID, (field.id,), BUCKET, None, "int32", parameters)), count


def _check_one_shard_a_key(specs: Sequence[ShardingSpec], schema: Schema) -> None:
    """Refuse sharding that could put rows of one key into several shards, where they would not be merged."""
    key = {each.id for each in schema.primary_key}
    sources = {id for spec in specs for each in spec.fields for id in each.source_ids}
    if not specs or not sources <= key:
        raise InvalidInput(
            "merge functions need all rows of a key in one shard: share rows out by a column of the key, or "
            "have one shard (unsharded=True)"
        )


def _spec(field: ShardingField) -> tuple[ShardingSpec, ...]:
    return (ShardingSpec(FIRST_SPEC, (field,)),)


def _column(snapshot: Snapshot, name: str, what: str, fits: Any) -> Any:
    if not isinstance(name, str) or not snapshot.schema.has_column(name):
        raise InvalidInput(
            f"{what}: column '{name}' not found on the dataset; there are {', '.join(snapshot.schema.names)}"
        )
    field = snapshot.schema.field(name)
    if not fits(field.arrow_type):
        raise InvalidInput(
            f"{what}: column '{name}' has type {field.arrow_type}, which cannot be used as a shard key"
        )
    return field


def _no_shards(snapshot: Snapshot, set_aside: bool) -> None:
    """Refuse shards that an earlier life of the table left, or put them where nobody looks."""
    store = snapshot.store
    left = layout.shard_ids(store.list_names(layout.ROOT))
    if not left:
        return
    if not set_aside:
        raise InvalidInput(
            f"{snapshot.store.uri} holds {len(left)} shards of an earlier table at this place, whose rows "
            "are not this table's: they would come back into it. Call again with set_shards_aside=True, "
            "which moves them to `_tiltyard/shards`"
        )
    for shard in left:
        try:
            store.move_dir(layout.shard_dir(shard), f"{ASIDE}/{shard}-{runtime.uuid4().hex[:8]}")
        except UnsupportedFeature:  # it stays; what names another life is not taken for this table's
            manifest = newest(store.at(layout.shard_dir(shard)))
            if manifest is not None and INCARNATION not in dict(manifest.field_entries):
                raise InvalidInput(
                    f"{store.uri} cannot move directories, and shard {shard} of an earlier table names no "
                    f"life that it belongs to: its rows would come back. Delete {layout.shard_dir(shard)}"
                ) from None
