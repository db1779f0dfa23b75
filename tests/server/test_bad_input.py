"""Requests of every wrong kind: the right status and the specification's JSON, nothing changed or leaked."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from serving import JSON, STREAM, ask, create, ipc, post, raw, serving
from serving import ROWS as SOME
from tiltyard.server.adapter import InThread
from tiltyard.server.limits import Limits

LIMITS = Limits(
    json_bytes=2000, upload_bytes=100_000, rows=5, seconds=20.0, head_seconds=0.5, step_seconds=0.5
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[InThread]:
    with serving(place, limits=LIMITS) as running:
        post(running, "namespace/a/create")
        create(running, "a%24t")
        yield running


def fingerprint(place: Path) -> str:
    told = [(str(path), path.read_bytes() if path.is_file() else b"") for path in sorted(place.rglob("*"))]
    return hashlib.sha256(repr(told).encode()).hexdigest()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("table/a%24t/describe", b"{", 400),
        ("table/a%24t/describe", b"[]", 400),
        ("table/a%24t/describe", b"\xff\xfe", 400),
        ("table/a%24t/describe", b'{"version": NaN}', 400),
        ("table/a%24t/describe", b"[" * 1500, 400),
        ("table/a%24t/describe", {"version": "one"}, 400),
        ("table/a%24t/describe", {"version": 99}, 404),
        ("table/a%24t/describe", {"id": "a$t"}, 400),
        ("table/a%24t/describe", {"id": [1, "t"]}, 400),
        ("table/a%24t/describe?check_declared=yes", {}, 400),
        ("table/a%24t/describe?delimiter=", {}, 400),
        ("table/a%24t/describe?delimiter=" + "x" * 99, {}, 400),
        ("table/%ff/describe", {}, 400),
        ("table/a%24t%00/declare", {}, 400),
        ("table/a%24..%2f..%2fx/declare", {}, 400),
        ("table/%2e%2e/declare", {}, 400),
        ("table/a%24x/declare", {"location": "../outside"}, 400),
        ("table/a%24x/declare", {"location": "/etc"}, 400),
        ("table/a%24x/register", {"location": "../outside"}, 400),
        ("table/a%24x/register", {"location": "file:///etc"}, 400),
        ("table/" + "%24".join("x" * 99) + "/declare", {}, 400),
        ("namespace/a/create", {"properties": {"k": 1}}, 400),
        ("namespace/a/create", {"mode": "perhaps"}, 400),
        ("namespace/a/create", {}, 409),
        ("namespace/a/drop", {}, 409),
        ("namespace/z/drop", {}, 404),
        ("table/a%24t/delete", {"predicate": "nothing = 1"}, 400),
        ("table/a%24t/delete", {"predicate": "'"}, 400),
        ("table/a%24t/delete", {}, 400),
        ("table/a%24t/update", {"updates": [["s"]]}, 400),
        ("table/a%24t/update", {"updates": [["id", "'x'"]]}, 400),
        ("table/a%24t/query", {"vector": {}}, 400),
        ("table/a%24t/query", {"k": -1, "vector": {}}, 400),
        ("table/a%24t/query", {"k": 10**30, "vector": {}}, 400),
        ("table/a%24t/query", {"k": 1, "vector": {"single_vector": ["x"]}}, 400),
        ("table/a%24t/query", {"k": 1, "vector": {}, "filter": "nope > 1"}, 404),
        ("table/a%24t/restore", {"version": 99}, 404),
        ("table/a%24t/tags/create", {"tag": "../x", "version": 1}, 400),
        ("table/a%24t/tags/delete", {"tag": "none"}, 404),
        ("table/a%24t/index/none/drop", {}, 404),
        ("table/a%24t/create_index", {"column": "none", "index_type": "BTREE"}, 404),
        ("table/a%24t/create_index", {"column": "id", "index_type": "MAGIC"}, 400),
        ("table/a%24t/version/list?page_token=x", {}, 400),
        ("table/a%24t/version/list?limit=x", {}, 400),
        ("table/a%24t/version/list?limit=" + "9" * 99, {}, 400),
        ("table/a%24t/version/create", {"version": 2, "manifest_path": "../../x"}, 400),
        ("transaction/a%24t/describe", {}, 404),
        ("table/batch-commit", {"operations": 7}, 400),
        ("table/a%24t/describe", {"x": "y" * 3000}, 413),
    ],
)
def test_json_that_is_wrong(server: InThread, place: Path, path: str, body: object, status: int) -> None:
    before = fingerprint(place)
    heard = post(server, path, body)
    assert (heard.status, heard.code >= 0) == (status, True), heard
    assert fingerprint(place) == before


@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ("mode=create", b"", 400),
        ("mode=create", b"no arrow", 400),
        ("mode=create", ipc(SOME)[:-200], 400),
        ("mode=perhaps", ipc(SOME), 400),
        ("properties=7", ipc(SOME), 400),
        ("properties=%7B", ipc(SOME), 400),
        ("mode=create", bytes(200_000), 413),
    ],
)
def test_rows_that_are_wrong(server: InThread, place: Path, query: str, body: bytes, status: int) -> None:
    before = fingerprint(place)
    heard = post(server, f"table/a%24new/create?{query}", body, content_type=STREAM)
    assert (heard.status, heard.code) == (status, 13), heard
    assert fingerprint(place) == before
    refused = post(server, "table/a%24t/merge_insert?on=id&on=id", ipc(SOME), content_type=STREAM)
    assert refused.code == 13


def test_the_type_of_json_must_be_said(server: InThread) -> None:
    heard = post(server, "table/a%24t/describe", b'{"version":1}', content_type="text/plain")
    assert heard.code == 13
    assert post(server, "table/a%24t/describe", b'{"version":1}', content_type=None).code == 13
    assert post(server, "table/a%24t/describe", b"{}", content_type=f"{JSON}; charset=utf-8").status == 200


def test_answers_that_are_too_large_are_refused(server: InThread) -> None:
    create(server, "many", SOME.take([0, 1, 2] * 3))
    heard = post(server, "table/many/query", {"k": 0, "vector": {}})
    assert heard.code == 13
    assert "more than 5 rows" in heard.json["error"]
    assert post(server, "table/many/query", {"k": 5, "vector": {}}).status == 200
    assert post(server, "table/many/query", {"k": 50, "vector": {}}).code == 13


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/table/t/describe HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/table/t/describe HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/%zz%/list HTTP/1.1\r\nhost: x\r\n\r\n" + b"x" * 100,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % at for at in range(2000)) + b"\r\n",
        b"\r\n" * 1000,
    ],
)
def test_what_is_no_http_is_answered_or_cut_off(server: InThread, data: bytes) -> None:
    heard = raw(server, data)
    assert not heard or heard.startswith(b"HTTP/1.1 ")
    assert b"Traceback" not in heard
    assert ask(server, "GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /v1/table/t/desc",
        b"POST /v1/table/t/describe HTTP/1.1\r\nhost: x\r\n",
        b"POST /v1/table/t/describe HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{",
    ],
)
def test_slow_clients_are_cut_off(server: InThread, data: bytes) -> None:
    heard = raw(server, data, seconds=10)
    assert not heard or b" 408 " in heard.split(b"\r\n")[0]
    assert ask(server, "GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"GET /healthz HTTP/1.1\r\nhost: x\r\na: " + b"x" * (3 << 20),
        b"POST /v1/namespace/%24/exists HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"a: b\r\n" * (1 << 19),
        b"POST /v1/namespace/%24/exists HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2;"
        + b"x" * (3 << 20),
    ],
)
def test_heads_trailers_and_extensions_without_end_are_cut_off(server: InThread, data: bytes) -> None:
    where = "127.0.0.1", server.port
    with suppress(ConnectionError), socket.create_connection(where, timeout=10) as connection:
        for _ in range(100):
            connection.sendall(data)
            data = data[-1 << 16 :]
        pytest.fail("all of it was taken")
    assert ask(server, "GET", "/healthz").status == 200


def test_an_answer_that_nobody_takes_is_given_up(server: InThread) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        name = connection.getsockname()
        standing = server._server.server_state.connections
        deadline = time.monotonic() + 10
        while not (found := [each for each in standing if each.client == name]):
            time.sleep(0.02)
        kept = found[0].transport.get_extra_info("socket")
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")
        while found[0] in standing and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found[0] not in standing


def test_a_client_that_sends_much_hears_why_it_is_refused(server: InThread) -> None:
    refused = post(server, "table/a%24new/create?mode=create", bytes(30_000_000), content_type=STREAM)
    assert (refused.status, refused.code) == (413, 13)
    nowhere = ask(server, "POST", "/nowhere", bytes(30_000_000))
    assert (nowhere.status, nowhere.code) == (404, 0)


def test_a_key_of_one_change_answers_no_other(server: InThread) -> None:
    first = post(server, "table/a%24k1/declare", idempotency_key="one")
    assert post(server, "table/a%24k1/declare", idempotency_key="one").body == first.body
    assert post(server, "table/a%24k2/declare", idempotency_key="one").code == 13
    assert post(server, "table/a%24k1/declare", {"properties": {}}, idempotency_key="one").code == 13
    assert post(server, "table/a%24k2/exists").code == 4


def test_a_wish_for_another_protocol_is_no_matter(server: InThread, caplog: pytest.LogCaptureFixture) -> None:
    wish = b"connection: upgrade\r\nupgrade: websocket\r\n"
    heard = raw(server, b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + wish + b"\r\n", seconds=0.5)
    assert heard.startswith(b"HTTP/1.1 200 ")
    assert "upgrade" not in caplog.text


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([]), pa.list_(pa.int8(), 0)])
def test_rows_without_end_of_no_bytes_are_refused(server: InThread, place: Path, kind: pa.DataType) -> None:
    before = fingerprint(place)
    inner = [pa.nulls(0, pa.int8())] if kind.num_fields else []
    column = pa.Array.from_buffers(kind, (1 << 31) - 2, [None], children=inner)
    rows = ipc(pa.Table.from_arrays([column], names=["n"]))
    heard = post(server, "table/a%24new/create?mode=create", rows, content_type=STREAM)
    assert (heard.status, heard.code) == (400, 13)
    assert "rows of almost no bytes" in heard.json["error"]
    assert fingerprint(place) == before
