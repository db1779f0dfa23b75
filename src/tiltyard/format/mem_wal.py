"""The details of the MemWAL index entry (MemWAL, section 1.4): what was compacted, how far indices caught up.

`MemWalDetails` keeps the message that it came from: sharding specs, defaults and fields that we do not know
are carried over as they are. Commits change only the compaction marks and the catch-up of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.index_metadata import IndexMetadata, TypedBytes, uuid_bytes, uuid_text
from tiltyard.format.protos import index_pb2, mem_wal_pb2, transaction_pb2

TYPE_URL = "/lance.table.MemWalIndexDetails"
TYPE_NAME = "MemWalIndexDetails"

INCARNATION = "tiltyard.incarnation"
"""Writer default, and field entry of shards: which life of the table they belong to (decision D21)."""

Marks = Mapping[str, int]
"""Shard id (UUID text) -> highest generation that the base table holds."""


@dataclass(frozen=True, slots=True)
class ShardingField:
    """One value of a spec: a transform of source columns, by the ids that those have in the table."""

    field_id: str
    source_ids: tuple[int, ...] = ()
    transform: str | None = None
    expression: str | None = None
    result_type: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardingSpec:
    """How rows are shared out among shards. `spec_id` is 1 or more; it is never used again."""

    spec_id: int
    fields: tuple[ShardingField, ...]


@dataclass(frozen=True, slots=True)
class MemWalDetails:
    """The part of the details that commits maintain; `_message` is the whole."""

    marks: Marks
    catch_up: Mapping[str, Marks]
    """Index name -> marks up to which the index covers the compacted rows."""
    _message: Any

    @classmethod
    def of(cls, entry: IndexMetadata) -> MemWalDetails:
        """The details of an index entry. Raises CorruptFile when they are not a MemWAL's."""
        details = entry.details
        if details is None or not details.type_url.endswith(TYPE_NAME):
            found = "no details" if details is None else details.type_url
            raise CorruptFile(f"index {entry.name} should have details of type {TYPE_NAME}, found {found}")
        what = f"the details of index {entry.name}"
        message = wire.parse(mem_wal_pb2.MemWalIndexDetails, details.value, "", what)
        catch_up = {each.index_name: _marks(each.caught_up_generations) for each in message.index_catchup}
        return cls(_marks(message.compacted_sstables), catch_up, message)

    @property
    def sharding_specs(self) -> tuple[ShardingSpec, ...]:
        """How rows are shared out among shards; none where shards are named by hand."""
        return tuple(_spec(each) for each in self._message.sharding_specs)

    @property
    def num_shards(self) -> int:
        """How many shards the spec has; 0 where that is open."""
        return int(self._message.num_shards)

    @property
    def maintained_indexes(self) -> tuple[str, ...]:
        """Names of the indices that SSTables get too, where not all do."""
        return tuple(self._message.maintained_indexes)

    @property
    def maintain_all_indexes(self) -> bool:
        """Whether SSTables get every index that can be kept for them."""
        return bool(self._message.maintain_all_indexes)

    @property
    def writer_defaults(self) -> Mapping[str, str]:
        """Settings of the table's writers, and what we note there (`tiltyard.`)."""
        return dict(self._message.writer_config_defaults)

    @property
    def incarnation(self) -> str | None:
        """Which life of the table it is; None where another program began it."""
        return self.writer_defaults.get(INCARNATION)

    @classmethod
    def new(
        cls,
        specs: Iterable[ShardingSpec] = (),
        *,
        num_shards: int = 0,
        maintained_indexes: Iterable[str] | None = None,
        writer_defaults: Mapping[str, str] | None = None,
    ) -> MemWalDetails:
        """The details of a table whose MemWAL begins. `maintained_indexes` None: all that can be kept."""
        message = mem_wal_pb2.MemWalIndexDetails(
            num_shards=num_shards,
            sharding_specs=[_spec_message(each) for each in specs],
            maintained_indexes=list(maintained_indexes or ()),
            writer_config_defaults=dict(writer_defaults or {}),
            maintain_all_indexes=maintained_indexes is None,
        )
        return cls({}, {}, message)

    def changed(self, marks: Marks, catch_up: Mapping[str, Marks]) -> MemWalDetails:
        """The same details with other marks and catch-up; everything else is kept."""
        message = mem_wal_pb2.MemWalIndexDetails()
        message.CopyFrom(self._message)
        del message.compacted_sstables[:]
        message.compacted_sstables.extend(_messages(marks))
        del message.index_catchup[:]
        for name in sorted(catch_up):
            if catch_up[name]:
                message.index_catchup.add(index_name=name, caught_up_generations=_messages(catch_up[name]))
        return MemWalDetails(
            dict(marks), {name: dict(each) for name, each in catch_up.items() if each}, message
        )

    def resharded(
        self, specs: Iterable[ShardingSpec], num_shards: int, writer_defaults: Mapping[str, str]
    ) -> MemWalDetails:
        """The same details with other sharding specs and notes; everything else is kept."""
        message = mem_wal_pb2.MemWalIndexDetails()
        message.CopyFrom(self._message)
        message.num_shards = num_shards
        del message.sharding_specs[:]
        message.sharding_specs.extend(_spec_message(each) for each in specs)
        message.writer_config_defaults.clear()
        message.writer_config_defaults.update(writer_defaults)
        return MemWalDetails(self.marks, self.catch_up, message)

    def encode(self) -> TypedBytes:
        """The details as an index entry carries them."""
        return TypedBytes(TYPE_URL, self._message.SerializeToString(deterministic=True))


def _marks(messages: Iterable[Any]) -> dict[str, int]:
    marks: dict[str, int] = {}
    for each in messages:
        shard = uuid_text(each.shard_id.uuid, "a compaction mark")
        marks[shard] = max(each.generation, marks.get(shard, 0))
    return marks


def _messages(marks: Marks) -> list[Any]:
    return [
        transaction_pb2.CompactedSsTable(
            shard_id=index_pb2.Uuid(uuid=uuid_bytes(shard)), generation=generation
        )
        for shard, generation in sorted(marks.items())
    ]


def _spec(message: Any) -> ShardingSpec:
    return ShardingSpec(
        message.spec_id,
        tuple(
            ShardingField(
                each.field_id,
                tuple(each.source_ids),
                each.transform if each.HasField("transform") else None,
                each.expression if each.HasField("expression") else None,
                each.result_type,
                dict(each.parameters),
            )
            for each in message.fields
        ),
    )


def _spec_message(spec: ShardingSpec) -> Any:
    message = mem_wal_pb2.ShardingSpec(spec_id=spec.spec_id)
    for each in spec.fields:
        message.fields.add(
            field_id=each.field_id,
            source_ids=each.source_ids,
            transform=each.transform,
            expression=each.expression,
            result_type=each.result_type,
            parameters=each.parameters,
        )
    return message
