"""Bodies of requests: read as they come, within limits; large ones in a file without a name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tiltyard import runtime
from tiltyard.runtime.scratch import Spool
from tiltyard.server.failures import Failure, invalid
from tiltyard.server.limits import Limits

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

TOO_LARGE = 413
TOO_SLOW = 408
MIN_BYTES_PER_SECOND = 1024


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for an answer."""


class Received:
    """A body: `data` is bytes, or a buffer over a mapped file; `nbytes` its length."""

    __slots__ = ("_spool", "data", "nbytes")

    def __init__(self, data: Any, spool: Spool) -> None:
        self.data = data
        self.nbytes = spool.size
        self._spool = spool

    def close(self) -> None:
        """Give the file back, where there is one; what is mapped of it stays as long as it is used."""
        self.data = b""
        self._spool.close()


def declared_length(text: str | None, limit: int) -> None:
    """Raise the `Failure` of a body that says that it is too large, before it is sent."""
    if text is None:
        return
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise invalid("content-length must be a whole number")
    if int(text) > limit:
        raise _too_large(limit)


async def received(receive: Receive, limit: int, limits: Limits) -> Received:
    """The body of a request. Raises `Failure` for one that is too large or comes too slowly, `ClientGone`."""
    spool = Spool(limits.memory_bytes)
    since = runtime.monotonic()
    try:
        while True:
            piece, more = await _piece(receive, limits.step_seconds)
            spool.add(piece)
            seconds = runtime.monotonic() - since
            if seconds > limits.step_seconds and spool.size < MIN_BYTES_PER_SECOND * seconds:
                raise Failure(
                    TOO_SLOW, 13, f"the request's body comes with {spool.size / seconds:.0f} bytes a second"
                )
            if spool.size > limit:
                raise _too_large(limit)
            if spool.is_full:
                await asyncio.to_thread(spool.spill)
            if not more:
                break
        data = await asyncio.to_thread(spool.whole) if spool.size > limits.memory_bytes else spool.whole()
    except BaseException:
        spool.close()
        raise
    return Received(data, spool)


async def _piece(receive: Receive, seconds: float) -> tuple[bytes, bool]:
    """The next piece, and whether more follow."""
    try:
        message = await asyncio.wait_for(receive(), seconds)
    except TimeoutError:
        raise Failure(TOO_SLOW, 13, f"no piece of the request's body came for {seconds:g} seconds") from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _too_large(limit: int) -> Failure:
    return invalid(f"the request's body has more than {limit:,} bytes, which is the limit here", TOO_LARGE)
