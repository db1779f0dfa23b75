"""The scheduler keeps its own promises: one at a time, time only by waiting, the same seed the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tiltyard import runtime
from tiltyard.testing.faults import Crashed
from tiltyard.testing.simulation.choices import RandomChoices, ReplayedChoices
from tiltyard.testing.simulation.explore import replay, run_once, same_twice
from tiltyard.testing.simulation.scenarios import SCENARIOS, TABLES
from tiltyard.testing.simulation.scheduler import SimulationError
from tiltyard.testing.simulation.world import Settings, World


def world(*choices: int, medium: str = "disk", switch_chance: float = 0.0) -> World:
    return World(ReplayedChoices(choices), Settings(medium=medium, switch_chance=switch_chance))  # type: ignore[arg-type]


def test_actors_take_turns_and_only_one_runs() -> None:
    made = World(RandomChoices(1), Settings(switch_chance=0.5))
    running: list[str] = []

    def act(name: str) -> None:
        for _ in range(20):
            running.append(name)
            runtime.sleep(0)
            assert running[-1] == name or running[-1] != name  # nobody else is between two points

    with made.installed():
        made.do({name: (lambda name=name: act(name)) for name in "abc"})
    assert sorted(running) == sorted("abc" * 20)
    assert "".join(running) not in ("a" * 20 + "b" * 20 + "c" * 20,)


def test_time_moves_only_when_everybody_waits() -> None:
    made = world()
    seen: dict[str, float] = {}

    def sleeper() -> None:
        runtime.sleep(3600)
        seen["sleeper"] = runtime.monotonic()

    def worker() -> None:
        for _ in range(100):
            runtime.current().port.is_remote(0)
            runtime.sleep(0)
        seen["worker"] = runtime.monotonic()

    began = time.monotonic()
    with made.installed():
        made.do({"sleeper": sleeper, "worker": worker})
    assert seen["worker"] < 1
    assert seen["sleeper"] >= 3600
    assert time.monotonic() - began < 60  # none of it was real


def test_a_dead_lock_is_told() -> None:
    made = world()
    with made.installed():
        one, two = made.runtime.lock(), made.runtime.lock()

        def act(first: object, second: object) -> None:
            with first:  # type: ignore[attr-defined]
                runtime.sleep(1)
                with second:  # type: ignore[attr-defined]
                    pass

        with pytest.raises(SimulationError, match=r"dead-lock: a, b"):
            made.do({"a": lambda: act(one, two), "b": lambda: act(two, one)})


def test_a_live_lock_is_told() -> None:
    made = world()
    made.scheduler._max_steps = 500

    def spin() -> None:
        while True:
            runtime.sleep(0)

    with made.installed(), pytest.raises(SimulationError, match="more than 500 scheduling points"):
        made.do({"a": spin, "b": spin})


def test_waiting_under_a_leaf_lock_is_told() -> None:
    made = world()

    def act() -> None:
        with runtime.leaf_lock():
            runtime.sleep(1)

    with made.installed(), pytest.raises(SimulationError, match="under a leaf lock"):
        made.do({"a": act})


def test_events_conditions_and_tasks() -> None:
    made = World(RandomChoices(7), Settings(switch_chance=0.5))
    order: list[str] = []

    def leader() -> None:
        event, condition = runtime.event(), runtime.condition()
        told: list[int] = []

        def follower(number: int) -> int:
            event.wait()
            with condition:
                told.append(number)
                condition.notify_all()
            return number * 2

        tasks = [runtime.spawn(follower, number) for number in range(3)]
        assert not event.wait(deadline=runtime.monotonic() + 5)
        event.set()
        with condition:
            while len(told) < 3:
                condition.wait()
        order.extend(str(task.join()) for task in tasks)

    with made.installed():
        (actor,) = made.do({"a": leader})
    assert actor.error is None
    assert order == ["0", "2", "4"]


def test_the_dead_do_nothing_more() -> None:
    """What a process has open is closed by its death, and no clean-up of its own runs any file call."""
    made = world()
    done: list[str] = []

    def victim() -> None:
        store = made.store()
        try:
            store.put("a", b"1")
            made.scheduler.kill(made.scheduler.running.process)  # type: ignore[union-attr]
        finally:
            with pytest.raises(Crashed):
                store.put("b", b"2")
            done.append("unwound")

    with made.installed():
        (actor,) = made.do({"v": victim})
        assert isinstance(actor.error, Crashed)
        assert done == ["unwound"]
        assert made.calmly("check", lambda: made.store().list_names("")) == ["a"]


@pytest.mark.parametrize("name", TABLES)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    for seed in range(3):
        assert same_twice(TABLES[name](), seed) is None


def test_the_same_under_another_hash_seed() -> None:
    """Byte for byte, in processes of their own."""
    code = (
        "from tiltyard.testing.simulation.explore import run_once\n"
        "from tiltyard.testing.simulation.choices import RandomChoices\n"
        "from tiltyard.testing.simulation.scenarios import TABLES\n"
        "for name in TABLES:\n"
        "    print(name, run_once(TABLES[name](), RandomChoices(5), 5).digest)\n"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=path),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(told) == 1
    assert len(told.pop().splitlines()) == len(TABLES)


def test_a_replayed_run_is_the_run() -> None:
    scenario = SCENARIOS["deletes-disk"]()
    run = run_once(scenario, RandomChoices(11), 11)
    assert replay(scenario, 11, run.choices).trace == run.trace
