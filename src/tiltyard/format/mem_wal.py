"""The details of the MemWAL index entry (MemWAL, section 1.4): what was compacted, how far indices caught up.

`MemWalDetails` keeps the message that it came from: sharding specs, defaults and fields that we do not know
are carried over as they are. Commits change only the compaction marks and the catch-up of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.index_metadata import IndexMetadata, TypedBytes, uuid_bytes, uuid_text
from tiltyard.format.protos import index_pb2, mem_wal_pb2, transaction_pb2

TYPE_URL = "/lance.table.MemWalIndexDetails"
TYPE_NAME = "MemWalIndexDetails"

Marks = Mapping[str, int]
"""Shard id (UUID text) -> highest generation that the base table holds."""


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
