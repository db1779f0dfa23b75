"""What literals mean beside an operand of some type: exact numbers, instants, and texts read as SQL reads
them.

A literal next to a column is put into the physical unit of the column as `floor` and whether that is exact,
so that a comparison never rounds the column: `k < 1.5` over integers is `k <= 1`, and a decimal never
passes through a float.
"""

from __future__ import annotations

import datetime
import math
import re
import zoneinfo
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction

import pyarrow as pa

from tiltyard.expr.types import Literal

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_NANOS = 86_400 * 10**9
MAX_EXPONENT = 400
"""Numbers beyond ten to this power are treated as infinite: no Arrow type reaches it."""

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_INSTANT = re.compile(
    rf"\s*(\d{{4}})-(\d{{1,2}})-(\d{{1,2}})(?:[T ]\s*{_CLOCK})?\s*(Z|z|[+-]\d{{2}}(?::?\d{{2}})?)?\s*"
)
_TIME = re.compile(rf"\s*{_CLOCK}\s*")
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})?")


class Mismatch(Exception):
    """Operands that have no common meaning; the parser adds the place in the text."""


class Kind(Enum):
    """Families of types that compare with each other."""

    INT = "an integer"
    FLOAT = "a floating-point number"
    DECIMAL = "a decimal"
    BOOL = "a boolean"
    TEXT = "text"
    BINARY = "binary"
    INSTANT = "a date or timestamp"
    TIME = "a time of day"
    DURATION = "a duration"
    INTERVAL = "an interval"
    NULL = "null"
    OTHER = "a nested value"

    @property
    def is_number(self) -> bool:
        return self in (Kind.INT, Kind.FLOAT, Kind.DECIMAL)


def kind_of(arrow: pa.DataType) -> Kind:
    """The family of an Arrow type; of a dictionary, that of its values."""
    found = _KINDS.get(arrow.id)
    if found is not None:
        return found
    if pa.types.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    found = _KINDS[arrow.id] = _kind(arrow)
    return found


_KINDS: dict[int, Kind] = {}
"""By the number of the type; dictionaries have one number whatever they hold."""


def _kind(arrow: pa.DataType) -> Kind:
    types = pa.types
    if types.is_integer(arrow):
        return Kind.INT
    if types.is_floating(arrow):
        return Kind.FLOAT
    if types.is_decimal(arrow):
        return Kind.DECIMAL
    if types.is_boolean(arrow):
        return Kind.BOOL
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Kind.TEXT
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return Kind.BINARY
    if types.is_binary_view(arrow):
        return Kind.BINARY
    if types.is_date(arrow) or types.is_timestamp(arrow):
        return Kind.INSTANT
    if types.is_time(arrow):
        return Kind.TIME
    if types.is_duration(arrow):
        return Kind.DURATION
    if types.is_interval(arrow):
        return Kind.INTERVAL
    return Kind.NULL if types.is_null(arrow) else Kind.OTHER


def unit_nanos(arrow: pa.DataType) -> int:
    """Nanoseconds in one physical unit of a temporal type."""
    if pa.types.is_date32(arrow):
        return DAY_NANOS
    if pa.types.is_date64(arrow):
        return NANOS["ms"]
    return NANOS[arrow.unit]


