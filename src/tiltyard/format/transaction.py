"""Transactions: what a commit did, to and from bytes (transactions, section 2).

The operations themselves are in `operations.py`; each has a reader and a writer here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.base_paths import decode_base, encode_base
from tiltyard.format.fragment import (
    Fragment,
    decode_data_file,
    decode_fragment,
    decode_overlay,
    encode_data_file,
    encode_fragment,
    encode_overlay,
)
from tiltyard.format.index_metadata import (
    decode_files,
    decode_index,
    decode_typed,
    encode_files,
    encode_index,
    encode_typed,
    uuid_bytes,
    uuid_text,
)
from tiltyard.format.operations import (
    Append,
    BloomKeys,
    Clone,
    CompactedSsTable,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    KeyExistenceFilter,
    Merge,
    Operation,
    OverlayGroup,
    Overwrite,
    Project,
    ReplacementFile,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    RewrittenIndex,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from tiltyard.format.protos import index_pb2
from tiltyard.format.protos import transaction_pb2 as pb
from tiltyard.format.schema import Schema

__all__ = [
    "Append",
    "BloomKeys",
    "Clone",
    "CompactedSsTable",
    "CreateIndex",
    "DataOverlays",
    "DataReplacement",
    "Delete",
    "KeyExistenceFilter",
    "Merge",
    "Operation",
    "OverlayGroup",
    "Overwrite",
    "Project",
    "ReplacementFile",
    "ReserveFragments",
    "Restore",
    "Rewrite",
    "RewriteGroup",
    "RewrittenIndex",
    "Transaction",
    "UnknownOperation",
    "Update",
    "UpdateBases",
    "UpdateConfig",
    "UpdateMap",
    "UpdateMemWalState",
    "decode_transaction",
    "encode_transaction",
]

COMMIT_MESSAGE = "__lance_commit_message"
"""The property that holds a commit's message."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a commit did, based on `read_version` (0: creation). `uuid` is text and names the commit."""

    read_version: int
    uuid: str
    operation: Operation
    properties: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""
    unknown: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """The name of the operation in the words of the format, as in `Append`."""
        return self.operation.name

    @property
    def file_name(self) -> str:
        """The name of its file in `_transactions/`."""
        return f"{self.read_version}-{self.uuid}.txn"

    def encode(self) -> bytes:
        """The bytes of the transaction; equal transactions give equal bytes."""
        return encode_transaction(self)


def decode_transaction(data: Any, path: str = "") -> Transaction:
    """A transaction from its bytes. Raises `CorruptFile` naming `path`; an unknown operation is a value."""
    m = wire.parse(pb.Transaction, data, path, "the transaction")
    kind = m.WhichOneof("operation")
    unknown = wire.unknown_fields(m)
    operation: Operation
    if kind is None:
        operation, unknown = UnknownOperation(wire.first_field_number(unknown) or 0, unknown), b""
    else:
        try:
            operation = _READERS[kind](getattr(m, kind))
        except CorruptFile as error:
            raise CorruptFile(f"the transaction: {error}", path or None) from error
    return Transaction(m.read_version, m.uuid, operation, dict(m.transaction_properties), m.tag, unknown)


def encode_transaction(transaction: Transaction) -> bytes:
    """The bytes of a transaction."""
    m = pb.Transaction(
        read_version=transaction.read_version,
        uuid=transaction.uuid,
        tag=transaction.tag,
        transaction_properties=transaction.properties,
    )
    operation = transaction.operation
    if isinstance(operation, UnknownOperation):
        m.MergeFromString(operation.data)
    else:
        name, writer = _WRITERS[type(operation)]
        target = getattr(m, name)
        target.SetInParent()
        target.MergeFrom(writer(operation))
    if transaction.unknown:
        m.MergeFromString(transaction.unknown)
    return m.SerializeToString(deterministic=True)


# -- parts ---------------------------------------------------------------------------------------


def _fragments(messages: Iterable[Any]) -> tuple[Fragment, ...]:
    return tuple([decode_fragment(each) for each in messages])


