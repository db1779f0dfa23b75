"""The official clients over real sockets, on our server; and our client on the official server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as interface
import lancedb
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter as OfficialAdapter
from lance.namespace import RestNamespace as OfficialRest

from serving import ROWS, ipc, serving
from tiltyard.lance.namespace import RestNamespace

VECTORS = pa.table(
    {"id": [1, 2, 3], "vector": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2))}
)


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as server:
        yield server.uri


@pytest.fixture(params=["ours on ours", "theirs on ours", "ours on theirs"])
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A client with a server."""
    client, _, server = request.param.partition(" on ")
    kind = RestNamespace if client == "ours" else OfficialRest
    if server == "ours":
        with serving(tmp_path) as running:
            yield kind(uri=running.uri)
    else:
        with OfficialAdapter("dir", {"root": str(tmp_path)}, port=0) as running:
            yield kind(uri=f"http://127.0.0.1:{running.port}")


def test_a_table_lives_its_life(namespace: Any) -> None:
    made = namespace.create_namespace(interface.CreateNamespaceRequest(id=["n"], properties={"k": "v"}))
    assert made.properties == {"k": "v"}
    id = ["n", "t"]
    assert namespace.create_table(interface.CreateTableRequest(id=id), ipc(VECTORS)).version == 1
    assert namespace.insert_into_table(interface.InsertIntoTableRequest(id=id), ipc(VECTORS)).version == 2
    merged = namespace.merge_insert_into_table(
        interface.MergeInsertIntoTableRequest(
            id=id, on=["id"], when_matched_update_all=False, when_not_matched_insert_all=True
        ),
        ipc(pa.table({"id": [9], "vector": pa.array([[9.0, 9.0]], pa.list_(pa.float32(), 2))})),
    )
    assert (merged.num_inserted_rows, merged.version) == (1, 3)
    assert namespace.count_table_rows(interface.CountTableRowsRequest(id=id, predicate="id > 2")).count == 3
    asked = interface.QueryTableRequest(id=id, k=2, vector={"single_vector": [9.0, 9.0]})
    found = namespace.query_table(asked)
    found = pa.ipc.open_file(pa.py_buffer(found if isinstance(found, bytes) else found.data)).read_all()
    assert found.column("id").to_pylist() == [9, 3]
    assert list(namespace.list_tables(interface.ListTablesRequest(id=["n"])).tables) == ["t"]
    assert namespace.describe_table(interface.DescribeTableRequest(id=id)).location
    tagged = interface.CreateTableTagRequest(id=id, tag="gold", version=2)
    namespace.create_table_tag(tagged)
    assert (
        namespace.get_table_tag_version(interface.GetTableTagVersionRequest(id=id, tag="gold")).version == 2
    )
    index = interface.CreateTableIndexRequest(id=id, column="id", index_type="BTREE")
    namespace.create_table_scalar_index(index)
    indices = namespace.list_table_indices(interface.ListTableIndicesRequest(id=id)).indexes
    assert [each.index_name for each in indices] == ["id_idx"]
    namespace.drop_table(interface.DropTableRequest(id=id))
    with pytest.raises(interface.TableNotFoundError):
        namespace.describe_table(interface.DescribeTableRequest(id=id))


def test_refusals_are_the_interfaces_errors(namespace: Any) -> None:
    namespace.create_namespace(interface.CreateNamespaceRequest(id=["n"]))
    with pytest.raises(interface.NamespaceAlreadyExistsError):
        namespace.create_namespace(interface.CreateNamespaceRequest(id=["n"]))
    namespace.create_table(interface.CreateTableRequest(id=["n", "t"]), ipc(ROWS))
    with pytest.raises(interface.TableAlreadyExistsError):
        namespace.create_table(interface.CreateTableRequest(id=["n", "t"]), ipc(ROWS))
    with pytest.raises(interface.NamespaceNotEmptyError):
        namespace.drop_namespace(interface.DropNamespaceRequest(id=["n"]))
    with pytest.raises(interface.TableTagNotFoundError):
        namespace.get_table_tag_version(interface.GetTableTagVersionRequest(id=["n", "t"], tag="none"))
    with pytest.raises(interface.InvalidInputError):
        namespace.create_table(interface.CreateTableRequest(id=["n", "u"]), b"")


