"""Answers lost on the way: the client finds out what became of its change, or says that it cannot."""

from __future__ import annotations

import http.server
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving import ROWS, ask, ipc, post, serving
from tiltyard.errors import OutcomeUnknown, ServerError, ServerUnavailable, TableAlreadyExists
from tiltyard.lance.namespace import RestNamespace

Fault = Callable[[str, int], str]
"""Of a request's path and its number, what happens: "pass", "lose" (the server does it, the answer is lost),
"drop" (it does not arrive), or "503" (the proxy answers itself).
"""


@contextmanager
def proxy(uris: list[str], fault: Fault) -> Iterator[str]:
    """A proxy before servers, which take turns; requests for health are always passed."""
    asked = [0]
    turns = [0]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            action = "pass"
            if not self.path.startswith("/healthz"):
                asked[0] += 1
                action = fault(self.path, asked[0])
            if action == "503":
                self.send_response(503)
                self.send_header("content-length", "7")
                self.end_headers()
                self.wfile.write(b"gateway")
                return
            if action in ("pass", "lose"):
                turns[0] += 1
                status, headers, reply = _forward(uris[turns[0] % len(uris)], self, body)
                if action == "pass":
                    self.send_response(status)
                    for name, value in headers:
                        if name.lower() not in ("date", "connection"):
                            self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(reply)
                    return
            self.close_connection = True
            self.connection.close()

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, *told: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _forward(uri: str, handler: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
    headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
    asked = urllib.request.Request(uri + handler.path, body or None, headers, method=handler.command)
    try:
        with urllib.request.urlopen(asked) as reply:
            return reply.status, reply.getheaders(), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, list(error.headers.items()), error.read()


def test_a_change_whose_answer_is_lost_is_made_once(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        proxy([server.uri], lambda path, at: "lose" if at % 2 else "pass") as uri,
    ):
        client = RestNamespace(uri=uri)
        client.create_namespace({"id": ["n"]})
        client.create_table({"id": ["n", "t"]}, ipc(ROWS))
        assert client.insert_into_table({"id": ["n", "t"]}, ipc(ROWS)).version == 2
        assert client.count_table_rows({"id": ["n", "t"]}).count == 6
        with pytest.raises(TableAlreadyExists):
            client.create_table({"id": ["n", "t"]}, ipc(ROWS))
        client.drop_table({"id": ["n", "t"]})
        assert list(client.list_tables({"id": ["n"]})) == []


def test_a_change_that_never_arrived_is_made(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        proxy([server.uri], lambda path, at: "drop" if at % 3 else "pass") as uri,
    ):
        client = RestNamespace(uri=uri)
        client.create_namespace({"id": ["n"]})
        client.create_table({"id": ["n", "t"]}, ipc(ROWS))
        assert client.count_table_rows({"id": ["n", "t"]}).count == 3


def test_no_second_process_makes_a_change_that_was_lost(tmp_path: Path) -> None:
    """Two servers on one root take turns behind the proxy: what one did, the other does not repeat."""
    lost: list[str] = []

    def fault(path: str, at: int) -> str:
        if "/insert" in path and not lost:
            lost.append(path)
            return "lose"
        return "pass"

    with serving(tmp_path) as one, serving(tmp_path) as two, proxy([one.uri, two.uri], fault) as uri:
        client = RestNamespace(uri=uri)
        client.create_namespace({"id": ["n"]})
        client.create_table({"id": ["n", "t"]}, ipc(ROWS))
        told = 0
        for _ in range(4):
            try:
                client.insert_into_table({"id": ["n", "t"]}, ipc(ROWS))
                told += 1
            except OutcomeUnknown:
                continue
        rows = client.count_table_rows({"id": ["n", "t"]}).count
        assert rows in (3 * (1 + told), 3 * (2 + told))
        assert told >= 3


def test_a_change_keeps_to_its_process_whatever_other_threads_meet(tmp_path: Path) -> None:
    """Between the loss and the repetition another thread has met the other server."""
    with serving(tmp_path) as one, serving(tmp_path) as two:
        ids = [ask(server, "GET", "/healthz").headers["tiltyard-server"] for server in (one, two)]
        clients: list[RestNamespace] = []

        def fault(path: str, at: int) -> str:
            if "/insert" not in path or clients[0]._client._server == ids[1]:
                return "pass"
            clients[0]._client._server = ids[1]
            return "lose"

        with proxy([one.uri], fault) as uri:
            clients.append(RestNamespace(uri=uri))
            clients[0].create_table({"id": ["t"]}, ipc(ROWS))
            assert clients[0].insert_into_table({"id": ["t"]}, ipc(ROWS)).version == 2
            assert clients[0].count_table_rows({"id": ["t"]}).count == 6


def test_answers_of_a_proxy_leave_changes_open(tmp_path: Path) -> None:
    with serving(tmp_path) as server, proxy([server.uri], lambda path, at: "503") as uri:
        client = RestNamespace(uri=uri)
        with pytest.raises(OutcomeUnknown):
            client.create_namespace({"id": ["n"]})
        with pytest.raises(ServerUnavailable, match="without the specification's JSON"):
            client.list_namespaces({"id": []})


def test_a_server_that_keeps_no_answers_leaves_changes_open(tmp_path: Path) -> None:
    from lance.namespace import RestAdapter

    with (
        RestAdapter("dir", {"root": str(tmp_path)}, port=0) as server,
        proxy([f"http://127.0.0.1:{server.port}"], lambda path, at: "lose" if at == 1 else "pass") as uri,
    ):
        client = RestNamespace(uri=uri)
        with pytest.raises(OutcomeUnknown):
            client.create_namespace({"id": ["n"]})
        assert list(client.list_namespaces({"id": []})) == ["n"]


def test_the_server_keeps_answers_by_key_and_caller(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        mine = ask(server, "GET", "/healthz").headers["tiltyard-server"]
        first = post(server, "namespace/n/create", idempotency_key="k1")
        again = post(server, "namespace/n/create", idempotency_key="k1", tiltyard_server=mine)
        assert (first.status, again.status) == (200, 200)
        assert post(server, "namespace/n/create", idempotency_key="k2").code == 2
        other = post(server, "namespace/m/create", idempotency_key="k3", tiltyard_server="another")
        assert (other.status, other.code) == (421, 17)
        assert post(server, "namespace/m/exists").code == 1
        assert post(server, "namespace/m/create", idempotency_key="x" * 1000).code == 13


def test_an_answer_that_is_no_json_is_told(tmp_path: Path) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>sign in</html>")

        def log_message(self, *told: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.raises(ServerError, match="no JSON"):
            RestNamespace(uri=f"http://127.0.0.1:{server.server_address[1]}").list_namespaces({"id": []})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
