"""A catalog in a bucket: by us and by the official package, one after the other."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tiltyard as ty
from peer import Peer
from s3_server import Rule, S3Server
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.trash import drop_table, undrop_table

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
