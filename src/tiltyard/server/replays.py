"""Answers to changes, kept for a while: a client whose answer was lost asks again and gets it.

The client sends `idempotency-key`, one for each change, and `tiltyard-server`, which names the one process
that may do it (every answer of ours names its process so). A change that runs, or is done, is not done twice:
the repetition gets its answer. Another process than the named one refuses (status 421), before anything: so
a change that was sent to one process and lost is never done by a second one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from lance_namespace import ErrorCode

from tiltyard import runtime
from tiltyard.dataset.arguments import shown
from tiltyard.server.answers import Answer
from tiltyard.server.failures import Failure, invalid, unavailable

KEY_HEADER = "idempotency-key"
SERVER_HEADER = "tiltyard-server"
OTHER_PROCESS = 421

MAX_KEY = 128
KEPT_SECONDS = 600.0
MAX_KEPT = 10_000


@dataclass(slots=True)
class _Kept:
    done: asyncio.Future[Answer]
    until: float


class Replays:
    """The answers of one process, by caller and key. Used from its event loop alone."""

    def __init__(self) -> None:
        self.server = str(runtime.uuid4())
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def check(self, server: str | None) -> None:
        """Raise the failure of a request that names another process."""
        if server is not None and server != self.server:
            code = int(ErrorCode.SERVICE_UNAVAILABLE)
            raise Failure(OTHER_PROCESS, code, f"this is the process {self.server}; nothing was done here")

    def find(self, caller: str, key: str) -> asyncio.Future[Answer] | None:
        """The answer, or the one to come, of a change that was asked for before; None for a new one."""
        self._forget()
        if not 1 <= len(key) <= MAX_KEY:
            raise invalid(f"{KEY_HEADER} has 1 to {MAX_KEY} characters, found {shown(key)}")
        found = self._kept.get((caller, key))
        return None if found is None else found.done

    def begin(self, caller: str, key: str) -> asyncio.Future[Answer]:
        """A change begins; its answer is to be set into what this gives."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[caller, key] = _Kept(done, runtime.monotonic() + KEPT_SECONDS)
        return done

    def drop(self, caller: str, key: str) -> None:
        """A change did not begin: as if it had never been asked for. Who waits for its answer asks again."""
        kept = self._kept.pop((caller, key), None)
        if kept is not None and not kept.done.done():
            kept.done.set_exception(unavailable("the request that was to make this change broke off"))
            kept.done.exception()  # seen, whether somebody waits or not

    def _forget(self) -> None:
        now = runtime.monotonic()
        while self._kept:
            first = next(iter(self._kept.values()))
            if not first.done.done() or (first.until > now and len(self._kept) <= MAX_KEPT):
                return
            self._kept.popitem(last=False)
