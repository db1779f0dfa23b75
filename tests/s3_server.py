"""A real S3 protocol on loopback: a server that answers with moto's S3, counts requests and breaks some of
them on the way there and back ("the proxy").

moto's own server asks itself for each request which of 200 services is meant, which takes as long as the
answer: its application for S3 is called here. moto keeps If-None-Match on PUT, but looks and puts in two
steps; the proxy lets one conditional request pass at a time, so that it is atomic as on S3. All other
behaviour is moto's.
"""

from __future__ import annotations

import io
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"))


@dataclass(frozen=True)
class Request:
    """One request as the proxy saw it; `key` is the object's, decoded, or '' for requests on the bucket."""

    method: str
    bucket: str
    key: str
    query: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """What it is for, as S3 calls it, in short."""
        if self.method == "GET" and not self.key:
            return "LIST"
        if self.method == "POST" and "delete" in self.query:
            return "DELETE"
        return self.method

    @property
    def span(self) -> str:
        return self.headers.get("range", "")


@dataclass
class Rule:
    """What happens to some requests: those of the method whose key matches, from the `skip`th on, `times`."""

    what: str
    """lose, drop, late, twice, delay, status, done-status, truncate, short, unconditional, nameless; "hold"
    and "held": on its way until `let_go`, and then it arrives, or does not, and nobody hears of it.
    """
    method: str = ".*"
    key: str = ".*"
    times: int = 1
    skip: int = 0
    seconds: float = 0.0
    status: int = 503
    conditional: bool = False  # only requests with a condition
    struck: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def strikes(self, request: Request) -> bool:
        if not (re.fullmatch(self.method, request.kind) and re.search(self.key, request.key)):
            return False
        if self.conditional and "if-none-match" not in request.headers:
            return False
        self.struck += 1
        return self.skip < self.struck <= self.skip + self.times


@dataclass(frozen=True)
class Answer:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class S3Server:
    """moto behind a proxy. `endpoint` is the proxy's."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import create_backend_app

        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._moto = create_backend_app("s3")
        self.requests: list[Request] = []
        self.rules: list[Rule] = []
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self._proxy = _Proxy(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        self._thread = threading.Thread(target=self._proxy.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()

    # -- for tests -------------------------------------------------------------------------------

    def options(self, **more: Any) -> dict[str, str]:
        """Storage options, as both pylance and we take them."""
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
            **{name: str(value) for name, value in more.items()},
        }

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.ask("PUT", f"/{name}")
        return name

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        """A request straight to moto."""
        return self._sent(method, path, body, headers or {})

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys that stand in a bucket."""
        listed = self.ask("GET", f"/{bucket}?list-type=2&prefix={prefix}&encoding-type=url").body.decode()
        return sorted(unquote(each) for each in re.findall("<Key>([^<]*)</Key>", listed))

    def uploads(self, bucket: str) -> int:
        """Uploads in parts that were neither finished nor aborted."""
        return self.ask("GET", f"/{bucket}?uploads").body.count(b"<UploadId>")

    @contextmanager
    def breaking(self, *rules: Rule) -> Iterator[list[Rule]]:
        self.rules = list(rules)
        try:
            yield self.rules
        finally:
            self.rules = []

    @contextmanager
    def counting(self) -> Iterator[list[Request]]:
        """The requests of the block, as they come."""
        seen: list[Request] = []
        before, self.requests = self.requests, seen
        try:
            yield seen
        finally:
            self.requests = before

    # -- for the proxy ---------------------------------------------------------------------------

    def serve(self, request: Request, path: str, answer: Callable[[Answer | None, int | None], None]) -> None:
        with self._lock:
            self.requests.append(request)
            rule = next((each for each in self.rules if each.strikes(request)), None)
        what = rule.what if rule else ""
        if what == "drop":
            return answer(None, None)
        if what in ("hold", "held"):
            assert rule is not None
            rule.reached.set()
            rule.let_go.wait(60)
            if what == "hold":
                self._forward(request, path)
            rule.ended.set()
            return answer(None, None)
        if what == "delay":
            assert rule is not None
            time.sleep(rule.seconds)
        if what == "status":
            assert rule is not None
            return answer(Answer(rule.status, "Broken", [], b"<Error><Code>Broken</Code></Error>"), None)
        if what == "late":
            assert rule is not None
            threading.Timer(rule.seconds, self._forward, (request, path)).start()
            return answer(None, None)
        if what == "unconditional":
            headers = {k: v for k, v in request.headers.items() if k != "if-none-match"}
            request = replace(request, headers=headers)
        if what == "nameless":
            headers = {k: v for k, v in request.headers.items() if not k.startswith("x-amz-meta-")}
            request = replace(request, headers=headers)
        got = self._forward(request, path)
        if what in ("lose", "nameless"):
            return answer(None, None)
        if what == "twice":
            got = self._forward(request, path)
        if what == "done-status":
            assert rule is not None
            got = Answer(rule.status, "Broken", [], b"<Error><Code>Broken</Code></Error>")
        if what == "short":
            got = Answer(got.status, got.reason, got.headers, got.body[: len(got.body) // 2])
        return answer(got, len(got.body) // 2 if what == "truncate" else None)

    def _forward(self, request: Request, path: str) -> Answer:
        headers = {k: v for k, v in request.headers.items() if k not in HOP}
        if "if-none-match" not in headers:
            return self._sent(request.method, path, request.body, headers)
        with self._conditional:
            return self._sent(request.method, path, request.body, headers)

    def _sent(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """What moto says to a request."""
        bare, _, query = path.partition("?")
        host = self.endpoint.removeprefix("http://")
        environ: dict[str, Any] = {
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(bare).encode().decode("latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": path,
            "RAW_URI": path,
            "REMOTE_ADDR": "127.0.0.1",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": host.rpartition(":")[2],
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
        }
        for name, value in headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
        environ["HTTP_HOST"] = host
        begun: list[Any] = []

        def begin(status: str, answered: list[tuple[str, str]], error: Any = None) -> Any:
            begun[:] = status, answered

        chunks = self._moto(environ, begin)
        try:
            content = b"".join(chunks)
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        status, answered = begun
        number, _, reason = status.partition(" ")
        return Answer(int(number), reason, answered, content)


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, address: Any) -> None:
        """Connections that clients break off are nothing to tell."""


def _handler(server: S3Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            """Quiet."""

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path, _, query = self.path.partition("?")
            bucket, _, key = path.lstrip("/").partition("/")
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, bucket, unquote(key), query, headers, body)
            server.serve(request, self.path, self._answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815

        def _answer(self, got: Answer | None, cut: int | None) -> None:
            if got is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            length = str(len(got.body))
            if self.command == "HEAD":
                length = next((v for k, v in got.headers if k.lower() == "content-length"), "0")
            lines = [f"HTTP/1.1 {got.status} {got.reason or 'OK'}"]
            lines += [f"{k}: {v}" for k, v in got.headers if k.lower() not in HOP]
            lines += [f"Content-Length: {length}", f"Date: {self.date_time_string()}", "", ""]
            body = b"" if self.command == "HEAD" else got.body[:cut]
            self.wfile.write("\r\n".join(lines).encode("latin-1") + body)
            if cut is not None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

    return Handler
