"""A piece of work that is done again and again, on a task of its own, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from tiltyard import runtime

if TYPE_CHECKING:
    from tiltyard.runtime.seams import Event, Lock, Task

Done = TypeVar("Done")


class Keeper(Generic[Done]):
    """Does a piece of work every so often, until `stop`. What it raises is kept, and the next time tried
    again. It may be started again.
    """

    def __init__(
        self,
        work: Callable[[], Done],
        interval: float,
        name: str,
        *,
        at_once: bool = False,
        told: Callable[[Done | Exception], None] | None = None,
    ) -> None:
        """`interval`: seconds from the end of one time to the next; the first is after one, or `at_once`.
        `told` gets what each time gave or raised; it is called on the keeper's task.
        """
        self._work = work
        self._interval = interval
        self._name = name
        self._at_once = at_once
        self._told = told
        self._stop: Event = runtime.event()
        self._guard: Lock = runtime.leaf_lock()
        self._task: Task[None] | None = None
        self._passes = 0
        self._last: Done | None = None
        self._error: Exception | None = None
        self._next_at: float | None = None

    def start(self) -> Keeper[Done]:
        """Begin, where it does not run."""
        if not self.running:
            self._stop.clear()
            self._task = runtime.spawn(self._run, name=self._name)
        return self

    def stop(self, *, deadline: float | None = None) -> None:
        """End when what runs now is done. `deadline` (of `runtime.monotonic()`): raises `TimeoutError` when
        it has not ended by then; it still will.
        """
        self.end()
        if self._task is not None:
            self._task.join(deadline=deadline)

    def end(self) -> None:
        """The same without waiting for it."""
        self._stop.set()

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._task is not None and not self._task.done()

    @property
    def passes(self) -> int:
        """How often it was done."""
        with self._guard:
            return self._passes

    @property
    def last(self) -> Done | None:
        """What the last time gave that did not fail; None before."""
        with self._guard:
            return self._last

    @property
    def error(self) -> Exception | None:
        """What the last time failed with; None where it did not."""
        with self._guard:
            return self._error

    @property
    def next_in(self) -> float | None:
        """Seconds to the next time; None while it is done, and where it does not run."""
        running = self.running
        with self._guard:
            at = self._next_at if running else None
        return None if at is None else max(0.0, at - runtime.monotonic())

    def once(self) -> Done:
        """Do it now, on the caller's task; counts like the others. Raises what the work raises."""
        try:
            done = self._work()
        except Exception as error:
            with self._guard:
                self._passes += 1
                self._error = error
            raise
        with self._guard:
            self._passes += 1
            self._last, self._error = done, None
        return done

    def _run(self) -> None:
        if not self._at_once:
            self._wait()
        while not self._stop.is_set():
            with self._guard:
                self._next_at = None
            outcome: Done | Exception
            try:
                outcome = self.once()
            except Exception as error:  # kept, and told to who asks: the next time may go well
                outcome = error
            if self._told is not None:
                self._told(outcome)
            self._wait()

    def _wait(self) -> None:
        until = runtime.monotonic() + self._interval
        with self._guard:
            self._next_at = until
        self._stop.wait(deadline=until)
