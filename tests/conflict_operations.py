"""Operations of every kind for tests of conflicts: pairs that meet in nothing, pairs that meet in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DataOverlay, DeletionFile, Fragment
from tiltyard.format.index_metadata import MEM_WAL, IndexMetadata, TypedBytes
from tiltyard.format.mem_wal import TYPE_URL
from tiltyard.format.operations import (
    Append,
    BloomKeys,
    CompactedSsTable,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    KeyExistenceFilter,
    Merge,
    OverlayGroup,
    Overwrite,
    Project,
    ReplacementFile,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from tiltyard.format.protos import index_pb2, mem_wal_pb2, transaction_pb2
from tiltyard.format.schema import Schema

SCHEMA = Schema.from_arrow(pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())]))
ROWS = 100
SHARD = "11111111-2222-3333-4444-555555555555"
OTHER_SHARD = "99999999-2222-3333-4444-555555555555"
FILTER_BYTES = 32768


def fragment(id: int, *, files: int = 1, deleted: int = 0, rows: int = ROWS) -> Fragment:
    """A fragment with one file per part of the schema."""
    paths = tuple(
        DataFile(
            f"{id}-{part}.lance", (0, 1, 2) if files == 1 else (part,), (0, 1, 2) if files == 1 else (0,)
        )
        for part in range(files)
    )
    deletion = DeletionFile("arrow", 1, id + 1, deleted) if deleted else None
    return Fragment(id, paths, rows, deletion)


def new_fragment(name: str, rows: int = 10) -> Fragment:
    return Fragment(0, (DataFile(f"{name}.lance", (0, 1, 2), (0, 1, 2)),), rows)


def bloom(*hashes: int, fields: tuple[int, ...] = (0,)) -> KeyExistenceFilter:
    """A key filter with one bit in each word of the block that each number stands for."""
    words = bytearray(FILTER_BYTES)
    for value in hashes:
        block = (value % 1024) * 32
        for word in range(8):
            words[block + 4 * word + value % 4] |= 1 << (value // 1024 + word) % 8
    return KeyExistenceFilter(fields, bloom=BloomKeys(bytes(words), FILTER_BYTES * 8, 8192, 0.00057))


def bitmap(*ids: int) -> bytes:
    return bytes(BitMap(ids).serialize())


def index(
    name: str, number: int, fields: tuple[int, ...], covered: tuple[int, ...] | None, **more: Any
) -> IndexMetadata:
    uuid = f"00000000-0000-0000-0000-{number:012d}"
    details = more.pop("details", TypedBytes("/lance.table.BTreeIndexDetails"))
    bits = None if covered is None else bitmap(*covered)
    return IndexMetadata(uuid, fields, name, more.pop("dataset_version", 1), bits, details, **more)


def mem_wal_index(number: int, marks: dict[str, int]) -> IndexMetadata:
    message = mem_wal_pb2.MemWalIndexDetails(num_shards=1, maintain_all_indexes=True)
    message.writer_config_defaults["tiltyard.incarnation"] = "x"
    for shard, generation in marks.items():
        uuid = index_pb2.Uuid(uuid=bytes.fromhex(shard.replace("-", "")))
        message.compacted_sstables.append(
            transaction_pb2.CompactedSsTable(shard_id=uuid, generation=generation)
        )
    details = TypedBytes(TYPE_URL, message.SerializeToString())
    return index(MEM_WAL, number, (), None, details=details, index_version=0)


def replacement(id: int, field: int, name: str = "new") -> ReplacementFile:
    return ReplacementFile(id, DataFile(f"{name}-{id}-{field}.lance", (field,), (0,)))


def overlay(id: int, field: int, *rows: int) -> OverlayGroup:
    file = DataFile(f"overlay-{id}-{field}.lance", (field,), (0,))
    return OverlayGroup(id, (DataOverlay(file, bitmap(*rows), None, 0),))


def sets(**entries: str | None) -> UpdateMap:
    return UpdateMap(tuple(entries.items()))


def _both(make: Any) -> tuple[Any, Any]:
    return make(0), make(1)


# Two of each kind that have nothing in common with any other: first ours, then theirs. Fragments 1, 2, ...
# are ours, 11, 12, ... theirs.
DISJOINT: dict[str, tuple[Any, Any]] = {
    "Append": _both(lambda n: Append((new_fragment(f"append{n}"),))),
    "Delete": _both(lambda n: Delete((fragment(1 + 10 * n, deleted=1),), (2 + 10 * n,), "x")),
    "Update": _both(
        lambda n: Update((), (fragment(3 + 10 * n, deleted=1),), (new_fragment(f"update{n}"),), (), (), (1,))
    ),
    "Overwrite": _both(lambda n: Overwrite((new_fragment(f"over{n}"),), SCHEMA, {f"over{n}": "1"})),
    "CreateIndex": _both(lambda n: CreateIndex((index(f"index{n}", 1 + n, (2,), (5 + 10 * n,)),))),
    "Rewrite": _both(
        lambda n: Rewrite((RewriteGroup((fragment(6 + 10 * n),), (new_fragment(f"rewrite{n}"),)),))
    ),
    "Merge": _both(lambda n: Merge((fragment(1),), SCHEMA, True)),
    "Project": _both(lambda n: Project(SCHEMA, True)),
    "Restore": _both(lambda n: Restore(1)),
    "ReserveFragments": _both(lambda n: ReserveFragments(5)),
    "UpdateConfig": _both(lambda n: UpdateConfig(config_updates=sets(**{f"key{n}": "1"}))),
    "DataReplacement": _both(lambda n: DataReplacement((replacement(7 + 10 * n, 1),))),
    "UpdateBases": _both(lambda n: UpdateBases((BasePath(0, f"/base{n}", f"base{n}"),))),
    "DataOverlay": _both(lambda n: DataOverlays((overlay(8 + 10 * n, 1, 3),))),
    "UpdateMemWalState": _both(
        lambda n: UpdateMemWalState((CompactedSsTable(OTHER_SHARD if n else SHARD, 3),))
    ),
}
NAMES = tuple(DISJOINT)

_SHARED = fragment(5, deleted=3)
_MARK = CompactedSsTable(SHARD, 3)

# One of each kind, all of which meet in fragment 5, field 1, config key k, index i, base b, shard SHARD.
_TOGETHER: dict[str, Any] = {
    "Append": Append((new_fragment("together"),)),
    "Delete": Delete((_SHARED,), (), "x"),
    "Update": Update((), (_SHARED,), (new_fragment("moved"),), (1,), (_MARK,), (1,), 0, bloom(7)),
    "Overwrite": Overwrite((), SCHEMA, {"k": "1"}),
    "CreateIndex": CreateIndex((index("i", 9, (1,), (5,)),)),
    "Rewrite": Rewrite((RewriteGroup((_SHARED,), (new_fragment("rewritten"),)),)),
    "Merge": Merge((_SHARED,), SCHEMA, False),
    "Project": Project(SCHEMA, False),
    "Restore": Restore(1),
    "ReserveFragments": ReserveFragments(5),
    "UpdateConfig": UpdateConfig(sets(k="2"), None, sets(schema="1")),
    "DataReplacement": DataReplacement((replacement(5, 1),)),
    "UpdateBases": UpdateBases((BasePath(0, "/b", "b"),)),
    "DataOverlay": DataOverlays((overlay(5, 1, 3),)),
    "UpdateMemWalState": UpdateMemWalState((_MARK,)),
}


def MEETING(mine: str, theirs: str) -> Iterator[tuple[Any, Any]]:  # noqa: N802  (stands beside DISJOINT)
    """Pairs of the two kinds that meet in what the cell's condition asks about."""
    ours, other = _TOGETHER[mine], _TOGETHER[theirs]
    names = {mine, theirs}
    if mine == theirs == "Update":
        ours = replace(ours, compacted_sstables=())
    if mine == "DataReplacement" and theirs in ("Delete", "Update"):
        gone = {"deleted_fragment_ids": (5,)} if theirs == "Delete" else {"removed_fragment_ids": (5,)}
        other = replace(other, updated_fragments=(), **gone)
    if mine == "DataOverlay" and theirs == "Delete":
        other = Delete((), (5,), "x")
    if "CreateIndex" in names and names & {"Merge", "UpdateMemWalState"}:
        entry = CreateIndex((mem_wal_index(9, {SHARD: 3}),))
        ours = entry if mine == "CreateIndex" else ours
        other = entry if theirs == "CreateIndex" else other
    if mine == "DataReplacement" and theirs == "Project":
        other = Project(SCHEMA.project(["id"]), True)
    yield ours, other
