"""Intervals: months, days and nanoseconds, as constants that are added to dates and times.

`INTERVAL '1 year 2 mons 3 days 04:05:06.7'` and `INTERVAL '3' DAY`. A month keeps the day of the month, or
takes the last one of a shorter month; months and days move the clock of a zone, hours the instant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import dtype_of, valid_of, values_of
from tiltyard.expr.coerce import DAY_NANOS, Kind, Mismatch, kind_of, unit_nanos
from tiltyard.expr.signatures import Run, array_of
from tiltyard.expr.types import Interval, Literal

INTERVAL = pa.month_day_nano_interval()
MAX_MONTHS = 12 * 10_000
MAX_DAYS = 366 * 10_000

_MONTHS = {"year": 12, "quarter": 3, "month": 1, "decade": 120, "century": 1200}
_DAYS = {"week": 7, "day": 1}
_NANOS = {
    "hour": 3600 * 10**9,
    "minute": 60 * 10**9,
    "second": 10**9,
    "millisecond": 10**6,
    "microsecond": 10**3,
    "nanosecond": 1,
}
_SHORT = {
    "yr": "year", "y": "year", "mon": "month", "w": "week", "d": "day", "h": "hour", "hr": "hour",
    "min": "minute", "m": "minute", "sec": "second", "s": "second", "ms": "millisecond",
    "msec": "millisecond", "us": "microsecond", "usec": "microsecond",
    "ns": "nanosecond", "nsec": "nanosecond",
    "centurie": "century",
}  # fmt: skip
_PART = re.compile(
    r"\s*(?:(?P<sign>[+-]?)(?P<hour>\d+):(?P<minute>\d\d)(?::(?P<second>\d\d(?:\.\d{1,9})?))?"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<unit>[a-zA-Z]*))\s*"
)


def unit_of(word: str) -> str | None:
    """The full name of a unit of time, None for any other word."""
    small = word.lower()
    for name in (small, small.removesuffix("s")):
        name = _SHORT.get(name, name)
        if name in _MONTHS or name in _DAYS or name in _NANOS:
            return name
    return None


def _whole(number: Fraction, text: str) -> int:
    if number.denominator != 1:
        raise Mismatch(f"{text!r} is no whole number of months: write days")
    return int(number)


def interval_literal(text: str, unit: str | None = None) -> Literal:
    """The value of `INTERVAL 'text' [UNIT]`; `Mismatch` where it is none. Numbers without a unit take `unit`,
    or seconds."""
    months, days, nanos = 0, Fraction(0), Fraction(0)
    at = 0
    while at < len(text) or not at:
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            raise Mismatch(
                f"{text!r} is no interval: write it as '1 day', '2 hours 30 minutes' or '12:30:00'"
            )
        at = match.end()
        if match["hour"]:
            clock = int(match["hour"]) * 3600 + int(match["minute"]) * 60 + Fraction(match["second"] or 0)
            nanos += (-clock if match["sign"] == "-" else clock) * 10**9
            continue
        name = unit_of(match["unit"]) if match["unit"] else (unit or "second")
        number = Fraction(match["number"])
        if name in _MONTHS:
            months += _whole(number * _MONTHS[name], text)
        elif name in _DAYS:
            days += number * _DAYS[name]
        elif name in _NANOS:
            nanos += number * _NANOS[name]
        else:
            known = ", ".join((*_MONTHS, *_DAYS, *_NANOS))
            raise Mismatch(f"{match['unit']!r} is no unit of time: choose one of {known}")
    whole = int(days)
    nanos += (days - whole) * DAY_NANOS
    return _made(months, whole, int(nanos))


def _made(months: int, days: int, nanos: int) -> Literal:
    if abs(months) > MAX_MONTHS or abs(days) > MAX_DAYS or abs(nanos) >= 2**63:
        raise Mismatch("an interval of more than 10,000 years, or of more nanoseconds than 64 bits hold")
    return Literal(Interval(months, days, nanos), INTERVAL)


def interval_text(value: Interval) -> str:
    """The text between the quotes of an interval."""
    parts = [(value.months, "months"), (value.days, "days"), (value.nanos, "nanoseconds")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 days"


def as_duration(literal: Literal) -> Literal:
    """An interval without months as a duration, a day being 24 hours."""
    assert isinstance(literal.value, Interval)
    if literal.value.months:
        raise Mismatch("an interval of months has no fixed length: compare with one of days")
    nanos = literal.value.days * DAY_NANOS + literal.value.nanos
    if abs(nanos) < 2**63:
        return Literal(nanos, pa.duration("ns"))
    return Literal(nanos // 1000, pa.duration("us"))


def times(literal: Literal, number: int) -> Literal:
    """A multiple of an interval."""
    assert isinstance(literal.value, Interval)
    months, days, nanos = literal.value
    return _made(months * number, days * number, nanos * number)


def plus(one: Literal, other: Literal, sign: int) -> Literal:
    """The sum of two intervals, or their difference where `sign` is -1."""
    assert isinstance(one.value, Interval)
    assert isinstance(other.value, Interval)
    return _made(*(a + sign * b for a, b in zip(one.value, other.value, strict=True)))


# -- dates and times --------------------------------------------------------------------------------------


def _moved_days(days: np.ndarray, months: int, more: int) -> np.ndarray:
    if months:
        dates = days.astype("datetime64[D]")
        first = dates.astype("datetime64[M]")
        inside = dates - first.astype("datetime64[D]")
        moved = first + months
        last = (moved + 1).astype("datetime64[D]") - moved.astype("datetime64[D]") - 1
        days = (moved.astype("datetime64[D]") + np.minimum(inside, last)).astype(np.int64)
    return days + more


def _moved(array: pa.Array, by: Interval) -> pa.Array:
    """Dates or timestamps without a zone, moved; the unit is one that holds the interval."""
    if pa.types.is_date32(array.type) and not by.nanos:
        moved = _moved_days(values_of(array).astype(np.int64), by.months, by.days)
        return _rebuilt(array, moved, pa.date32())
    if pa.types.is_date(array.type):
        array = array.cast(
            pa.timestamp("ms" if by.nanos % 10**6 == 0 else "us" if by.nanos % 1000 == 0 else "ns")
        )
    if by.nanos % unit_nanos(array.type):
        array = array.cast(pa.timestamp("us" if by.nanos % 1000 == 0 else "ns"))
    unit = unit_nanos(array.type)
    per_day = DAY_NANOS // unit
    days, rest = np.divmod(values_of(array), per_day)
    days = _moved_days(days, by.months, by.days)
    more = by.nanos // unit
    limit = (2**63 - 1) // per_day - abs(more) // per_day - 2
    valid = valid_of(array)
    beyond = np.abs(days) > limit
    if bool((beyond if valid is None else beyond & valid).any()):
        raise pa.ArrowInvalid(f"an instant beyond the range of {array.type}")
    return _rebuilt(array, np.where(beyond, 0, days) * per_day + rest + more, array.type)


def _rebuilt(array: pa.Array, values: np.ndarray, arrow: pa.DataType) -> pa.Array:
    valid = valid_of(array)
    found = pa.array(values.astype(dtype_of(arrow)), mask=None if valid is None else ~valid)
    return found.cast(pa.int64() if arrow.bit_width == 64 else pa.int32()).cast(arrow)


def _clocks(array: pa.Array, by: Interval) -> pa.Array:
    """Times of day, moved around the clock."""
    if by.nanos % unit_nanos(array.type):
        array = array.cast(pa.time64("ns"))
    unit = unit_nanos(array.type)
    return _rebuilt(
        array, (values_of(array).astype(np.int64) + by.nanos // unit) % (DAY_NANOS // unit), array.type
    )


def shift(arrow: pa.DataType, by: Interval) -> Run:
    """The run of `x + interval` for a column of `arrow`'s type."""
    kind = kind_of(arrow)
    if kind is Kind.TIME:
        return lambda args, rows: _clocks(array_of(args[0], rows), by)
    if kind is not Kind.INSTANT:
        raise Mismatch(f"an interval is added to a date or a time, not to {arrow}")
    zone = getattr(arrow, "tz", None)

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        array = array_of(args[0], rows)
        if zone is None:
            return _moved(array, by)
        if by.months or by.days:
            local = _moved(pc.local_timestamp(array), by._replace(nanos=0))
            array = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
        moved = _moved(array.cast(pa.timestamp(array.type.unit)), Interval(0, 0, by.nanos))
        return pc.assume_timezone(moved, "UTC").cast(pa.timestamp(moved.type.unit, zone))

    return run
