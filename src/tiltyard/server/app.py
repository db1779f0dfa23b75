"""The ASGI application: reads requests, asks the catalog in threads, answers.

What happens to a request, in this order: its route is found, its caller known, its place in the queue taken,
its body read, its fields and rights checked, its work done in a thread, its answer sent. Whatever goes wrong
on the way is answered as the specification's JSON error; a fault of the program goes to the log with the
request's id, and the caller is told the id alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tiltyard import runtime
from tiltyard.catalog.rest.routes import JSON, Body
from tiltyard.catalog.rest.wire import KEY_HEADER, SERVER_HEADER
from tiltyard.server.access import Access, Caller
from tiltyard.server.answers import Answer, failed
from tiltyard.server.asked import Asked, asked_for, is_catalogs
from tiltyard.server.bodies import ClientGone, Receive, Received, declared_length, received
from tiltyard.server.failures import Failure, broken, busy, failure_of, invalid, unavailable
from tiltyard.server.limits import Limits
from tiltyard.server.metrics import CONTENT_TYPE, Metrics
from tiltyard.server.openapi import document
from tiltyard.server.operations import Operations
from tiltyard.server.protocol import ABORT
from tiltyard.server.replays import Replays

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

log = logging.getLogger("tiltyard.server")
access_log = logging.getLogger("tiltyard.server.access")

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID = 128
SENT_AT_ONCE = 1 << 20
RETRY_AFTER_SECONDS = 1
LINGER_SECONDS = 5.0
"""That a body which nobody wants is still taken in: a client whose connection is cut off while it sends would
not read the answer that tells why."""

OWN_PATHS = {"/healthz": "healthz", "/readyz": "readyz", "/metrics": "metrics", "/openapi.json": "openapi"}
FOR_ANYBODY = ("healthz", "readyz")
"""What a load balancer asks, which has no key."""


class Request:
    """One request's head, and what is noted of it on the way."""

    __slots__ = (
        "abort",
        "caller",
        "headers",
        "id",
        "is_read",
        "method",
        "operation",
        "path",
        "query",
        "received",
        "since",
    )

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.since = runtime.monotonic()
        self.method: str = scope["method"]
        self.path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.id = _request_id(self.headers.get(REQUEST_ID))
        self.operation = "unknown"
        self.caller = "-"
        self.received = 0
        self.is_read = not _has_body(self.headers)
        self.abort: Callable[[], None] = (scope.get("extensions") or {}).get(ABORT, _nothing)

    @property
    def lingers(self) -> bool:
        """Whether the client may be sending a body that is not read."""
        return not self.is_read and "expect" not in self.headers


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _nothing() -> None:
    """Another server than uvicorn ends connections by itself."""


