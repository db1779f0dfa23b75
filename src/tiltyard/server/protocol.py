"""uvicorn's HTTP protocol, with limits that it does not have, and JSON errors for what is no HTTP.

Limits: the time and the bytes that a client takes for the head of a request, the bytes that stand between the
pieces of a body (chunk extensions, trailers), and the time in which nothing is taken of an answer, also of
its last piece, which no request waits for any more.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lance_namespace import ErrorCode
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tiltyard import runtime

ABORT = "tiltyard.abort"
"""The extension by which the application ends a connection without waiting for its client."""

MAX_BESIDE_BODY = 512 << 10
"""Bytes of a request that are none of its body; a few pipelined requests that came at once are counted in."""

BESIDE_EACH = 16
"""And so many for each byte of the body: one that comes byte by byte is still a body."""

NO_HTTP = "400 Bad Request", "what was sent is no HTTP request"
TOO_LONG = (
    "431 Request Header Fields Too Large",
    "the head of the request, or what follows its body, is too long",
)


def _answer(status: str, error: str) -> bytes:
    body = {"error": error, "code": int(ErrorCode.INVALID_INPUT), "instance": str(runtime.uuid4())}
    sent = json.dumps(body).encode()
    lines = (f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(sent)}")
    return "\r\n".join((*lines, "connection: close", "", "")).encode() + sent


def protocol_with(head_seconds: float, step_seconds: float) -> type[asyncio.Protocol]:
    """The protocol, for limits in seconds: for a head, and for each further piece of an answer."""

    class Protocol(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None
        _left = 0  # bytes of answers that the client has not taken
        _came = _of_body = 0  # bytes of the request that is being read

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head = self.loop.call_later(head_seconds, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            self._came += len(data)
            super().data_received(data)
            beside = self._came - self._of_body
            if beside > MAX_BESIDE_BODY + BESIDE_EACH * self._of_body and not self.transport.is_closing():
                self._refuse(*TOO_LONG)

        def on_body(self, body: bytes) -> None:
            self._of_body += len(body)
            super().on_body(body)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._came = self._of_body = 0
            extensions: dict[str, Any] = {ABORT: self._abort}
            self.scope["extensions"] = extensions
            if self._head is None:
                self._head = self.loop.call_later(head_seconds, self._too_slow)

        def on_headers_complete(self) -> None:
            self._stop()
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(*NO_HTTP)

        def _unsupported_upgrade_warning(self) -> None:
            """Such a request is answered as any other; that it wished for more is nothing for the log."""

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def _refuse(self, status: str, error: str) -> None:
            self._stop()
            if self.cycle is None or self.cycle.response_complete or self._is_its_body():
                self.transport.write(_answer(status, error))
            self.transport.close()
            self._watch()

        def _is_its_body(self) -> bool:
            """Whether what is wrong belongs to the request that has no answer yet, not to one behind it."""
            return self.cycle.more_body and not self.cycle.response_started

        def _watch(self) -> None:
            """Look after a while whether the client takes what was written."""
            self._left = self.transport.get_write_buffer_size()
            if self._left and self._unread is None:
                self._unread = self.loop.call_later(step_seconds, self._look)

        def _look(self) -> None:
            self._unread = None
            before = self._left
            if before and self.transport.get_write_buffer_size() >= before:
                self._abort()
            else:
                self._watch()

        def _stop(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _too_slow(self) -> None:
            self._head = None
            if not self.transport.is_closing():
                self._abort()

        def _abort(self) -> None:
            if self.cycle is not None:
                self.cycle.disconnected = True  # it writes no more
            self.transport.abort()

    return Protocol
