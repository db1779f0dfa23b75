"""`tiltyard serve --workers N`: one socket, several processes that take connections from it.

The first process binds the socket, begins the others, replaces one that dies, and ends all when told to.
A change is kept for repetition by the process that made it: a client whose connection broke may meet another
one, and then hears that the outcome is unknown (docs/server.md).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tiltyard import runtime
from tiltyard.errors import InvalidInput, ServerError

LOOK_SECONDS = 0.1
READY = "ready"
MIN_LIFE_SECONDS = 2.0
"""A worker that lives no longer cannot work at all: it is not begun again."""


def bound(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens. Raises `InvalidInput` where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise InvalidInput(f"cannot listen at {host}:{port}: {error.strerror or error}") from error


def inherited(fd: int) -> socket.socket:
    """The socket that a worker takes connections from."""
    return socket.socket(fileno=fd)


class Workers:
    """The processes behind one socket."""

    def __init__(self, count: int, words: Sequence[str], listening: socket.socket) -> None:
        self._words = [*words, "--inherited", str(listening.fileno())]
        self._fd = listening.fileno()
        self._begun: dict[int, float] = {}
        self._ending = False
        self._all: list[subprocess.Popen[str]] = []
        try:
            for _ in range(count):
                self._all.append(self._new())
            for each in self._all:
                self._await(each)
        except BaseException:
            self.end()
            raise

    def watch(self, started: Callable[[], None]) -> None:
        """Keep them going until this process is told to end. Raises `ServerError` where they cannot."""
        before = {each: signal.signal(each, self._told) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            started()
            while not self._ending:
                runtime.sleep(LOOK_SECONDS)
                self._replace()
        finally:
            self.end()
            for each, handler in before.items():
                signal.signal(each, handler)

    def end(self) -> None:
        """End all, after the requests at work."""
        for each in self._all:
            each.terminate()
        for each in self._all:
            each.wait()

    def _told(self, *_: Any) -> None:
        self._ending = True

    def _new(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tiltyard", "serve", *self._words],
            pass_fds=(self._fd,),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is told to them by this process alone
        )
        self._begun[process.pid] = runtime.monotonic()
        return process

    def _await(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY:
            raise ServerError("a worker did not start; what it said of it stands above")

    def _replace(self) -> None:
        for at, each in enumerate(self._all):
            if each.poll() is None or self._ending:
                continue
            if runtime.monotonic() - self._begun[each.pid] < MIN_LIFE_SECONDS:
                raise ServerError(f"a worker ended at once, with status {each.returncode}")
            print(f"a worker ended with status {each.returncode}; another takes its place", file=sys.stderr)
            self._all[at] = self._new()
            self._await(self._all[at])
