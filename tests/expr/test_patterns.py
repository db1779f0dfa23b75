"""Regular expressions, SIMILAR TO, and patterns that stand in columns."""

from __future__ import annotations

import pytest

from expr_rows import rows, values
from tiltyard.errors import InvalidExpression

TEXTS = ["abc", "xbz", None, "ABC", "a.c", "a\nc"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s ~ '^a'", [0, 4, 5]),
        ("s ~* '^a'", [0, 3, 4, 5]),
        ("s !~ 'b'", [3, 4, 5]),
        ("s !~* 'b'", [4, 5]),
        ("s RLIKE '[xz]'", [1]),
        ("s NOT REGEXP 'b'", [3, 4, 5]),
        ("s SIMILAR TO '(a|x)b%'", [0, 1]),
        ("s SIMILAR TO 'a_c'", [0, 4, 5]),
        ("s SIMILAR TO 'a.c'", [4]),
        ("s SIMILAR TO 'a[a-c]c'", [0]),
        ("s NOT SIMILAR TO '%c'", [1, 3]),
        ("s SIMILAR TO 'a!_c' ESCAPE '!'", []),
        ("s SIMILAR TO NULL", []),
        ("regexp_like(s, 'B', 'i')", [0, 1, 3]),
        ("regexp_match(s, 'b')", [0, 1]),
        ("NOT regexp_match(s, 'b')", [2, 3, 4, 5]),
    ],
)
def test_patterns_select(text: str, expected: list[int]) -> None:
    assert rows(text, s=TEXTS) == expected


def test_the_pattern_may_be_a_column() -> None:
    s, p = ["abc", "abc", None, "a%c", "aXc", "x"], ["a%", "A_C", "a", "a!%c", None, "a%"]
    assert rows("s LIKE p", s=s, p=p) == [0]
    assert rows("s ILIKE p", s=s, p=p) == [0, 1]
    assert rows("s NOT LIKE p", s=s, p=p) == [1, 3, 5]
    assert rows("s LIKE p ESCAPE '!'", s=s, p=p) == [0, 3]
    assert values("starts_with(s, p)", s=["abc", "b", None], p=["a", "a", "a"]) == [True, False, None]
    assert values("s ~ p", s=["abc", "b", "c"], p=["^.b", "^.b", None]) == [True, False, None]


@pytest.mark.parametrize("text", ["s ~ '('", "s SIMILAR TO '('", "regexp_replace(s, '[', '') = ''"])
def test_a_pattern_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(InvalidExpression, match=r"cannot be computed|not defined"):
        rows(text, s=TEXTS)
