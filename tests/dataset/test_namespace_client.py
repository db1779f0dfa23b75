"""Tables named by a namespace client, and commits through one that manages versions."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.dataset.namespace_client import ManagedStore
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    TableAlreadyExists,
    TiltyardError,
)

T = pa.table({"id": [1, 2, 3]})


class Refused(Exception):
    def __init__(self, code: int | None) -> None:
        super().__init__(f"refused with code {code}")
        self.code = code


class Client:
    """A namespace of one directory, as small as it can be; `refuse` and `publish_first` are its faults."""

    def __init__(self, root: Path, managed: bool = False, vended: dict[str, str] | None = None) -> None:
        self.root = root
        self.managed = managed
        self.vended = vended
        self.calls: list[str] = []
        self.refuse: Exception | None = None
        self.publish_first = False

    def namespace_id(self) -> str:
        return f"Client({self.root})"

    def _answer(self, request: Any) -> Any:
        location = str(self.root / f"{'.'.join(request.id)}.lance")
        managed = True if self.managed else None
        return SimpleNamespace(location=location, storage_options=self.vended, managed_versioning=managed)

    def declare_table(self, request: Any) -> Any:
        self.calls.append("declare_table")
        (self.root / f"{'.'.join(request.id)}.lance").mkdir(parents=True)
        return self._answer(request)

    def describe_table(self, request: Any) -> Any:
        self.calls.append("describe_table")
        return self._answer(request)

    def create_table_version(self, request: Any) -> Any:
        self.calls.append("create_table_version")
        assert isinstance(request, dict)
        assert request.model_dump() == request
        staged = Path("/") / request["manifest_path"]
        final = staged.with_name(staged.name[: staged.name.index(".manifest") + len(".manifest")])
        if self.refuse is None or self.publish_first:
            if final.exists():
                raise Refused(14)
            assert len(staged.read_bytes()) == request["manifest_size"]
            final.write_bytes(staged.read_bytes())
        if self.refuse is not None:
            raise self.refuse
        staged.unlink()


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("_versions/*-*"))


def test_a_table_is_created_opened_and_written_by_its_id(tmp_path: Path) -> None:
    client = Client(tmp_path)
    made = lance.write_dataset(T, namespace_client=client, table_id=["a", "t"])
    assert client.calls == ["declare_table"]
    assert made.uri == str(tmp_path / "a.t.lance")
    lance.write_dataset(T, namespace_client=client, table_id=["a", "t"], mode="append")
    lance.write_dataset(T, namespace_client=client, table_id=["a", "t"], mode="overwrite")
    opened = lance.dataset(namespace_client=client, table_id=["a", "t"], version=2)
    assert client.calls[1:] == ["describe_table"] * 3
    assert (opened.version, opened.count_rows()) == (2, 6)


def test_either_a_place_or_a_client_and_an_id_is_given(tmp_path: Path) -> None:
    client = Client(tmp_path)
    for given in (
        {"namespace_client": client},
        {"table_id": ["t"]},
        {"uri": str(tmp_path), "namespace_client": client, "table_id": ["t"]},
        {"namespace_client": client, "table_id": "t"},
        {"namespace_client": client, "table_id": []},
        {"namespace_client": client, "table_id": [1]},
        {"namespace_client": "dir", "table_id": ["t"]},
        {},
    ):
        with pytest.raises(InvalidInput):
            lance.dataset(**given)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            lance.write_dataset(T, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        lance.LanceDataset(str(tmp_path), namespace_client_managed_versioning=True)
    assert client.calls == []


def test_data_that_is_none_declares_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path)
    for data, named in (
        ("text", {}),
        (7, {}),
        (T, {"data_storage_version": "9.9"}),
        (T, {"mode": "upsert"}),
        (T, {"schema": pa.schema([("other", pa.int64())])}),
    ):
        with pytest.raises(TiltyardError):
            lance.write_dataset(data, namespace_client=client, table_id=["t"], **named)
    assert client.calls == []


def test_options_that_the_store_knows_are_taken_from_the_answer(tmp_path: Path) -> None:
    client = Client(tmp_path, vended={"durable": "false", "region": "x", "expires_at_millis": "7"})
    made = lance.write_dataset(T, namespace_client=client, table_id=["t"], storage_options={"durable": True})
    assert not made._store.durable
    assert not lance.dataset(namespace_client=client, table_id=["t"])._store.durable
    with pytest.raises(InvalidInput, match="region"):
        lance.dataset(namespace_client=client, table_id=["t"], storage_options={"region": "x"})


def test_commits_go_through_a_namespace_that_manages_versions(tmp_path: Path) -> None:
    client = Client(tmp_path, managed=True)
    ds = lance.write_dataset(T, namespace_client=client, table_id=["t"])
    ds.delete("id = 1")
    ds.insert(T)
    ds.update({"id": "id + 10"})
    ds.merge_insert("id").when_not_matched_insert_all().execute(T)
    ds.create_scalar_index("id", "BTREE")
    ds.optimize.compact_files()
    ds.update_config({"k": "v"})
    assert client.calls.count("create_table_version") == len(ds.versions()) == ds.version
    again = lance.dataset(namespace_client=client, table_id=["t"])
    again.restore()
    assert client.calls.count("create_table_version") == again.version == ds.version + 1
    assert leftovers(tmp_path) == []


def test_a_commit_beside_the_namespace_is_met(tmp_path: Path) -> None:
    client = Client(tmp_path, managed=True)
    ds = lance.write_dataset(T, namespace_client=client, table_id=["t"])
    lance.write_dataset(T, ds.uri, mode="append")
    ds.insert(T)
    assert (ds.version, ds.count_rows(), leftovers(tmp_path)) == (3, 9, [])


@pytest.mark.parametrize("code", [0, 4, 13, 15, 21])
def test_what_the_namespace_refuses_leaves_nothing(code: int, tmp_path: Path) -> None:
    client = Client(tmp_path, managed=True)
    ds = lance.write_dataset(T, namespace_client=client, table_id=["t"])
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    client.refuse = Refused(code)
    with pytest.raises(StoreError, match=f"code {code}"):
        ds.delete("id = 1")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == files
    client.refuse = None
    ds.delete("id = 1")
    assert ds.version == 2


def test_a_lost_answer_is_resolved_by_what_stands_there(tmp_path: Path) -> None:
    client = Client(tmp_path, managed=True)
    ds = lance.write_dataset(T, namespace_client=client, table_id=["t"])
    client.refuse, client.publish_first = Refused(17), True
    ds.delete("id = 1")
    assert (ds.version, leftovers(tmp_path)) == (2, [])
    client.publish_first = False
    with pytest.raises(OutcomeUnknown):
        ds.delete("id = 2")
    client.refuse = None
    ds.checkout_latest()
    assert (ds.version, ds.count_rows()) == (2, 2)


def test_of_two_creators_one_wins(tmp_path: Path) -> None:
    client = Client(tmp_path, managed=True)
    ds = lance.write_dataset(T, namespace_client=client, table_id=["t"])
    managed = lance.LanceDataset(
        ds.uri, namespace_client=client, table_id=["t"], namespace_client_managed_versioning=True
    )
    assert isinstance(managed._store, ManagedStore)
    with pytest.raises(TableAlreadyExists):
        lance.write_dataset(T, ds.uri)
    with pytest.raises(SchemaMismatch):
        managed.insert(pa.table({"other": ["x"]}))
    assert leftovers(tmp_path) == []


def test_a_handle_stays_managed_when_it_is_pickled(tmp_path: Path) -> None:
    ds = lance.write_dataset(T, namespace_client=Client(tmp_path, managed=True), table_id=["t"])
    again = pickle.loads(pickle.dumps(ds))
    again.delete("id = 1")
    client, id = again._store.namespace
    assert (client.calls[-1], id) == ("create_table_version", ("t",))