def _put_fragments(fragments: Iterable[Fragment]) -> list[Any]:
    return [encode_fragment(each) for each in fragments]


def _schema(m: Any, with_metadata: bool) -> Schema:
    return Schema.from_messages(m.schema, m.schema_metadata if with_metadata else {})


def _sstables(messages: Iterable[Any]) -> tuple[CompactedSsTable, ...]:
    return tuple(
        [CompactedSsTable(uuid_text(each.shard_id.uuid, "a shard"), each.generation) for each in messages]
    )


def _put_sstables(tables: Iterable[CompactedSsTable]) -> list[Any]:
    return [pb.CompactedSsTable(shard_id=_uuid(each.shard_id), generation=each.generation) for each in tables]


def _uuid(text: str) -> Any:
    return index_pb2.Uuid(uuid=uuid_bytes(text))


def _filter(m: Any) -> KeyExistenceFilter:
    kind = m.WhichOneof("data")
    fields = tuple(m.field_ids)
    if kind == "bloom":
        bloom = m.bloom
        keys = BloomKeys(bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability)
        return KeyExistenceFilter(fields, bloom=keys)
    return KeyExistenceFilter(fields, exact=tuple(m.exact.key_hashes) if kind == "exact" else None)


def _put_filter(each: KeyExistenceFilter) -> Any:
    m = pb.KeyExistenceFilter(field_ids=each.field_ids)
    if each.bloom is not None:
        m.bloom.SetInParent()
        m.bloom.bitmap = each.bloom.bitmap
        m.bloom.num_bits = each.bloom.num_bits
        m.bloom.number_of_items = each.bloom.number_of_items
        m.bloom.probability = each.bloom.probability
    elif each.exact is not None:
        m.exact.SetInParent()
        m.exact.key_hashes.extend(each.exact)
    return m


def _update_map(m: Any) -> UpdateMap:
    entries = [(each.key, each.value if each.HasField("value") else None) for each in m.update_entries]
    return UpdateMap(tuple(entries), m.replace)


def _put_update_map(each: UpdateMap) -> Any:
    entries = [pb.UpdateMapEntry(key=key, value=value) for key, value in each.update_entries]
    return pb.UpdateMap(update_entries=entries, replace=each.replace)


# -- readers -------------------------------------------------------------------------------------


def _read_delete(m: Any) -> Operation:
    return Delete(_fragments(m.updated_fragments), tuple(m.deleted_fragment_ids), m.predicate)


def _read_overwrite(m: Any) -> Operation:
    bases = tuple([decode_base(each) for each in m.initial_bases])
    return Overwrite(_fragments(m.fragments), _schema(m, True), dict(m.config_upsert_values), bases)


def _read_create_index(m: Any) -> Operation:
    return CreateIndex(tuple(map(decode_index, m.new_indices)), tuple(map(decode_index, m.removed_indices)))


def _read_rewrite(m: Any) -> Operation:
    groups = [
        RewriteGroup(_fragments(each.old_fragments), _fragments(each.new_fragments)) for each in m.groups
    ]
    if m.old_fragments or m.new_fragments:  # the old form has one group, outside the list
        groups.append(RewriteGroup(_fragments(m.old_fragments), _fragments(m.new_fragments)))
    return Rewrite(tuple(groups), tuple([_read_rewritten(each) for each in m.rewritten_indices]))


def _read_rewritten(m: Any) -> RewrittenIndex:
    return RewrittenIndex(
        uuid_text(m.old_id.uuid, "a rewritten index"),
        uuid_text(m.new_id.uuid, "a rewritten index"),
        decode_typed(m.new_index_details) if m.HasField("new_index_details") else None,
        m.new_index_version,
        decode_files(m.new_index_files),
    )


def _read_update(m: Any) -> Operation:
    return Update(
        tuple(m.removed_fragment_ids),
        _fragments(m.updated_fragments),
        _fragments(m.new_fragments),
        tuple(m.fields_modified),
        _sstables(m.compacted_sstables),
        tuple(m.fields_for_preserving_frag_bitmap),
        m.update_mode,
        _filter(m.inserted_rows) if m.HasField("inserted_rows") else None,
        {id: tuple(each.values) for id, each in m.updated_fragment_offsets.items()},
        dict(m.updated_fragment_offset_bitmaps),
    )


