"""The official implementation in one long-lived process of its own, driven by source text over a pipe.

`peer("lance.dataset(p).to_table()", p=path)` evaluates an expression there and returns its value (pickled);
a block of statements leaves its answer in a variable `result`. An exception there raises `PeerError` here.
One process serves a whole test session: importing pylance costs half a second, and its threads do not
survive a fork.
"""

from __future__ import annotations

import io
import multiprocessing.connection
import os
import pickle
import subprocess
import sys
import traceback
from typing import Any

STARTUP_SECONDS = 60


class PeerError(Exception):
    """The official implementation raised; `kind` is the exception's class name there."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.trace = trace


class Foreign:
    """Stands for an object of the official package in an answer; ask the peer for plain values of it."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        self.parts = parts

    def __setstate__(self, state: Any) -> None:
        self.parts = (state,)

    @classmethod
    def __deserialize__(cls, *parts: Any) -> Foreign:
        return cls(*parts)


class _Unpickler(pickle.Unpickler):
    """Loads no object of the official package: that would import it into the test process."""

    def find_class(self, module: str, name: str) -> Any:
        return Foreign if module.split(".")[0] == "lance" else super().find_class(module, name)


class Peer:
    """A running peer process; call it with source text and the variables that the text uses."""

    def __init__(self) -> None:
        ours, theirs = multiprocessing.connection.Pipe()
        env = dict(os.environ, LANCE_LOG="error", PYTHONWARNINGS="ignore")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=env
        )
        theirs.close()
        self._pipe = ours
        if not ours.poll(STARTUP_SECONDS):
            raise RuntimeError("the peer process did not start")
        ours.recv()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __call__(self, source: str, **variables: Any) -> Any:
        self._pipe.send((source, variables))
        ok, answer = _Unpickler(io.BytesIO(self._pipe.recv_bytes())).load()
        if not ok:
            raise PeerError(*answer)
        return answer

    def close(self) -> None:
        self._pipe.close()
        self._process.wait(timeout=10)


def _serve(fd: int) -> None:
    pipe = multiprocessing.connection.Connection(fd)
    import lance
    import numpy as np
    import pyarrow as pa

    pipe.send("ready")
    kept: dict[str, Any] = {"lance": lance, "pa": pa, "np": np, "kept": {}}
    while True:
        try:
            source, variables = pipe.recv()
        except EOFError:
            return
        scope = {**kept, **variables}
        try:
            try:
                code = compile(source, "<peer>", "eval")
            except SyntaxError:
                exec(compile(source, "<peer>", "exec"), scope)
                answer = scope.get("result")
            else:
                answer = eval(code, scope)
            pipe.send((True, answer))
        except BaseException as error:
            pipe.send((False, (type(error).__name__, str(error), traceback.format_exc())))


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
