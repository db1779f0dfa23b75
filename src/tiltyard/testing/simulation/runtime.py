"""The simulated runtime: every seam of `tiltyard.runtime` on the scheduler's time, order and dice."""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from tiltyard import runtime
from tiltyard.runtime import Runtime
from tiltyard.runtime.port import Port
from tiltyard.testing.simulation.scheduler import FIRST_NS, Actor, Scheduler, SimulationError

T = TypeVar("T")


def _ns(deadline: float | None) -> int | None:
    return None if deadline is None else FIRST_NS + round(deadline * 1e9)


class SimulatedLock:
    """A lock that may be held over scheduling points."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Actor | None = None

    def _free(self) -> bool:
        return self._holder is None or self._holder.process.dead

    @property
    def holder(self) -> Actor | None:
        """Who has it."""
        return self._holder

    def acquire(self, blocking: bool = True) -> bool:
        if not blocking and not self._free():
            return False
        self._scheduler.wait(self._free)
        self._holder = self._scheduler.running
        return True

    def release(self) -> None:
        if self._holder is None:
            raise RuntimeError("release of a lock that nobody holds")
        self._holder = None

    def locked(self) -> bool:
        return not self._free()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *failure: Any) -> None:
        self.release()


class SimulatedLeafLock:
    """A lock under which no scheduling point may lie; so nobody else can ever be found holding it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Actor | None = None
        self._held = False

    def acquire(self, blocking: bool = True) -> bool:
        if self._held:
            if not blocking:
                return False
            raise SimulationError("a leaf lock is taken twice")
        self._held, self._holder = True, self._scheduler.running
        if self._holder is not None:
            self._holder.leaf_locks += 1
        return True

    def release(self) -> None:
        if self._holder is not None:
            self._holder.leaf_locks -= 1
        self._held, self._holder = False, None

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimulatedEvent:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False

    def set(self) -> None:
        self._set = True
        if self._scheduler.running is not None:
            self._scheduler.point()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, *, deadline: float | None = None) -> bool:
        return self._scheduler.wait(self.is_set, _ns(deadline))


class SimulatedCondition:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = SimulatedLock(scheduler)
        self._waiting: list[list[bool]] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *failure: Any) -> None:
        if self._lock.holder is self._scheduler.running:  # else it died in `wait`, before it had it again
            self._lock.release()

    def wait(self, *, deadline: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        self._lock.release()
        try:
            self._scheduler.wait(lambda: told[0], _ns(deadline))
        finally:
            if told in self._waiting:
                self._waiting.remove(told)
            self._lock.acquire()
        return told[0]

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told[0] = True
        del self._waiting[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimulatedTask(Generic[T]):
    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self._scheduler = scheduler
        self._actor = actor

    def done(self) -> bool:
        return self._actor.done

    def join(self, *, deadline: float | None = None) -> T:
        if not self._scheduler.wait(self.done, _ns(deadline)):
            raise TimeoutError(f"task {self._actor.name} had not finished at its deadline")
        if self._actor.error is not None:
            self._actor.error_was_told = True
            raise self._actor.error
        result: T = self._actor.result
        return result


class SimulatedRuntime(Runtime):
    """The runtime of one run. `seed` makes identifiers and jitter; accidents come from the choices."""

    def __init__(self, scheduler: Scheduler, port: Port, seed: int = 0) -> None:
        super().__init__(port)
        self.scheduler = scheduler
        self._ids = random.Random(f"ids {seed}")
        self._dice = random.Random(f"dice {seed}")

    # -- time ------------------------------------------------------------------------------------

    def _process(self) -> Any:
        running = self.scheduler.running
        return None if running is None else running.process

    def now_ns(self) -> int:
        process = self._process()
        return self.scheduler.now_ns + (0 if process is None else process.skew_ns)

    def monotonic(self) -> float:
        return (self.scheduler.now_ns - FIRST_NS) / 1e9

    def sleep(self, seconds: float) -> None:
        scheduler = self.scheduler
        scheduler.wait(lambda: False, scheduler.now_ns + max(0, round(seconds * 1e9)))

    # -- chance ----------------------------------------------------------------------------------

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._ids.getrandbits(128), version=4)

    def random(self) -> random.Random:
        return self._dice

    # -- threads ---------------------------------------------------------------------------------

    def lock(self) -> Any:
        return SimulatedLock(self.scheduler)

    def leaf_lock(self) -> Any:
        return SimulatedLeafLock(self.scheduler)

    def event(self) -> Any:
        return SimulatedEvent(self.scheduler)

    def condition(self) -> Any:
        return SimulatedCondition(self.scheduler)

    def spawn(self, fn: Callable[..., T], *args: Any, name: str | None = None) -> Any:
        running = self.scheduler.running
        if running is None:
            raise SimulationError("a task is spawned outside of every actor")
        actor = self.scheduler.actor(running.process, lambda: fn(*args), name and f"{running.name}.{name}")
        self.scheduler.point(f"spawns {actor.name}")
        return SimulatedTask(self.scheduler, actor)

    def cores(self) -> int:
        return 1

    def parallel(self, fns: Sequence[Callable[[], T]]) -> list[T]:
        return [fn() for fn in fns]

    def at_once(self, fns: Sequence[Callable[[], T]]) -> list[T]:
        return [fn() for fn in fns]

    # -- processes -------------------------------------------------------------------------------

    def process_id(self) -> int:
        process = self._process()
        return 0 if process is None else int(process.number)

    def after_fork(self, callback: Callable[[], None]) -> None:
        """Nothing is forked in a simulation."""


@contextmanager
def installed(simulated: SimulatedRuntime) -> Iterator[None]:
    """Within the block the simulated runtime is in force."""
    before = runtime.install(simulated)
    try:
        yield
    finally:
        runtime.install(before)


def call_site(package: str = "tiltyard", below: str = "tiltyard.testing") -> str:
    """The innermost frame of the product on the stack: where a scheduling point was reached."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(package) and not name.startswith((below, "tiltyard.runtime")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"