def zone_of(name: str) -> datetime.tzinfo:
    """The zone of a name or an offset; `Mismatch` where this machine does not know it."""
    offset = _OFFSET.fullmatch(name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return datetime.timezone(datetime.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Mismatch(f"the time zone {name!r} is not known on this machine") from error


def local_to_utc(nanos: int, zone: str) -> int:
    """The instant, in nanoseconds since 1970 UTC, of a wall-clock reading in a zone (its first one if
    twice)."""
    if zone.upper() == "UTC":
        return nanos
    seconds, rest = divmod(nanos, 10**9)
    try:
        wall = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
        offset = wall.replace(tzinfo=zone_of(zone)).utcoffset()
    except OverflowError as error:
        raise Mismatch("a timestamp outside the years 1 to 9999") from error
    assert offset is not None
    return (seconds - int(offset.total_seconds())) * 10**9 + rest


def _clock_nanos(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise Mismatch(f"there is no time {hour}:{minute}:{second or '00'}")
    whole = int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    return whole * 10**9 + int((fraction or "0").ljust(9, "0"))


def read_instant(text: str) -> tuple[int, bool, bool]:
    """A date or timestamp in ISO form: (nanoseconds since 1970, has an offset and is thus UTC, has a
    time)."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise Mismatch(
            f"{text!r} is no date or timestamp: write it as '2020-06-01' or '2020-06-01 12:30:00.5'"
        )
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError as error:
        raise Mismatch(f"{text!r} is no date: {error}") from error
    nanos = days * DAY_NANOS
    if hour is not None:
        nanos += _clock_nanos(hour, minute, second, fraction)
    if offset and offset not in "Zz":
        delta = zone_of(offset).utcoffset(None)
        assert delta is not None
        nanos -= int(delta.total_seconds()) * 10**9
    return nanos, offset is not None, hour is not None


def instant_literal(text: str) -> Literal:
    """The value of `timestamp '...'`: in nanoseconds where 64 bits hold it, else in microseconds."""
    nanos, is_utc, _ = read_instant(text)
    zone = "UTC" if is_utc else None
    if -(2**63) <= nanos < 2**63:
        return Literal(nanos, pa.timestamp("ns", zone))
    return Literal(nanos // 1000, pa.timestamp("us", zone))


def date_literal(text: str) -> Literal:
    """The value of `date '...'`."""
    nanos, is_utc, has_time = read_instant(text)
    if is_utc or has_time:
        raise Mismatch(f"{text!r} is no date: write date '2020-06-01', or timestamp '...' with a time")
    return Literal(nanos // DAY_NANOS, pa.date32())


def time_literal(text: str) -> Literal:
    """The value of `time '...'`, in nanoseconds since midnight."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise Mismatch(f"{text!r} is no time of day: write it as '12:30:00' or '12:30:00.5'")
    return Literal(_clock_nanos(*match.groups()), pa.time64("ns"))


def _number_literal(text: str) -> Literal:
    word = text.strip()
    try:
        return Literal(int(word), pa.int64())
    except ValueError:
        pass
    try:
        number = Decimal(word)
    except InvalidOperation as error:
        raise Mismatch(f"{text!r} is no number") from error
    return Literal(number if number.is_finite() else float(number), pa.float64())


def read_text(text: str, arrow: pa.DataType) -> Literal:
    """A text literal beside an operand of `arrow`'s type, read as SQL reads it; `Mismatch` where it is
    none."""
    kind = kind_of(arrow)
    if kind.is_number:
        return _number_literal(text)
    if kind is Kind.INSTANT:
        return instant_literal(text)
    if kind is Kind.TIME:
        return time_literal(text)
    if kind is Kind.BOOL:
        word = text.strip().lower()
        if word not in ("true", "t", "false", "f"):
            raise Mismatch(f"{text!r} is no boolean: write true or false")
        return Literal(word[0] == "t", pa.bool_())
    hint = ": write a binary literal as X'00ff', and take a value out of JSON by json_extract(column, '$.a')"
    raise Mismatch(f"text does not compare with {arrow}{hint if kind is Kind.BINARY else ''}")


def exact(literal: Literal, arrow: pa.DataType) -> tuple[int | float, bool]:
    """The literal in physical units of `arrow` (an integer, temporal or decimal type), never rounded
    silently.

    Gives (floor, whether it is exact); the floor is infinite or NaN where the number is.
    """
    value = literal.value
    kind, other = kind_of(arrow), kind_of(literal.type)
    if kind is Kind.INT or kind is Kind.DECIMAL:
        if not other.is_number:
            raise Mismatch(f"{arrow} does not compare with {other.value}")
        scale = arrow.scale if kind is Kind.DECIMAL else 0
        if isinstance(value, int) and scale >= 0:
            return value * 10**scale, True
        if isinstance(value, float) and not math.isfinite(value):
            return value, False
        assert isinstance(value, int | float | Decimal)
        if isinstance(value, Decimal) and value and value.adjusted() > MAX_EXPONENT:
            return math.copysign(math.inf, value), False
        if isinstance(value, Decimal) and value.adjusted() < -MAX_EXPONENT:
            return (-1 if value < 0 else 0), not value
        number = Fraction(value) * Fraction(10) ** scale
        return math.floor(number), number.denominator == 1
    if kind is not other:
        hints = {
            Kind.TIME: ": write it as text, as in '12:30:00'",
            Kind.INSTANT: ": write it as text, as in '2020-06-01'",
            Kind.DURATION: ": write CAST(... AS duration[s])",
        }
        hint = hints[kind] if other.is_number else ""
        raise Mismatch(f"{arrow} does not compare with {other.value}{hint}")
    assert isinstance(value, int)
    nanos = value * unit_nanos(literal.type)
    zone = getattr(arrow, "tz", None)
    if zone is not None and getattr(literal.type, "tz", None) is None:
        nanos = local_to_utc(nanos, zone)
    floor, rest = divmod(nanos, unit_nanos(arrow))
    return floor, rest == 0
