"""The other processes of a probe, and how they are asked."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from tiltyard.errors import StoreError

ANSWER_SECONDS = 60.0
"""So long may an order take; longer, and the store hangs."""

END_SECONDS = 10.0

PROGRAM = "from tiltyard.testing.probe.worker import main; main()"


class Worker:
    """One process. `begin` an order, do something else, fetch the `answer`."""

    def __init__(self, opener: str, arguments: Sequence[Any], below: str) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt is for the one who asked; it ends the others
        )
        self._send({"opener": opener, "arguments": list(arguments), "below": below})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which the missing answer tells
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def begin(self, order: str, **arguments: Any) -> None:
        """Send an order."""
        self._send({"do": order, **arguments})

    def answer(self) -> Any:
        """What it answers; StoreError if it fails, dies, or takes longer than `ANSWER_SECONDS`."""
        out = self._process.stdout
        assert out is not None
        waiting = select.poll()  # select() knows no handles beyond 1,023
        waiting.register(out, select.POLLIN)
        if not waiting.poll(ANSWER_SECONDS * 1000):
            raise StoreError(f"a process of the probe did not answer within {ANSWER_SECONDS:g} s")
        line = out.readline()
        if not line:
            raise StoreError(f"a process of the probe ended by itself (status {self._process.wait()})")
        told = json.loads(line)
        if "error" in told:
            raise StoreError(f"in another process: {told['error']}")
        return told["answer"]

    def ask(self, order: str, **arguments: Any) -> Any:
        """`begin` and `answer`."""
        self.begin(order, **arguments)
        return self.answer()

    def end(self) -> None:
        """Have it end; kill it if it does not."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crew:
    """Some processes on one store, started at once."""

    def __init__(self, size: int, opener: str, arguments: Sequence[Any], below: str) -> None:
        self.workers: list[Worker] = []
        try:
            for _ in range(size):
                self.workers.append(Worker(opener, arguments, below))
            for worker in self.workers:
                worker.answer()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for worker in self.workers:
            worker.end()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
