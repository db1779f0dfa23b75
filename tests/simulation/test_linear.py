"""The checker of single-name histories, on a register with compare-and-set answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.testing.simulation.linear import Call, is_linearizable


def write(value: int, _: int) -> tuple[int, Any]:
    return value, None


def read(state: int) -> tuple[int, Any]:
    return state, state


def wrote(value: int, begun: int, ended: int | None = None) -> Call:
    accepts = None if ended is None else (lambda _: True)
    return Call(f"write {value}", begun, ended, partial(write, value), accepts)


def saw(value: int, begun: int, ended: int) -> Call:
    return Call(f"read {value}", begun, ended, read, lambda answer: answer == value)


def test_what_overlaps_may_come_in_any_order() -> None:
    assert is_linearizable([wrote(1, 0, 10), saw(0, 2, 3), saw(1, 4, 5)], 0)
    assert not is_linearizable([wrote(1, 0, 10), saw(1, 2, 3), saw(0, 4, 5)], 0)


def test_what_was_answered_before_another_began_came_first() -> None:
    assert not is_linearizable([wrote(1, 0, 1), saw(0, 2, 3)], 0)
    assert is_linearizable([wrote(1, 0, 1), wrote(2, 2, 3), saw(2, 4, 5)], 0)
    assert not is_linearizable([wrote(1, 0, 1), wrote(2, 2, 3), saw(1, 4, 5)], 0)


def test_an_unknown_outcome_happens_late_or_never() -> None:
    assert is_linearizable([wrote(1, 0), saw(0, 5, 6), saw(1, 7, 8)], 0)
    assert is_linearizable([wrote(1, 0), saw(0, 5, 6)], 0)
    assert not is_linearizable([wrote(1, 0), saw(1, 5, 6), saw(0, 7, 8)], 0)
    assert not is_linearizable([wrote(1, 9), saw(1, 5, 6)], 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 6)), max_size=8))
def test_every_history_of_a_real_register_is_linearizable(steps: list[tuple[int, bool, int]]) -> None:
    """Calls happen at their moments; each is made to begin earlier and to end later than it did."""
    state, calls = 0, []
    for at, (value, writes, slack) in enumerate(steps):
        moment = 10 * at
        begun, ended = moment - 3 * slack, moment + 2 * slack
        if writes:
            state = value
            calls.append(wrote(value, begun, ended))
        else:
            calls.append(saw(state, begun, ended))
    assert is_linearizable(calls, 0)
