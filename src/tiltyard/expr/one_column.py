"""Several questions about one column as one: what answers all of them, or any of them.

Without it a range would be two halves of the column, each of which an index finds too large to help.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiltyard.expr.index_query import ColumnQuery, Range
    from tiltyard.expr.types import Values

MAX_PARTS = 256
"""Pairs of ranges that are cut with each other; questions of more stay apart."""

MAX_LOOKED_AT = 1 << 16
"""Values times ranges that are held against each other."""


def narrowed(one: ColumnQuery, other: ColumnQuery) -> ColumnQuery | None:
    """The question for rows that answer both of two about one column; None where it would be too long."""
    parts = len(one.ranges) * len(other.ranges)
    looked_at = len(one.values) * len(other.ranges) + len(other.values) * len(one.ranges)
    if parts > MAX_PARTS or looked_at > MAX_LOOKED_AT:
        return None
    spans = [_cut(a, b) for a in one.ranges for b in other.ranges]
    if len(spans) > 1:
        spans = [span for span in spans if not _is_empty(span)]
    return _made(
        one,
        tuple(spans),
        _both(one, other),
        one.nulls and other.nulls,
        one.is_exact and other.is_exact,
    )


def widened(one: ColumnQuery, other: ColumnQuery) -> ColumnQuery:
    """The question for rows that answer any of two about one column."""
    return _made(
        one,
        one.ranges + other.ranges,
        one.values + other.values,
        one.nulls or other.nulls,
        one.is_exact and other.is_exact,
    )


def _made(
    like: ColumnQuery, ranges: tuple[Range, ...], values: tuple[Values, ...], nulls: bool, is_exact: bool
) -> ColumnQuery:
    return type(like)(like.path, like.type, ranges, values, nulls, is_exact)


def _key(value: Any) -> tuple[int, Any]:
    """What values are compared by: NaN equals NaN and is greater than everything."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _both(one: ColumnQuery, other: ColumnQuery) -> tuple[Values, ...]:
    """The values of either question that answer the other."""
    first, second = {_key(value) for value in one.values}, {_key(value) for value in other.values}
    found = [
        value
        for value in one.values
        if _key(value) in second or any(_lies_in(value, span) for span in other.ranges)
    ]
    found += [
        value
        for value in other.values
        if _key(value) not in first and any(_lies_in(value, span) for span in one.ranges)
    ]
    return tuple(found)


def _lies_in(value: Any, span: Range) -> bool:
    key = _key(value)
    if span.low is not None and not (key >= _key(span.low) if span.has_low else key > _key(span.low)):
        return False
    return span.high is None or (key <= _key(span.high) if span.has_high else key < _key(span.high))


def _cut(one: Range, other: Range) -> Range:
    low, has_low = one.low, one.has_low
    if low is None or (other.low is not None and _key(other.low) > _key(low)):
        low, has_low = other.low, other.has_low
    elif other.low is not None and _key(other.low) == _key(low):
        has_low = has_low and other.has_low
    high, has_high = one.high, one.has_high
    if high is None or (other.high is not None and _key(other.high) < _key(high)):
        high, has_high = other.high, other.has_high
    elif other.high is not None and _key(other.high) == _key(high):
        has_high = has_high and other.has_high
    return type(one)(low, high, has_low, has_high)


def _is_empty(span: Range) -> bool:
    if span.low is None or span.high is None:
        return False
    low, high = _key(span.low), _key(span.high)
    return low > high or (low == high and not (span.has_low and span.has_high))
