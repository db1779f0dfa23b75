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
from tiltyard.catalog.rest.wire import KEY_HEADER, OTHER_PROCESS
from tiltyard.dataset.arguments import shown
from tiltyard.server.answers import Answer
from tiltyard.server.failures import Failure, invalid, unavailable

MAX_KEY = 128
KEPT_SECONDS = 600.0
MAX_KEPT = 10_000
MAX_KEPT_BYTES = 64 << 20
"""Of the bodies of kept answers; the oldest are given up first."""


@dataclass(slots=True)
class _Kept:
    asked: str
    done: asyncio.Future[Answer]
    until: float
    nbytes: int = 0


class Replays:
    """The answers of one process, by caller and key. Used from its event loop alone."""

    def __init__(self) -> None:
        self.server = str(runtime.uuid4())
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._nbytes = 0

    def check(self, server: str | None) -> None:
        """Raise the failure of a request that names another process."""
        if server is not None and server != self.server:
            code = int(ErrorCode.SERVICE_UNAVAILABLE)
            raise Failure(OTHER_PROCESS, code, f"this is the process {self.server}; nothing was done here")

    def find(self, caller: str, key: str, asked: str) -> asyncio.Future[Answer] | None:
        """The answer, or the one to come, of a change that was asked for before; None for a new one. `asked`
        tells the change: raises the failure of a key that came with another one.
        """
        self._forget()
        if not 1 <= len(key) <= MAX_KEY:
            raise invalid(f"{KEY_HEADER} has 1 to {MAX_KEY} characters, found {shown(key)}")
        found = self._kept.get((caller, key))
        if found is None:
            return None
        if found.asked != asked:
            raise invalid(f"{KEY_HEADER} {shown(key)} came with another change; each change has its own")
        return found.done

    def begin(self, caller: str, key: str, asked: str) -> asyncio.Future[Answer]:
        """A change begins; its answer is to be given to `keep`."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[caller, key] = _Kept(asked, done, runtime.monotonic() + KEPT_SECONDS)
        return done

    def keep(self, caller: str, key: str, answer: Answer) -> None:
        """The answer of a change that began."""
        kept = self._kept.get((caller, key))
        if kept is not None and not kept.done.done():
            kept.done.set_result(answer)
            kept.nbytes = len(answer.body)
            self._nbytes += kept.nbytes

    def drop(self, caller: str, key: str) -> None:
        """A change did not begin: as if it had never been asked for. Who waits for its answer asks again."""
        kept = self._kept.pop((caller, key), None)
        if kept is not None and not kept.done.done():
            kept.done.set_exception(unavailable("the request that was to make this change broke off"))
            kept.done.exception()  # seen, whether somebody waits or not

    def _forget(self) -> None:
        """Give up what is too old, or too much; a change that runs stays."""
        now, count, gone = runtime.monotonic(), len(self._kept), []
        for name, kept in self._kept.items():
            if kept.until > now and count <= MAX_KEPT and self._nbytes <= MAX_KEPT_BYTES:
                break
            if kept.done.done():
                count -= 1
                self._nbytes -= kept.nbytes
                gone.append(name)
        for each in gone:
            del self._kept[each]
