"""Events: every waiter wakes, deadlines pass, and an interrupted `set` can be made good by another."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tiltyard import runtime

LONG = 30  # seconds; a hang fails the test


def test_every_waiter_wakes_and_who_comes_later_does_not_wait() -> None:
    event = runtime.event()
    waiters = [runtime.spawn(event.wait) for _ in range(8)]
    event.set()
    assert [waiter.join(deadline=runtime.monotonic() + LONG) for waiter in waiters] == [True] * 8
    assert event.wait() is True


def test_a_deadline_passes_and_a_cleared_event_is_waited_for_again() -> None:
    event = runtime.event()
    assert event.wait(deadline=runtime.monotonic() + 0.01) is False
    event.set()
    assert event.is_set()
    assert event.wait(deadline=0.0) is True
    event.clear()
    assert not event.is_set()
    assert event.wait(deadline=runtime.monotonic()) is False


class _Interrupting:
    """A waiter's lock at which `set` is interrupted once."""

    def __init__(self, lock: Any, times: int = 1) -> None:
        self.lock, self.times = lock, times

    def release(self) -> None:
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt
        self.lock.release()


def test_another_set_ends_what_an_interrupted_one_began() -> None:
    event: Any = runtime.event()
    waiters = [runtime.spawn(event.wait) for _ in range(3)]
    deadline = runtime.monotonic() + LONG
    while len(event._waiters) < 3:
        assert runtime.monotonic() < deadline
        runtime.sleep(0.001)
    locks: list[threading.Lock] = event._waiters
    event._waiters = [_Interrupting(locks[0]), *locks[1:]]
    with pytest.raises(KeyboardInterrupt):
        event.set()
    event._waiters = locks
    event.set()
    assert [waiter.join(deadline=deadline) for waiter in waiters] == [True] * 3
