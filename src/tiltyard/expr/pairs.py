"""Comparisons of two columns by the rules of `compare.py`: exact across widths, signs, scales, units and
zones."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import bools_of, plain, values_of, words_of
from tiltyard.expr.coerce import Kind, Mismatch, kind_of, unit_nanos
from tiltyard.expr.compare import FLIPPED, KERNELS, OPERATORS, word_order


def float_order(op: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare floats in total order; mixed widths compare as the wider one, which is exact."""
    if op == "!=":
        return ~float_order("=", left, right)
    if op in (">", ">="):
        return ~float_order("<=" if op == ">" else "<", left, right)
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    if op == "=":
        return (left == right) | (left_nan & right_nan)
    if op == "<":
        return (left < right) | (right_nan & ~left_nan)
    return (left <= right) | right_nan


def _mixed_order(op: str, whole: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Compare integers (left) with floats (right) exactly."""
    real = real.astype(np.float64)
    near = whole.astype(np.float64)
    if whole.dtype.itemsize < 8:
        return float_order(op, near, real)
    # 64-bit integers round: where the rounded one equals the float, the float is whole and decides exactly,
    # unless it is the power of two just past the type's end.
    if op in ("!=", ">", ">="):
        return ~_mixed_order({"!=": "=", ">": "<=", ">=": "<"}[op], whole, real)
    info = np.iinfo(whole.dtype)
    past = real >= float(2**64 if info.min == 0 else 2**63)
    tied = (near == real) & ~past
    with np.errstate(invalid="ignore"):
        exactly = np.where(tied, real, 0).astype(whole.dtype)
    resolved = OPERATORS[op](whole, exactly)
    elsewhere = np.zeros(len(whole), np.bool_) if op == "=" else (near < real) | past | np.isnan(real)
    return np.where(tied, resolved, elsewhere)


def _numbers(array: pa.Array) -> list[Any]:
    return [Fraction(item) if item is not None and _finite(item) else item for item in array.to_pylist()]


def _finite(item: Any) -> bool:
    return not isinstance(item, float) or math.isfinite(item)


def _slow_order(op: str, left: pa.Array, right: pa.Array) -> np.ndarray:
    """Decimals against what no decimal type holds (floats, too many digits): exact, one row at a time."""

    def key(item: Any) -> tuple[int, Any]:
        if isinstance(item, float):
            return (2, 0) if math.isnan(item) else (int(item > 0) * 2 - 1, 0)
        return (0, item or 0)

    compared = OPERATORS[op]
    pairs = zip(_numbers(left), _numbers(right), strict=True)
    # infinities sort around the numbers, NaN above; a null compares as zero, and its row is masked
    return np.fromiter((compared(key(a), key(b)) for a, b in pairs), np.bool_, len(left))


def _decimal_order(op: str, left: pa.Array, right: pa.Array) -> np.ndarray:
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _slow_order(op, left, right)
    scale = max(getattr(left.type, "scale", 0), getattr(right.type, "scale", 0))
    common = pa.decimal256(76, scale)
    try:
        sides = [
            array.cast(pa.decimal128(20, 0)).cast(common)
            if pa.types.is_integer(array.type)
            else array.cast(common)
            for array in (left, right)
        ]
    except pa.ArrowInvalid:
        return _slow_order(op, left, right)
    return word_order(op, *(np.ascontiguousarray(words_of(array)) for array in sides))


def _unit_order(op: str, coarse: np.ndarray, fine: np.ndarray, ratio: int) -> np.ndarray:
    """Compare `coarse * ratio` with `fine` without multiplying, which could overflow."""
    floor, rest = np.divmod(fine.astype(np.int64), np.int64(ratio))
    coarse = coarse.astype(np.int64)
    same = coarse == floor
    if op in ("=", "!="):
        found = same & (rest == 0)
        return found if op == "=" else ~found
    if op in (">", ">="):
        return ~_unit_order("<=" if op == ">" else "<", coarse, fine, ratio)
    tied = (rest > 0) if op == "<" else np.True_
    return (coarse < floor) | (same & tied)


def _temporal_order(op: str, left: pa.Array, right: pa.Array) -> np.ndarray:
    sides = [left, right]
    zones = [getattr(side.type, "tz", None) for side in sides]
    for here, there in ((0, 1), (1, 0)):
        if zones[here] is None and zones[there] is not None:
            import pyarrow.compute as pc

            if pa.types.is_date(sides[here].type):
                sides[here] = sides[here].cast(pa.timestamp("s"))
            sides[here] = pc.assume_timezone(
                sides[here], zones[there], ambiguous="earliest", nonexistent="earliest"
            )
    units = [unit_nanos(side.type) for side in sides]
    first, second = (values_of(side) for side in sides)
    if units[0] == units[1]:
        return OPERATORS[op](first, second)
    if units[0] > units[1]:
        return _unit_order(op, first, second, units[0] // units[1])
    return _unit_order(FLIPPED[op], second, first, units[1] // units[0])


def _byte_order(op: str, left: pa.Array, right: pa.Array) -> np.ndarray:
    import pyarrow.compute as pc

    if left.type != right.type:
        common = pa.large_string() if kind_of(left.type) is Kind.TEXT else pa.large_binary()
        left, right = (
            (array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array).cast(common)
            for array in (left, right)
        )
    return bools_of(pc.call_function(KERNELS[op], [left, right]))


def pair_test(op: str, left: pa.DataType, right: pa.DataType) -> Callable[[pa.Array, pa.Array], np.ndarray]:
    """The test `left op right` for two columns; raises `Mismatch` where their types have no common
    meaning."""
    kinds = (kind_of(left), kind_of(right))

    def over(
        order: Callable[[str, Any, Any], np.ndarray], view: Callable[[Any], Any] = lambda array: array
    ) -> Callable[[pa.Array, pa.Array], np.ndarray]:
        return lambda a, b: order(op, view(plain(a)), view(plain(b)))

    match kinds:
        case (Kind.INT, Kind.INT):
            return over(lambda op, a, b: OPERATORS[op](a, b), values_of)
        case (Kind.FLOAT, Kind.FLOAT):
            return over(float_order, values_of)
        case (Kind.INT, Kind.FLOAT):
            return over(_mixed_order, values_of)
        case (Kind.FLOAT, Kind.INT):
            return over(lambda op, a, b: _mixed_order(FLIPPED[op], b, a), values_of)
        case (Kind.DECIMAL, other) | (other, Kind.DECIMAL) if other.is_number:
            return over(_decimal_order)
        case (Kind.BOOL, Kind.BOOL):
            return over(lambda op, a, b: OPERATORS[op](a, b), bools_of)
        case (Kind.INSTANT, Kind.INSTANT) | (Kind.TIME, Kind.TIME) | (Kind.DURATION, Kind.DURATION):
            return over(_temporal_order)
        case (Kind.TEXT, Kind.TEXT) | (Kind.BINARY, Kind.BINARY):
            return over(_byte_order)
    raise Mismatch(f"{left} does not compare with {right}: write CAST(... AS ...) around one of them")
