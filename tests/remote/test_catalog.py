"""A catalog in a bucket: by us and by the official package, one after the other and in races."""

from __future__ import annotations

import time
from collections import Counter

import pyarrow as pa
import pytest

import tiltyard as ty
from peer import Peer
from s3_server import Rule, S3Server
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.trash import drop_table, undrop_table
from workers import Crew, Worker

OURS = """
import pyarrow as pa
from tiltyard import errors
from tiltyard.catalog import open_catalog
from tiltyard.catalog.tables import create_table
catalog = open_catalog(root, properties=properties)
def create(id):
    try:
        create_table(catalog, id, pa.table({"by": [me]}), mode="create")
    except errors.TableAlreadyExists:
        return "exists"
    return "ok"
"""

PEER = """
import io
import pyarrow as pa
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
catalog = DirectoryNamespace(root=root, **properties)
sink = io.BytesIO()
with pa.ipc.new_stream(sink, pa.schema([("by", pa.int64())])) as stream:
    stream.write_table(pa.table({"by": [me]}))
def create(id):
    try:
        catalog.create_table(ln.CreateTableRequest(id=list(id), mode="create"), sink.getvalue())
    except Exception:  # it calls a lost race by several names
        return "exists"
    return "ok"
"""

RACE = """
import time
result = []
for number, id in enumerate(ids):
    while time.time() < start + 0.4 * number: time.sleep(0.001)
    result.append(create(id))
"""

LIST = """
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
catalog = DirectoryNamespace(root=root, **properties)
result = sorted(catalog.list_tables(ln.ListTablesRequest(id=id, page_token=None, limit=100)).tables)
"""


def _properties(s3: S3Server) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in s3.options().items()}


@pytest.fixture
def catalog(s3: S3Server, bucket: str) -> Catalog:
    made = open_catalog(f"s3://{bucket}/lake", properties=_properties(s3))
    create_namespace(made, ("ns",))
    return made


def _race(workers: list[Worker], sources: list[str], **variables: object) -> list[list[str]]:
    start = time.time() + 1.0
    for me, (worker, source) in enumerate(zip(workers, sources, strict=True)):
        worker.begin(source + RACE, me=me, start=start, **variables)
    return [worker.answer() for worker in workers]


@pytest.mark.parametrize("namespace", [(), ("ns",)], ids=["root", "child"])
def test_of_all_who_create_one_table_one_does(
    namespace: tuple[str, ...], catalog: Catalog, s3: S3Server, peer: Peer, crew: Crew
) -> None:
    ids = [(*namespace, f"t{number}") for number in range(2)]
    workers, sources = crew.ours(2) + crew.peers(1), [OURS, OURS, PEER]
    where = {"root": catalog.store.uri, "properties": _properties(s3)}
    with s3.breaking(Rule("delay", times=1 << 30, seconds=0.003)):
        answers = _race(workers, sources, ids=ids, **where)
    for told in zip(*answers, strict=True):
        assert Counter(told) == {"ok": 1, "exists": 2}, answers
    names = sorted(id[-1] for id in ids)
    assert sorted(list_tables(catalog, namespace).names) == names
    assert peer(LIST, id=list(namespace), **where) == names
    for number, told in enumerate(zip(*answers, strict=True)):
        found = ty.connect(catalog.store.uri, storage_options=s3.options())[".".join(ids[number])]
        assert found.scan().to_arrow()["by"].to_pylist() == [told.index("ok")]


def test_tables_are_renamed_dropped_and_brought_back(catalog: Catalog, s3: S3Server, peer: Peer) -> None:
    lake = ty.connect(catalog.store.uri, storage_options=s3.options())
    where = {"root": catalog.store.uri, "properties": _properties(s3)}
    for name in ("a", "ns.b"):
        lake.create_table(name, pa.table({"x": [1]}))
    rename_table(catalog, ("ns", "b"), ("ns", "c"))
    assert peer(LIST, id=["ns"], **where) == ["c"]
    drop_table(catalog, ("a",))
    drop_table(catalog, ("ns", "c"))
    assert lake.tables() == []
    assert peer(LIST, id=["ns"], **where) == []
    undrop_table(catalog, ("ns", "c"))
    undrop_table(catalog, ("a",))
    assert sorted(lake.tables()) == ["a", "ns.c"]
    assert lake["ns.c"].scan().to_arrow()["x"].to_pylist() == [1]
    assert lake["a"].scan().to_arrow()["x"].to_pylist() == [1]


def test_a_lost_answer_makes_neither_two_tables_nor_none(catalog: Catalog, s3: S3Server) -> None:
    lake = ty.connect(catalog.store.uri, storage_options=s3.options(client_max_retries=3))
    for number, key in enumerate(
        (r"__manifest/_versions/", r"__manifest/data/", r"t\d.*_versions/", r"data/")
    ):
        for what in ("lose", "drop", "done-status"):
            name = f"ns.t{number}-{what}"
            with s3.breaking(Rule(what, "PUT", key)):
                lake.create_table(name, pa.table({"x": [number]}))
            assert lake[name].scan().to_arrow()["x"].to_pylist() == [number]
    assert len(lake.tables()) == 12
