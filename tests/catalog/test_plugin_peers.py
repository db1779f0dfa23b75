"""The plug-in inside lancedb and pylance, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tiltyard
from peer import Peer
from tiltyard.catalog.catalog import open_catalog
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.operations.opening import opened

SOURCE = str(Path(tiltyard.__file__).parent.parent)
CLASS = "tiltyard.lance.namespace.DirectoryNamespace"

BEGIN = """
import json, sys
import pyarrow as pa
root, properties = sys.argv[1], json.loads(sys.argv[2])
properties["root"] = root
vectors = pa.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], pa.list_(pa.float32(), 2))
rows = pa.table({"id": [1, 2, 3], "vector": vectors})
said = {}
def failing(call, *given, **named):
    try:
        call(*given, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing failed"
"""
END = """
print(json.dumps(said))
"""


def ran(program: str, root: Path, **properties: str) -> dict[str, Any]:
    """What a program in a fresh process says; `program` fills the dict `said`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGIN + program + END, str(root), json.dumps(properties)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin", "LANCE_LOG": "error"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


LANCEDB = """
import lancedb
db = lancedb.connect_namespace("tiltyard.lance.namespace.DirectoryNamespace", properties)
db.create_namespace(["ops"])
db.create_namespace(["ops"], mode="exist_ok")
said["namespace twice"] = failing(db.create_namespace, ["ops"])
table = db.create_table("t", rows, namespace_path=["ops"])
table.add(rows)
said["rows"] = table.count_rows()
said["table twice"] = failing(db.create_table, "t", rows, namespace_path=["ops"])
db.create_table("t", rows, namespace_path=["ops"], exist_ok=True)
db.create_table("t", rows, namespace_path=["ops"], mode="overwrite")
said["rows after overwrite"] = db.open_table("t", namespace_path=["ops"]).count_rows()
db.create_table("empty", schema=rows.schema, namespace_path=["ops"])
root_table = db.create_table("flights", rows)
root_table.add(rows)
root_table.delete("id = 1")
root_table.update(where="id = 2", values={"id": 20})
root_table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
root_table.create_scalar_index("id")
root_table.optimize()
said["nearest"] = [row["id"] for row in root_table.search([1.0, 0.0]).limit(1).to_list()]
said["version"] = root_table.version
said["missing"] = failing(db.open_table, "nope")
said["missing drop"] = failing(db.drop_table, "nope")
said["full"] = failing(db.drop_namespace, ["ops"])
db.rename_table("t", "u", cur_namespace_path=["ops"])
db.rename_table("flights", "trips")
said["renamed"] = [sorted(db.list_tables(["ops"]).tables), db.list_tables().tables]
renamed = db.open_table("u", namespace_path=["ops"]), db.open_table("trips")
said["renamed rows"] = [each.count_rows() for each in renamed]
db.drop_table("empty", namespace_path=["ops"])
said["namespaces"] = db.list_namespaces().namespaces
said["client"] = type(db.namespace_client()).__module__
said["old name"] = failing(db.open_table, "flights").partition(":")[0]
"""


PUSHED_DOWN = """
import lancedb
given = properties | {"ops_metrics_enabled": "true"}
db = lancedb.connect_namespace(
    "tiltyard.lance.namespace.DirectoryNamespace", given, namespace_client_pushdown_operations=["QueryTable"]
)
table = db.create_table("t", rows)
said["rows"] = table.search().where("id > 1").select(["id"]).limit(5).to_arrow().to_pydict()
said["queries"] = db.namespace_client().retrieve_ops_metrics().get("query_table", 0)
"""


def test_queries_that_lancedb_hands_over_are_answered(tmp_path: Path) -> None:
    assert ran(PUSHED_DOWN, tmp_path) == {"rows": {"id": [2, 3]}, "queries": 1}


@pytest.mark.parametrize("managed", ["false", "true"])
def test_lancedb_works_on_our_catalog(managed: str, tmp_path: Path) -> None:
    said = ran(LANCEDB, tmp_path, table_version_tracking_enabled=managed)
    assert said["rows"] == 6
    assert said["rows after overwrite"] == 3
    assert said["nearest"] == [1]
    assert said["version"] == 8
    assert "Namespace already exists: 'ops'" in said["namespace twice"]
    assert "Table already exists: " in said["table twice"]
    assert said["missing"].startswith("TableNotFoundError: Table not found: nope")
    assert "Table not found: " in said["missing drop"]
    assert said["full"].startswith("NamespaceNotEmptyError")
    assert said["renamed"] == [["empty", "u"], ["trips"]]
    assert said["renamed rows"] == [3, 6]
    assert said["namespaces"] == ["ops"]
    assert said["client"] == "tiltyard.catalog.plugin.directory"
    assert said["old name"] == "TableNotFoundError"
    catalog = open_catalog(tmp_path)
    assert list(list_tables(catalog, ("ops",)).names) == ["u"]
    assert opened(catalog, ("trips",)).version == 8


PYLANCE = """
import lance, lance_namespace
from datetime import timedelta
ours = lance_namespace.connect("tiltyard.lance.namespace.DirectoryNamespace", properties)
ours.create_namespace({"id": ["ops"]})
for id in (["ops", "t"], ["r"]):
    where = {"namespace_client": ours, "table_id": id}
    lance.write_dataset(rows, **where)
    said["twice"] = failing(lance.write_dataset, rows, **where)
    lance.write_dataset(rows, **where, mode="append")
    other = {"namespace_client": ours, "table_id": ["no"]}
    said["missing"] = failing(lance.write_dataset, rows, **other, mode="append")
    ds = lance.dataset(**where)
    ds.delete("id = 1")
    ds.insert(rows)
    ds.merge_insert("id").when_not_matched_insert_all().execute(rows)
    ds.create_scalar_index("id", "BTREE")
    ds.optimize.compact_files()
    ds.tags.create("gold", 2)
    ds.checkout_version(2).restore()
    said["old"] = lance.dataset(**where, version=3).count_rows()
    said["new"] = lance.dataset(**where).count_rows()
    said["version"] = lance.dataset(**where).version
said["commits"] = ours.retrieve_ops_metrics().get("create_table_version", 0)
"""


@pytest.mark.parametrize("managed", ["false", "true"])
def test_pylance_reads_and_writes_by_our_ids(managed: str, tmp_path: Path) -> None:
    said = ran(PYLANCE, tmp_path, table_version_tracking_enabled=managed, ops_metrics_enabled="true")
    assert said["twice"].startswith("TableAlreadyExists: Table already exists: ")
    assert said["missing"].startswith("TableNotFound: Table not found: ")
    assert (said["old"], said["new"]) == (4, 6)
    catalog = open_catalog(tmp_path)
    for id in (("ops", "t"), ("r",)):
        found = opened(catalog, id)
        assert (found.version, found.count_rows()) == (said["version"], 6)
    if managed == "true":
        assert said["commits"] > 2 * 6
        assert [path.name for path in tmp_path.rglob("_versions/*manifest-*")] == []
    else:
        assert said["commits"] == 0


OFFICIAL = """
import lance.namespace
import lance_namespace as models
import tiltyard.lance
official = lance.namespace.DirectoryNamespace(**properties)
official.create_namespace(models.CreateNamespaceRequest(id=["ops"]))
where = {"namespace_client": official, "table_id": ["ops", "t"]}
made = tiltyard.lance.write_dataset(rows, **where)
said["twice"] = failing(tiltyard.lance.write_dataset, rows, **where)
made.delete("id = 1")
made.insert(rows)
lance.write_dataset(rows, **where, mode="append")
made.update({"id": "id + 10"})
again = tiltyard.lance.dataset(**where)
said["table"] = [again.version, again.count_rows(), lance.dataset(**where).count_rows()]
said["published"] = official.retrieve_ops_metrics().get("create_table_version", 0)
"""


@pytest.mark.parametrize("managed", ["false", "true"])
def test_our_datasets_work_with_the_official_catalog(managed: str, tmp_path: Path) -> None:
    said = ran(OFFICIAL, tmp_path, table_version_tracking_enabled=managed, ops_metrics_enabled="true")
    assert said["table"] == [5, 8, 8]
    assert said["twice"].startswith("TableAlreadyExistsError: ")
    assert said["published"] == (5 if managed == "true" else 0)
    assert [path.name for path in tmp_path.rglob("_versions/*manifest-*")] == []


def test_answers_are_those_of_the_official_catalog_on_the_same_root(tmp_path: Path, peer: Peer) -> None:
    ours = ran(
        """
import lance_namespace
client = lance_namespace.connect("tiltyard.lance.namespace.DirectoryNamespace", properties)
sink = pa.BufferOutputStream()
with pa.ipc.new_stream(sink, rows.schema) as writer:
    writer.write_table(rows)
data = sink.getvalue().to_pybytes()
client.create_namespace({"id": ["a"], "properties": {"k": "v"}})
client.create_table({"id": ["a", "t"], "properties": {"p": "q"}}, data)
client.declare_table({"id": ["a", "d"]})
client.create_table({"id": ["r"]}, data)
client.insert_into_table({"id": ["a", "t"]}, data)
client.create_table_tag({"id": ["a", "t"], "tag": "gold", "version": 1})
client.create_table_scalar_index({"id": ["a", "t"], "column": "id", "index_type": "BTREE"})
"""
        + ASKED,
        tmp_path,
    )
    theirs = peer(
        "import json, lance.namespace\nclient = lance.namespace.DirectoryNamespace(root=root)\nsaid = {}\n"
        + ASKED
        + "\nresult = json.loads(json.dumps(said))",
        root=str(tmp_path),
    )
    assert ours == theirs


ASKED = """
import lance_namespace as models
id = ["a", "t"]
def dumped(answer):
    found = answer.to_dict()
    found.pop("context", None)
    return found
said["namespace"] = dumped(client.describe_namespace(models.DescribeNamespaceRequest(id=["a"])))
said["namespaces"] = dumped(client.list_namespaces(models.ListNamespacesRequest(id=[])))
said["tables"] = dumped(client.list_tables(models.ListTablesRequest(id=["a"])))
said["page"] = dumped(client.list_tables(models.ListTablesRequest(id=["a"], limit=1)))
said["next"] = dumped(client.list_tables(models.ListTablesRequest(id=["a"], limit=1, page_token="d")))
said["root"] = dumped(client.list_tables(models.ListTablesRequest(id=[])))
said["written"] = dumped(client.list_tables(models.ListTablesRequest(id=["a"], include_declared=False)))
said["table"] = dumped(client.describe_table(models.DescribeTableRequest(id=id)))
detailed = dumped(client.describe_table(models.DescribeTableRequest(id=id, load_detailed_metadata=True)))
detailed.pop("metadata", None)
said["detailed"] = detailed
root = dumped(client.describe_table(models.DescribeTableRequest(id=["r"], load_detailed_metadata=True)))
root["location"] = root["table_uri"] = root["location"].removeprefix("file://")
said["root table"] = root
declared = models.DescribeTableRequest(id=["a", "d"], check_declared=True)
said["declared"] = dumped(client.describe_table(declared))
said["count"] = client.count_table_rows(models.CountTableRowsRequest(id=id, predicate="id > 1")).count
tags = dumped(client.list_table_tags(models.ListTableTagsRequest(id=id)))
said["tags"] = {name: tag["version"] for name, tag in tags["tags"].items()}
said["versions"] = [
    [each.version, each.manifest_path, each.manifest_size]
    for each in client.list_table_versions(models.ListTableVersionsRequest(id=id)).versions
]
index = dumped(client.list_table_indices(models.ListTableIndicesRequest(id=id)))["indexes"][0]
said["index"] = {key: index[key] for key in ("index_name", "index_uuid", "columns", "status", "index_type",
    "type_url", "num_indexed_rows", "num_unindexed_rows", "size_bytes", "num_segments")}
asked = models.DescribeTableIndexStatsRequest(id=id, index_name="id_idx")
said["index stats"] = dumped(client.describe_table_index_stats(asked))
said["stats"] = dumped(client.get_table_stats(models.GetTableStatsRequest(id=id)))
said["transaction"] = dumped(client.describe_transaction(models.DescribeTransactionRequest(id=[*id, "2"])))
codes = {}
for name, call in {
    "table": lambda: client.describe_table(models.DescribeTableRequest(id=["a", "no"])),
    "exists": lambda: client.table_exists(models.TableExistsRequest(id=["no"])),
    "namespace": lambda: client.describe_namespace(models.DescribeNamespaceRequest(id=["no"])),
    "full": lambda: client.drop_namespace(models.DropNamespaceRequest(id=["a"])),
    "again": lambda: client.create_namespace(models.CreateNamespaceRequest(id=["a"])),
    "declare": lambda: client.declare_table(models.DeclareTableRequest(id=id)),
    "version": lambda: client.count_table_rows(models.CountTableRowsRequest(id=id, version=99)),
    "tag": lambda: client.get_table_tag_version(models.GetTableTagVersionRequest(id=id, tag="no")),
    "index": lambda: client.describe_table_index_stats(
        models.DescribeTableIndexStatsRequest(id=id, index_name="no")),
    "declared": lambda: client.count_table_rows(models.CountTableRowsRequest(id=["a", "d"])),
    "empty id": lambda: client.describe_table(models.DescribeTableRequest(id=[])),
    "root": lambda: client.drop_namespace(models.DropNamespaceRequest(id=[])),
    "transaction": lambda: client.describe_transaction(models.DescribeTransactionRequest(id=[*id, "99"])),
    "location": lambda: client.register_table(models.RegisterTableRequest(id=["a", "x"], location="/x")),
}.items():
    try:
        call()
        codes[name] = None
    except models.LanceNamespaceError as error:
        codes[name] = [int(error.code), str(error).partition(":")[0]]
said["codes"] = codes
"""
