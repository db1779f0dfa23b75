"""The config key `tiltyard.unique`: kept by every commit of ours, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import CommitConflict, DuplicateKey, InvalidInput, TiltyardError
from tiltyard.format.operations import Append, Overwrite, Update
from tiltyard.lance.fragment import write_fragments
from tiltyard.table import unique
from tiltyard.table.merge import MergeJob
from tiltyard.table.snapshot import open_latest

UNIQUE = {"tiltyard.unique": "id"}


@pytest.fixture
def ds(tmp_path: Path) -> Any:
    made = lance.write_dataset(_rows([1, 2, 3]), str(tmp_path / "t"))
    made.update_config(UNIQUE)
    return made


def _rows(ids: list[int | None], v: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def _ids(ds: Any) -> list[Any]:
    return sorted(lance.dataset(ds.uri).to_table()["id"].to_pylist(), key=repr)


def _operation(ds: Any) -> Any:
    return open_latest(ds._store, ds._session).transaction().operation


def _files(ds: Any) -> set[str]:
    return {str(each) for each in Path(ds.uri).rglob("*") if each.is_file()}


def test_an_append_becomes_an_update_that_records_its_keys(ds: Any, peer: Peer) -> None:
    ds.insert(_rows([4, None, None]))
    operation = _operation(ds)
    assert isinstance(operation, Update)
    assert operation.inserted_rows is not None
    assert operation.inserted_rows.field_ids == (0,)
    assert _ids(ds) == [1, 2, 3, 4, None, None]
    assert peer("lance.dataset(p).count_rows()", p=ds.uri) == 6


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("id = 2", lambda ds: ds.insert(_rows([2, 9]))),
        ("id = 9", lambda ds: ds.insert(_rows([9, 9]))),
        ("id = 9", lambda ds: ds.insert(_rows([9, 9]), mode="overwrite")),
        ("id = 1", lambda ds: ds.update({"id": "1"}, where="id = 2")),
        ("id = 5", lambda ds: ds.update({"id": "5"})),
        (
            "id = 1",
            lambda ds: ds.merge_insert("v").when_not_matched_insert_all().execute(_rows([1], v=77)),
        ),
        (
            "id = 2",
            lambda ds: (
                ds.merge_insert("id").when_matched_update({"id": "CAST(2 AS BIGINT)"}).execute(_rows([1]))
            ),
        ),
    ],
)
def test_a_commit_that_would_have_a_key_twice_is_refused_and_leaves_no_file(
    ds: Any, name: str, act: Callable[[Any], Any]
) -> None:
    before = _files(ds)
    with pytest.raises(DuplicateKey, match=f"{name}"):
        act(ds)
    assert _files(ds) == before
    assert _ids(ds) == [1, 2, 3]


def test_fragments_that_a_caller_wrote_are_checked_too(ds: Any) -> None:
    append = lance.LanceOperation.Append(write_fragments(_rows([3]), ds.uri))
    with pytest.raises(DuplicateKey, match="id = 3"):
        lance.LanceDataset.commit(ds.uri, append, read_version=ds.version)
    good = lance.LanceOperation.Append(write_fragments(_rows([8]), ds.uri))
    lance.LanceDataset.commit(ds.uri, good, read_version=ds.version)
    assert _ids(ds) == [1, 2, 3, 8]


def test_changes_that_leave_the_key_alone_pass(ds: Any) -> None:
    ds.update({"v": "v + 1"})
    ds.merge_insert("id").when_matched_update_all().execute(_rows([1, 2], v=9))
    ds.delete("id = 3")
    ds.insert(_rows([3]))
    ds.insert(_rows([3, 4]), mode="overwrite")
    assert isinstance(_operation(ds), Overwrite)
    assert _ids(ds) == [3, 4]
    assert ds.config()["tiltyard.unique"] == "id" if hasattr(ds, "config") else True


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.int16(), pa.date32()])
def test_of_two_appends_of_one_key_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    def rows(values: list[int]) -> pa.Table:
        return pa.table({"id": pa.array([str(v) for v in values] if kind == pa.string() else values, kind)})

    ds = lance.write_dataset(rows([1]), str(tmp_path / "t"))
    ds.update_config(UNIQUE)
    check, waiting = unique.checked, [True]

    def late(*arguments: Any) -> Any:
        kept = check(*arguments)
        if waiting and isinstance(arguments[1].operation, Append):
            waiting.pop()
            lance.dataset(ds.uri, session=lance.Session()).insert(rows([7]))
        return kept

    monkeypatch.setattr("tiltyard.table.commit.checked", late)
    with pytest.raises(DuplicateKey):
        ds.insert(rows([7, 8]))
    assert lance.dataset(ds.uri).count_rows() == 2


def test_the_unique_key_is_what_merges_match_on_where_no_primary_key_is(ds: Any) -> None:
    merge = ds.merge_insert().when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute(_rows([3, 4], v=9))["num_updated_rows"] == 1
    assert _ids(ds) == [1, 2, 3, 4]


def test_an_append_and_an_upsert_of_one_key_leave_one_row(ds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write, waiting = MergeJob.write, [True]

    def late(self: MergeJob, changes: Any, planned: Any) -> Any:
        operation = write(self, changes, planned)
        if waiting:
            waiting.pop()
            lance.dataset(ds.uri).insert(_rows([7], v=1))
        return operation

    monkeypatch.setattr(MergeJob, "write", late)
    upsert = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    assert upsert.execute(_rows([7], v=2))["num_updated_rows"] == 1
    assert _ids(ds) == [1, 2, 3, 7]


def test_a_key_that_is_declared_while_an_append_is_under_way_makes_it_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lance.write_dataset(_rows([1]), str(tmp_path / "t"))
    write = lance.dataset(ds.uri)
    from tiltyard.dataset import write as writing

    commit, waiting = writing.commit_append, [True]

    def late(*arguments: Any, **more: Any) -> Any:
        if waiting:
            waiting.pop()
            lance.dataset(ds.uri).update_config(UNIQUE)
        return commit(*arguments, **more)

    monkeypatch.setattr(writing, "commit_append", late)
    with pytest.raises(DuplicateKey, match="id = 1"):
        write.insert(_rows([1]))
    assert _ids(ds) == [1]


@pytest.mark.parametrize(
    "act",
    [
        lambda ds: ds.insert(_rows([1])),
        lambda ds: ds.update({"id": "7"}),
        lambda ds: lance.write_dataset(_rows([5, 5]), ds.uri, mode="overwrite"),
        lambda ds: ds.commit(
            ds.uri, lance.LanceOperation.Project(pa.schema([ds.schema.field("v")])), read_version=ds.version
        ),
    ],
    ids=["append", "update", "overwrite", "project"],
)
def test_what_comes_in_while_a_key_is_declared_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], Any]
) -> None:
    ds = lance.write_dataset(_rows([1, 2]), str(tmp_path / "t"))
    _just_before_the_first(monkeypatch, "UpdateConfig", lambda: act(lance.dataset(ds.uri)))
    with pytest.raises(InvalidInput):
        ds.update_config(UNIQUE)
    assert lance.dataset(ds.uri).version == 2
    assert not open_latest(ds._store, ds._session).manifest.config


def test_a_column_that_becomes_the_key_meanwhile_does_not_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lance.write_dataset(_rows([1, 2]), str(tmp_path / "t"))
    _just_before_the_first(monkeypatch, "Project", lambda: lance.dataset(ds.uri).update_config(UNIQUE))
    without = lance.LanceOperation.Project(pa.schema([ds.schema.field("v")]))
    with pytest.raises(CommitConflict, match="was set while"):
        ds.commit(ds.uri, without, read_version=1)
    assert _ids(ds) == [1, 2]


def _just_before_the_first(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Any]) -> None:
    """Do something between the plan and the first round of the first commit of this kind."""
    from tiltyard.table import commit as committing

    run, waiting = committing._Commit.run, [True]

    def late(attempt: Any, *arguments: Any) -> Any:
        if waiting and attempt.transaction.name == name:
            waiting.pop()
            act()
        return run(attempt, *arguments)

    monkeypatch.setattr(committing._Commit, "run", late)


@pytest.mark.parametrize("value", ["", "id,", "nothing", "v,nothing"])
def test_a_value_that_names_no_columns_is_refused(ds: Any, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"tiltyard\.unique"):
        ds.update_config({"tiltyard.unique": value})


def test_a_key_that_is_not_unique_cannot_be_declared(ds: Any) -> None:
    with pytest.raises(DuplicateKey, match=r"v = 0.*dedupe"):
        ds.update_config({"tiltyard.unique": "v"})
    ds.update_config({"tiltyard.unique": "id, v"})
    ds.insert(_rows([1], v=5))
    with pytest.raises(DuplicateKey, match="id = 1, v = 5"):
        ds.insert(_rows([1], v=5))
    ds.delete_config_keys(["tiltyard.unique"])
    ds.insert(_rows([1], v=5))


def test_what_another_writer_broke_is_named_and_mended(ds: Any, peer: Peer) -> None:
    peer("lance.write_dataset(rows, p, mode='append')", p=ds.uri, rows=_rows([2, 3, 9], v=7))
    upsert = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(DuplicateKey, match=r"id = 2 stands in more than one row.*dedupe"):
        upsert.execute(_rows([2]))
    assert upsert.execute(_rows([1, 9], v=8))["num_updated_rows"] == 2
    ds.checkout_latest()
    assert ds.duplicate_keys() == {"num_keys": 2, "num_rows": 4, "example": "id = 2"}
    assert ds.dedupe() == {"num_deleted_rows": 2, "num_keys": 2}
    rows = {row["id"]: row["v"] for row in ds.to_table().to_pylist()}
    assert rows == {1: 8, 2: 7, 3: 7, 9: 8}
    assert peer("lance.dataset(p).count_rows()", p=ds.uri) == 4
    assert ds.dedupe() == {"num_deleted_rows": 0, "num_keys": 0}
    upsert.execute(_rows([2]))


def test_a_merge_of_the_official_writer_is_planned_around(ds: Any, peer: Peer) -> None:
    text = "lance.dataset(p).merge_insert('id').when_not_matched_insert_all().execute(rows)"
    peer(text, p=ds.uri, rows=_rows([3, 4]))
    with pytest.raises(TiltyardError):
        ds.insert(_rows([4]))
    assert _ids(ds) == [1, 2, 3, 4]
