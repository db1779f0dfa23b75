"""The runtime of ordinary life: the system's clocks, entropy, threads and files.

Nothing starts at import and nothing at construction; threads and generators are made on first use, and made
again in a forked child (decision D57, case T06).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tiltyard.runtime.port import Port

if TYPE_CHECKING:
    import random
    import uuid

    from tiltyard.runtime.pool import Pool
    from tiltyard.runtime.seams import Condition, Event, Lock, Task

T = TypeVar("T")

# The boot clock goes on while the machine sleeps, as other machines' writers do.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.clock_gettime(_BOOT_CLOCK))


class _Event:
    """A flag to wait for, without a lock that an interrupted `set` could keep: `set` again ends what it
    began.

    Each waiter waits for a lock of its own, which `set` opens.
    """

    __slots__ = ("_flag", "_waiters")

    def __init__(self) -> None:
        self._flag = False
        self._waiters: list[threading.Lock] = []

    def set(self) -> None:
        self._flag = True  # first: who comes later does not wait
        for waiter in tuple(self._waiters):
            with suppress(RuntimeError):  # open already
                waiter.release()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, *, deadline: float | None = None) -> bool:
        if self._flag:
            return True
        mine = threading.Lock()
        mine.acquire()
        self._waiters.append(mine)
        try:
            if self._flag:
                return True
            seconds = _seconds_until(deadline)
            if seconds is None:
                mine.acquire()
                return True
            return mine.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)) or self._flag
        finally:
            self._waiters.remove(mine)


class _Condition:
    __slots__ = ("_condition",)

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())

    def __enter__(self) -> bool:
        return self._condition.__enter__()

    def __exit__(self, *failure: Any) -> None:
        self._condition.__exit__(*failure)

    def wait(self, *, deadline: float | None = None) -> bool:
        return self._condition.wait(_seconds_until(deadline))

    def notify(self, n: int = 1) -> None:
        self._condition.notify(n)

    def notify_all(self) -> None:
        self._condition.notify_all()


class _Task(Generic[T]):
    """A thread with a result."""

    __slots__ = ("_error", "_result", "_thread")

    def __init__(self, fn: Callable[..., T], args: tuple[Any, ...], name: str | None) -> None:
        self._error: BaseException | None = None
        self._result: T | None = None
        self._thread = threading.Thread(target=self._run, args=(fn, args), name=name, daemon=True)
        self._thread.start()

    def _run(self, fn: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            self._result = fn(*args)
        except BaseException as error:  # raised again by join
            self._error = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self, *, deadline: float | None = None) -> T:
        self._thread.join(_seconds_until(deadline))
        if self._thread.is_alive():
            raise TimeoutError(f"task {self._thread.name} had not finished at its deadline")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Runtime:
    """All seams between the library and the machine. A simulation derives from it and replaces each."""

    def __init__(self, port: Port | None = None) -> None:
        self.port = port if port is not None else Port()
        self._random: random.Random | None = None
        self._pool: Pool | None = None
        self._waiting_pool: Pool | None = None
        self._guard = threading.Lock()
        self._after_fork: list[weakref.WeakMethod[Callable[[], None]]] = []
        reference = weakref.ref(self)

        def child() -> None:
            runtime = reference()
            if runtime is not None:
                runtime._forked()

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=child)

    # -- time ------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Wall clock, nanoseconds since 1970 UTC. May jump; never use it to measure a wait."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Boot clock, seconds; goes on while the machine sleeps. Deadlines are given in it."""
        return time.clock_gettime(_BOOT_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        time.sleep(seconds)

    # -- chance ----------------------------------------------------------------------------------

    def uuid4(self) -> uuid.UUID:
        """A new random identifier; never the same in two processes, forked ones included."""
        import uuid

        return uuid.UUID(bytes=os.urandom(16), version=4)

    def random(self) -> random.Random:
        """This process's generator, for jitter and samples; seeded by the system, anew in a forked child."""
        generator = self._random
        if generator is None:
            import random

            generator = self._random = random.Random(int.from_bytes(os.urandom(32), "little"))
        return generator

    # -- threads ---------------------------------------------------------------------------------

    def lock(self) -> Lock:
        """A lock that may be held across a store call or a wait."""
        return threading.Lock()

    def leaf_lock(self) -> Lock:
        """A lock for a few plain statements: nothing under it may wait, read or write (D53)."""
        return threading.Lock()

    def event(self) -> Event:
        """A new unset event."""
        return _Event()

    def condition(self) -> Condition:
        """A new condition with its own lock."""
        return _Condition()

    def spawn(self, fn: Callable[..., T], *args: Any, name: str | None = None) -> Task[T]:
        """Run `fn(*args)` beside the caller."""
        return _Task(fn, args, name)

    def cores(self) -> int:
        """Cores that this process may use."""
        from tiltyard.runtime.pool import usable_cores

        return usable_cores()

    def parallel(self, fns: Sequence[Callable[[], T]]) -> list[T]:
        """Run every function, several at a time, the caller helping; results in argument order.

        For CPU work and reads whose order does not matter. The first failure by argument order is raised;
        after a failure nothing new is started. One function, or a single core: run inline.
        """
        if len(fns) < 2:
            return [fn() for fn in fns]
        pool = self._pool
        if pool is None:
            with self._guard:
                pool = self._pool
                if pool is None:
                    from tiltyard.runtime.pool import Pool, usable_cores

                    pool = self._pool = Pool(usable_cores() - 1)
        if pool.workers == 0:
            return [fn() for fn in fns]
        return pool.run(fns)

    def at_once(self, fns: Sequence[Callable[[], T]]) -> list[T]:
        """As `parallel`, for calls that wait for a device: many at a time, however few cores there are."""
        if len(fns) < 2:
            return [fn() for fn in fns]
        with self._guard:
            if self._waiting_pool is None:
                from tiltyard.runtime.pool import WAITING_WORKERS, Pool

                self._waiting_pool = Pool(WAITING_WORKERS)
            pool = self._waiting_pool
        return pool.run(fns)

    # -- processes -------------------------------------------------------------------------------

    def process_id(self) -> int:
        """Changes in a forked child: a handle that belongs to one process compares it."""
        return os.getpid()

    def after_fork(self, callback: Callable[[], None]) -> None:
        """Call the bound method `callback` in every child forked from now on, while its object lives.

        It runs before anything else of the library in the child, with no other thread: make locks anew there.
        """
        with self._guard:
            self._after_fork = [known for known in self._after_fork if known() is not None]
            self._after_fork.append(weakref.WeakMethod(callback))

    def _forked(self) -> None:
        self._guard = threading.Lock()  # another thread of the parent may have held it
        self._pool = None
        self._waiting_pool = None
        self._random = None
        for reference in self._after_fork:
            callback = reference()
            if callback is not None:
                callback()
