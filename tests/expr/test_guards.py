"""Conditions guard what could not be computed: branches of CASE, and what stands behind AND and OR."""

from __future__ import annotations

import pytest

from expr_rows import rows, values
from tiltyard.errors import InvalidExpression

Z = {"z": [0, 2, None, 5], "s": ["7", "x", None, "20"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CASE WHEN z = 0 THEN FALSE ELSE 10 / z > 2 END", [1]),
        ("CASE WHEN z <> 0 THEN 10 / z > 2 END", [1]),
        ("z <> 0 AND 10 / z > 2", [1]),
        ("z = 0 OR 10 / z > 2", [0, 1]),
        ("NOT (z = 0 OR 10 / z > 2)", [3]),
        ("NOT (z <> 0 AND 10 / z > 2)", [0, 3]),
        ("s <> 'x' AND CAST(s AS bigint) > 7", [3]),
        ("(z IS NULL OR z > 1) AND (z = 5 OR z IS NULL OR 10 % z = 0)", [1, 2, 3]),
    ],
)
def test_rows_that_a_condition_leaves_out_are_not_computed(text: str, found: list[int]) -> None:
    assert rows(text, **Z) == found


def test_values_are_computed_for_the_rows_that_choose_them() -> None:
    text = "CASE WHEN z IS NULL THEN -1 WHEN z <> 0 THEN 10 / z ELSE 99 END"
    assert values(text, **Z) == [99, 5, -1, 2]
    assert values("coalesce(CASE WHEN z = 0 THEN 0 END, 10 / nullif(z, 0))", **Z) == [0, 5, None, 2]
    assert values("CASE WHEN s = 'x' THEN 0 ELSE CAST(s AS bigint) END", **Z) == [7, 0, None, 20]


@pytest.mark.parametrize(
    "text", ["10 / z > 2", "z <> 2 AND 10 / z > 2", "CASE WHEN z = 2 THEN TRUE ELSE 10 / z > 2 END"]
)
def test_what_nothing_guards_is_an_error(text: str) -> None:
    with pytest.raises(InvalidExpression, match="divide by zero"):
        rows(text, **Z)


def test_nested_guards_cost_no_more_than_their_number() -> None:
    """Were each level tried both ways, this would never end."""
    text = "10 / z"
    for number in range(14):
        text = f"coalesce(CASE WHEN z = {number} THEN {number} END, {text})"
    assert values(text, **Z) == [0, 2, None, 5]
