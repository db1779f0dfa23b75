"""The weather: each fault strikes only where it is switched on, is counted, and does what its name says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tiltyard import runtime
from tiltyard.errors import ObjectNotFound, StoreError
from tiltyard.store import Created, Store
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.explore import explore, with_settings
from tiltyard.testing.simulation.scenarios import SCENARIOS
from tiltyard.testing.simulation.storm import FAILING_READ, READ_SHARE, REQUEST_SECONDS, Weather
from tiltyard.testing.simulation.world import FileSystem, Medium, Settings, World

OF_OBJECTS = (
    Fault.LOSE_REQUEST,
    Fault.LOSE_ANSWER,
    Fault.LATE_REQUEST,
    Fault.LATE_DUPLICATE,
    Fault.FAIL_BEFORE,
)
"""Faults between a client and an object store."""

OF_DISKS = (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
"""Faults of system calls."""


class Eager:
    """Choices that take a fault, the last of those offered, at the first call after `begin`; else 0."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.left = 0

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        answer = 0
        if self.left and options > 1 and chance >= READ_SHARE:
            answer, self.left = options - 1, self.left - 1
        self.taken.append(answer)
        return answer


def struck(medium: Medium, weather: Weather, act: Callable[[Store], Any]) -> tuple[World, Any]:
    """What `act` gives or raises where the first call that may meet a fault does."""
    choices = Eager()
    made = World(choices, Settings(medium=medium, weather=weather, switch_chance=0.0))

    def run() -> Any:
        store = made.store()
        store.put("there", b"old")
        choices.left = 1
        return act(store)

    with made.installed():
        (actor,) = made.do({"a": run})
        return made, actor.error or actor.result


def certain(*faults: Fault, **more: Any) -> Weather:
    return Weather(frozenset(faults), chance=1.0, most=1, **more)


def content(world: World) -> dict[str, bytes]:
    def look() -> dict[str, bytes]:
        store = world.store()
        return {each.path: store.read(each.path).to_pybytes() for each in store.list()}

    with world.installed():
        found: dict[str, bytes] = world.calmly("look", look)
    return found


CHANGES: dict[str, tuple[Callable[[Store], Any], dict[str, bytes]]] = {
    "create": (lambda store: store.create("new", b"1"), {"there": b"old", "new": b"1"}),
    "put": (lambda store: store.put("there", b"new"), {"there": b"new"}),
    "delete": (lambda store: store.delete("there"), {}),
}


@pytest.mark.parametrize("call", CHANGES)
@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.LATE_REQUEST])
def test_a_request_without_an_answer_was_done_or_not_or_will_be(fault: Fault, call: str) -> None:
    act, after = CHANGES[call]
    world, told = struck("objects", certain(fault), act)
    assert told is Created.UNKNOWN if call == "create" else isinstance(told, StoreError), told
    assert world.storm.struck == Counter({fault.value: 1})
    assert content(world) == ({"there": b"old"} if fault is Fault.LOSE_REQUEST else after)


def test_a_late_request_arrives_when_the_caller_has_long_given_up() -> None:
    def act(store: Store) -> tuple[bool, bool]:
        answer = store.create("new", b"1")
        assert answer is Created.UNKNOWN
        before = store.exists("new")
        runtime.sleep(2 * max(REQUEST_SECONDS))
        return before, store.exists("new")

    _, told = struck("objects", certain(Fault.LATE_REQUEST), act)
    assert told == (False, True)


@pytest.mark.parametrize("call", ["put", "delete"])
def test_a_late_duplicate_undoes_what_came_between(call: str) -> None:
    def act(store: Store) -> None:
        CHANGES[call][0](store)
        store.put("there", b"newest")

    world, told = struck("objects", certain(Fault.LATE_DUPLICATE), act)
    assert told is None
    assert content(world) == CHANGES[call][1]


@pytest.mark.parametrize("medium", ["disk", "objects"])
@pytest.mark.parametrize("call", ["read", "map", "stat", "exists", "list", "list_names", "read_ranges"])
def test_a_read_fails_with_an_error_of_the_store_and_works_the_next_time(medium: Medium, call: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"list": (), "list_names": (), "read_ranges": ("there", [(0, 1)])}

    def act(store: Store) -> Any:
        method = getattr(store, call)
        with pytest.raises(StoreError) as failed:
            method(*arguments.get(call, ("there",)))
        assert not isinstance(failed.value, ObjectNotFound)
        method(*arguments.get(call, ("there",)))

    world, told = struck(medium, certain(failing_reads=True), act)
    assert told is None, told
    assert world.storm.struck == Counter({FAILING_READ: 1})


