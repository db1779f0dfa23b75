"""The combining queue's invariants, by number as in its module."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from tiltyard import runtime
from tiltyard.errors import OutcomeUnknown
from tiltyard.runtime.combine import CombiningQueue

_LONG = 30  # seconds; a hang fails the test


class _Rounds:
    """A `run` that notes its rounds and can be held in the first one."""

    def __init__(self, held: bool = False) -> None:
        self.rounds: list[list[int]] = []
        self.inside = 0
        self.overlapped = False
        self.begun, self.gate = threading.Event(), threading.Event()
        if not held:
            self.gate.set()

    def __call__(self, items: list[int]) -> list[int | BaseException]:
        self.inside += 1
        self.overlapped |= self.inside > 1
        self.rounds.append(items)
        self.begun.set()
        assert self.gate.wait(_LONG)
        self.inside -= 1
        return [ValueError(str(item)) if item % 10 == 7 else item * 2 for item in items]


def _submit_all(queue: CombiningQueue[int, int], items: range) -> list[runtime.Task[int]]:
    return [runtime.spawn(queue.submit, item) for item in items]


def _queued(queue: CombiningQueue[int, int], count: int) -> None:
    deadline = runtime.monotonic() + _LONG
    while len(queue._queue) < count:
        assert runtime.monotonic() < deadline
        runtime.sleep(0.001)


def test_a_lone_caller_does_its_own_work() -> None:
    run = _Rounds()
    assert CombiningQueue(run).submit(4) == 8
    assert run.rounds == [[4]]


def test_callers_that_wait_are_served_together_in_order_each_with_its_answer() -> None:  # 2, 3
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    others = []
    for item in (1, 2, 7, 3):
        others.append(runtime.spawn(queue.submit, item))
        _queued(queue, len(others))
    run.gate.set()
    assert leader.join() == 0
    assert others[0].join() == 2
    with pytest.raises(ValueError, match=r"^7$"):
        others[2].join()
    assert others[3].join() == 6
    assert run.rounds == [[0], [1, 2, 7, 3]]


def test_rounds_never_overlap_and_no_item_is_lost_under_load() -> None:  # 1, 2
    run = _Rounds()
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_items=3, max_rounds=2)
    tasks = [(n, runtime.spawn(queue.submit, n)) for n in range(200) if n % 10 != 7]
    deadline = runtime.monotonic() + _LONG
    assert all(task.join(deadline=deadline) == n * 2 for n, task in tasks)
    assert not run.overlapped
    assert sorted(item for batch in run.rounds for item in batch) == [n for n, _ in tasks]
    assert max(map(len, run.rounds)) <= 3


def test_a_leader_hands_over_after_its_rounds() -> None:  # 4
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_items=1, max_rounds=2)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    others = _submit_all(queue, range(1, 6))
    _queued(queue, 5)
    rounds_when_done: list[int] = []
    original = queue._pass_on
    queue._pass_on = lambda: (rounds_when_done.append(len(run.rounds)), original())[1]  # type: ignore[method-assign]
    run.gate.set()
    assert leader.join(deadline=runtime.monotonic() + _LONG) == 0
    for task in others:
        task.join(deadline=runtime.monotonic() + _LONG)
    assert rounds_when_done[0] == 2


def test_a_failing_round_fails_its_callers_only() -> None:
    calls = []

    def run(items: list[int]) -> list[int]:
        calls.append(items)
        if len(calls) == 1:
            raise OSError("disk")
        return items

    queue = CombiningQueue(run)
    with pytest.raises(OSError, match="disk"):
        queue.submit(1)
    assert queue.submit(2) == 2


def test_a_wrong_number_of_answers_is_an_error_not_a_hang() -> None:
    with pytest.raises(RuntimeError, match="2 answers"):
        CombiningQueue(lambda items: [1, 2]).submit(1)


def test_an_interrupted_leader_leaves_neither_a_hang_nor_a_false_answer() -> None:
    begun, gate = threading.Event(), threading.Event()
    calls: list[list[int]] = []

    def run(items: list[int]) -> list[int]:
        calls.append(items)
        begun.set()
        assert gate.wait(_LONG)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return items

    queue: CombiningQueue[int, int] = CombiningQueue(run, max_items=2)
    first = runtime.spawn(queue.submit, 1)
    assert begun.wait(_LONG)
    others = []
    for item in (2, 3, 4):
        others.append(runtime.spawn(queue.submit, item))
        _queued(queue, len(others))
    gate.set()
    with pytest.raises(KeyboardInterrupt):
        first.join(deadline=runtime.monotonic() + _LONG)
    for task in others[:2]:
        with pytest.raises(OutcomeUnknown):
            task.join(deadline=runtime.monotonic() + _LONG)
    assert others[2].join(deadline=runtime.monotonic() + _LONG) == 4


def test_a_forked_child_starts_with_an_empty_queue() -> None:
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    child = os.fork()
    if child == 0:
        try:
            run.gate.set()
            os._exit(queue.submit(5))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    run.gate.set()
    assert leader.join() == 0


class _InterruptedWait:
    """An event whose wait is interrupted, as Ctrl-C interrupts the main thread, once `release` is set."""

    def __init__(self, release: threading.Event) -> None:
        self.release = release

    def wait(self, deadline: float | None = None) -> bool:
        assert self.release.wait(_LONG)
        raise KeyboardInterrupt

    def set(self) -> None:
        pass


def test_a_caller_interrupted_while_it_waits_leaves_the_queue_to_the_others() -> None:  # 5
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_rounds=1)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    leave = threading.Event()
    real, left = runtime.event, []

    def submit_and_leave() -> None:
        try:
            queue.submit(1)
        except KeyboardInterrupt:
            left.append(1)

    runtime.event = lambda: _InterruptedWait(leave)  # type: ignore[assignment, return-value]
    try:
        waiter = runtime.spawn(submit_and_leave)
        _queued(queue, 1)
    finally:
        runtime.event = real
    later = runtime.spawn(queue.submit, 2)
    _queued(queue, 2)
    leave.set()
    waiter.join()
    run.gate.set()
    assert (leader.join(), later.join(), left) == (0, 4, [1])
    assert queue.submit(3) == 6
    assert run.rounds == [[0], [2], [3]]


def test_an_heir_interrupted_before_it_leads_passes_the_lead_on() -> None:  # 5
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_rounds=1)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    leave = threading.Event()
    real = runtime.event

    def submit_and_leave() -> None:
        with pytest.raises(KeyboardInterrupt):
            queue.submit(1)

    runtime.event = lambda: _InterruptedWait(leave)  # type: ignore[assignment, return-value]
    try:
        heir = runtime.spawn(submit_and_leave)
        _queued(queue, 1)
    finally:
        runtime.event = real
    later = runtime.spawn(queue.submit, 2)
    _queued(queue, 2)
    run.gate.set()
    assert leader.join() == 0  # the lead is now with the caller that is about to be interrupted
    leave.set()
    heir.join()
    assert later.join() == 4


class _InterruptedSet:
    """An event whose `set` is interrupted, before it tells anybody, the first time."""

    def __init__(self) -> None:
        self.real = runtime.current().event()
        self.interrupted = False

    def set(self) -> None:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        self.real.set()

    def wait(self, deadline: float | None = None) -> bool:
        return self.real.wait(deadline=deadline)


def test_a_leader_interrupted_while_it_wakes_the_others_wakes_them_all_the_same() -> None:  # 5
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    real = runtime.event
    runtime.event = _InterruptedSet  # type: ignore[assignment]
    try:
        served = runtime.spawn(queue.submit, 1)
        _queued(queue, 1)
    finally:
        runtime.event = real
    later = runtime.spawn(queue.submit, 2)
    _queued(queue, 2)
    run.gate.set()
    with pytest.raises(KeyboardInterrupt):
        leader.join(deadline=runtime.monotonic() + _LONG)
    assert served.join(deadline=runtime.monotonic() + _LONG) == 2  # it had its answer
    with pytest.raises(OutcomeUnknown):
        later.join(deadline=runtime.monotonic() + _LONG)
    assert queue.submit(3) == 6


class _Told:
    """What callers that do not wait were told."""

    def __init__(self, wanted: int) -> None:
        self.answers: dict[int, object] = {}
        self.wanted = wanted
        self.all = threading.Event()

    def of(self, item: int) -> Callable[[object], None]:
        def tell(answer: object) -> None:
            assert item not in self.answers or self.answers[item] is answer
            self.answers[item] = answer
            if len(self.answers) == self.wanted:
                self.all.set()

        return tell


def test_callers_that_do_not_wait_are_told_and_share_rounds_with_those_that_do() -> None:  # 2, 3, 6
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run)
    told = _Told(5)
    queue.post(0, told.of(0))
    assert run.begun.wait(_LONG)
    for item in (1, 2):
        queue.post(item, told.of(item))
    waiting = runtime.spawn(queue.submit, 3)
    _queued(queue, 3)
    for item in (7, 4):
        queue.post(item, told.of(item))
    run.gate.set()
    assert waiting.join(deadline=runtime.monotonic() + _LONG) == 6
    assert told.all.wait(_LONG)
    assert isinstance(told.answers.pop(7), ValueError)
    assert told.answers == {0: 0, 1: 2, 2: 4, 4: 8}
    assert run.rounds == [[0], [1, 2, 3, 7, 4]]
    assert queue.submit(5) == 10


def test_hundreds_that_do_not_wait_need_one_task_at_a_time() -> None:  # 1, 6
    run = _Rounds()
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_items=7, max_rounds=3)
    told = _Told(450)
    begun, real = [], runtime.spawn
    runtime.spawn = lambda *a, **n: (begun.append(1), real(*a, **n))[1]  # type: ignore[assignment]
    try:
        items = [n for n in range(500) if n % 10 != 7]
        for item in items:
            queue.post(item, told.of(item))
        assert told.all.wait(_LONG)
    finally:
        runtime.spawn = real
    assert told.answers == {n: n * 2 for n in items}
    assert not run.overlapped
    assert sorted(item for batch in run.rounds for item in batch) == items
    assert len(begun) <= len(run.rounds)


def test_who_withdraws_before_a_round_is_neither_served_nor_told() -> None:  # 6
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_rounds=1)
    told = _Told(2)
    queue.post(0, told.of(0))
    assert run.begun.wait(_LONG)
    back = [queue.post(item, told.of(item)) for item in (1, 2, 3)]
    assert back[0]()
    assert back[1]()
    assert not back[1]()
    run.gate.set()
    assert told.all.wait(_LONG)
    assert run.rounds == [[0], [3]]
    assert told.answers == {0: 0, 3: 6}
    assert not back[2]()
    assert queue.submit(5) == 10


def test_the_heir_that_withdrew_leads_the_others_all_the_same() -> None:  # 5, 6
    run = _Rounds(held=True)
    queue: CombiningQueue[int, int] = CombiningQueue(run, max_rounds=1)
    leader = runtime.spawn(queue.submit, 0)
    assert run.begun.wait(_LONG)
    told = _Told(1)
    back = queue.post(1, told.of(1))
    queue.post(2, told.of(2))
    real = queue._pass_on

    def pass_on() -> None:
        queue._pass_on = real  # type: ignore[method-assign]
        real()
        back()

    queue._pass_on = pass_on  # type: ignore[method-assign]
    run.gate.set()
    assert leader.join(deadline=runtime.monotonic() + _LONG) == 0
    assert told.all.wait(_LONG)
    assert queue.submit(3) == 6


def test_a_leading_task_that_is_stopped_tells_its_companions_and_lets_others_lead() -> None:  # 5, 6
    calls: list[list[int]] = []

    def run(items: list[int]) -> list[int]:
        calls.append(items)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return items

    queue: CombiningQueue[int, int] = CombiningQueue(run)
    told = _Told(1)
    queue.post(1, told.of(1))
    assert told.all.wait(_LONG)
    assert isinstance(told.answers[1], OutcomeUnknown)
    assert queue.submit(2) == 2


def test_without_threads_the_caller_that_would_not_wait_works_itself() -> None:  # 6
    def none(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    queue: CombiningQueue[int, int] = CombiningQueue(lambda items: items)
    told = _Told(1)
    real = runtime.spawn
    runtime.spawn = none  # type: ignore[assignment]
    try:
        queue.post(4, told.of(4))
    finally:
        runtime.spawn = real
    assert told.answers == {4: 4}
