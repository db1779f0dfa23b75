"""Decimal constants: in the type of a column, or in the least precision that has what was written."""

from __future__ import annotations

import decimal
from decimal import Decimal

import pyarrow as pa

from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.types import Literal, Node

_EXACT = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_UP)


def decimal_literal(value: Decimal, target: pa.DataType, lenient: bool) -> Literal:
    """The constant, rounded to the scale of the type. Where it does not fit: null if `lenient`, else
    `Mismatch`."""
    if value and value.adjusted() - 1 > target.precision:
        rounded = value
    else:
        rounded = _EXACT.quantize(value, Decimal((0, (1,), -target.scale)))
    if rounded and rounded.adjusted() + 1 + target.scale > target.precision:
        if lenient:
            return Literal(None, target)
        raise Mismatch(f"{value} does not fit {target}")
    return Literal(rounded, target)


def least_decimal(written: Node, fitted: Node) -> Node:
    """A constant that took the type of a decimal column, in the least precision that has it instead."""
    if not isinstance(written, Literal) or kind_of(fitted.type) is not Kind.DECIMAL:
        return fitted
    value = Decimal(written.value) if isinstance(written.value, int) else written.value
    return written_decimal(value) or fitted if isinstance(value, Decimal) else fitted


def written_decimal(value: Decimal) -> Literal | None:
    """The decimal of a number with the digits that were written; None where it has more than 38."""
    digits = value.as_tuple()
    assert isinstance(digits.exponent, int)
    scale = max(0, -digits.exponent)
    precision = max(len(digits.digits), scale) + max(0, digits.exponent)
    return decimal_literal(value, pa.decimal128(precision, scale), False) if precision <= 38 else None