def _read_update_config(m: Any) -> Operation:
    config, schema = None, None
    if m.upsert_values or m.delete_keys:
        gone = [(key, None) for key in m.delete_keys]
        config = UpdateMap((*sorted(m.upsert_values.items()), *gone))
    if m.schema_metadata:
        schema = UpdateMap(tuple(sorted(m.schema_metadata.items())), replace=True)
    fields = {
        id: UpdateMap(tuple(sorted(each.metadata.items())), replace=True)
        for id, each in m.field_metadata.items()
    }
    fields |= {id: _update_map(each) for id, each in m.field_metadata_updates.items()}
    return UpdateConfig(
        _update_map(m.config_updates) if m.HasField("config_updates") else config,
        _update_map(m.table_metadata_updates) if m.HasField("table_metadata_updates") else None,
        _update_map(m.schema_metadata_updates) if m.HasField("schema_metadata_updates") else schema,
        fields,
    )


def _read_replacement(m: Any) -> Operation:
    replacements = [
        ReplacementFile(each.fragment_id, decode_data_file(each.new_file)) for each in m.replacements
    ]
    return DataReplacement(tuple(replacements))


def _read_clone(m: Any) -> Operation:
    name = m.ref_name if m.HasField("ref_name") else None
    branch = m.branch_name if m.HasField("branch_name") else None
    return Clone(m.is_shallow, name, m.ref_version, m.ref_path, branch)


def _read_overlays(m: Any) -> Operation:
    groups = [OverlayGroup(each.fragment_id, tuple(map(decode_overlay, each.overlays))) for each in m.groups]
    return DataOverlays(tuple(groups))


_READERS: dict[str, Callable[[Any], Operation]] = {
    "append": lambda m: Append(_fragments(m.fragments)),
    "delete": _read_delete,
    "overwrite": _read_overwrite,
    "create_index": _read_create_index,
    "rewrite": _read_rewrite,
    "merge": lambda m: Merge(_fragments(m.fragments), _schema(m, True), m.preserves_nullability),
    "restore": lambda m: Restore(m.version),
    "reserve_fragments": lambda m: ReserveFragments(m.num_fragments),
    "update": _read_update,
    "project": lambda m: Project(_schema(m, False), m.preserves_nullability),
    "update_config": _read_update_config,
    "data_replacement": _read_replacement,
    "update_mem_wal_state": lambda m: UpdateMemWalState(_sstables(m.compacted_sstables)),
    "clone": _read_clone,
    "update_bases": lambda m: UpdateBases(tuple(map(decode_base, m.new_bases))),
    "data_overlay": _read_overlays,
}


# -- writers -------------------------------------------------------------------------------------


def _write_delete(each: Delete) -> Any:
    return pb.Delete(
        updated_fragments=_put_fragments(each.updated_fragments),
        deleted_fragment_ids=each.deleted_fragment_ids,
        predicate=each.predicate,
    )


def _write_overwrite(each: Overwrite) -> Any:
    return pb.Overwrite(
        fragments=_put_fragments(each.fragments),
        schema=each.schema.to_messages(),
        schema_metadata=each.schema.metadata,
        config_upsert_values=each.config_upsert_values,
        initial_bases=[encode_base(base) for base in each.initial_bases],
    )


def _write_create_index(each: CreateIndex) -> Any:
    return pb.CreateIndex(
        new_indices=[encode_index(index) for index in each.new_indices],
        removed_indices=[encode_index(index) for index in each.removed_indices],
    )


def _write_rewrite(each: Rewrite) -> Any:
    groups = [
        pb.RewriteGroup(
            old_fragments=_put_fragments(group.old_fragments),
            new_fragments=_put_fragments(group.new_fragments),
        )
        for group in each.groups
    ]
    return pb.Rewrite(
        groups=groups, rewritten_indices=[_write_rewritten(index) for index in each.rewritten_indices]
    )


