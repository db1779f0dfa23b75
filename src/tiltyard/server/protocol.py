"""uvicorn's HTTP protocol, with a limit for the time that a client takes to send the head of a request, and
with the specification's JSON for what is no HTTP.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lance_namespace import ErrorCode
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ABORT = "tiltyard.abort"
"""The extension by which the application ends a connection without waiting for its client."""

_NO_HTTP = json.dumps(
    {"error": "what was sent is no HTTP request", "code": int(ErrorCode.INVALID_INPUT)}
).encode()


def protocol_with(head_seconds: float) -> type[asyncio.Protocol]:
    """The protocol, for a limit in seconds."""

    class Protocol(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head = self.loop.call_later(head_seconds, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            extensions: dict[str, Any] = {ABORT: self.transport.abort}
            self.scope["extensions"] = extensions
            if self._head is None:
                self._head = self.loop.call_later(head_seconds, self._too_slow)

        def on_headers_complete(self) -> None:
            self._stop()
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            self._stop()
            lines = (
                b"HTTP/1.1 400 Bad Request",
                b"content-type: application/json",
                b"content-length: " + str(len(_NO_HTTP)).encode(),
                b"connection: close",
                b"",
                _NO_HTTP,
            )
            self.transport.write(b"\r\n".join(lines))
            self.transport.close()

        def _stop(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _too_slow(self) -> None:
            self._head = None
            if not self.transport.is_closing():
                self.transport.abort()

    return Protocol
