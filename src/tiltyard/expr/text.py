"""A bound tree as SQL text that parses to the same tree against the same schema.

Names are quoted with double quotes unless they are plain; every inner operation stands in parentheses, so
that the text needs no knowledge of precedence.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal

import pyarrow as pa

from tiltyard.expr.arrow_names import arrow_name
from tiltyard.expr.coerce import DAY_NANOS, Kind, kind_of, unit_nanos
from tiltyard.expr.intervals import interval_text
from tiltyard.expr.tokens import RESERVED_WORDS
from tiltyard.expr.types import (
    And,
    Case,
    Cast,
    Column,
    Compare,
    Function,
    In,
    Interval,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Values,
)

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_ARROW_NAMES = {"float": "float32", "halffloat": "float16", "double": "float64", "bool": "boolean"}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Days since 1970 of the years 1 and 9999, the range of dates in a text."""


def quote_name(name: str) -> str:
    """A column name as the parser reads it back exactly."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def type_name(arrow: pa.DataType) -> str:
    """The name of a type as a cast takes it."""
    if pa.types.is_decimal(arrow):
        width = "" if arrow.bit_width == 128 else str(arrow.bit_width)
        return f"decimal{width}({arrow.precision}, {arrow.scale})"
    if pa.types.is_date(arrow):
        return "date32" if pa.types.is_date32(arrow) else "date64"
    if pa.types.is_time(arrow):
        return f"time[{arrow.unit}]"
    if pa.types.is_duration(arrow):
        return f"duration[{arrow.unit}]"
    if pa.types.is_timestamp(arrow):
        zone = "" if arrow.tz is None else f", tz={quote_text(arrow.tz)}"
        return f"timestamp[{arrow.unit}{zone}]"
    return _ARROW_NAMES.get(str(arrow), str(arrow))


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}" if nanos else ""


def _clock(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest)}"


def literal_text(value: Values, arrow: pa.DataType, beside_column: bool = False) -> str:
    """A constant in physical units of its type as a literal of SQL.

    `beside_column`: what it is compared with decides its type, so that the text need not.
    """
    kind = kind_of(arrow)
    if value is None:
        return "NULL" if kind is Kind.NULL else f"CAST(NULL AS {type_name(arrow)})"
    if isinstance(value, Interval):
        return f"INTERVAL {quote_text(interval_text(value))}"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if kind is Kind.DECIMAL:
        assert isinstance(value, int | Decimal)
        return f"CAST({quote_text(format(Decimal(value), 'f'))} AS {type_name(arrow)})"
    if isinstance(value, float):
        written = repr(value) if math.isfinite(value) else quote_text(str(value))
        return f"CAST({written} AS {type_name(arrow)})"
    written, natural = _written(value, arrow, kind)
    return written if arrow == natural or beside_column else f"CAST({written} AS {type_name(arrow)})"


def _written(value: Values, arrow: pa.DataType, kind: Kind) -> tuple[str, pa.DataType]:
    """A literal without a cast, and the type that the parser gives it."""
    if isinstance(value, str):
        return quote_text(value), pa.string()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'", pa.binary()
    if kind is Kind.FLOAT:
        written = str(value) if isinstance(value, Decimal) else f"{value}.0"
        if isinstance(value, Decimal) and written.lstrip("-").isdecimal():
            written += "."
        return written, pa.float64()
    assert isinstance(value, int)
    if kind is Kind.INT:
        return str(value), pa.int64() if -(2**63) <= value < 2**63 else pa.uint64()
    unit = unit_nanos(arrow)
    nanos = value * unit
    if kind is Kind.TIME and 0 <= nanos < DAY_NANOS:
        return f"time {quote_text(_clock(nanos))}", pa.time64("ns")
    days, rest = divmod(nanos, DAY_NANOS)
    if kind is Kind.INSTANT and _FIRST_DAY <= days <= _LAST_DAY:
        day = (datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()
        if pa.types.is_date32(arrow):
            return f"date {quote_text(day)}", arrow
        zone = None if getattr(arrow, "tz", None) is None else "UTC"
        written = f"{day} {_clock(rest)}{'Z' if zone else ''}"
        is_far = not -(2**63) <= nanos < 2**63
        return f"timestamp {quote_text(written)}", pa.timestamp("us" if is_far else "ns", zone)
    return f"CAST({value} AS {type_name(arrow)})", arrow


def _call_text(node: Function) -> str:
    args = [sql_of(arg) for arg in node.args]
    if node.name in ("+", "-", "*", "/", "%", "<<", ">>"):
        return f"({args[0]} {node.name} {args[1]})"
    if node.name == "||":
        return "(" + " || ".join(args) + ")"
    if node.name == "neg":
        return f"(- {args[0]})"
    if node.name.startswith(("LIKE", "ILIKE")):
        word, _, escape = node.name.partition(" ESCAPE ")
        clause = f" ESCAPE {quote_text(escape)}" if " ESCAPE " in node.name else ""
        return f"({args[0]} {word} {args[1]}{clause})"
    if node.name in ("array_has_any", "array_has_all") and all(
        isinstance(arg, Literal) for arg in node.args[1:]
    ):
        return f"{node.name}({args[0]}, [{', '.join(args[1:])}])"
    return f"{node.name}({', '.join(args)})"


def sql_of(node: Node) -> str:
    """The text of a tree; see the module's docstring."""
    match node:
        case Column():
            return ".".join(quote_name(step) for step in node.path)
        case Literal():
            return literal_text(node.value, node.type)
        case Compare():
            right = node.right
            beside = (
                literal_text(right.value, right.type, True) if isinstance(right, Literal) else sql_of(right)
            )
            return f"({sql_of(node.left)} {node.op} {beside})"
        case And():
            return "(" + " AND ".join(sql_of(item) for item in node.items) + ")"
        case Or():
            return "(" + " OR ".join(sql_of(item) for item in node.items) + ")"
        case Not():
            return f"(NOT {sql_of(node.item)})"
        case In():
            member = node.item.type
            member = member.value_type if pa.types.is_dictionary(member) else member
            values = [literal_text(value, member, True) for value in node.values]
            if node.has_null:
                values.append("NULL")
            if not values:
                # no value of the column's type can be equal: false, but unknown for null
                return f"({sql_of(node.item)} != {sql_of(node.item)})"
            return f"({sql_of(node.item)} IN ({', '.join(values)}))"
        case IsNull():
            return f"({sql_of(node.item)} IS NULL)"
        case IsTruth():
            return f"({sql_of(node.item)} IS {'TRUE' if node.value else 'FALSE'})"
        case Like():
            word = "ILIKE" if node.ignore_case else "LIKE"
            return f"({sql_of(node.item)} {word} {quote_text(node.pattern)})"
        case Cast():
            word = "TRY_CAST" if node.lenient else "CAST"
            if pa.types.is_nested(node.type) or pa.types.is_dictionary(node.type):
                word = "arrow_try_cast" if node.lenient else "arrow_cast"
                return f"{word}({sql_of(node.item)}, {quote_text(arrow_name(node.type))})"
            return f"{word}({sql_of(node.item)} AS {type_name(node.type)})"
        case Case():
            whens = " ".join(f"WHEN {sql_of(when)} THEN {sql_of(value)}" for when, value in node.whens)
            return f"CASE {whens} ELSE {sql_of(node.otherwise)} END"
        case Function():
            return _call_text(node)
