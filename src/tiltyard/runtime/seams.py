"""The shapes of what a runtime hands out: locks, events, conditions and tasks.

Every wait takes a *deadline* in seconds of `monotonic()`, never a duration: a simulation moves its clock
only when every actor waits, and a deadline has the same meaning under both clocks (decision D54).
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Lock(Protocol):
    """Mutual exclusion; not re-entrant. Use it as a context manager."""

    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    def locked(self) -> bool: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...


class Event(Protocol):
    """A flag that threads wait for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, *, deadline: float | None = None) -> bool:
        """Wait until set or until `monotonic()` reaches `deadline`; whether it is set."""
        ...


class Condition(Protocol):
    """A lock with a waiting room. `wait` and `notify` need the lock held."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...
    def wait(self, *, deadline: float | None = None) -> bool:
        """Release, wait, take the lock again; False when the deadline passed without a notification."""
        ...

    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...


class Task(Protocol[T_co]):
    """Work that was spawned."""

    def done(self) -> bool: ...
    def join(self, *, deadline: float | None = None) -> T_co:
        """The function's result; raises what it raised, or `TimeoutError` when the deadline passes first."""
        ...
