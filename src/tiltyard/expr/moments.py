"""Functions of dates and times: made of numbers and texts, written as texts, cut into parts.

Formats are those of `strftime`, with `%f` for nanoseconds and `%.3f`, `%.6f`, `%.9f` for a fraction with its
point.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import valid_of, values_of
from tiltyard.expr.coerce import (
    DAY_NANOS,
    NANOS,
    Kind,
    Mismatch,
    kind_of,
    read_instant,
    time_literal,
    unit_nanos,
    zone_of,
)
from tiltyard.expr.intervals import interval_literal
from tiltyard.expr.signatures import (
    CLOCK,
    INSTANT,
    NUMBER,
    TEXT,
    WHOLE,
    Run,
    Signature,
    array_of,
    by_value,
    one,
)
from tiltyard.expr.types import Interval

_NS = pa.timestamp("ns")
_EPOCH = datetime.datetime(1970, 1, 1)
_ANY_MOMENT = NUMBER | TEXT | INSTANT

# -- parts --------------------------------------------------------------------------------------------------

_KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "year": ("year", {}),
    "isoyear": ("iso_year", {}),
    "quarter": ("quarter", {}),
    "month": ("month", {}),
    "week": ("iso_week", {}),
    "day": ("day", {}),
    "dow": ("day_of_week", {"week_start": 7}),
    "isodow": ("day_of_week", {"count_from_zero": False}),
    "doy": ("day_of_year", {}),
    "hour": ("hour", {}),
    "minute": ("minute", {}),
    "second": ("second", {}),
}
_FRACTIONS = {"millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}
_PARTS = (*_KERNELS, *_FRACTIONS, "epoch")
_CLOCK_UNITS = ("hour", "minute", "second", "millisecond", "microsecond")
_UNITS = ("year", "quarter", "month", "week", "day", *_CLOCK_UNITS)


def _constant_word(arg: Any, known: Sequence[str], of: str) -> str:
    word = str(arg.as_py()).lower()
    if word not in known:
        raise pa.ArrowInvalid(f"{word!r} is no {of}: choose one of {', '.join(known)}")
    return word


def _nanos(array: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    """Physical values and which are known."""
    return values_of(array).astype(np.int64), valid_of(array)


def _masked(values: np.ndarray, valid: np.ndarray | None, arrow: pa.DataType) -> pa.Array:
    return pa.array(values, arrow, mask=None if valid is None else ~valid)


def _date_part(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    part = _constant_word(args[0], _PARTS, "part of a date")
    array = array_of(args[1], rows)
    if pa.types.is_duration(array.type):
        return _part_of_duration(part, array)
    if part in _KERNELS:
        if part in _CLOCK_UNITS and pa.types.is_date(array.type):
            array = array.cast(pa.timestamp("ms"))
        kernel, options = _KERNELS[part]
        return getattr(pc, kernel)(array, **options).cast(pa.int32())
    values, valid = _nanos(array)
    unit = unit_nanos(array.type)
    if part == "epoch":
        per_second = NANOS["s"] / unit
        return _masked(
            values / per_second if per_second >= 1 else values * (unit / NANOS["s"]), valid, pa.float64()
        )
    # the seconds of the minute are part of them, as in the official implementation
    minute = (values * unit if unit == DAY_NANOS else values % (60 * NANOS["s"] // unit) * unit) % (
        60 * NANOS["s"]
    )
    found = minute // (NANOS["s"] // _FRACTIONS[part])
    return _masked(found, valid, pa.int64() if part == "nanosecond" else pa.int32())


_IN_DURATIONS = {"day": DAY_NANOS, "hour": 3600 * 10**9, "minute": 60 * 10**9, "second": 10**9}


def _part_of_duration(part: str, array: pa.Array) -> pa.Array:
    """How many whole parts of a kind a duration holds."""
    values, valid = _nanos(array)
    unit = unit_nanos(array.type)
    if part == "epoch":
        return _masked(values / (NANOS["s"] / unit), valid, pa.float64())
    nanos = _IN_DURATIONS.get(part) or (NANOS["s"] // _FRACTIONS[part] if part in _FRACTIONS else 0)
    if not nanos:
        known = ", ".join((*_IN_DURATIONS, *_FRACTIONS, "epoch"))
        raise pa.ArrowInvalid(f"{part!r} is no part of a duration: choose one of {known}")
    found = np.trunc(values / (nanos // unit)) if nanos >= unit else values * (unit // nanos)
    return _masked(found.astype(np.int64), valid, pa.int64())


def _date_trunc(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    is_clock = pa.types.is_time(args[1].type)
    unit = _constant_word(args[0], _CLOCK_UNITS if is_clock else _UNITS, "unit of time")
    return pc.floor_temporal(args[1], 1, unit).cast(args[1].type)


def _date_bin(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    width, array = args[0], array_of(args[1], rows)
    if width.as_py() is None:
        return pa.nulls(rows, array.type)
    if pa.types.is_date(array.type):
        array = array.cast(_NS)
    if pa.types.is_interval(width.type):
        span = Interval(*width.as_py())
    else:
        try:
            value = interval_literal(width.as_py()).value
        except Mismatch as error:
            raise pa.ArrowInvalid(str(error)) from error
        assert isinstance(value, Interval)
        span = value
    if span.months:
        if span.days or span.nanos or span.months < 0 or len(args) > 2:
            raise pa.ArrowInvalid("bins are of months alone, from 1970 on, or of days and less")
        return pc.floor_temporal(array, span.months, "month").cast(array.type)
    unit = unit_nanos(array.type)
    nanos = span.days * DAY_NANOS + span.nanos
    if nanos <= 0 or nanos % unit:
        raise pa.ArrowInvalid(f"a bin is a positive number of units of {array.type}")
    start = 0
    if len(args) > 2:
        origin = args[2].cast(pa.timestamp("ns"))
        if not origin.is_valid:
            return pa.nulls(rows, array.type)
        start = origin.value // unit
    values, valid = _nanos(array)
    wide = nanos // unit
    found = _masked((values - start) // wide * wide + start, valid, pa.int64())
    return found.cast(array.type)


# -- formats ------------------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"%(\.?[369]?f|:z|[-_0]?[A-Za-z%+])")
_SHORTHANDS = {
    "%F": "%Y-%m-%d",
    "%T": "%H:%M:%S",
    "%D": "%m/%d/%y",
    "%R": "%H:%M",
    "%h": "%b",
    "%v": "%e-%b-%Y",
}


def _fraction(directive: str, nanos: int) -> str:
    digits = directive.strip(".f")
    if digits:
        written = f"{nanos:09d}"[: int(digits)]
    elif directive == "f":
        written = f"{nanos:09d}"
    else:
        wanted = 0 if not nanos else 3 if nanos % 10**6 == 0 else 6 if nanos % 10**3 == 0 else 9
        written = f"{nanos:09d}"[:wanted]
    return f".{written}" if directive.startswith(".") and written else written


def _formatted(moment: datetime.datetime, nanos: int, form: str) -> str:
    for short, long in _SHORTHANDS.items():
        form = form.replace(short, long)

    def written(match: re.Match[str]) -> str:
        directive = match[1]
        if directive.endswith("f"):
            return _fraction(directive, nanos)
        if directive == "Y":
            return f"{moment.year:04d}"
        if directive == "%":
            return "%"
        if directive in ("Z", ":z"):
            offset = moment.strftime("%z")
            return f"{offset[:3]}:{offset[3:]}" if offset else ""
        if directive == "e":
            return f"{moment.day:2d}"
        if directive == "s":
            instant = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
            return str(int(instant.timestamp()))
        if directive == "+":
            return moment.isoformat()
        return moment.strftime(f"%{directive}")

    return _DIRECTIVE.sub(written, form)


def _to_char(args: Sequence[Any], rows: int) -> Any:
    array = array_of(args[0], rows)
    zone = None if getattr(array.type, "tz", None) is None else zone_of(array.type.tz)
    unit = unit_nanos(array.type)
    numbers = array.cast(pa.int64() if array.type.bit_width == 64 else pa.int32()).cast(pa.int64())

    def text(number: int, form: str) -> str:
        seconds, nanos = divmod(number * unit, NANOS["s"])
        moment = _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)
        if zone is not None:
            moment = moment.replace(tzinfo=datetime.UTC).astimezone(zone)
        return _formatted(moment, nanos, form)

    return by_value(text, pa.string())([numbers, args[1]], rows)


def _read_with(text: str, forms: Sequence[str]) -> int:
    """Nanoseconds since 1970 of a text in one of the formats."""
    for form in forms:
        for short, long in _SHORTHANDS.items():
            form = form.replace(short, long)
        given, nanos = text, 0
        if re.search(r"%\.?[369]?f", form):
            match = re.search(r"\.?(\d{1,9})(?=\D*$)", text)
            form = re.sub(r"%\.?[369]?f", "", form)
            if match is not None:
                nanos = int(match[1].ljust(9, "0"))
                given = text[: match.start()] + text[match.end() :]
        form = form.replace("%e", "%d").replace("%:z", "%z")
        try:
            moment = datetime.datetime.strptime(given, form)
        except ValueError:
            continue
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        since = moment - _EPOCH
        return (since.days * 86_400 + since.seconds) * 10**9 + nanos
    raise ValueError(f"{text!r} has none of the forms {', '.join(map(repr, forms))}")


def _nanos_of(text: str, *forms: str) -> int:
    if forms:
        return _read_with(text, forms)
    try:
        return read_instant(text)[0]
    except Mismatch as error:
        raise ValueError(str(error)) from error


def _days_of(text: str, *forms: str) -> int:
    return _nanos_of(text, *forms) // DAY_NANOS


def _clock_of(text: str, *forms: str) -> int:
    if forms:
        return _read_with(f"1970-01-01 {text}", [f"%Y-%m-%d {form}" for form in forms])
    try:
        value = time_literal(text).value
    except Mismatch as error:
        raise ValueError(str(error)) from error
    assert isinstance(value, int)
    return value


# -- conversions --------------------------------------------------------------------------------------------


def _instants(unit: str, per: str) -> Run:
    """`to_timestamp...`: numbers count units `per` since 1970; the result is in `unit`."""
    target = pa.timestamp(unit)

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        array = array_of(args[0], rows)
        kind = kind_of(array.type)
        if kind is Kind.TEXT:
            nanos = by_value(_nanos_of, pa.int64())([array, *args[1:]], rows)
            return nanos.cast(_NS).cast(target, safe=False)
        if kind is Kind.INSTANT:
            zone = getattr(array.type, "tz", None)
            return array.cast(pa.timestamp(unit, zone), safe=False)
        if kind is Kind.INT:
            return array.cast(pa.int64()).cast(pa.timestamp(per)).cast(target)
        scaled = pc.multiply(array.cast(pa.float64()), float(NANOS[per] / NANOS[unit]))
        return pc.trunc(scaled).cast(pa.int64()).cast(target)

    return run


def _to_date(args: Sequence[Any], rows: int) -> Any:
    array = array_of(args[0], rows)
    if kind_of(array.type) is Kind.TEXT:
        return by_value(_days_of, pa.int32())([array, *args[1:]], rows).cast(pa.date32())
    if kind_of(array.type) is Kind.INT:
        return array.cast(pa.int32()).cast(pa.date32())
    return array.cast(pa.date32(), safe=False)


def _to_time(args: Sequence[Any], rows: int) -> Any:
    array = array_of(args[0], rows)
    if kind_of(array.type) is Kind.TEXT:
        return by_value(_clock_of, pa.int64())([array, *args[1:]], rows).cast(pa.time64("ns"))
    return array if pa.types.is_time(array.type) else array.cast(pa.time64("ns"), safe=False)


def _to_unix(args: Sequence[Any], rows: int) -> Any:
    array = array_of(args[0], rows)
    kind = kind_of(array.type)
    if kind is Kind.TEXT:
        return by_value(lambda text, *forms: int(_towards_zero(_nanos_of(text, *forms), 10**9)), pa.int64())(
            [array, *args[1:]], rows
        )
    if kind is not Kind.INSTANT:
        return array.cast(pa.int64(), safe=False)
    values, valid = _nanos(array)
    unit = unit_nanos(array.type)
    found = values * (unit // 10**9) if unit >= 10**9 else _towards_zero(values, 10**9 // unit)
    return _masked(found, valid, pa.int64())


def _towards_zero(number: Any, divisor: int) -> Any:
    """The quotient of whole numbers, as the official package gives seconds of moments before 1970."""
    return np.where(np.less(number, 0), -(-number // divisor), number // divisor)


def _from_unix(args: Sequence[Any], rows: int) -> Any:
    array = array_of(args[0], rows).cast(pa.int64()).cast(pa.timestamp("s"))
    if len(args) == 1:
        return array
    zone = args[1].as_py()
    return array.cast(pa.timestamp("s", zone)) if zone else pa.nulls(rows, array.type)


def _to_local(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    zoned = getattr(args[0].type, "tz", None) is not None
    return pc.local_timestamp(args[0]) if zoned else args[0]


def _make_date(year: int, month: int, day: int) -> datetime.date:
    return datetime.date(year, month, day)


def _make_time(hour: int, minute: int, second: int) -> datetime.time:
    return datetime.time(hour, minute, second)


def _moment(run: Run) -> Signature:
    return Signature((_ANY_MOMENT, TEXT), 1, None, run)


_FIRST = frozenset({0})

SIGNATURES: dict[str, Signature] = {
    "date_part": Signature((TEXT, CLOCK | {Kind.DURATION}), 2, 2, _date_part, _FIRST),
    "date_trunc": Signature((TEXT, CLOCK), 2, 2, _date_trunc, _FIRST),
    "date_bin": Signature((TEXT | {Kind.INTERVAL}, INSTANT, INSTANT), 2, 3, _date_bin, frozenset({0, 2})),
    "to_char": Signature((CLOCK, TEXT), 2, 2, _to_char),
    "to_timestamp": _moment(_instants("ns", "s")),
    "to_timestamp_seconds": _moment(_instants("s", "s")),
    "to_timestamp_millis": _moment(_instants("ms", "ms")),
    "to_timestamp_micros": _moment(_instants("us", "us")),
    "to_timestamp_nanos": _moment(_instants("ns", "ns")),
    "to_date": _moment(_to_date),
    "to_time": Signature((TEXT | CLOCK, TEXT), 1, None, _to_time),
    "to_unixtime": _moment(_to_unix),
    "from_unixtime": Signature((WHOLE, TEXT), 1, 2, _from_unix, frozenset({1})),
    "to_local_time": one(INSTANT, _to_local),
    "make_date": Signature((WHOLE,), 3, 3, by_value(_make_date, pa.date32())),
    "make_time": Signature((WHOLE,), 3, 3, by_value(_make_time, pa.time32("s"))),
}

ALIASES = {"datepart": "date_part", "datetrunc": "date_trunc", "date_format": "to_char"}
