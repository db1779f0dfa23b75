"""Servers in this process, and clients that send exactly what a test says."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tiltyard.catalog.plugin import DirectoryNamespace
from tiltyard.server.access import Access, hash_of, parsed
from tiltyard.server.adapter import InThread
from tiltyard.server.limits import Limits
from tiltyard.server.run import Place, application

JSON = "application/json"
STREAM = "application/vnd.apache.arrow.stream"
ROWS = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})


@contextmanager
def serving(
    root: Any, access: Access | None = None, limits: Limits | None = None, **properties: str
) -> Iterator[InThread]:
    """A catalog that is served while the block runs."""
    limits = limits or Limits()
    namespace = DirectoryNamespace(root=str(root), **properties)
    app = application(namespace, access or Access(), limits)
    with InThread(app, Place(port=0), limits) as server:
        yield server


def keys(**roles: str) -> Access:
    """Keys by name; the secret of each is its name with `-secret`, a role may be `role@namespace`."""
    lines = []
    for name, role in roles.items():
        word, _, namespace = role.partition("@")
        lines += ["[[keys]]", f'name = "{name}"', f'sha256 = "{hash_of(name + "-secret")}"']
        lines += ["[keys.namespaces]", f'"{namespace}" = "{word}"'] if namespace else [f'role = "{word}"']
    return parsed("\n".join(lines), "keys")


@dataclass(frozen=True)
class Heard:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        """The specification's code of a failure, whose form is checked."""
        assert self.headers["content-type"] == JSON, self
        assert set(self.json) == {"error", "code", "instance"}, self
        assert isinstance(self.json["error"], str)
        assert "Traceback" not in self.json["error"]
        found = self.json["code"]
        assert isinstance(found, int)
        return found


def ask(
    server: InThread,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str | None = JSON,
    **headers: str,
) -> Heard:
    """One request; a body that is no bytes is written as JSON; `x_api_key` is the header `x-api-key`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None and content_type is not None:
        sent["content-type"] = content_type
    try:
        connection.request(method, path, body=body, headers=sent)
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return Heard(reply.status, found, reply.read())
    finally:
        connection.close()


def post(server: InThread, path: str, body: Any = None, **more: Any) -> Heard:
    """A POST below /v1."""
    return ask(server, "POST", f"/v1/{path}", {} if body is None else body, **more)


def create(
    server: InThread, id: str, table: pa.Table = ROWS, query: str = "mode=create", **more: Any
) -> Heard:
    """Make a table from rows."""
    return post(server, f"table/{id}/create?{query}", ipc(table), content_type=STREAM, **more)


def ipc(table: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def rows_of(heard: Heard) -> pa.Table:
    """The rows of the answer to a query."""
    assert heard.status == 200, heard
    return pa.ipc.open_file(pa.py_buffer(heard.body)).read_all()


def raw(server: InThread, data: bytes, *, seconds: float = 2.0) -> bytes:
    """Send bytes and hear all that comes until the server closes the connection, or nothing more comes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        heard = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(65536):
                heard += piece
        except (ConnectionError, TimeoutError):
            pass
        return heard
