"""Raw commits and the values that they take: operations, transactions, fragments (cases O07, O08)."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import CommitConflict, InvalidInput, TiltyardError, UnsupportedFeature
from tiltyard.lance import FragmentMetadata, LanceOperation, Transaction
from tiltyard.lance.commit import CommitConflictError
from tiltyard.lance.fragment import DataFile, DeletionFile, RowIdMeta, write_fragments

TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(TABLE, path)
    return path


def test_a_handle_that_is_committed_to_stays_where_it_is(path: str) -> None:
    ds = lance.dataset(path)
    after = lance.LanceDataset.commit(ds, LanceOperation.Append(write_fragments(TABLE, ds)), read_version=1)
    assert (ds.version, after.version, after.count_rows()) == (1, 2, 6)


def test_all_but_overwrite_and_restore_say_what_they_read(path: str) -> None:
    with pytest.raises(ValueError, match="read_version"):
        lance.LanceDataset.commit(path, LanceOperation.Append([]))
    made = lance.LanceDataset.commit(path, LanceOperation.Overwrite(TABLE.schema, []))
    assert (made.version, made.count_rows()) == (2, 0)
    assert lance.LanceDataset.commit(path, LanceOperation.Restore(1)).count_rows() == 3


def test_what_is_no_operation_is_refused(path: str) -> None:
    with pytest.raises(TypeError):
        lance.LanceDataset.commit(path, "append", read_version=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        LanceOperation.Append([1])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="provided together"):
        lance.LanceDataset.commit(path, LanceOperation.Append([]), read_version=1, table_id=["t"])


def test_the_same_transaction_committed_twice_is_one_version(path: str) -> None:
    transaction = write_fragments(TABLE, path, return_transaction=True)
    assert lance.LanceDataset.commit(path, transaction).version == 2
    assert lance.LanceDataset.commit(path, transaction).version == 2
    assert lance.dataset(path).count_rows() == 6


def test_fragments_committed_twice_are_refused(path: str) -> None:
    append = LanceOperation.Append(write_fragments(TABLE, path))
    lance.LanceDataset.commit(path, append, read_version=1)
    for read_version in (1, 2):
        with pytest.raises(TiltyardError, match="lance"):
            lance.LanceDataset.commit(path, append, read_version=read_version)
    assert lance.dataset(path).count_rows() == 6


def test_fragments_without_their_file_are_refused(path: str) -> None:
    (fragment,) = write_fragments(TABLE, path)
    os.unlink(os.path.join(path, "data", fragment.files[0].path))
    with pytest.raises(TiltyardError, match=fragment.files[0].path):
        lance.LanceDataset.commit(path, LanceOperation.Append([fragment]), read_version=1)
    assert lance.dataset(path).to_table().equals(TABLE)


def test_appends_are_committed_together(path: str) -> None:
    parts = [write_fragments(TABLE, path, return_transaction=True) for _ in range(3)]
    done = lance.LanceDataset.commit_batch(path, parts)
    assert (done["dataset"].version, done["dataset"].count_rows()) == (2, 12)
    with pytest.raises(UnsupportedFeature):
        lance.LanceDataset.commit_batch(path, [Transaction(1, LanceOperation.Restore(1))])
    with pytest.raises(InvalidInput):
        lance.LanceDataset.commit_batch(path, [])


def test_a_conflict_is_the_error_that_scripts_catch(path: str) -> None:
    stale = write_fragments(TABLE, path, return_transaction=True)
    lance.write_dataset(TABLE, path, mode="overwrite")
    with pytest.raises(CommitConflictError):
        lance.LanceDataset.commit(path, stale)
    assert CommitConflictError is CommitConflict
    assert issubclass(CommitConflict, OSError)


def test_a_strict_overwrite_follows_its_version_directly_or_fails(path: str) -> None:
    overwrite = LanceOperation.Overwrite(TABLE.schema, write_fragments(TABLE, path, mode="overwrite"))
    lance.write_dataset(TABLE, path, mode="append")
    with pytest.raises(CommitConflict):
        lance.LanceDataset.commit(path, overwrite, read_version=1, max_retries=0)
    assert lance.LanceDataset.commit(path, overwrite, read_version=2, max_retries=0).version == 3


FORMS = [
    FragmentMetadata(
        3,
        [DataFile("a.lance", [0, 2, -2], [0, 1, 2], 2, 1, 99), DataFile("b.lance", [7], [0], 2, 2, None, 4)],
        10,
        DeletionFile(5, 2**63 + 1, "bitmap", 3, 1),
        RowIdMeta(b"\x0a\x00"),
    ),
    FragmentMetadata(0, [DataFile("x.lance", [0], [0], 2, 2, 5)], 1),
]


@pytest.mark.parametrize("metadata", FORMS, ids=["full", "plain"])
def test_fragments_survive_json_pickle_and_the_format(metadata: FragmentMetadata) -> None:
    import json

    assert FragmentMetadata.from_json(json.dumps(metadata.to_json())) == metadata
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert FragmentMetadata.from_fragment(metadata.to_fragment()) == metadata
    assert metadata.num_rows == metadata.physical_rows - metadata.num_deletions


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"id": 1, "files": [{}], "physical_rows": 1}'])
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        FragmentMetadata.from_json(text)


def test_the_official_package_has_the_same_json(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    ds.delete("id = 2")
    theirs = peer("lance.dataset(p).get_fragments()[0].metadata.to_json()", p=path)
    assert ds.get_fragments()[0].metadata.to_json() == theirs
    assert ds.get_fragments()[0].deletion_file() == peer(
        "lance.dataset(p).get_fragments()[0].deletion_file()", p=path
    )


def test_operations_survive_the_trip_through_a_version(path: str, peer: Peer) -> None:
    peer(
        """
ds = lance.dataset(p)
ds.add_columns({"twice": "id * 2"})
ds.drop_columns(["twice"])
ds.update({"id": "id + 10"}, where="id = 1")
ds.update_config({"a": "b"})
lance.write_dataset(pa.table({"id": [9]}), p, mode="append")
lance.dataset(p).optimize.compact_files()
""",
        p=path,
    )
    ds = lance.dataset(path)
    kinds = [type(ds.read_transaction(v["version"]).operation).__name__ for v in ds.versions()]
    assert kinds == ["Overwrite", "Merge", "Project", "Update", "UpdateConfig", "Append", "Other", "Rewrite"]
    for version in ds.versions():
        transaction = ds.read_transaction(version["version"])
        assert Transaction.from_fact(transaction.to_fact()) == transaction
