"""Casts to decimals: rounded to the scale, halves away from zero, as literals and the official package are.

Arrow's own cast checks neither range nor NaN once it may cut digits off, and so is never asked to.
"""

from __future__ import annotations

import decimal
import re
from decimal import Decimal

import pyarrow as pa

WIDE = 76
"""Digits of the widest decimal that Arrow has."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_ROUNDING = decimal.Context(prec=WIDE, rounding=decimal.ROUND_HALF_UP)


def decimals_of(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The values as decimals of a type. Raises `pa.ArrowInvalid` for those that do not fit, are no number, or
    are text that is none; `pa.ArrowNotImplementedError` for types that have no such cast.
    """
    wide = pa.decimal256(WIDE, target.scale)
    given = array.type
    if pa.types.is_decimal(given):
        found = _rounded(array, target.scale).cast(wide)
    elif pa.types.is_floating(given):
        found = _of_floats(array, wide)
    elif pa.types.is_string(given) or pa.types.is_large_string(given):
        found = _of_texts(array, wide)
    else:
        found = array.cast(wide)
    return found.cast(target)


def _rounded(array: pa.Array, scale: int) -> pa.Array:
    import pyarrow.compute as pc

    given = array.type
    if given.scale <= scale:
        return array.cast(pa.decimal256(WIDE, given.scale))
    room = array.cast(pa.decimal256(WIDE, given.scale))  # 9.99 to one digit has one more before the point
    return pc.round(room, ndigits=scale, round_mode="half_towards_infinity")


def _of_floats(array: pa.Array, wide: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    scaled = pc.multiply(array.cast(pa.float64()), 10.0**wide.scale)
    whole = pc.round(scaled, round_mode="half_towards_infinity").cast(pa.decimal256(WIDE, 0))
    return pa.Array.from_buffers(wide, len(whole), whole.buffers(), whole.null_count, whole.offset)


def _of_texts(array: pa.Array, wide: pa.DataType) -> pa.Array:
    try:
        return array.cast(wide)
    except pa.ArrowInvalid:  # more digits than the scale has, or no number: told apart one by one
        return pa.array([None if text is None else _read(text, wide) for text in array.to_pylist()], wide)


def _read(text: str, wide: pa.DataType) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise pa.ArrowInvalid(f"{text[:60]!r} is no number")
    try:
        return _ROUNDING.quantize(Decimal(text), Decimal((0, (1,), -wide.scale)))
    except decimal.InvalidOperation as error:
        raise pa.ArrowInvalid(f"{text[:60]!r} has more than {WIDE} digits") from error
