"""What may explain a version: operations under way when it was made, and of one process if several."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tiltyard.testing.simulation.history import Operation, Outcome
from tiltyard.testing.simulation.table_checks import explained

Rows = Mapping[int, tuple[int, ...]]

NOTHING: Rows = {}


def append(actor: str, key: int, outcome: Outcome = Outcome.UNKNOWN, *, groups: bool = True) -> Operation:
    def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
        return {**before, key: (*before.get(key, ()), key)}

    return Operation(f"append {key}", actor, effect, groups, outcome=outcome)


def has(*keys: int) -> Rows:
    return {key: (key,) for key in keys}


def told(now: Rows, members: list[Operation], able: list[Operation]) -> list[Operation] | None:
    return explained(NOTHING, now, members, able, lambda number: NOTHING)


def test_what_was_acknowledged_needs_nothing_else() -> None:
    done = append("a", 1, Outcome.DONE)
    assert told(has(1), [done], [append("b", 1)]) == []
    assert told(NOTHING, [], [append("b", 1)]) == []


def test_one_unknown_operation_explains_a_version_of_nobody() -> None:
    one, other = append("a", 1), append("b", 2)
    assert told(has(2), [], [one, other]) == [other]
    assert told(has(3), [], [one, other]) is None


def test_members_of_a_group_are_of_one_process() -> None:
    done = append("a/1", 1, Outcome.DONE)
    same, another = append("a/2", 2), append("b/1", 2)
    assert told(has(1, 2), [done], [another, same]) == [same]
    assert told(has(1, 2), [done], [another]) is None
    assert told(has(1, 2), [], [append("a/1", 1), append("b/1", 2)]) is None
    both = [append("b/1", 1), append("b/2", 2)]
    assert told(has(1, 2), [], [append("a/1", 1), *both]) == both


def test_only_what_groups_shares_a_version() -> None:
    alone = append("a/2", 2, groups=False)
    assert told(has(1, 2), [append("a/1", 1, Outcome.DONE)], [alone]) is None
    assert told(has(1, 2), [append("a/1", 1, Outcome.DONE, groups=False)], [append("a/2", 2)]) is None


@pytest.mark.parametrize(
    ("outcome", "order", "at_ns", "late_ns", "may"),
    [
        (Outcome.UNKNOWN, 9, 50, 0, False),  # before it began
        (Outcome.UNKNOWN, 10, 50, 0, True),
        (Outcome.UNKNOWN, 19, 50, 0, True),
        (Outcome.UNKNOWN, 20, 120, 0, False),  # after its end, on a disk
        (Outcome.UNKNOWN, 20, 120, 30, True),  # a request that was on its way
        (Outcome.UNKNOWN, 20, 131, 30, False),
        (Outcome.FAILED, 20, 120, 30, False),
        (Outcome.RUNNING, 99, 999, 0, True),
    ],
)
def test_an_operation_makes_names_while_it_is_under_way(
    outcome: Outcome, order: int, at_ns: int, late_ns: int, may: bool
) -> None:
    operation = append("a", 1, outcome)
    operation.made_from, operation.made_before, operation.ended_ns = 10, 20, 100
    assert operation.may_have_made(order, at_ns, late_ns) is may
