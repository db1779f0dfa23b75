"""Processes for tests of races: each runs source text in a namespace of its own and answers over a pipe.

`ours(4)` and `peers(2)` hand out running processes with `lance` bound to our drop-in face or to the official
package; processes are kept for the whole session, because starting one costs more than most tests. `begin`
returns at once and `answer` waits, so that several can run at the same time. `together` starts all of them on
one block and collects the answers; a file makes them leave the line at the same moment.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 120
STARTUP_SECONDS = 60


class WorkerError(Exception):
    """The block raised in the worker; `kind` is the exception's class name there."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}\n{trace}")
        self.kind = kind
        self.message = message


class Worker:
    """One process; `lance` in it is the package named by `implementation` ('tiltyard.lance' or 'lance')."""

    def __init__(self, implementation: str) -> None:
        ours, theirs = multiprocessing.connection.Pipe()
        env = dict(os.environ, LANCE_LOG="error", PYTHONWARNINGS="ignore")
        env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), implementation],
            pass_fds=[theirs.fileno()],
            env=env,
        )
        theirs.close()
        self._pipe = ours

    def begin(self, source: str, **variables: Any) -> None:
        """Start a block of statements; its answer is the variable `result`."""
        self._pipe.send((source, variables))

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        if not self._pipe.poll(seconds):
            self.kill()
            raise TimeoutError(f"a worker did not answer within {seconds} s")
        ok, answer = self._pipe.recv()
        if not ok:
            raise WorkerError(*answer)
        return answer

    @property
    def has_answered(self) -> bool:
        """Whether the block has ended, or the process."""
        return self._pipe.poll(0)

    def kill(self) -> None:
        """SIGKILL: no `finally`, no buffers flushed."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._pipe.close()
        self._process.wait(timeout=20)


class Crew:
    """The workers of a session, made when first asked for."""

    def __init__(self) -> None:
        self._workers: dict[str, list[Worker]] = {"tiltyard.lance": [], "lance": []}

    def ours(self, count: int) -> list[Worker]:
        return self._some("tiltyard.lance", count)

    def peers(self, count: int) -> list[Worker]:
        return self._some("lance", count)

    def _some(self, implementation: str, count: int) -> list[Worker]:
        living = [w for w in self._workers[implementation] if w.alive]
        while len(living) < count:
            living.append(Worker(implementation))
        self._workers[implementation] = living
        return living[:count]

    def close(self) -> None:
        for workers in self._workers.values():
            for worker in workers:
                if worker.alive:
                    worker.close()


def together(workers: list[Worker], source: str, gate: Path, **variables: Any) -> list[Any]:
    """Run one block in all workers at once (`me` is the worker's number); answers in their order.

    Exceptions are collected first, so that no answer is left in a pipe; the first one is raised.
    """
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.0005)\n"
    for i, worker in enumerate(workers):
        worker.begin(wait + source, me=i, **variables)
    gate.touch()
    answers: list[Any] = []
    failure: Exception | None = None
    for worker in workers:
        try:
            answers.append(worker.answer())
        except (WorkerError, TimeoutError) as error:
            failure = failure or error
    gate.unlink()
    if failure is not None:
        raise failure
    return answers


def _serve(fd: int, implementation: str) -> None:
    import importlib

    pipe = multiprocessing.connection.Connection(fd)
    lance = importlib.import_module(implementation)
    import pyarrow as pa

    while True:
        try:
            source, variables = pipe.recv()
        except EOFError:
            return
        scope: dict[str, Any] = {"lance": lance, "pa": pa, **variables}
        try:
            exec(compile(source, "<worker>", "exec"), scope)
            pipe.send((True, scope.get("result")))
        except BaseException as error:
            pipe.send((False, (type(error).__name__, str(error), traceback.format_exc())))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