class App:
    """A catalog as an ASGI application."""

    def __init__(self, operations: Operations, access: Access, limits: Limits) -> None:
        self.metrics = Metrics()
        self._operations = operations
        self._access = access
        self._limits = limits
        self._replays = Replays()
        self._threads = ThreadPoolExecutor(limits.threads, "tiltyard-request")
        self._changes: set[asyncio.Task[Answer]] = set()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(Request(scope), receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.gather(*self._changes, return_exceptions=True)
                self._threads.shutdown(wait=False, cancel_futures=True)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, request: Request, receive: Receive, send: Send) -> None:
        self.metrics.running += 1
        status = 0
        answer = None
        try:
            answer = await self._answered(request, receive)
            await self._send(answer, request, send)
            status = answer.status
        except ClientGone:
            self.metrics.cut_off("gone")
        except TimeoutError:
            self.metrics.cut_off("slow")
            request.abort()
        finally:
            self.metrics.running -= 1
            self._note(request, status, 0 if answer is None else len(answer.body))
        if status and request.lingers:
            await _linger(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answered(self, request: Request, receive: Receive) -> Answer:
        try:
            own = OWN_PATHS.get(request.path)
            if own is not None:
                return await self._own(own, request)
            if not is_catalogs(request.path):
                raise Failure(404, 0, "there is nothing here; the catalog is below /v1, see /openapi.json")
            return await self._catalogs(request, receive)
        except ClientGone:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                log.exception("request %s failed", request.id)
                failure = broken()
            return failed(failure, request.id)

    # -- the catalog ---------------------------------------------------------------------------------

    async def _catalogs(self, request: Request, receive: Receive) -> Answer:
        asked = asked_for(request.method, request.path, request.query)
        request.operation = asked.route.operation
        caller = self._caller(request)
        if self.metrics.running > self._limits.requests:
            raise busy(f"{self._limits.requests:,} requests are at work or wait", RETRY_AFTER_SECONDS)
        self._replays.check(request.headers.get(SERVER_HEADER))
        key = request.headers.get(KEY_HEADER)
        if key is None or asked.route.reads:
            body = await self._body(asked, request, receive)
            return await self._within_time(self._work(asked, caller, body, request))
        what = _told_apart(request)
        earlier = self._replays.find(caller.name, key, what)
        if earlier is not None:
            return await self._within_time(asyncio.shield(earlier))
        self._replays.begin(caller.name, key, what)
        try:
            body = await self._body(asked, request, receive)
        except BaseException:
            self._replays.drop(caller.name, key)
            raise
        change = asyncio.ensure_future(self._change(asked, caller, body, request, key))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await self._within_time(asyncio.shield(change))

    async def _change(
        self, asked: Asked, caller: Caller, body: Received, request: Request, key: str
    ) -> Answer:
        """Work that goes on when its client is gone: the answer is kept for it."""
        answer = await self._work(asked, caller, body, request)
        self._replays.keep(caller.name, key, answer)
        return answer

    def _caller(self, request: Request) -> Caller:
        caller = self._access.caller(request.headers.get("authorization"), request.headers.get("x-api-key"))
        request.caller = caller.name
        return caller

    async def _body(self, asked: Asked, request: Request, receive: Receive) -> Received:
        limit = self._limits.upload_bytes if asked.route.body is Body.ROWS else self._limits.json_bytes
        declared_length(request.headers.get("content-length"), limit)
        body = await received(receive, limit, self._limits)
        request.received = body.nbytes
        request.is_read = True
        return body

    async def _work(self, asked: Asked, caller: Caller, body: Received, request: Request) -> Answer:
        self.metrics.handed += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads,
                self._operations.answer,
                asked,
                caller,
                body.data,
                request.headers.get("content-type"),
                request.id,
            )
        finally:
            self.metrics.handed -= 1
            body.close()

    async def _within_time(self, work: Awaitable[Answer]) -> Answer:
        try:
            return await asyncio.wait_for(work, self._limits.seconds)
        except TimeoutError:
            raise unavailable(
                f"the request was not done in {self._limits.seconds:g} seconds; a change may still be made"
            ) from None

    # -- the server's own ------------------------------------------------------------------------------

    async def _own(self, name: str, request: Request) -> Answer:
        request.operation = name
        if request.method != "GET":
            failure = invalid(f"{request.path} is asked for by GET, found {request.method}", 405)
            failure.headers = (("allow", "GET"),)
            raise failure
        if name not in FOR_ANYBODY:
            self._caller(request)
        match name:
            case "healthz":
                return Answer(200, b'{"status":"ok"}', JSON)
            case "readyz":
                return await self._ready()
            case "metrics":
                return Answer(200, self.metrics.text().encode(), CONTENT_TYPE)
            case _:
                return Answer(200, await asyncio.to_thread(document), JSON)

    async def _ready(self) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(
                loop.run_in_executor(self._threads, self._operations.ready), self._limits.head_seconds
            )
        except TimeoutError:
            raise unavailable("the catalog did not answer in time") from None
        except Exception as error:
            log.warning("the catalog cannot be read: %s", error)
            raise unavailable("the catalog cannot be read") from error
        return Answer(200, b'{"status":"ready"}', JSON)

    # -- the way back ----------------------------------------------------------------------------------

    async def _send(self, answer: Answer, request: Request, send: Send) -> None:
        headers = [(b"content-length", str(len(answer.body)).encode())]
        if answer.content_type is not None:
            headers.append((b"content-type", answer.content_type.encode()))
        headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers]
        if not request.is_read:
            headers.append((b"connection", b"close"))  # nobody reads the rest of the body
        headers.append((REQUEST_ID.encode(), request.id.encode()))
        headers.append((SERVER_HEADER.encode(), self._replays.server.encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = memoryview(answer.body)
        for begin in range(0, max(len(body), 1), SENT_AT_ONCE):
            piece = body[begin : begin + SENT_AT_ONCE]
            more = begin + SENT_AT_ONCE < len(body) or request.lingers
            message = {"type": "http.response.body", "body": bytes(piece), "more_body": more}
            await asyncio.wait_for(send(message), self._limits.step_seconds)

    def _note(self, request: Request, status: int, sent: int) -> None:
        seconds = runtime.monotonic() - request.since
        self.metrics.answered(request.operation, status, seconds, request.received, sent)
        access_log.info(
            '%s %s "%s %s" %d %d %.1fms %s',
            request.caller,
            request.operation,
            request.method,
            request.path,
            status,
            sent,
            seconds * 1e3,
            request.id,
        )


async def _linger(receive: Receive) -> None:
    """Take in, and forget, the rest of a body, for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass


def _told_apart(request: Request) -> str:
    """What tells one change from another, as far as it is known before the body."""
    return f"{request.path}?{request.query} {request.headers.get('content-length')}"


def _request_id(given: str | None) -> str:
    """The id that the client or a proxy gave the request, if it can stand in a log; else a new one."""
    if (
        given
        and len(given) <= MAX_REQUEST_ID
        and given.isascii()
        and given.isprintable()
        and " " not in given
    ):
        return given
    return str(runtime.uuid4())
