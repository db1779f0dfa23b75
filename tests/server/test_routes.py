"""The routes over a real socket: what they take, what they give, in which form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from serving import ROWS, STREAM, ask, create, ipc, post, rows_of, serving
from tiltyard.catalog.rest.routes import ROUTES, Role, matched
from tiltyard.server.adapter import InThread


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InThread]:
    with serving(tmp_path) as running:
        yield running


def test_the_table_of_routes_is_that_of_the_specification() -> None:
    assert len(ROUTES) == 54
    assert len({route.operation for route in ROUTES}) == 54
    for route in ROUTES:
        found = matched([part.replace("{id}", "a$b").replace("{index_name}", "i") for part in route.segments])
        assert found is not None
        assert found.route is route


def test_routes_without_an_id_come_before_tables_of_their_names() -> None:
    assert matched(["table", "batch-commit"]).route.operation == "batch_commit_tables"  # type: ignore[union-attr]
    found = matched(["table", "version", "batch-create"])
    assert found is not None
    assert found.id is None
    other = matched(["table", "version", "describe"])
    assert other is not None
    assert (other.id, other.route.operation) == ("version", "describe_table")
    assert matched(["table"]) is not None
    assert matched(["table", "t"]) is None
    assert matched(["nothing", "t", "describe"]) is None


def test_a_table_lives_its_life(server: InThread) -> None:
    assert post(server, "namespace/a/create", {"properties": {"k": "v"}}).json == {"properties": {"k": "v"}}
    assert post(server, "namespace/a/describe").json == {"properties": {"k": "v"}}
    made = create(server, "a%24t", query="mode=create&properties=%7B%22p%22%3A%22q+r%26%3D%25%22%7D")
    assert made.status == 200
    assert made.json["version"] == 1
    assert made.json["properties"] == {"p": "q r&=%"}
    assert post(server, "table/a%24t/count_rows", {"predicate": "id > 1"}).json == 2
    inserted = post(server, "table/a%24t/insert?mode=append", ipc(ROWS), content_type=STREAM)
    assert inserted.json["num_inserted_rows"] == 3
    merged = post(
        server,
        "table/a%24t/merge_insert?on=id&on=s&when_matched_update_all=true&when_not_matched_insert_all=true",
        ipc(pa.table({"id": [9], "s": ["z"]})),
        content_type=STREAM,
    )
    assert merged.json["num_inserted_rows"] == 1
    assert (
        post(server, "table/a%24t/update", {"predicate": "id = 9", "updates": [["s", "'y'"]]}).json[
            "updated_rows"
        ]
        == 1
    )
    assert post(server, "table/a%24t/delete", {"predicate": "id = 1"}).json["version"] == 5
    found = rows_of(
        post(server, "table/a%24t/query", {"k": 0, "vector": {}, "columns": {"column_names": ["s"]}})
    )
    assert sorted(found.column("s").to_pylist()) == ["b", "b", "c", "c", "y"]
    assert isinstance(post(server, "table/a%24t/explain_plan", {"query": {"k": 1, "vector": {}}}).json, str)
    assert post(server, "table/a%24t/schema_metadata/update", {"x": "y"}).json == {"x": "y"}
    assert post(server, "table/a%24t/tags/create", {"tag": "gold", "version": 1}).status == 200
    assert post(server, "table/a%24t/tags/version", {"tag": "gold"}).json == {"version": 1}
    assert list(post(server, "table/a%24t/tags/list").json["tags"]) == ["gold"]
    assert (
        post(server, "table/a%24t/create_scalar_index", {"column": "id", "index_type": "BTREE"}).status == 200
    )
    assert post(server, "table/a%24t/index/list").json["indexes"][0]["index_name"] == "id_idx"
    assert post(server, "table/a%24t/index/id_idx/stats").json["index_type"] == "BTree"
    assert post(server, "table/a%24t/index/id_idx/drop").status == 200
    assert post(server, "table/a%24t/version/list?limit=1&descending=true").json["versions"][0]["version"] > 5
    assert post(server, "table/a%24t/rename", {"new_table_name": "u"}).status == 200
    dropped = post(server, "table/a%24u/drop", {"id": ["a", "u"]})
    assert dropped.json["id"] == ["a", "u"]
    assert post(server, "table/a%24u/exists").code == 4


def test_checks_of_existence_are_answered_without_a_body(server: InThread) -> None:
    create(server, "t")
    heard = post(server, "table/t/exists")
    assert (heard.status, heard.body) == (200, b"")
    assert "content-type" not in heard.headers
    assert post(server, "namespace/%24/exists").status == 200
    assert post(server, "namespace/nope/exists").code == 1


def test_reads_are_asked_for_by_get_and_by_post(server: InThread) -> None:
    create(server, "t")
    assert ask(server, "GET", "/v1/namespace/%24/table/list").json == {"tables": ["t"]}
    assert ask(server, "POST", "/v1/namespace/%24/table/list").json == {"tables": ["t"]}
    assert ask(server, "GET", "/v1/table/t/count_rows").json == {"count": 3}
    assert ask(server, "GET", "/v1/table/t/count_rows?predicate=id%20%3E%201").json == {"count": 2}
    assert ask(server, "GET", "/v1/table/t/tags/list").json == {"tags": {}}
    refused = ask(server, "GET", "/v1/table/t/drop")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


def test_ids_come_in_every_form_that_clients_write(server: InThread) -> None:
    post(server, "namespace/n/create")
    create(server, "n%24a+b")  # the official client writes a space so
    for path in ("n$a%20b", "n%24a+b", "n%3A%3Aa%20b?delimiter=%3A%3A", "n.a%20b?delimiter=."):
        where, _, query = path.partition("?")
        assert post(server, f"table/{where}/exists?{query}").status == 200, path
    assert post(server, "table/n%24a%20b/exists", {"id": ["n", "a b"]}).status == 200
    assert post(server, "table/n%24a%20b/exists", {"id": ["n", "c"]}).code == 13
    for root in ("%24", "$", "", "%3A%3A?delimiter=%3A%3A"):
        where, _, query = root.partition("?")
        assert ask(server, "GET", f"/v1/namespace/{where}/list?{query}").json == {"namespaces": ["n"]}
    assert ask(server, "GET", "/v1/namespace/%24/list/").json == {"namespaces": ["n"]}


def test_listings_come_in_pages(server: InThread) -> None:
    for name in "abc":
        post(server, f"namespace/{name}/create")
    first = ask(server, "GET", "/v1/namespace/%24/list?limit=2").json
    assert first == {"namespaces": ["a", "b"], "page_token": "b"}
    assert ask(server, "GET", "/v1/namespace/%24/list?limit=2&page_token=b").json == {"namespaces": ["c"]}
    assert ask(server, "GET", "/v1/namespace/%24/list?limit=0").json == {"namespaces": []}


def test_what_is_not_there_yet_is_refused_by_name(server: InThread) -> None:
    create(server, "t")
    heard = post(server, "table/t/branches/create", {"name": "b"})
    assert (heard.status, heard.code) == (406, 0)
    assert "create_table_branch" in heard.json["error"]
    assert post(server, "materialized_view/v/create").code == 0
    assert post(server, "table/v/refresh").code == 0  # the path of an earlier revision


def test_every_answer_names_its_request(server: InThread) -> None:
    assert ask(server, "GET", "/healthz", x_request_id="mine-1").headers["x-request-id"] == "mine-1"
    heard = post(server, "table/t/describe", x_request_id="mine-2")
    assert heard.json["instance"] == "mine-2"
    odd = ask(server, "GET", "/healthz", x_request_id="x" * 1000)
    assert len(odd.headers["x-request-id"]) == 36


def test_the_servers_own_pages(server: InThread) -> None:
    assert ask(server, "GET", "/healthz").json == {"status": "ok"}
    assert ask(server, "GET", "/readyz").json == {"status": "ready"}
    create(server, "t")
    text = ask(server, "GET", "/metrics").body.decode()
    assert 'tiltyard_requests_total{operation="create_table",status="200"} 1' in text
    assert ask(server, "POST", "/healthz", b"").status == 405
    assert ask(server, "GET", "/nothing").code == 0


def test_a_large_upload_is_taken(tmp_path: Path) -> None:
    """Beyond the two MiB that the official server takes, and beyond what is held in memory here."""
    from tiltyard.server.limits import MIB, Limits

    table = pa.table({"id": pa.array(range(1_500_000))})
    with serving(tmp_path, limits=Limits(memory_bytes=MIB)) as server:
        assert create(server, "big", table).json["version"] == 1
        assert post(server, "table/big/count_rows").json == 1_500_000
        assert rows_of(post(server, "table/big/query", {"k": 0, "vector": {}})).equals(table)


def test_who_may_do_what_is_said_by_the_route() -> None:
    admins = {route.operation for route in ROUTES if route.role is Role.ADMIN}
    assert admins == {
        "drop_namespace",
        "drop_table",
        "rename_table",
        "register_table",
        "deregister_table",
        "batch_delete_table_versions",
        "delete_table_branch",
    }
