"""Versions of a dataset: checkout, tags, times, restore, transactions, freshness (cases O16, T07, T08)."""

from __future__ import annotations

import pickle
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    InvalidInput,
    InvalidUri,
    RetryableConflict,
    TableNotFound,
    TagNotFound,
    UnsupportedFeature,
    VersionNotFound,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    for number in range(3):
        append(path, number)
    return path


def append(path: str, number: int) -> None:
    lance.write_dataset(pa.table({"id": [number]}), path, mode="append")


def ids(ds: lance.LanceDataset) -> list[int]:
    found: list[int] = ds.to_table()["id"].to_pylist()
    return found


def test_every_version_stays_readable_and_a_handle_stays_at_its_own(path: str) -> None:
    ds = lance.dataset(path)
    old = ds.checkout_version(1)
    assert (ids(old), ids(ds), ids(lance.dataset(path, version=2))) == ([0], [0, 1, 2], [0, 1])
    assert (old.version, old.latest_version, ds.version) == (1, 3, 3)
    assert ids(ds.checkout_version((None, 2))) == [0, 1]
    old.checkout_latest()
    assert ids(old) == [0, 1, 2]


def test_versions_are_listed_as_the_official_package_lists_them(path: str, peer: Peer) -> None:
    lance.dataset(path).delete("id = 1")
    theirs = peer("lance.dataset(p).versions()", p=path)
    ours = lance.dataset(path).versions()
    for one, other in zip(ours, theirs, strict=True):
        # theirs went through a float, which has no room for every microsecond
        assert abs(one.pop("timestamp") - other.pop("timestamp")) <= timedelta(microseconds=1)
    assert ours == theirs
    assert lance.dataset(path).version_refs() == [{"version": i} for i in (1, 2, 3, 4)]
    assert lance.dataset(path).get_version() == lance.dataset(path).versions()[-1]


def test_tags_are_read(path: str, peer: Peer) -> None:
    peer("lance.dataset(p).tags.create('gold', 2)\nlance.dataset(p).tags.create('base', 1)", p=path)
    ds = lance.dataset(path, version="gold")
    assert (ds.version, ids(ds)) == (2, [0, 1])
    assert ids(ds.checkout_version("base")) == [0]
    assert ds.tags.get_version("gold") == 2
    assert ds.tags.list() == peer("dict(lance.dataset(p).tags.list())", p=path)
    assert [name for name, _ in ds.tags.list_ordered()] == ["gold", "base"]
    with pytest.raises(TagNotFound, match=r"base.*gold"):
        ds.checkout_version("silver")


def test_a_time_picks_the_newest_version_that_is_no_younger(path: str) -> None:
    times = [each["timestamp"] for each in lance.dataset(path).versions()]
    assert lance.dataset(path, asof=times[1]).version == 2
    assert lance.dataset(path, asof=times[1].isoformat()).version == 2
    assert lance.dataset(path, asof=datetime.now() + timedelta(days=1)).version == 3
    with pytest.raises(VersionNotFound):
        lance.dataset(path, asof="2001-01-01")
    with pytest.raises(InvalidInput):
        lance.dataset(path, asof="yesterday")


@pytest.mark.parametrize("version", ["x/../y", -1, 0, 99, 2.5, True, None])
def test_versions_that_are_none_are_refused(version: object, path: str) -> None:
    ds = lance.dataset(path)
    with pytest.raises((VersionNotFound, TagNotFound, InvalidInput)):
        ds.checkout_version(version)


@pytest.mark.parametrize("uri", ["", None, 3, "foo://bar/x"])
def test_places_that_are_none_are_refused(uri: object) -> None:
    with pytest.raises((InvalidUri, UnsupportedFeature)):
        lance.dataset(uri)


def test_a_place_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=r"nope\.lance"):
        lance.dataset(tmp_path / "nope.lance")


def test_restore_makes_a_new_version_and_names_those_left_behind(path: str, peer: Peer) -> None:
    old = lance.dataset(path).checkout_version(1)
    assert old.restore() == {"version": 4, "restored_version": 1, "superseded_versions": [2, 3]}
    assert (old.version, ids(old)) == (4, [0])
    assert peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path) == [0]
    assert isinstance(old.read_transaction(4).operation, lance.LanceOperation.Restore)


def test_o16_a_restore_names_the_versions_that_it_leaves_behind_also_those_not_seen(path: str) -> None:
    stale, old = lance.dataset(path), lance.dataset(path).checkout_version(1)
    append(path, 3)
    assert stale.restore()["superseded_versions"] == [4]
    assert ids(lance.dataset(path)) == [0, 1, 2]
    assert old.restore() == {"version": 6, "restored_version": 1, "superseded_versions": [2, 3, 4, 5]}
    assert ids(lance.dataset(path, version=4)) == [0, 1, 2, 3]  # left behind, not lost