def _write_rewritten(each: RewrittenIndex) -> Any:
    return pb.RewrittenIndex(
        old_id=_uuid(each.old_id),
        new_id=_uuid(each.new_id),
        new_index_details=encode_typed(each.new_index_details) if each.new_index_details else None,
        new_index_version=each.new_index_version,
        new_index_files=encode_files(each.new_index_files),
    )


def _write_merge(each: Merge) -> Any:
    return pb.Merge(
        fragments=_put_fragments(each.fragments),
        schema=each.schema.to_messages(),
        schema_metadata=each.schema.metadata,
        preserves_nullability=each.preserves_nullability,
    )


def _write_update(each: Update) -> Any:
    m = pb.Update(
        removed_fragment_ids=each.removed_fragment_ids,
        updated_fragments=_put_fragments(each.updated_fragments),
        new_fragments=_put_fragments(each.new_fragments),
        fields_modified=each.fields_modified,
        compacted_sstables=_put_sstables(each.compacted_sstables),
        fields_for_preserving_frag_bitmap=each.fields_for_preserving_frag_bitmap,
        update_mode=each.update_mode,
        inserted_rows=_put_filter(each.inserted_rows) if each.inserted_rows is not None else None,
        updated_fragment_offset_bitmaps=each.updated_fragment_offset_bitmaps,
    )
    for id, offsets in each.updated_fragment_offsets.items():
        m.updated_fragment_offsets[id].values.extend(offsets)
    return m


def _write_project(each: Project) -> Any:
    return pb.Project(schema=each.schema.to_messages(), preserves_nullability=each.preserves_nullability)


def _write_update_config(each: UpdateConfig) -> Any:
    m = pb.UpdateConfig()
    for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates"):
        changes = getattr(each, name)
        if changes is not None:
            getattr(m, name).CopyFrom(_put_update_map(changes))
    for id, changes in each.field_metadata_updates.items():
        m.field_metadata_updates[id].CopyFrom(_put_update_map(changes))
    return m


def _write_replacement(each: DataReplacement) -> Any:
    m = pb.DataReplacement()
    for one in each.replacements:
        m.replacements.add(fragment_id=one.fragment_id, new_file=encode_data_file(one.new_file))
    return m


def _write_clone(each: Clone) -> Any:
    return pb.Clone(
        is_shallow=each.is_shallow,
        ref_name=each.ref_name,
        ref_version=each.ref_version,
        ref_path=each.ref_path,
        branch_name=each.branch_name,
    )


def _write_overlays(each: DataOverlays) -> Any:
    m = pb.DataOverlay()
    for group in each.groups:
        m.groups.add(fragment_id=group.fragment_id, overlays=[encode_overlay(one) for one in group.overlays])
    return m


_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Append: ("append", lambda each: pb.Append(fragments=_put_fragments(each.fragments))),
    Delete: ("delete", _write_delete),
    Overwrite: ("overwrite", _write_overwrite),
    CreateIndex: ("create_index", _write_create_index),
    Rewrite: ("rewrite", _write_rewrite),
    Merge: ("merge", _write_merge),
    Restore: ("restore", lambda each: pb.Restore(version=each.version)),
    ReserveFragments: (
        "reserve_fragments",
        lambda each: pb.ReserveFragments(num_fragments=each.num_fragments),
    ),
    Update: ("update", _write_update),
    Project: ("project", _write_project),
    UpdateConfig: ("update_config", _write_update_config),
    DataReplacement: ("data_replacement", _write_replacement),
    UpdateMemWalState: (
        "update_mem_wal_state",
        lambda each: pb.UpdateMemWalState(compacted_sstables=_put_sstables(each.compacted_sstables)),
    ),
    Clone: ("clone", _write_clone),
    UpdateBases: (
        "update_bases",
        lambda each: pb.UpdateBases(new_bases=[encode_base(base) for base in each.new_bases]),
    ),
    DataOverlays: ("data_overlay", _write_overlays),
}
