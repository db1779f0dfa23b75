"""The seams: clocks, identifiers, chance, locks, events, tasks, parallel work and the file-system port.

Everything in the library that touches time, randomness, threads or files does it through the *current*
runtime, so that a simulation can install another one and replay a whole run from a seed (decisions
D51-D57). The file-system port is `current().port`; stores bind it when they are made.

Importing this package starts no thread and loads neither numpy nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard.runtime.real import Runtime
from tiltyard.runtime.seams import Condition, Event, Lock, Task

if TYPE_CHECKING:
    import random as _random_module
    from uuid import UUID

__all__ = [
    "Condition",
    "Event",
    "Lock",
    "Runtime",
    "Task",
    "after_fork",
    "at_once",
    "condition",
    "cores",
    "current",
    "event",
    "install",
    "leaf_lock",
    "lock",
    "monotonic",
    "now_ns",
    "parallel",
    "process_id",
    "random",
    "release_pages",
    "sleep",
    "spawn",
    "touch_pages",
    "uuid4",
]

T = TypeVar("T")

TOUCH_BYTES = 4 * 1024 * 1024
"""Mapped bytes that are touched at once."""
TOUCH_SECONDS = 0.002
"""So long do they take when the disk is asked; from memory it is a tenth of that."""

_current = Runtime()


def current() -> Runtime:
    """The runtime in force."""
    return _current


def install(runtime: Runtime) -> Runtime:
    """Put `runtime` in force and return the one before it; objects made earlier keep the seams they bound."""
    global _current
    before = _current
    _current = runtime
    return before


def now_ns() -> int:
    """Wall clock, nanoseconds since 1970 UTC. May jump; never use it to measure a wait."""
    return _current.now_ns()


def monotonic() -> float:
    """Boot clock, seconds; goes on while the machine sleeps. Deadlines are given in it."""
    return _current.monotonic()


def sleep(seconds: float) -> None:
    """Let others run for so long."""
    _current.sleep(seconds)


def uuid4() -> UUID:
    """A new random identifier."""
    return _current.uuid4()


def random() -> _random_module.Random:
    """This process's generator, for jitter and samples; seeded anew in a forked child."""
    return _current.random()


def lock() -> Lock:
    """A lock that may be held across a store call or a wait."""
    return _current.lock()


def leaf_lock() -> Lock:
    """A lock for a few plain statements: nothing that waits, reads or writes may happen under it."""
    return _current.leaf_lock()


def event() -> Event:
    """A new unset event; `wait` takes `deadline=` in seconds of `monotonic()`."""
    return _current.event()


def condition() -> Condition:
    """A new condition with its own lock; `wait` takes `deadline=` in seconds of `monotonic()`."""
    return _current.condition()


def spawn(fn: Callable[..., T], *args: Any, name: str | None = None) -> Task[T]:
    """Run `fn(*args)` beside the caller; `join()` gives its result or raises what it raised."""
    return _current.spawn(fn, *args, name=name)


def parallel(fns: Sequence[Callable[[], T]]) -> list[T]:
    """Run every function, several at a time, the caller helping; results in argument order."""
    return _current.parallel(fns)


def at_once(fns: Sequence[Callable[[], T]]) -> list[T]:
    """As `parallel`, for calls that wait for a device: many at a time, however few cores there are."""
    return _current.at_once(fns)


def cores() -> int:
    """Cores that this process may use."""
    return _current.cores()


def touch_pages(address: int, nbytes: int) -> None:
    """Have the mapped bytes that are in memory at hand, so that the first read of each page is no fault.

    A part that has to come from the disk shows by the time that it takes; there it stops.
    """
    from tiltyard.runtime.libc import populate

    for at in range(address, address + nbytes, TOUCH_BYTES):
        before = monotonic()
        if not populate(at, min(TOUCH_BYTES, address + nbytes - at)):
            return
        if monotonic() - before > TOUCH_SECONDS:
            return


def release_pages(address: int) -> None:
    """No longer count the pages of a map of a file, which begins at `address`, as memory of this process.
    They may be read as before.
    """
    from tiltyard.runtime.libc import release

    release(address)


def process_id() -> int:
    """The process; a handle that must not be used in a forked child compares it."""
    return _current.process_id()


def after_fork(callback: Callable[[], None]) -> None:
    """Call the bound method `callback` in every forked child while its object lives."""
    _current.after_fork(callback)