def test_o16_a_restore_that_expects_another_latest_version_is_a_conflict(path: str) -> None:
    old = lance.dataset(path, version=1)
    append(path, 3)
    with pytest.raises(RetryableConflict, match=r"expected to be 3 .version 4 committed since., but is 4"):
        old.restore(expected_latest=3)
    with pytest.raises(RetryableConflict, match=r"expected to be 9 .which does not exist., but is 4"):
        old.restore(expected_latest=9)
    assert lance.dataset(path).version == 4
    assert old.restore(expected_latest=4)["superseded_versions"] == [2, 3, 4]


def test_transactions_are_read_back(path: str, peer: Peer) -> None:
    lance.write_dataset(
        pa.table({"id": [9]}), path, mode="append", commit_message="nine", transaction_properties={"by": "me"}
    )
    ds = lance.dataset(path)
    transaction = ds.read_transaction(4)
    assert transaction is not None
    assert transaction.transaction_properties == {"by": "me", "__lance_commit_message": "nine"}
    assert isinstance(transaction.operation, lance.LanceOperation.Append)
    assert transaction.read_version == 3
    kinds = [type(each.operation).__name__ for each in ds.get_transactions() if each is not None]
    assert kinds == ["Append", "Append", "Append", "Overwrite"]
    assert peer("lance.dataset(p).read_transaction(4).uuid", p=path) == transaction.uuid
    with pytest.raises(VersionNotFound):
        ds.read_transaction(77)


def test_freshness_decides_when_a_handle_looks_for_a_newer_version(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltyard.dataset import handle as handle_module

    clock = [1000.0]
    monkeypatch.setattr(handle_module.runtime, "monotonic", lambda: clock[0])
    fixed, always = lance.dataset(path), lance.dataset(path, freshness="latest")
    patient = lance.dataset(path, freshness=timedelta(seconds=30))
    append(path, 3)
    assert (fixed.count_rows(), always.count_rows(), patient.count_rows()) == (3, 4, 3)
    clock[0] += 31
    assert (fixed.count_rows(), patient.count_rows(), patient.take([3])["id"].to_pylist()) == (3, 4, [3])
    for wrong in (-1, "sometimes", True, object()):
        with pytest.raises(InvalidInput, match="freshness"):
            lance.dataset(path, freshness=wrong)
    with pytest.raises(InvalidInput, match="freshness"):
        lance.dataset(path, version=1, freshness=3)


def test_handles_are_pickled_with_their_version_and_settings(path: str) -> None:
    old = lance.dataset(path, default_scan_options={"with_row_id": True}).checkout_version(2)
    append(path, 3)
    again = pickle.loads(pickle.dumps(old))
    assert (again.version, ids(again), again.to_table().column_names) == (2, [0, 1], ["id", "_rowid"])
    following = pickle.loads(pickle.dumps(lance.dataset(path, freshness="latest")))
    append(path, 4)
    assert following.count_rows() == 5
    fragment = pickle.loads(pickle.dumps(old.get_fragments()[1]))
    assert fragment.to_table()["id"].to_pylist() == [1]
    metadata = old.get_fragments()[0].metadata
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    scanner = old.scanner(filter="id = 1", columns=["id"])
    assert scanner.to_table()["id"].to_pylist() == [1]


def test_one_handle_serves_many_threads(path: str) -> None:
    ds = lance.dataset(path, freshness="latest")
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                found = ids(ds)
                assert found == list(range(len(found)))
                assert ds.take([2, 0])["id"].to_pylist() == [2, 0]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for number in range(3, 8):
        append(path, number)
    for each in threads:
        each.join()
    assert not failures
    assert ds.count_rows() == 8


def test_settings_are_changed_one_commit_at_a_time(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    assert ds.update_config({"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    assert ds.update_config({"a": None}) == {"b": "2"} == ds.config()
    ds.delete_config_keys(["b"])
    assert ds.config() == {}
    assert ds.update_metadata({"owner": "me"}) == {"owner": "me"} == ds.metadata
    assert ds.update_schema_metadata({"k": "v"}) == {"k": "v"} == ds.schema_metadata
    ds.replace_schema_metadata({"q": "w"})
    ds.update_field_metadata({"id": {"unit": "m"}})
    assert ds.schema.metadata == {b"q": b"w"}
    assert ds.schema.field("id").metadata == {b"unit": b"m"}
    assert ds.version == 10
    theirs = peer(
        "(lambda d: (d.config(), d.metadata, d.schema.metadata, "
        "d.schema.field('id').metadata))(lance.dataset(p))",
        p=path,
    )
    assert theirs == ({}, {"owner": "me"}, {b"q": b"w"}, {b"unit": b"m"})


def test_dropping_removes_a_table_and_nothing_else(tmp_path: Path, path: str) -> None:
    (tmp_path / "beside").write_text("kept")
    lance.LanceDataset.drop(path)
    assert [each.name for each in tmp_path.iterdir()] == ["beside"]
    with pytest.raises(TableNotFound):
        lance.LanceDataset.drop(path)
    lance.LanceDataset.drop(path, ignore_not_found=True)
    (tmp_path / "plain").mkdir()
    with pytest.raises(TableNotFound):
        lance.LanceDataset.drop(tmp_path / "plain")
    assert (tmp_path / "plain").exists()
