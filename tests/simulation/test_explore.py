"""What goes wrong is told: with its seed, by its kind, and with what brings it back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tiltyard import runtime
from tiltyard.errors import InvalidInput, StoreError
from tiltyard.testing.__main__ import main
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.choices import ReplayedChoices
from tiltyard.testing.simulation.explore import exhaust, explore, replay, run_once
from tiltyard.testing.simulation.findings import code, kind
from tiltyard.testing.simulation.scenarios import SCENARIOS
from tiltyard.testing.simulation.storm import Weather
from tiltyard.testing.simulation.world import FileSystem, Settings, World


class Own:
    """A scenario of a user, who does not look at what became of the actors."""

    name = "own"

    def __init__(self, run: Callable[[World], list[str]], **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.act = run

    def run(self, world: World) -> list[str]:
        return self.act(world)


def doing(**actors: Callable[[World], Any]) -> Callable[[World], list[str]]:
    def run(world: World) -> list[str]:
        world.do({name: (lambda act=act: act(world)) for name, act in actors.items()})
        return []

    return run


def failing(error: BaseException) -> Callable[[World], Any]:
    def act(world: World) -> None:
        runtime.sleep(1)
        raise error

    return act


def test_planted_an_actor_that_ends_by_an_exception_is_a_finding() -> None:
    """S7, though the scenario finds nothing wrong."""
    report = explore(Own(doing(a=failing(ValueError("no such row")), b=lambda world: None)), [7])
    assert report.finding is not None
    (wrong,) = report.finding.run.wrong
    assert wrong.startswith("S7 ValueError: a ended by it: no such row (at ")
    assert f"{__name__}:" in wrong
    text = str(report.finding)
    assert "own, seed 7: 1 found" in text
    assert "print(replay(scenario, 7, [" in text


def test_planted_an_error_of_ours_in_fair_weather_is_a_finding() -> None:
    """S7: nothing failed on purpose, so nobody expects it."""
    found = explore(Own(doing(a=failing(StoreError("gone")))), [0]).finding
    assert found is not None
    assert found.run.kinds == ("S7 StoreError",)


def test_an_error_of_ours_after_a_fault_is_what_a_caller_has_to_expect() -> None:
    def act(world: World) -> None:
        world.store().put("a", b"1")

    storm = Weather(frozenset({Fault.FAIL_BEFORE}), chance=1.0)
    assert explore(Own(doing(a=act), medium="objects", weather=storm), range(5)).finding is None


def test_planted_a_background_task_that_nobody_joins_is_looked_at() -> None:
    """S7."""

    def boom() -> None:
        raise KeyError("lost")

    def joined(world: World) -> None:
        with pytest.raises(KeyError):
            runtime.spawn(boom).join()

    assert explore(Own(doing(a=joined)), [0]).finding is None
    found = explore(Own(doing(a=lambda world: runtime.spawn(boom))), [0]).finding
    assert found is not None
    assert found.run.kinds == ("S7 KeyError",)


@pytest.mark.parametrize("where", ["scenario", "check"])
def test_planted_an_exception_of_a_scenario_or_its_check_has_its_seed(where: str) -> None:
    """S8."""

    def checked(world: World) -> list[str]:
        if where == "check":
            world.calmly("check", lambda: {}["missing"])
        raise ZeroDivisionError("by hand")

    found = explore(Own(checked), [41]).finding
    assert found is not None
    assert found.seed == 41
    assert found.run.kinds == ("S8 KeyError" if where == "check" else "S8 ZeroDivisionError",)


def two_ways(world: World) -> list[str]:
    """Goes wrong as T1 with two events, and as T2 with one of them alone."""
    events = sum(world.choices.choose(2, 0.5) for _ in range(2))
    return {0: [], 1: ["T2: simpler, and another"], 2: ["T1: the one that was found"]}[events]


def test_planted_a_simpler_run_that_breaks_something_else_does_not_take_the_place() -> None:
    """S9."""
    found = next(
        each
        for each in (explore(Own(two_ways), [seed]).finding for seed in range(50))
        if each is not None and sum(each.run.choices) == 2
    )
    assert found.run.kinds == ("T1",)
    ((other, again),) = found.others
    assert other.kinds == ("T2",)
    assert f"replay(scenario, {found.seed}, [" in again
    assert "T2: simpler, and another" in str(found)


def test_kinds_are_the_numbers_of_invariants_or_words() -> None:
    assert kind("T12: version 3") == "T12"
    assert kind("S7 ValueError: a ended by it: 3") == "S7 ValueError"
    assert kind("3 numbers were given twice: [1, 1]") == kind("12 numbers were given twice: [2]")
    assert kind("one") != kind("two")


def test_a_scenario_of_ones_own_is_brought_back_by_the_python_that_is_printed() -> None:
    def run(world: World) -> list[str]:
        answers = [world.choices.choose(3, 0.5) for _ in range(6)]
        return ["it is wrong"] if answers.count(2) > 1 else []

    scenario = Own(run)
    found = explore(scenario, range(100)).finding
    assert found is not None
    told: list[Any] = []
    exec(found.again, {"scenario": scenario, "print": told.append})
    assert told == [found.run]


def test_a_shipped_scenario_with_other_settings_is_brought_back_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Any = SCENARIOS["appends-disk"]()
    weather = replace(made.settings.weather, faults=frozenset({Fault.CRASH, Fault.PAUSE}), stalls=(40.0,))
    made.settings = replace(made.settings, weather=weather, file_system=FileSystem.NO_LINKS)
    monkeypatch.setattr(type(made), "run", lambda self, world: [f"seen: {code(self.settings)}"])
    found = explore(made, [3]).finding
    assert found is not None
    told: list[Any] = []
    exec(found.again, {"print": told.append})
    assert told[0].wrong == (f"seen: {code(made.settings)}",)
    assert "FileSystem.NO_LINKS" in found.again


def test_a_shipped_scenario_is_brought_back_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = SCENARIOS["appends-disk"]()
    monkeypatch.setattr(type(made), "run", lambda self, world: ["as planted"])
    found = explore(made, [3]).finding
    assert found is not None
    assert found.again == "python -m tiltyard.testing replay appends-disk --seed 3 --choices "
    made.actors = dict(made.actors)  # alike, so still the shipped one
    assert explore(made, [3]).finding.again == found.again  # type: ignore[union-attr]
    del made.actors["a"]
    assert "# scenario: your" in explore(made, [3]).finding.again  # type: ignore[union-attr]


# -- choices that are not a run's -------------------------------------------------------------------


def ask_three(world: World) -> list[str]:
    for _ in range(3):
        world.choices.choose(2, 0.5)
    return []


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ([0, 5], "choice 1 is 5, and its question has the answers 0 to 1"),
        ([0, 0, 0, 1], "the run asked 3 questions, and there are 4 choices"),
        ([-1], "hold -1"),
        (["1"], "hold '1'"),
    ],
)
def test_choices_of_another_run_are_refused(choices: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        replay(Own(ask_three), 0, choices)
    assert run_once(Own(ask_three), ReplayedChoices([9, 9]), 0).choices == (1, 1, 0)  # a search may guess


def test_zeros_at_the_end_say_nothing() -> None:
    assert replay(Own(ask_three), 0, [1, 0, 0, 0, 0]).choices == (1, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "appends-disk", "--runs", "0"], "expected 1 or more, found 0"),
        (["run", "appends-disk", "--runs", "-3"], "expected 1 or more, found -3"),
        (["run", "appends-disk", "--seconds", "0"], "expected more than 0 seconds"),
        (["run", "appends-disk", "--seconds", "nan"], "expected more than 0 seconds"),
        (["run", "no-such"], "no scenario 'no-such'"),
        (["exhaust", "appends-disk", "--events", "0"], "expected 1 or more, found 0"),
        (["exhaust", "appends-disk", "--most", "0"], "expected 1 or more, found 0"),
        (["replay", "appends-disk", "--choices", "1,x"], "expected numbers from 0 on"),
        (["replay", "appends-disk", "--choices", "1,,2"], "expected numbers from 0 on"),
        (["replay", "appends-disk", "--seed", "3", "--choices", "0,99"], "choice 1 is 99"),
    ],
)
def test_the_command_refuses_what_would_be_another_run_or_none(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_command_runs_and_replays() -> None:
    def ran(*arguments: str) -> str:
        command = [sys.executable, "-m", "tiltyard.testing", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    assert "2 runs, 2 distinct schedules" in ran("run", "young-objects", "--runs", "2")
    assert "0 found" in ran("replay", "young-objects", "--seed", "1")


@pytest.mark.parametrize(
    "wrong", [{"medium": "disc"}, {"medium": None}, {"switch_chance": 1.5}, {"max_skew_ns": -1}]
)
def test_settings_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Settings(**wrong)


def test_nothing_looked_at_is_no_result() -> None:
    with pytest.raises(InvalidInput, match="no seed"):
        explore(Own(ask_three), [])
    with pytest.raises(InvalidInput, match="most is 0"):
        exhaust(Own(ask_three), most=0)


# -- a part of every schedule -----------------------------------------------------------------------


def note_five(world: World) -> list[str]:
    world.scheduler.trace.append(str([world.choices.choose(3, 0.5) for _ in range(5)]))
    return []


def test_a_search_in_a_drawn_order_sees_the_same_runs() -> None:
    straight = exhaust(Own(note_five), events=2)
    drawn = exhaust(Own(note_five), events=2, order=Random(3))
    assert drawn.complete
    assert drawn.covered == straight.covered == 1.0
    assert drawn.states == straight.states
    assert len(drawn.states) == drawn.runs == straight.runs == 1 + 5 * 2 + 10 * 4


def test_a_search_that_stops_tells_how_much_it_saw() -> None:
    whole = exhaust(Own(note_five), events=1).runs
    for most in range(1, whole):
        report = exhaust(Own(note_five), events=1, most=most, order=Random(most))
        assert not report.complete
        assert report.covered == pytest.approx(most / whole)
    assert "27% of the schedules" in str(exhaust(Own(note_five), events=1, most=3))


def test_what_a_drawn_order_sees_first_is_another_thing_each_time() -> None:
    seen = {frozenset(exhaust(Own(note_five), events=2, most=3, order=Random(at)).states) for at in range(9)}
    assert len(seen) > 5
