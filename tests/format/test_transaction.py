"""Transactions to and from bytes: every operation, unknown ones, and the old forms of the wire."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiltyard.errors import CorruptFile
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DataOverlay, Fragment
from tiltyard.format.index_metadata import IndexFile, IndexMetadata, TypedBytes
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
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
from tiltyard.format.protos import transaction_pb2 as pb
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction, decode_transaction

ONE = "00000000-0000-4000-8000-000000000001"
TWO = "00000000-0000-4000-8000-000000000002"
FILE = DataFile("a.lance", (0, -2), (0, 1), 2, 1, 99, 4)
FRAGMENT = Fragment(7, (FILE,), 10, row_ids=b"\x0a\x00", created_versions=b"")
SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int8())], metadata={"k": "v"}))
BARE = Schema(SCHEMA.fields)
INDEX = IndexMetadata(ONE, (0,), "a_idx", 3)
CHANGES = UpdateMap((("a", "b"), ("gone", None)), replace=True)

OPERATIONS: list[Operation] = [
    Append((FRAGMENT,)),
    Append(),
    Delete((FRAGMENT,), (1, 2), "a < 3"),
    Overwrite((FRAGMENT,), SCHEMA, {"x": "y"}, (BasePath(0, "/p", "n", True),)),
    CreateIndex((INDEX,), (INDEX,)),
    Rewrite(
        (RewriteGroup((FRAGMENT,), (FRAGMENT, FRAGMENT)),),
        (RewrittenIndex(ONE, TWO, TypedBytes("/t", b"v"), 3, (IndexFile("f", 9),)),),
    ),
    Merge((FRAGMENT,), SCHEMA, True),
    Restore(4),
    ReserveFragments(9),
    Update(
        (1,),
        (FRAGMENT,),
        (FRAGMENT,),
        (0,),
        (CompactedSsTable(ONE, 8),),
        (5,),
        REWRITE_COLUMNS,
        KeyExistenceFilter((0,), bloom=BloomKeys(b"\x01" * 32, 256, 8192, 0.00057)),
        {7: (1, 2)},
        {7: b"bitmap"},
    ),
    Update(inserted_rows=KeyExistenceFilter((0, 1), exact=(1, 2**64 - 1))),
    Update(inserted_rows=KeyExistenceFilter((3,))),
    Project(BARE, True),
    UpdateConfig(CHANGES, UpdateMap(), None, {0: CHANGES, 3: UpdateMap()}),
    UpdateConfig(),
    DataReplacement((ReplacementFile(7, FILE),)),
    UpdateMemWalState((CompactedSsTable(TWO, 1),)),
    Clone(True, "gold", 3, "/source", "dev"),
    Clone(),
    UpdateBases((BasePath(0, "/p"),)),
    DataOverlays(
        (OverlayGroup(7, (DataOverlay(FILE, b"bits", None, 3), DataOverlay(FILE, None, (b"x",), 4))),)
    ),
]


def named(operation: Operation) -> str:
    return Transaction(1, ONE, operation).name


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
def test_every_operation_round_trips(operation: Operation) -> None:
    transaction = Transaction(3, ONE, operation, {"__lance_commit_message": "why"}, "tag")
    assert decode_transaction(transaction.encode()) == transaction
    assert transaction.encode() == decode_transaction(transaction.encode()).encode()


def test_every_operation_of_the_wire_is_known() -> None:
    names = {field.name.replace("_", "") for field in pb.Transaction.DESCRIPTOR.oneofs[0].fields}
    assert names == {each.name.lower() for each in OPERATIONS}


def test_an_unknown_operation_is_a_value_that_keeps_its_bytes() -> None:
    body = b"\xa2\x07\x03abc"  # field 116
    data = pb.Transaction(read_version=3, uuid=ONE).SerializeToString() + body
    transaction = decode_transaction(data)
    assert transaction.operation == UnknownOperation(116, body)
    assert transaction.name == "Unknown(116)"
    assert transaction.encode() == data
    assert decode_transaction(b"").operation == UnknownOperation(0)


def test_unknown_fields_beside_a_known_operation_survive() -> None:
    data = pb.Transaction(uuid=ONE, restore=pb.Restore(version=2)).SerializeToString() + b"\xf2\x3f\x01z"
    transaction = decode_transaction(data)
    assert transaction.operation == Restore(2)
    assert transaction.encode() == data


def test_old_forms_of_config_changes_are_decoded() -> None:
    old = pb.UpdateConfig(upsert_values={"b": "2", "a": "1"}, delete_keys=["x"], schema_metadata={"s": "t"})
    old.field_metadata[4].metadata["f"] = "g"
    data = pb.Transaction(uuid=ONE, update_config=old).SerializeToString()
    assert decode_transaction(data).operation == UpdateConfig(
        UpdateMap((("a", "1"), ("b", "2"), ("x", None))),
        None,
        UpdateMap((("s", "t"),), replace=True),
        {4: UpdateMap((("f", "g"),), replace=True)},
    )


def test_the_old_form_of_a_rewrite_is_one_group() -> None:
    data = Transaction(1, ONE, Rewrite((RewriteGroup((FRAGMENT,), (FRAGMENT,)),))).encode()
    message = pb.Transaction.FromString(data)
    group = message.rewrite.groups[0]
    message.rewrite.old_fragments.extend(group.old_fragments)
    message.rewrite.new_fragments.extend(group.new_fragments)
    del message.rewrite.groups[:]
    assert decode_transaction(message.SerializeToString()).encode() == data


def test_changes_of_maps_are_applied() -> None:
    assert CHANGES.apply({"old": "1", "gone": "2"}) == {"a": "b"}
    assert UpdateMap((("gone", None), ("a", ""))).apply({"old": "1", "gone": "2"}) == {"old": "1", "a": ""}


def test_damage_is_named() -> None:
    with pytest.raises(CorruptFile, match=r"_transactions/x\.txn"):
        decode_transaction(b"\xff\xff\xff", "_transactions/x.txn")
    message = pb.Transaction(
        update_mem_wal_state=pb.UpdateMemWalState(compacted_sstables=[pb.CompactedSsTable()])
    )
    with pytest.raises(CorruptFile, match=r"x\.txn: the transaction: a shard has a UUID of 0 bytes"):
        decode_transaction(message.SerializeToString(), "x.txn")


def test_the_peer_reads_our_transaction_files(peer, tmp_path) -> None:
    path = str(tmp_path / "t")
    uuid = peer(
        """
import glob
lance.write_dataset(pa.table({"a": range(10)}), path)
lance.dataset(path).delete("a = 3")
result = sorted(glob.glob(path + "/_transactions/*.txn"))
""",
        path=path,
    )
    for name in uuid:
        with open(name, "rb") as file:
            data = file.read()
        transaction = decode_transaction(data, name)
        assert transaction.file_name == name.rpartition("/")[2]
        assert decode_transaction(transaction.encode()) == transaction
        assert transaction.encode() == data
