"""Questions about one column joined: the joint one has the rows that both, or either, have."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.index_values import answers
from tiltyard.expr import one_column, parse_predicate
from tiltyard.expr.index_query import AllOf, AnyOf, ColumnQuery, Range, index_query
from tiltyard.expr.one_column import narrowed, widened

VALUES: list[Any] = [None, -math.inf, -1.5, -0.0, 0.0, 2.0, 2.5, math.inf, math.nan]
_END = st.sampled_from(VALUES)
_SPAN = st.builds(Range, _END, _END, st.booleans(), st.booleans())
_QUERY = st.builds(
    ColumnQuery,
    st.just(("f",)),
    st.just(pa.float64()),
    st.lists(_SPAN, max_size=3).map(tuple),
    st.lists(st.sampled_from(VALUES[1:]), max_size=3).map(tuple),
    st.booleans(),
)


@given(_QUERY, _QUERY)
@settings(max_examples=50)
def test_a_joint_question_has_the_rows_of_both_or_of_either(one: ColumnQuery, other: ColumnQuery) -> None:
    both, either = narrowed(one, other), widened(one, other)
    assert both is not None
    for value in VALUES:
        assert answers(both, value) == (answers(one, value) and answers(other, value)), value
        assert answers(either, value) == (answers(one, value) or answers(other, value)), value


SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64()})


@pytest.mark.parametrize(
    ("text", "ranges", "values"),
    [
        ("a BETWEEN 3 AND 7", (Range(3, 7),), ()),
        ("a > 3 AND b = 1 AND a <= 7", (Range(3, 7, has_low=False),), ()),
        ("a IN (1, 5, 9) AND a > 4", (), (5, 9)),
        ("a > 4 AND a IN (1, 5, 9) AND a != 9", (), (5,)),
        ("a = 1 OR a = 2 OR a > 8", (Range(8, has_low=False),), (1, 2)),
        ("NOT (a < 2 OR a > 4)", (Range(2, 4),), ()),
        ("a NOT IN (3, 5) AND a < 4", (Range(high=3, has_high=False), Range(3, 4, False, False)), ()),
        ("a > 7 AND a < 3", (Range(7, 3, False, False),), ()),
    ],
)
def test_conditions_on_one_column_become_one_question(
    text: str, ranges: tuple[Range, ...], values: tuple[int, ...]
) -> None:
    query = index_query(parse_predicate(text, SCHEMA), {("a",)})
    if isinstance(query, AllOf):
        assert not query.is_exact
        (query,) = query.items
    assert isinstance(query, ColumnQuery)
    assert (query.ranges, query.values) == (ranges, values)


def test_conditions_on_two_columns_stay_two_questions() -> None:
    both = {("a",), ("b",)}
    asked = index_query(parse_predicate("a > 1 AND b > 2 AND a < 5", SCHEMA), both)
    assert isinstance(asked, AllOf)
    assert [item.ranges for item in asked.items if isinstance(item, ColumnQuery)] == [
        (Range(1, 5, False, False),),
        (Range(2, has_low=False),),
    ]
    either = index_query(parse_predicate("a = 1 OR b = 2 OR a = 3", SCHEMA), both)
    assert isinstance(either, AnyOf)
    assert [item.values for item in either.items if isinstance(item, ColumnQuery)] == [(1, 3), (2,)]


def test_questions_of_too_many_parts_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_column, "MAX_PARTS", 3)
    long = "a NOT IN (1, 2) AND a NOT IN (3, 4)"
    query = index_query(parse_predicate(long, SCHEMA), {("a",)})
    assert isinstance(query, AllOf)
    assert len(query.items) == 2
