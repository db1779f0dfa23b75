"""Shared by the tests of expressions: run a text over columns; the plain-Python meaning of comparisons."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tiltyard.expr import evaluate, mask, parse_expression, parse_predicate


def batch_of(**columns: Any) -> pa.RecordBatch:
    arrays = [value if isinstance(value, pa.Array) else pa.array(value) for value in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def rows(text: str, **columns: Any) -> list[int]:
    """The row numbers that a predicate selects; its own SQL must select the same."""
    batch = batch_of(**columns)
    expr = parse_predicate(text, batch.schema)
    found = mask(expr, batch).nonzero()[0].tolist()
    again = parse_predicate(expr.sql, batch.schema)
    assert mask(again, batch).nonzero()[0].tolist() == found, expr.sql
    return found


def values(text: str, **columns: Any) -> list[Any]:
    """The value of an expression for every row."""
    batch = batch_of(**columns)
    found = evaluate(parse_expression(text, batch.schema), batch)
    assert len(found) == batch.num_rows
    return found.to_pylist()


def order_key(value: Any) -> tuple[int, Any]:
    """A key under which Python sorts scalars as expressions compare them: exact, NaN greatest."""
    if isinstance(value, float):
        if math.isnan(value):
            return (2, 0)
        if math.isinf(value):
            return (1 if value > 0 else -1, 0)
    if isinstance(value, bool):
        return (0, int(value))
    if isinstance(value, int | float | Decimal):
        return (0, Fraction(value))
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (0, datetime.datetime(value.year, value.month, value.day))
    return (0, value)


def holds(op: str, left: Any, right: Any) -> bool | None:
    """Three-valued `left op right` in plain Python."""
    if left is None or right is None:
        return None
    a, b = order_key(left), order_key(right)
    return {
        "=": a == b,
        "!=": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
    }[op]


def and3(items: list[bool | None]) -> bool | None:
    if any(item is False for item in items):
        return False
    return None if any(item is None for item in items) else True


def or3(items: list[bool | None]) -> bool | None:
    if any(item is True for item in items):
        return True
    return None if any(item is None for item in items) else False


def not3(item: bool | None) -> bool | None:
    return None if item is None else not item
