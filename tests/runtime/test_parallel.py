"""The pool: order, failures, nesting, and forked children."""

from __future__ import annotations

import os
import threading

import pytest

from tiltyard import runtime
from tiltyard.runtime import Runtime
from tiltyard.runtime.pool import Pool


def test_results_come_in_argument_order() -> None:
    assert runtime.parallel([lambda n=n: n * n for n in range(100)]) == [n * n for n in range(100)]


def test_nothing_to_do_and_one_thing_to_do() -> None:
    assert runtime.parallel([]) == []
    assert runtime.parallel([threading.get_ident]) == [threading.get_ident()]


def test_work_really_runs_beside_the_caller() -> None:
    meeting = threading.Barrier(3)
    Pool(2).run([lambda: meeting.wait(20)] * 3)


def test_many_wait_at_once_however_few_cores_there_are() -> None:
    meeting = threading.Barrier(5)
    assert runtime.at_once([lambda n=n: (n, meeting.wait(20)) and n for n in range(5)]) == list(range(5))
    assert runtime.at_once([]) == []


def test_the_first_failure_by_argument_order_is_raised() -> None:
    def fail(n: int) -> None:
        raise ValueError(str(n))

    meeting = threading.Barrier(2)

    def both(n: int) -> None:
        meeting.wait(20)
        fail(n)

    with pytest.raises(ValueError, match=r"^0$"):
        Pool(1).run([lambda: both(0), lambda: both(1)])


def test_nothing_new_is_started_after_a_failure() -> None:
    ran: list[int] = []

    def work(n: int) -> None:
        ran.append(n)
        if n == 0:
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        Pool(0).run([lambda n=n: work(n) for n in range(5)])
    assert ran == [0]


def test_a_job_inside_a_job_finishes_although_all_workers_are_busy() -> None:
    pool = Pool(1)

    def inner(n: int) -> int:
        return sum(pool.run([lambda k=k: n * k for k in range(4)]))

    assert pool.run([lambda n=n: inner(n) for n in range(8)]) == [6 * n for n in range(8)]


def test_many_callers_share_one_pool() -> None:
    pool = Pool(2)
    answers: dict[int, list[int]] = {}

    def caller(c: int) -> None:
        for _ in range(30):
            answers[c] = pool.run([lambda n=n: c * n for n in range(7)])

    callers = [runtime.spawn(caller, c) for c in range(6)]
    for task in callers:
        task.join(deadline=runtime.monotonic() + 30)
    assert answers == {c: [c * n for n in range(7)] for c in range(6)}


def test_spawned_work_gives_its_result_or_its_failure() -> None:
    assert runtime.spawn(lambda a, b: a + b, 1, 2, name="sum").join() == 3
    task = runtime.spawn(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        task.join()
    assert task.done()


def test_joining_stops_at_the_deadline() -> None:
    gate = runtime.event()
    task = runtime.spawn(gate.wait)
    with pytest.raises(TimeoutError):
        task.join(deadline=runtime.monotonic())
    gate.set()
    assert task.join() is True


def test_waits_take_deadlines() -> None:
    event, condition = runtime.event(), runtime.condition()
    assert event.wait(deadline=runtime.monotonic() - 1) is False
    with condition:
        assert condition.wait(deadline=runtime.monotonic()) is False
    event.set()
    assert event.wait(deadline=runtime.monotonic()) is True
    assert event.is_set()
    event.clear()
    assert not event.is_set()


def test_a_condition_wakes_who_waits() -> None:
    condition, ready = runtime.condition(), []

    def consumer() -> int:
        with condition:
            while not ready:
                condition.wait()
            return ready.pop()

    task = runtime.spawn(consumer)
    with condition:
        ready.append(7)
        condition.notify_all()
    assert task.join(deadline=runtime.monotonic() + 20) == 7


def _in_child(work) -> bytes:  # type: ignore[no-untyped-def]
    """Run `work` in a forked child that may take 30 s; what it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import signal

            signal.alarm(30)
            os.write(write, work())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    return data


def test_forked_children_have_their_own_pool_and_chance() -> None:
    mine = Runtime()
    mine.parallel([lambda: None] * 4)
    mine.random().random()

    def work() -> bytes:
        done = mine.parallel([lambda n=n: n for n in range(50)]) == list(range(50))
        return b"%d %d %s" % (done, mine.random().getrandbits(64), mine.uuid4().bytes)

    answers = [_in_child(work) for _ in range(6)]
    assert all(answer.startswith(b"1 ") for answer in answers)
    assert len({answer.split(b" ", 2)[1] for answer in answers}) == 6
    assert len({answer.split(b" ", 2)[2] for answer in answers}) == 6


def test_a_fork_while_other_threads_use_the_pool_leaves_the_child_usable() -> None:
    mine, stop = Runtime(), threading.Event()

    def busy() -> None:
        while not stop.is_set():
            mine.parallel([lambda: sum(range(100))] * 4)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            assert _in_child(lambda: b"%d" % sum(mine.parallel([lambda n=n: n for n in range(9)]))) == b"36"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class _Owner:
    def __init__(self, mine: Runtime) -> None:
        self.renewed = 0
        mine.after_fork(self.renew)

    def renew(self) -> None:
        self.renewed += 1


def test_objects_are_told_of_a_fork_while_they_live() -> None:
    mine = Runtime()
    owner, _gone = _Owner(mine), _Owner(mine)
    del _gone
    assert _in_child(lambda: b"%d" % owner.renewed) == b"1"
    assert owner.renewed == 0


def test_installing_a_runtime_replaces_every_seam_and_gives_the_old_one_back() -> None:
    class Fixed(Runtime):
        def now_ns(self) -> int:
            return 42

    before = runtime.install(Fixed())
    try:
        assert runtime.now_ns() == 42
        assert runtime.current() is not before
    finally:
        runtime.install(before)
    assert runtime.now_ns() > 42