@pytest.mark.parametrize("medium", ["disk", "objects"])
@pytest.mark.parametrize("fault", [None, *Fault])
def test_nothing_strikes_but_what_is_switched_on(medium: Medium, fault: Fault | None) -> None:
    """None: failing reads."""
    weather = Weather(
        frozenset() if fault in (None, Fault.MACHINE_CRASH) else frozenset({fault}),
        chance=0.2,
        stalls=(2.0,),
        machine_crash=fault is Fault.MACHINE_CRASH and medium == "disk",
        failing_reads=fault is None,
    )
    report = explore(with_settings(SCENARIOS[f"appends-{medium}"](), weather=weather), range(4))
    assert report.finding is None, str(report.finding)
    may_be = {FAILING_READ if fault is None else fault.value}
    assert set(report.struck) <= may_be
    never = {Fault.DELAY, *(set(OF_OBJECTS) - set(OF_DISKS) if medium == "disk" else {Fault.FAIL_AFTER})}
    never |= {Fault.MACHINE_CRASH} if medium == "objects" else set()
    assert bool(report.struck) == (fault not in never)


NETWORK = Weather(
    frozenset({*OF_OBJECTS, *OF_DISKS, Fault.PAUSE}),
    chance=0.08,
    most=6,
    failing_reads=True,
    stalls=(0.03, 2.0, 40.0),
)
"""Only what goes wrong between a client and its store, but a lot of it."""


@pytest.mark.parametrize("medium", ["disk", "objects"])
@pytest.mark.parametrize("name", ["repeats", "cleanups", "compactions", "everything"])
def test_nothing_goes_wrong_on_a_bad_line(name: str, medium: Medium) -> None:
    report = explore(with_settings(SCENARIOS[f"{name}-{medium}"](), weather=NETWORK), range(15))
    assert report.finding is None, str(report.finding)
    assert report.struck[FAILING_READ]


# -- a disk at the other end of a network ------------------------------------------------------------


@pytest.mark.parametrize("kind", FileSystem)
def test_a_name_whose_answer_a_server_loses_is_given_once(kind: FileSystem) -> None:
    """The client of the network file system asks again, and is told that the name is taken: by itself."""

    settings = Settings(file_system=kind, network=True, weather=certain(Fault.LOSE_ANSWER), switch_chance=0.0)
    choices = Eager()
    made = World(choices, settings)

    def run() -> Created:
        store = made.store()
        store.create("first", b"1")  # makes the directory, and finds the way of creation
        choices.left = 1
        return store.create("new", b"1")

    with made.installed():
        (actor,) = made.do({"a": run})
    assert actor.result is Created.WON
    lost = {} if kind is FileSystem.NO_EXCLUSIVE_NAMES else {"lose answer": 1}
    assert made.storm.struck == Counter(lost)
    assert content(made) == {"first": b"1", "new": b"1"}


def test_a_name_that_a_server_gives_late_is_unknown_until_then() -> None:
    settings = Settings(network=True, weather=certain(Fault.LATE_REQUEST), switch_chance=0.0)
    choices = Eager()
    made = World(choices, settings)

    def run() -> tuple[bool, bool]:
        store = made.store()
        store.put("there", b"old")
        choices.left = 1
        with pytest.raises(StoreError):
            store.delete("there")
        before = store.exists("there")
        runtime.sleep(2 * max(REQUEST_SECONDS))
        return before, store.exists("there")

    with made.installed():
        (actor,) = made.do({"a": run})
    assert actor.error is None, actor.error
    assert actor.result == (True, False)


@pytest.mark.parametrize("name", ["appends", "cleanups", "everything", "tags"])
@pytest.mark.parametrize("kind", [FileSystem.WHOLE, FileSystem.NO_LINKS, FileSystem.NO_EXCLUSIVE_NAMES])
def test_nothing_goes_wrong_on_a_network_file_system(kind: FileSystem, name: str) -> None:
    scenario = with_settings(SCENARIOS[f"{name}-disk"](), network=True, file_system=kind, weather=NETWORK)
    report = explore(scenario, range(10))
    assert report.finding is None, str(report.finding)
