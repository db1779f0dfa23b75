"""The pools behind `runtime.parallel` (cores - 1 workers) and `runtime.at_once` (`WAITING_WORKERS`), made on
first use; the caller works too.

Work is handed out as *invitations* to help with a job; whoever comes takes the next function of it. The
caller helps itself, so a job always finishes, also when every worker is busy or when a job is started from
inside another one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

MAX_WORKERS = 63  # threads; more never helped decoding, and each has a stack

WAITING_WORKERS = 8
"""Threads that wait for devices. A journal that is asked for many syncs at once does them in few steps."""


def usable_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


class _Working(threading.local):
    """The job that this thread helps with."""

    job: _Job | None = None


_working = _Working()


class _Job:
    """Functions that belong to one call of `parallel`, and their results.

    Invariant 1: a function is taken by exactly one thread (the counter moves under the lock).
    Invariant 2: `finished` is released exactly once, when nothing of the job runs or will run any more.
    """

    def __init__(self, fns: Sequence[Callable[[], Any]]) -> None:
        self.fns = fns
        self.results: list[Any] = [None] * len(fns)
        self.errors: dict[int, BaseException] = {}
        self.next = 0
        self.running = 0
        self.lock = threading.Lock()
        self.finished = threading.Lock()
        self.finished.acquire()

    @property
    def left(self) -> int:
        """Functions that nobody has taken; a moment later it may be fewer."""
        return len(self.fns) - self.next

    def help(self) -> None:
        """Run functions of this job until none is left."""
        outer, _working.job = _working.job, self
        try:
            self._help()
        finally:
            _working.job = outer

    def _help(self) -> None:
        while True:
            with self.lock:
                index = self.next
                if index >= len(self.fns):
                    return
                self.next = index + 1
                self.running += 1
            try:
                self.results[index] = self.fns[index]()
            except BaseException as error:  # handed to the caller of `parallel`, which raises it
                self.errors[index] = error
            with self.lock:
                self.running -= 1
                if self.errors:
                    self.next = len(self.fns)  # a failed job starts nothing new
                if self.running == 0 and self.next >= len(self.fns):
                    self.finished.release()
                    return


class Pool:
    """Daemon threads that help with jobs. They do not survive a fork: the child makes a new pool."""

    def __init__(self, workers: int) -> None:
        self.workers = min(workers, MAX_WORKERS)
        self._invitations: SimpleQueue[_Job] = SimpleQueue()
        for number in range(self.workers):
            threading.Thread(target=self._work, name=f"tiltyard-{number}", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._invitations.get().help()

    def run(self, fns: Sequence[Callable[[], T]]) -> list[T]:
        """Results in argument order. The failure with the lowest argument index is raised."""
        outer = _working.job
        if outer is not None and outer.left >= self.workers:
            # Everybody has work for a while; handing out parts of ours would only cost.
            return [fn() for fn in fns]
        job = _Job(fns)
        for _ in range(min(self.workers, len(fns) - 1)):
            self._invitations.put(job)
        job.help()
        job.finished.acquire()
        if job.errors:
            raise job.errors[min(job.errors)]
        return job.results
