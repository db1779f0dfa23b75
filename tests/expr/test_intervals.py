"""Intervals: what they are read as, and what they do to dates, times and zones."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr_rows import batch_of, rows, values
from tiltyard.errors import InvalidExpression
from tiltyard.expr import parse_expression, parse_predicate

DAYS = pa.array([datetime.date(2024, 1, 31), datetime.date(2023, 12, 15), None], pa.date32())
MOMENTS = pa.array(
    [datetime.datetime(2024, 1, 31, 23, 30), datetime.datetime(1969, 12, 31, 12), None], pa.timestamp("us")
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d + INTERVAL '1' MONTH", [datetime.date(2024, 2, 29), datetime.date(2024, 1, 15), None]),
        ("d - INTERVAL '2 months 1 day'", [datetime.date(2023, 11, 29), datetime.date(2023, 10, 14), None]),
        ("INTERVAL '1 year' + d", [datetime.date(2025, 1, 31), datetime.date(2024, 12, 15), None]),
        ("d + INTERVAL '2 weeks'", [datetime.date(2024, 2, 14), datetime.date(2023, 12, 29), None]),
        ("d + 1", [datetime.date(2024, 2, 1), datetime.date(2023, 12, 16), None]),
        (
            "d + INTERVAL '1 hour'",
            [datetime.datetime(2024, 1, 31, 1), datetime.datetime(2023, 12, 15, 1), None],
        ),
        (
            "t + INTERVAL '1' DAY",
            [datetime.datetime(2024, 2, 1, 23, 30), datetime.datetime(1970, 1, 1, 12), None],
        ),
        (
            "t + INTERVAL '-1 month 01:30:00'",
            [datetime.datetime(2024, 1, 1, 1), datetime.datetime(1969, 11, 30, 13, 30), None],
        ),
        (
            "t - 2 * INTERVAL '15 minutes'",
            [datetime.datetime(2024, 1, 31, 23), datetime.datetime(1969, 12, 31, 11, 30), None],
        ),
        (
            "t + (INTERVAL '1 day' - INTERVAL '1 hour')",
            [datetime.datetime(2024, 2, 1, 22, 30), datetime.datetime(1970, 1, 1, 11), None],
        ),
    ],
)
def test_dates_and_timestamps_move(text: str, expected: list[Any]) -> None:
    assert values(text, d=DAYS, t=MOMENTS) == expected


def test_a_day_moves_the_clock_of_a_zone_and_an_hour_the_instant() -> None:
    before = datetime.datetime(2024, 3, 30, 11, tzinfo=datetime.UTC)  # the night before summer time in Berlin
    t = pa.array([before], pa.timestamp("us", "Europe/Berlin"))
    assert values("t + INTERVAL '1 day'", t=t) == [before + datetime.timedelta(hours=23)]
    assert values("t + INTERVAL '24 hours'", t=t) == [before + datetime.timedelta(hours=24)]


def test_times_go_around_the_clock() -> None:
    clock = pa.array([datetime.time(23, 30), None], pa.time64("us"))
    assert values("c + INTERVAL '45 minutes'", c=clock) == [datetime.time(0, 15), None]
    assert values("c - INTERVAL '23:30:00.5'", c=clock) == [datetime.time(23, 59, 59, 500_000), None]


def test_durations_compare_with_intervals() -> None:
    x = pa.array([90, 86_400, None], pa.duration("s"))
    assert rows("x > INTERVAL '1 minute'", x=x) == [0, 1]
    assert rows("x = INTERVAL '1 day'", x=x) == [1]
    assert rows("t - timestamp '2024-01-31 23:00:00' = INTERVAL '30 minutes'", t=MOMENTS) == [0]
    assert values("x + INTERVAL '30 seconds'", x=x)[0] == datetime.timedelta(seconds=120)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("d > INTERVAL '1 day'", "does not compare"),
        ("x > INTERVAL '1 month'", "no fixed length"),
        ("d + INTERVAL 'soon' > d", "is no interval"),
        ("d + INTERVAL '' > d", "is no interval"),
        ("d + INTERVAL '1 fortnight' > d", "no unit of time"),
        ("d + INTERVAL '1.5 months 2 moons' > d", "no whole number of months"),
        ("d + INTERVAL '99999999999 years' > d", "10,000 years"),
        ("INTERVAL '1 day' - d > d", "is not defined"),
        ("n + INTERVAL '1 day' > n", "an interval is added to"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, problem: str) -> None:
    schema = pa.schema({"d": pa.date32(), "x": pa.duration("s"), "n": pa.int64()})
    with pytest.raises(InvalidExpression, match=problem):
        parse_predicate(text, schema)


def test_instants_beyond_the_type_are_an_error() -> None:
    t = pa.array([2**62], pa.int64()).cast(pa.timestamp("ns"))
    with pytest.raises(InvalidExpression, match="beyond the range"):
        values("t + INTERVAL '300 years'", t=t)


@settings(max_examples=50, deadline=None)
@given(
    st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    st.integers(-2000, 2000),
    st.integers(-40_000, 40_000),
    st.integers(-(10**11), 10**11),
)
def test_days_and_microseconds_add_as_in_python(
    moment: datetime.datetime, months: int, days: int, micros: int
) -> None:
    text = f"t + INTERVAL '{months} months' + INTERVAL '{days} days {micros} microseconds'"
    at = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(at, 12)
    last = (datetime.date(year + (month == 11), (month + 1) % 12 + 1, 1) - datetime.timedelta(days=1)).day
    moved = moment.replace(year=year, month=month + 1, day=min(moment.day, last))
    expected = moved + datetime.timedelta(days=days, microseconds=micros)
    t = pa.array([moment], pa.timestamp("us"))
    assert values(text, t=t) == [expected]
    expr = parse_expression(text, batch_of(t=t).schema)
    assert values(expr.sql, t=t) == [expected]
