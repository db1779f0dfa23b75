"""What a predicate asks of its columns, in a form that any index can answer: ranges, values, null.

The question knows no index. Its answer contains every row for which the predicate is true; where `is_exact`
it contains no other, and where not the predicate itself must be run over the rows found.

Invariant Q1: a row for which the predicate is true answers the question (test_index_query.py, over random
trees).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from tiltyard.expr.coerce import Kind, kind_of
from tiltyard.expr.compare import snap
from tiltyard.expr.one_column import narrowed, widened
from tiltyard.expr.types import (
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Values,
)

MAX_GAPS = 64
"""NOT IN of at most this many values becomes the ranges between them; a longer list is every non-null row."""

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `low` to `high`, each None where open-ended and in the physical unit of the column (see
    `types.Literal`); never null. NaN is greater than all numbers, so a range without `high` contains it."""

    low: Values = None
    high: Values = None
    has_low: bool = True
    has_high: bool = True


EVERYTHING = Range()


@dataclass(frozen=True, slots=True)
class ColumnQuery:
    """Rows whose value of one column lies in one of `ranges`, is one of `values`, or is null where
    `nulls`."""

    path: tuple[str, ...]
    type: pa.DataType
    ranges: tuple[Range, ...] = ()
    values: tuple[Values, ...] = ()
    nulls: bool = False
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class AllOf:
    """Rows that answer all of `items`."""

    items: tuple[IndexQuery, ...]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Rows that answer any of `items`; of no item: no row."""

    items: tuple[IndexQuery, ...]
    is_exact: bool


IndexQuery = ColumnQuery | AllOf | AnyOf
NOTHING = AnyOf((), True)


def asked(query: ColumnQuery) -> str:
    """The question, for people: long lists are counted."""
    from tiltyard.expr.text import literal_text, quote_name

    name = ".".join(map(quote_name, query.path))
    parts = [_ranged(name, query.type, each) for each in query.ranges]
    if len(query.values) == 1:
        parts.append(f"{name} = {literal_text(query.values[0], query.type, True)}")
    elif query.values:
        parts.append(f"{name} IN ({len(query.values)} values)")
    if query.nulls:
        parts.append(f"{name} IS NULL")
    return " OR ".join(parts)


def _ranged(name: str, arrow: pa.DataType, wanted: Range) -> str:
    from tiltyard.expr.text import literal_text

    low, high = (
        None if each is None else literal_text(each, arrow, True) for each in (wanted.low, wanted.high)
    )
    sides = [f"{name} {'>=' if wanted.has_low else '>'} {low}"] if low is not None else []
    sides += [f"{name} {'<=' if wanted.has_high else '<'} {high}"] if high is not None else []
    return " && ".join(sides) if sides else f"{name} IS NOT NULL"


def index_query(expr: Expr, columns: Collection[tuple[str, ...]]) -> IndexQuery | None:
    """What `expr`, a predicate, asks of the given columns (nested paths); None where it limits none of
    them."""
    return _asked(expr.node, True, frozenset(columns))


def _asked(node: Node, wanted: bool, columns: frozenset[tuple[str, ...]]) -> IndexQuery | None:
    """The question for the rows where `node` is true (`wanted`) or false; None: any row might be one."""
    match node:
        case Not():
            return _asked(node.item, not wanted, columns)
        case And() | Or():
            return _joined(node.items, isinstance(node, And) is wanted, wanted, columns)
        case IsTruth() if wanted:
            return _asked(node.item, node.value, columns)
        case Literal():
            return None if node.value is wanted else NOTHING
        case Column() if node.path in columns:
            return ColumnQuery(node.path, node.type, values=(wanted,))
        case Compare() if isinstance(node.left, Column) and node.left.path in columns:
            return _compared(node, node.left, node.op if wanted else _OPPOSITE[node.op])
        case In() if isinstance(node.item, Column) and node.item.path in columns:
            return _listed(node, node.item, wanted)
        case IsNull() if isinstance(node.item, Column) and node.item.path in columns:
            if wanted:
                return ColumnQuery(node.item.path, node.item.type, nulls=True)
            return ColumnQuery(node.item.path, node.item.type, ranges=(EVERYTHING,))
        case Like() if wanted and isinstance(node.item, Column) and node.item.path in columns:
            return _prefixed(node, node.item)
        case _:
            return None


def _joined(
    items: tuple[Node, ...], needs_all: bool, wanted: bool, columns: frozenset[tuple[str, ...]]
) -> IndexQuery | None:
    asked = [_asked(item, wanted, columns) for item in items]
    found = [one for one in asked if one is not None]
    complete = len(found) == len(asked)
    is_exact = complete and all(one.is_exact for one in found)
    found = _by_column(found, needs_all)
    if needs_all:
        if not found:
            return None
        return found[0] if len(found) == 1 and is_exact else AllOf(tuple(found), is_exact)
    if not complete:
        return None
    return found[0] if len(found) == 1 and found[0].is_exact is is_exact else AnyOf(tuple(found), is_exact)


def _by_column(items: list[IndexQuery], needs_all: bool) -> list[IndexQuery]:
    """The questions, those about one column as one."""
    joined: list[IndexQuery] = []
    places: dict[tuple[str, ...], int] = {}
    for item in items:
        if not isinstance(item, ColumnQuery):
            joined.append(item)
            continue
        at = places.get(item.path)
        if at is not None:
            before = joined[at]
            assert isinstance(before, ColumnQuery)
            both = narrowed(before, item) if needs_all else widened(before, item)
            if both is not None:
                joined[at] = both
                continue
        places[item.path] = len(joined)
        joined.append(item)
    return joined


def _compared(node: Compare, column: Column, op: str) -> IndexQuery | None:
    if not isinstance(node.right, Literal) or kind_of(column.type) is Kind.OTHER:
        return None
    snapped, value = snap(op, column.type, node.right)
    match snapped:
        case None:
            return NOTHING if op == "=" else ColumnQuery(column.path, column.type, ranges=(EVERYTHING,))
        case "=":
            return ColumnQuery(column.path, column.type, values=(value,))
        case "!=":
            gaps = (Range(high=value, has_high=False), Range(low=value, has_low=False))
            return ColumnQuery(column.path, column.type, ranges=gaps)
        case "<" | "<=":
            span = Range(high=value, has_high=snapped == "<=")
        case _:
            span = Range(low=value, has_low=snapped == ">=")
    return ColumnQuery(column.path, column.type, ranges=(span,))


def _listed(node: In, column: Column, wanted: bool) -> IndexQuery:
    if wanted:
        return ColumnQuery(column.path, column.type, values=node.values)
    if node.has_null:
        return NOTHING
    values = node.values
    is_plain = kind_of(column.type) not in (Kind.FLOAT, Kind.BOOL)
    if not values or len(values) > MAX_GAPS or not is_plain:
        return ColumnQuery(column.path, column.type, ranges=(EVERYTHING,), is_exact=not values)
    ordered = sorted(values)  # type: ignore[type-var]
    ends: list[Values] = [None, *ordered, None]
    gaps = tuple(Range(low, high, has_low=False, has_high=False) for low, high in itertools.pairwise(ends))
    return ColumnQuery(column.path, column.type, ranges=gaps)


def _prefixed(node: Like, column: Column) -> IndexQuery | None:
    """LIKE with a fixed beginning: the range of texts that begin so."""
    prefix: list[str] = []
    characters = iter(node.pattern)
    rest = ""
    for character in characters:
        if character in "%_":
            rest = character + "".join(characters)
            break
        prefix.append(next(characters) if character == "\\" else character)
    text = "".join(prefix)
    if node.ignore_case or not text:
        return None
    if not rest:
        return ColumnQuery(column.path, column.type, values=(text,))
    after = _successor(text)
    span = Range(low=text, high=after, has_high=False)
    return ColumnQuery(column.path, column.type, ranges=(span,), is_exact=rest == "%")


def _successor(prefix: str) -> str | None:
    """The least text (by bytes) above all that begin with `prefix`; None where there is none."""
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1]) + 1
        if code == 0xD800:  # surrogates are no characters
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[: length - 1] + chr(code)
    return None
