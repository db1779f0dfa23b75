"""Deletes: on the newest version, as deletion files that add up, whole fragments removed, conflicts
planned again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidExpression, RetryableConflict, TooMuchContention
from tiltyard.table import row_changes


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": pa.array(range(20), pa.int64())}), path, max_rows_per_file=5)
    return path


def ids(path: str) -> list[int]:
    found: list[int] = lance.dataset(path).to_table()["id"].to_pylist()
    return found


def test_a_fragment_without_rows_left_is_removed_and_others_get_one_cumulative_file(
    path: str, peer: Peer
) -> None:
    ds = lance.dataset(path)
    assert ds.delete("id BETWEEN 3 AND 11") == {"num_deleted_rows": 9}
    assert ds.delete("id IN (0, 12)") == {"num_deleted_rows": 2}
    assert [(f.fragment_id, f.num_deletions, f.count_rows()) for f in ds.get_fragments()] == [
        (0, 3, 2),
        (2, 3, 2),
        (3, 0, 5),
    ]
    expected = [1, 2, 13, 14, 15, 16, 17, 18, 19]
    assert ids(path) == expected == peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path)
    transaction = ds.read_transaction(2)
    assert transaction is not None
    assert transaction.operation.deleted_fragment_ids == [1]
    assert transaction.operation.predicate == "id BETWEEN 3 AND 11"


def test_many_deleted_rows_are_written_and_read_as_a_bitmap(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    ds = lance.write_dataset(pa.table({"id": pa.array(range(20_000), pa.int64())}), path)
    ds.delete("id % 2 = 0")
    assert [each.suffix for each in Path(path, "_deletions").iterdir()] == [".bin"]
    assert ds.count_rows() == 10_000 == peer("lance.dataset(p).count_rows('id % 2 = 1')", p=path)


def test_no_match_still_makes_a_version(path: str) -> None:
    ds = lance.dataset(path)
    assert ds.delete("id > 100") == {"num_deleted_rows": 0}
    assert ds.delete("false") == {"num_deleted_rows": 0}
    assert (ds.version, ds.count_rows()) == (3, 20)


def test_everything_can_be_deleted_and_the_schema_stays(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    assert ds.delete("true") == {"num_deleted_rows": 20}
    assert ds.get_fragments() == []
    assert ds.to_table().schema == pa.schema([("id", pa.int64())])
    assert peer("lance.dataset(p).count_rows()", p=path) == 0
    ds = lance.write_dataset(pa.table({"id": [7]}), path, mode="append")
    assert [each.fragment_id for each in ds.get_fragments()] == [4]


def test_a_stale_handle_deletes_what_came_after_it(path: str) -> None:
    stale = lance.dataset(path)
    lance.write_dataset(pa.table({"id": [100]}), path, mode="append")
    assert stale.delete("id = 100") == {"num_deleted_rows": 1}
    assert ids(path) == list(range(20))
    old = lance.dataset(path, version=1)
    assert old.delete("id = 100") == {"num_deleted_rows": 0}


def test_an_arrow_expression_deletes_too_and_the_transaction_says_it_in_sql(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    assert ds.delete((pc.field("id") > 3) & (pc.field("id") <= 6)) == {"num_deleted_rows": 3}
    predicate = ds.read_transaction(2).operation.predicate
    assert peer("lance.dataset(p, version=1).count_rows(w)", p=path, w=predicate) == 3
    with pytest.raises(InvalidExpression):
        ds.delete(pc.field("id") + 1)


def test_bad_sql_changes_nothing(path: str) -> None:
    for bad in ("id >", "id", "id + 1", "nope = 3"):
        with pytest.raises((InvalidExpression, ValueError)):
            lance.dataset(path).delete(bad)
    assert lance.dataset(path).version == 1
    assert not Path(path, "_deletions").exists()


def test_a_conflict_on_the_same_rows_is_planned_again_on_the_newest_version(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = row_changes.commit
    races = []

    def raced(store: Any, transaction: Any, **options: Any) -> Any:
        if not races:
            races.append(True)
            lance.dataset(path).delete("id IN (3, 4)")
        return original(store, transaction, **options)

    monkeypatch.setattr(row_changes, "commit", raced)
    done = lance.dataset(path).delete("id IN (4, 5)")
    assert done == {"num_deleted_rows": 1}  # row 4 was gone when the delete came to pass
    assert ids(path) == [i for i in range(20) if i not in (3, 4, 5)]
    left = {each.name for each in Path(path, "_deletions").iterdir()}
    named = {
        Path(each.deletion_file()).name
        for version in (2, 3)
        for each in lance.dataset(path, version=version).get_fragments()
        if each.deletion_file()
    }
    assert left == named  # the lost attempt's file is gone


def test_endless_conflicts_end_with_an_error_that_names_them(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def lost(*args: Any, **options: Any) -> Any:
        attempts.append(True)
        raise RetryableConflict("another delete won")

    monkeypatch.setattr(row_changes, "commit", lost)
    with pytest.raises(TooMuchContention, match="another delete won"):
        lance.dataset(path).delete("id = 1", conflict_retries=2)
    assert len(attempts) == 3
    assert ids(path) == list(range(20))
    assert list(Path(path, "_deletions").iterdir()) == []


def test_a_fragment_deletes_its_own_rows_for_a_later_commit(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    first, second = ds.get_fragments()[:2]
    changed = first.delete("id < 2")
    assert changed is not None
    assert changed.num_deletions == 2
    assert first.delete("true") is None
    by_offset = second.delete_rows([0, 4, 4])
    assert by_offset is not None
    assert by_offset.num_deletions == 2
    operation = lance.LanceOperation.Delete([changed, by_offset], [3], "by hand")
    ds = lance.LanceDataset.commit(path, operation, read_version=1)
    expected = [2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14]
    assert ds.to_table()["id"].to_pylist() == expected
    assert peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path) == expected
