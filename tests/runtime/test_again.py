"""Work that is done again and again."""

from __future__ import annotations

import pytest

from tiltyard import runtime
from tiltyard.runtime.again import Keeper

SECONDS = 60.0


def test_work_is_done_until_it_is_stopped_and_told_each_time() -> None:
    told: list[object] = []
    twice = runtime.event()

    def work() -> int:
        if len(told) >= 2:
            twice.set()
        if not told:
            raise ValueError("not yet")
        return len(told)

    keeper = Keeper(work, 0.0, "test", at_once=True, told=told.append).start()
    assert twice.wait(deadline=runtime.monotonic() + SECONDS)
    keeper.stop()
    assert isinstance(told[0], ValueError)
    assert told[1:] == list(range(1, len(told)))
    assert keeper.passes == len(told) >= 3
    assert (keeper.last, keeper.error, keeper.running, keeper.next_in) == (told[-1], None, False, None)


def test_the_first_time_is_after_the_interval_unless_it_is_asked_for_at_once() -> None:
    done: list[int] = []
    keeper = Keeper(lambda: done.append(1), 3600.0, "test").start()
    end = runtime.monotonic() + SECONDS
    while keeper.next_in is None and runtime.monotonic() < end:
        runtime.sleep(0.001)
    assert keeper.running
    assert not done
    keeper.stop()
    assert not done
    assert keeper.start().running
    keeper.stop()


def test_what_a_caller_does_by_itself_counts_and_is_told_to_it() -> None:
    def work() -> None:
        raise ValueError("no")

    keeper = Keeper(work, 1.0, "test")
    with pytest.raises(ValueError, match="no"):
        keeper.once()
    assert keeper.passes == 1
    assert isinstance(keeper.error, ValueError)
