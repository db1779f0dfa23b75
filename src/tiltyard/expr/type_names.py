"""Names of types in casts: SQL's and Arrow's, with their parameters.

`FLOAT` is 32 bits wide and a plain `TIMESTAMP` counts microseconds, as in the official implementation.
"""

from __future__ import annotations

import pyarrow as pa

from tiltyard.expr.coerce import Mismatch
from tiltyard.expr.tokens import Scanner, refuse

_INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "INTEGER": 32, "BIGINT": 64}
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}

_PLAIN: dict[str, pa.DataType] = {
    **{f"INT{width}": arrow for width, arrow in _SIGNED.items()},
    **{f"UINT{width}": arrow for width, arrow in _UNSIGNED.items()},
    "BOOL": pa.bool_(),
    "BOOLEAN": pa.bool_(),
    "FLOAT16": pa.float16(),
    "HALFFLOAT": pa.float16(),
    "HALF": pa.float16(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "UTF8": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "LARGE_STRING": pa.large_string(),
    "LARGE_UTF8": pa.large_string(),
    "LARGEUTF8": pa.large_string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTEA": pa.binary(),
    "BLOB": pa.binary(),
    "LARGE_BINARY": pa.large_binary(),
    "LARGEBINARY": pa.large_binary(),
    "DATE": pa.date32(),
    "DATE32": pa.date32(),
    "DATE64": pa.date64(),
}
_DECIMALS = {
    "DECIMAL": None,
    "NUMERIC": None,
    "DEC": None,
    "DECIMAL32": 32,
    "DECIMAL64": 64,
    "DECIMAL128": 128,
    "DECIMAL256": 256,
}
_UNIT_OF_DIGITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_UNITS = ("s", "ms", "us", "ns")


def _numbers(scan: Scanner) -> list[int]:
    """`(n)` or `(n, m)` if it follows, else nothing."""
    found: list[int] = []
    if scan.value != "(":
        return found
    while scan.value in ("(", ","):
        scan.advance()
        if scan.kind != "number" or not scan.value.isdecimal() or len(scan.value) > 4:
            raise refuse("a whole number is expected as a parameter of the type", scan.text, scan.at)
        found.append(int(scan.value))
        scan.advance()
    if scan.value != ")":
        raise refuse("the parameters of the type are not closed", scan.text, scan.at)
    scan.advance()
    return found


def _unit(scan: Scanner) -> tuple[str | None, str | None]:
    """`[unit]` or `[unit, tz=zone]` if it follows."""
    if scan.value != "[":
        return None, None
    scan.advance()
    unit, zone = scan.raw, None
    if unit not in _UNITS:
        raise refuse(f"a unit of time is expected: one of {', '.join(_UNITS)}", scan.text, scan.at)
    scan.advance()
    if scan.value == ",":
        scan.advance()
        if scan.value != "TZ":
            raise refuse("tz=... is expected", scan.text, scan.at)
        scan.advance()
        if scan.value != "=":
            raise refuse("tz=... is expected", scan.text, scan.at)
        scan.advance()
        parts: list[str] = []
        while scan.kind in ("word", "text", "number") or scan.value in ("/", "+", "-"):
            parts.append(scan.value if scan.kind == "text" else scan.raw)
            scan.advance()
        zone = "".join(parts)
    if scan.value != "]":
        raise refuse("']' is expected", scan.text, scan.at)
    scan.advance()
    return unit, zone


def _skip(scan: Scanner, *words: str) -> None:
    for word in words:
        if scan.value != word:
            raise refuse(f"{word} is expected", scan.text, scan.at)
        scan.advance()


def read_type(scan: Scanner) -> pa.DataType:
    """The type named from the current token on; the scanner ends behind it. Refuses unknown names at their
    place."""
    at, name = scan.at, scan.value
    if scan.kind != "word":
        raise refuse("the name of a type is expected", scan.text, at)
    scan.advance()
    try:
        found = _named(name, scan)
    except (ValueError, pa.ArrowInvalid, Mismatch) as error:
        if isinstance(error, Mismatch) or type(error) in (ValueError, pa.ArrowInvalid):
            raise refuse(f"the type {name} does not take these parameters: {error}", scan.text, at) from error
        raise
    if found is None:
        raise refuse(f"the type {name} is not known", scan.text, at)
    if scan.value == "[":
        raise refuse("a cast to a list is not supported", scan.text, scan.at)
    return found


def _named(name: str, scan: Scanner) -> pa.DataType | None:
    if name in _INTEGERS:
        if scan.value == "UNSIGNED":
            scan.advance()
            return _UNSIGNED[_INTEGERS[name]]
        return _SIGNED[_INTEGERS[name]]
    if name in _PLAIN:
        if name == "DOUBLE" and scan.value == "PRECISION":
            scan.advance()
        if name in ("VARCHAR", "CHAR") and scan.value == "(":
            raise Mismatch("text has no maximal length here")
        return _PLAIN[name]
    if name in _DECIMALS:
        numbers = _numbers(scan)
        if not numbers:
            raise Mismatch("write the precision and scale, as in decimal(10, 2)")
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        width = _DECIMALS[name] or (128 if precision <= 38 else 256)
        make = {32: "decimal32", 64: "decimal64", 128: "decimal128", 256: "decimal256"}[width]
        return getattr(pa, make)(precision, scale)
    if name in ("TIMESTAMP", "TIMESTAMPTZ", "DATETIME"):
        return _timestamp(name, scan)
    if name in ("TIME", "TIME32", "TIME64"):
        unit, _ = _unit(scan)
        unit = unit or _digits(scan) or {"TIME32": "ms"}.get(name, "us")
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if name == "DURATION":
        return pa.duration(_unit(scan)[0] or "us")
    return None


def _digits(scan: Scanner) -> str | None:
    numbers = _numbers(scan)
    if not numbers:
        return None
    if len(numbers) > 1 or numbers[0] not in _UNIT_OF_DIGITS:
        raise Mismatch("the digits of a second are 0, 3, 6 or 9")
    return _UNIT_OF_DIGITS[numbers[0]]


def _timestamp(name: str, scan: Scanner) -> pa.DataType:
    unit, zone = _unit(scan)
    unit = unit or _digits(scan) or "us"
    if name == "TIMESTAMPTZ":
        zone = zone or "UTC"
    elif name == "TIMESTAMP" and scan.value in ("WITH", "WITHOUT"):
        has_zone = scan.value == "WITH"
        scan.advance()
        _skip(scan, "TIME", "ZONE")
        zone = "UTC" if has_zone else None
    return pa.timestamp(unit, zone)
