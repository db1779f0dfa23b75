"""Bodies of requests: read as they come, within limits; large ones in a file without a name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tiltyard import runtime
from tiltyard.runtime.scratch import Scratch
from tiltyard.server.failures import Failure, invalid
from tiltyard.server.limits import MIB, Limits

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

TOO_LARGE = 413
TOO_SLOW = 408
MIN_BYTES_PER_SECOND = 1024
PIECE = 4 * MIB
"""Bytes that are written to the file at once."""


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for an answer."""


class Received:
    """A body: `data` is bytes, or a buffer over a mapped file; `nbytes` its length."""

    __slots__ = ("_scratch", "data", "nbytes")

    def __init__(self, data: Any, nbytes: int, scratch: Scratch | None = None) -> None:
        self.data = data
        self.nbytes = nbytes
        self._scratch = scratch

    def close(self) -> None:
        """Give the file back, where there is one; what is mapped of it stays as long as it is used."""
        self.data = b""
        if self._scratch is not None:
            self._scratch.close()


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
    pieces: list[bytes] = []
    held = total = 0
    scratch: Scratch | None = None
    since = runtime.monotonic()
    try:
        while True:
            try:
                message = await asyncio.wait_for(receive(), limits.step_seconds)
            except TimeoutError:
                raise Failure(
                    TOO_SLOW, 13, f"no piece of the request's body came for {limits.step_seconds:g} seconds"
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            total += len(piece)
            seconds = runtime.monotonic() - since
            if seconds > limits.step_seconds and total < MIN_BYTES_PER_SECOND * seconds:
                raise Failure(
                    TOO_SLOW, 13, f"the request's body comes with {total / seconds:.0f} bytes a second"
                )
            if total > limit:
                raise _too_large(limit)
            if piece:
                pieces.append(piece)
                held += len(piece)
            more = message.get("more_body", False)
            spills = total > limits.memory_bytes and (held >= PIECE or not more)
            if spills:
                if scratch is None:
                    scratch = await asyncio.to_thread(Scratch)
                await asyncio.to_thread(scratch.extend, pieces)
                pieces, held = [], 0
            if not more:
                break
    except BaseException:
        if scratch is not None:
            scratch.close()
        raise
    if scratch is None:
        return Received(b"".join(pieces), total)
    return Received(await asyncio.to_thread(scratch.map), total, scratch)


def _too_large(limit: int) -> Failure:
    return invalid(f"the request's body has more than {limit:,} bytes, which is the limit here", TOO_LARGE)
