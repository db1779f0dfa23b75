"""Real processes that commit through a catalog that manages versions: ours, pylance's, and some beside it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.catalog.plugin import DirectoryNamespace
from workers import Crew, together

ROUNDS = 6

APPENDS = """
import lance_namespace
properties = {"root": root, "table_version_tracking_enabled": managed[me]}
client = lance_namespace.connect("tiltyard.lance.namespace.DirectoryNamespace", properties)
versions = []
for step in range(rounds):
    rows = pa.table({"who": [me], "step": [step]})
    ds = lance.write_dataset(rows, namespace_client=client, table_id=["ops", "t"], mode="append")
    versions.append(ds.version)
result = versions
"""

FIRST = """
import lance_namespace
client = lance_namespace.connect(
    "tiltyard.lance.namespace.DirectoryNamespace", {"root": root, "table_version_tracking_enabled": "true"}
)
try:
    lance.write_dataset(pa.table({"who": [me]}), namespace_client=client, table_id=["ops", name])
    result = "made"
except Exception as error:
    result = int(error.code)
"""


@pytest.mark.parametrize(("ours", "peers"), [(2, 0), (2, 2)])
def test_every_append_through_the_catalog_is_kept(ours: int, peers: int, crew: Crew, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    client = DirectoryNamespace(root=str(root), table_version_tracking_enabled="true")
    client.create_namespace({"id": ["ops"]})
    schema = pa.schema([("who", pa.int64()), ("step", pa.int64())])
    lance.write_dataset(schema.empty_table(), namespace_client=client, table_id=["ops", "t"])
    workers = crew.ours(ours) + crew.peers(peers)
    managed = ["true"] * (len(workers) - 1) + ["false"]  # the last one commits straight to storage
    found = together(workers, APPENDS, tmp_path / "go", root=str(root), managed=managed, rounds=ROUNDS)
    table = lance.dataset(namespace_client=client, table_id=["ops", "t"])
    rows = table.to_table().to_pydict()
    expected = [(me, step) for me in range(len(workers)) for step in range(ROUNDS)]
    assert sorted(zip(rows["who"], rows["step"], strict=True)) == expected
    assert [each["version"] for each in table.version_refs()] == list(range(1, table.version + 1))
    assert max(max(versions) for versions in found) == table.version
    assert [path.name for path in root.rglob("_versions/*manifest-*")] == []


def test_of_all_that_create_one_table_through_the_catalog_one_succeeds(crew: Crew, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    client = DirectoryNamespace(root=str(root))
    client.create_namespace({"id": ["ops"]})
    workers = crew.ours(2) + crew.peers(2)
    for at in range(4):
        found = together(workers, FIRST, tmp_path / "go", root=str(root), name=f"t{at}")
        assert sorted(map(str, found)) == ["5", "5", "5", "made"]
        assert lance.dataset(namespace_client=client, table_id=["ops", f"t{at}"]).count_rows() == 1
