"""Catches product code that reaches around the runtime during a run: time, chance, threads, files.

Whatever the product does behind `tiltyard.runtime` would make two runs of one seed differ. In a guarded
block the standard library's doors raise `NotDeterministic` with the place that knocked; everything that is
not the product (Arrow, NumPy, the test itself) goes through as ever.
"""

from __future__ import annotations

import builtins
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tiltyard.testing.simulation.scheduler import Scheduler, SimulationError

DOORS: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
    *((time, name) for name in ("clock_gettime", "clock_gettime_ns")),
    *((random, name) for name in ("random", "randrange", "randint", "choice", "shuffle", "getrandbits")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    *((os, name) for name in ("urandom", "open", "listdir", "scandir", "stat", "rename", "link", "unlink")),
    (threading.Thread, "start"),
    (builtins, "open"),
)
"""What product code may reach only through its runtime."""

_OURS = "tiltyard"
_ALLOWED = ("tiltyard.testing", "tiltyard.runtime")
"""The harness and the seams themselves."""


class NotDeterministic(SimulationError):
    """Product code touched the real world behind its runtime."""


@contextmanager
def guarded(scheduler: Scheduler) -> Iterator[None]:
    """Within the block the doors are watched while an actor runs; who knocks ends the run."""
    real = [(owner, name, getattr(owner, name)) for owner, name in DOORS]
    for owner, name, function in real:
        setattr(owner, name, _watched(function, f"{getattr(owner, '__name__', owner)}.{name}", scheduler))
    try:
        yield
    finally:
        for owner, name, function in real:
            setattr(owner, name, function)


def _watched(function: Callable[..., Any], what: str, scheduler: Scheduler) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        module = str(caller.f_globals.get("__name__", ""))
        ours = module.split(".")[0] == _OURS and not module.startswith(_ALLOWED)
        if ours and scheduler.running is not None:
            raise scheduler.blamed(
                NotDeterministic(
                    f"{module}:{caller.f_lineno} calls {what} behind the runtime; use tiltyard.runtime, "
                    "which a simulation replaces"
                )
            )
        return function(*args, **kwargs)

    return call