def test_lancedb_works_through_our_server(uri: str) -> None:
    db = lancedb.connect_namespace("rest", {"uri": uri})
    db.create_namespace(["ops"])
    table = db.create_table("t", VECTORS, namespace_path=["ops"])
    table.add(VECTORS)
    assert table.count_rows() == 6
    assert [row["id"] for row in table.search([5.0, 6.0]).limit(2).to_list()] == [3, 3]
    again = db.open_table("t", namespace_path=["ops"])
    again.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"id": [7], "vector": pa.array([[7.0, 7.0]], pa.list_(pa.float32(), 2))})
    )
    assert again.count_rows() == 7
    again.delete("id = 1")
    assert db.open_table("t", namespace_path=["ops"]).count_rows() == 5
    with pytest.raises(ValueError, match="already exists"):
        db.create_table("t", VECTORS, namespace_path=["ops"])
    with pytest.raises(Exception, match="ops\\$none"):
        db.open_table("none", namespace_path=["ops"])
    db.drop_table("t", namespace_path=["ops"])
    assert list(db.list_tables(namespace_path=["ops"]).tables) == []


def test_the_generated_client_works_through_our_server(uri: str) -> None:
    from lance_namespace_urllib3_client import ApiClient, ApiException, Configuration
    from lance_namespace_urllib3_client.api import NamespaceApi, TableApi
    from lance_namespace_urllib3_client.models import (
        CountTableRowsRequest,
        CreateNamespaceRequest,
        DescribeTableRequest,
    )

    with ApiClient(Configuration(host=uri)) as client:
        NamespaceApi(client).create_namespace("n", CreateNamespaceRequest())
        tables = TableApi(client)
        tables.create_table("n$t", ipc(ROWS))
        assert tables.count_table_rows("n$t", CountTableRowsRequest()) == 3
        assert tables.describe_table("n$t", DescribeTableRequest()).table == "t"
        with pytest.raises(ApiException) as caught:
            tables.describe_table("n$none", DescribeTableRequest())
        assert caught.value.status == 404


def test_pylance_writes_and_reads_by_our_client(uri: str) -> None:
    import lance

    client = RestNamespace(uri=uri)
    client.create_namespace({"id": ["n"]})
    lance.write_dataset(ROWS, namespace_client=client, table_id=["n", "t"], mode="create")
    assert lance.dataset(namespace_client=client, table_id=["n", "t"]).to_table().equals(ROWS)


def test_keys_and_context_become_headers(tmp_path: Path) -> None:
    from serving import keys

    with serving(tmp_path, keys(boss="admin")) as server:
        for client in (
            RestNamespace(uri=server.uri, **{"header.authorization": "Bearer boss-secret"}),
            OfficialRest(uri=server.uri, **{"header.authorization": "Bearer boss-secret"}),
            RestNamespace(uri=server.uri, **{"headers.x-api-key": "boss-secret"}),
        ):
            client.namespace_exists(interface.NamespaceExistsRequest(id=[]))
        plain = RestNamespace(uri=server.uri)
        with pytest.raises(interface.UnauthenticatedError):
            plain.namespace_exists(interface.NamespaceExistsRequest(id=[]))
        by_identity = interface.NamespaceExistsRequest(id=[], identity={"api_key": "boss-secret"})
        plain.namespace_exists(by_identity)
        by_context = {"id": [], "context": {"header.x-api-key": "boss-secret"}}
        plain.namespace_exists(by_context)


def test_a_catalog_of_theirs_is_served_by_ours(tmp_path: Path) -> None:
    """One root, changed by the official directory catalog and by clients of our server in turn."""
    from lance.namespace import DirectoryNamespace as OfficialDirectory

    theirs = OfficialDirectory(root=str(tmp_path))
    theirs.create_namespace(interface.CreateNamespaceRequest(id=["n"]))
    with serving(tmp_path) as server:
        ours = RestNamespace(uri=server.uri)
        for at in range(6):
            side = theirs if at % 2 else ours
            side.create_table(interface.CreateTableRequest(id=["n", f"t{at}"]), ipc(ROWS))
        for side in (theirs, ours):
            assert len(side.list_tables(interface.ListTablesRequest(id=["n"])).tables) == 6


def test_a_client_of_no_server_says_so() -> None:
    from tiltyard.errors import InvalidInput, ServerUnavailable

    with pytest.raises(ServerUnavailable, match="does not answer"):
        RestNamespace(uri="http://127.0.0.1:1").list_tables({"id": []})
    for uri in ("", "ftp://x", "x", "http://user@x", tempfile.gettempdir()):
        with pytest.raises(InvalidInput):
            RestNamespace(uri=uri)
