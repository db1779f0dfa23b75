"""The functions and operators that an expression may call, each over Arrow arrays and scalars.

A `Signature` says how many arguments of which kinds a function takes and which of them must be constants.
The type of a result is what the kernel gives for arrays without rows, so that it cannot disagree with the
values.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr import json_functions, moments, numeric, regex_functions, strings
from tiltyard.expr.capitals import cased
from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.list_values import LIST_ALIASES
from tiltyard.expr.signatures import (
    BYTES,
    NUMBER,
    TEXT,
    WHOLE,
    Run,
    Signature,
    array_of,
    by_pattern,
    by_value,
    on,
    one,
)

# -- arithmetic -----------------------------------------------------------------------------------------


def _width(arrow: pa.DataType) -> int:
    return arrow.bit_width


def common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type in which two number types meet; 64-bit signed and unsigned meet as int64 (overflow is an
    error)."""
    if left == right:
        return left
    kinds = {kind_of(left), kind_of(right)}
    if Kind.FLOAT in kinds:
        if kinds == {Kind.FLOAT}:
            return left if _width(left) > _width(right) else right
        return pa.float64()
    if Kind.DECIMAL in kinds:
        scale = max(getattr(left, "scale", 0), getattr(right, "scale", 0))
        whole = max(
            (side.precision - side.scale if pa.types.is_decimal(side) else 20) for side in (left, right)
        )
        precision = whole + scale
        return (
            pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(min(76, precision), scale)
        )
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return left if _width(left) > _width(right) else right
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    needed = max(_width(signed), min(64, _width(unsigned) * 2))
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[needed]


_CHECKED = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_SHIFTS = {"<<": "shift_left_checked", ">>": "shift_right_checked"}


def _fmod(left: Any, right: Any, rows: int) -> pa.Array:
    first, second = (array_of(side, rows) for side in (left, right))
    with np.errstate(invalid="ignore"):
        found = np.fmod(first.to_numpy(zero_copy_only=False), second.to_numpy(zero_copy_only=False))
    unknown = first.is_null().to_numpy(zero_copy_only=False) | second.is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, first.type, mask=unknown)


def arithmetic(op: str, left: pa.DataType, right: pa.DataType) -> Run:
    """The kernel of `left op right`; whole numbers divide towards zero, overflow and division of a whole
    number by zero are errors, floats follow IEEE 754. Raises `Mismatch` for types that have no such
    operation."""
    kinds = (kind_of(left), kind_of(right))
    if not (kinds[0].is_number and kinds[1].is_number):
        return _temporal_arithmetic(op, left, right)
    is_decimal = Kind.DECIMAL in kinds and Kind.FLOAT not in kinds
    common = None if is_decimal else common_number(left, right)
    if op in _SHIFTS and set(kinds) != {Kind.INT}:
        raise Mismatch(f"{left} {op} {right} is not defined: bits of whole numbers are shifted")
    is_float = common is not None and pa.types.is_floating(common)
    wide = _wide_decimals(op, left, right) if is_decimal else None

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        # a whole number of more than 53 bits is rounded to a float
        a, b = args if common is None else (arg.cast(common, safe=not is_float) for arg in args)
        if wide is not None:
            a, b = (arg.cast(arrow) for arg, arrow in zip((a, b), wide, strict=True))
        if op in _CHECKED:
            return getattr(pc, _CHECKED[op])(a, b)
        if op in _SHIFTS:
            return getattr(pc, _SHIFTS[op])(a, b)
        if op == "/":
            return pc.divide(a, b) if is_float else pc.divide_checked(a, b)
        if is_float:
            return _fmod(a, b, rows)
        if is_decimal:
            return _decimal_rest(a, b, rows)
        divisor = b.as_py() if isinstance(b, pa.Scalar) else None
        if divisor and isinstance(a, pa.Array) and not a.null_count:
            return pa.array(np.fmod(a.to_numpy(), divisor), common)
        return pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b))

    return run


def _wide_decimals(op: str, left: pa.DataType, right: pa.DataType) -> list[pa.DataType] | None:
    """The types of 256 bits in which two decimals are computed whose result does not fit 128; else None."""
    import pyarrow.compute as pc

    kernel = _CHECKED.get(op) or ("divide_checked" if op == "/" else None)
    if kernel is None:
        return None
    try:
        getattr(pc, kernel)(pa.nulls(1, left), pa.nulls(1, right))
    except pa.ArrowInvalid:
        return [
            pa.decimal256(side.precision, side.scale) if pa.types.is_decimal(side) else pa.decimal256(20, 0)
            for side in (left, right)
        ]
    return None


_WIDE = decimal.Context(prec=160)


def _decimal_rest(left: Any, right: Any, rows: int) -> Any:
    sides = [side.type if pa.types.is_decimal(side.type) else pa.decimal128(20, 0) for side in (left, right)]
    scale = max(side.scale for side in sides)
    precision = min(side.precision - side.scale for side in sides) + scale
    target = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)

    def rest(a: decimal.Decimal | int, b: decimal.Decimal | int) -> decimal.Decimal:
        if not b:
            raise ValueError("divide by zero")
        return _WIDE.remainder(decimal.Decimal(a), decimal.Decimal(b))

    return by_value(rest, target)([left, right], rows)


def _temporal_arithmetic(op: str, left: pa.DataType, right: pa.DataType) -> Run:
    kinds = (kind_of(left), kind_of(right))
    allowed = {
        "-": {
            (Kind.INSTANT, Kind.INSTANT),
            (Kind.INSTANT, Kind.DURATION),
            (Kind.DURATION, Kind.DURATION),
            (Kind.TIME, Kind.TIME),
        },
        "+": {
            (Kind.INSTANT, Kind.DURATION),
            (Kind.DURATION, Kind.INSTANT),
            (Kind.DURATION, Kind.DURATION),
        },
    }
    if pa.types.is_date32(left) and op in ("+", "-") and kinds[1] is Kind.INT:
        return lambda args, rows: _days_added(op, args[0], args[1])
    if pa.types.is_date32(right) and op == "+" and kinds[0] is Kind.INT:
        return lambda args, rows: _days_added(op, args[1], args[0])
    if kinds not in allowed.get(op, ()):
        raise Mismatch(f"{left} {op} {right} is not defined: cast the operands to numbers first")
    if pa.types.is_date32(left) and pa.types.is_date32(right):
        return lambda args, rows: _days_between(*args)
    return on(_CHECKED[op])


def _days_added(op: str, date: Any, days: Any) -> Any:
    import pyarrow.compute as pc

    return pc.call_function(_CHECKED[op], [date.cast(pa.int32()), days.cast(pa.int32())]).cast(pa.date32())


def _days_between(one_date: Any, other: Any) -> Any:
    import pyarrow.compute as pc

    return pc.subtract(*(date.cast(pa.int32()).cast(pa.int64()) for date in (one_date, other)))


def negation(arrow: pa.DataType) -> Run:
    """The kernel of unary minus."""
    if kind_of(arrow) is not Kind.DURATION and not kind_of(arrow).is_number:
        raise Mismatch(f"-({arrow}) is not defined")

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        side = args[0].cast(pa.int64()) if pa.types.is_unsigned_integer(arrow) else args[0]
        return pc.negate_checked(side)

    return run


# -- text -----------------------------------------------------------------------------------------------


def _pattern(kernel: str) -> Run:
    def run(column: pa.Array, pattern: str) -> pa.Array:
        import pyarrow.compute as pc

        return getattr(pc, kernel)(column, pattern)

    return by_pattern(run, pa.bool_())


def _trim(kernel: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        characters = args[1].as_py() if len(args) > 1 else " "
        if characters is None:
            return pa.nulls(rows, args[0].type)
        return getattr(pc, kernel)(args[0], characters=characters)

    return run


def _part(text: str, first: int, count: int | None = None) -> str:
    if count is not None and count < 0:
        raise ValueError("the length of a part of a text cannot be negative")
    stop = len(text) if count is None else max(0, first - 1 + count)
    return text[max(0, first - 1) : stop]


def _substr(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    if not all(isinstance(arg, pa.Scalar) for arg in args[1:]):
        return by_value(_part)(args, rows)
    bounds = [arg.as_py() for arg in args[1:]]
    if None in bounds:
        return pa.nulls(rows, args[0].type)
    # SQL counts from 1, and a window that begins before the text loses what lies there
    first = bounds[0] - 1
    stop = None
    if len(bounds) == 2:
        if bounds[1] < 0:
            raise pa.ArrowInvalid("the length of a part of a text cannot be negative")
        stop = max(0, first + bounds[1])
    return pc.utf8_slice_codeunits(args[0], start=max(0, first), stop=stop)


def _joined(null_handling: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        is_large = any(not pa.types.is_string(arg.type) for arg in args)
        target = pa.large_string() if is_large else pa.string()
        texts = [arg.cast(target) for arg in args]
        return pc.binary_join_element_wise(
            *texts, pa.scalar("", target), null_handling=null_handling, null_replacement=""
        )

    return run


def _round(args: Sequence[Any], rows: int) -> Any:
    side, digits = args[0], args[1].as_py() if len(args) > 1 else 0
    if digits is None:
        return pa.nulls(rows, side.type)
    if pa.types.is_integer(side.type) and len(args) == 1:
        return side
    return numeric.rounded(side, digits, "half_towards_infinity")


def _whole_floor(kernel: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        return args[0] if pa.types.is_integer(args[0].type) else getattr(pc, kernel)(args[0])

    return run


def _is_nan(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.is_nan(args[0])


_SECOND = frozenset({1})

SIGNATURES: dict[str, Signature] = {
    "abs": one(NUMBER, on("abs_checked")),
    "ceil": one(NUMBER, _whole_floor("ceil")),
    "floor": one(NUMBER, _whole_floor("floor")),
    "round": Signature((NUMBER, WHOLE), 1, 2, _round, _SECOND),
    "isnan": one(NUMBER, _is_nan),
    "lower": one(TEXT, cased("utf8_lower", str.lower)),
    "upper": one(TEXT, cased("utf8_upper", str.upper)),
    "reverse": one(TEXT, on("utf8_reverse")),
    "length": Signature((TEXT,), 1, 1, on("utf8_length"), as_text=True),
    "octet_length": one(BYTES, on("binary_length")),
    "btrim": Signature((TEXT,), 1, 2, _trim("utf8_trim"), _SECOND),
    "ltrim": Signature((TEXT,), 1, 2, _trim("utf8_ltrim"), _SECOND),
    "rtrim": Signature((TEXT,), 1, 2, _trim("utf8_rtrim"), _SECOND),
    "substr": Signature((TEXT, WHOLE), 2, 3, _substr),
    "concat": Signature((TEXT | {Kind.NULL},), 1, None, _joined("replace"), as_text=True),
    "||": Signature((TEXT | {Kind.NULL},), 2, None, _joined("emit_null"), as_text=True),
    "starts_with": Signature((TEXT,), 2, 2, _pattern("starts_with")),
    "ends_with": Signature((TEXT,), 2, 2, _pattern("ends_with")),
    "contains": Signature((TEXT,), 2, 2, _pattern("match_substring")),
    **numeric.SIGNATURES,
    **regex_functions.SIGNATURES,
    **strings.SIGNATURES,
    **moments.SIGNATURES,
    **json_functions.SIGNATURES,
}

VOLATILE = frozenset({"random", "uuid"})
"""Functions whose value is another one each time."""

SPECIAL_FUNCTIONS = {
    "coalesce",
    "nullif",
    "greatest",
    "least",
    "nvl2",
    "arrow_cast",
    "arrow_try_cast",
    "arrow_typeof",
    "cast_to_type",
    "try_cast_to_type",
}
"""Functions whose arguments must first agree on a type; the builder makes them."""

ALIASES = {
    "char_length": "length",
    "character_length": "length",
    "ceiling": "ceil",
    "trim": "btrim",
    "substring": "substr",
    "is_nan": "isnan",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    **LIST_ALIASES,
    **numeric.ALIASES,
    **strings.ALIASES,
    **moments.ALIASES,
    "array_contains": "array_has",
    "list_has": "array_has",
    "list_contains": "array_has",
    "list_has_any": "array_has_any",
    "list_has_all": "array_has_all",
    "arrays_overlap": "array_has_any",
    "list_element": "array_element",
    "array_extract": "array_element",
    "list_extract": "array_element",
}

AGGREGATES = frozenset(
    """
    sum count avg mean min max median stddev stddev_pop stddev_samp var_pop var_samp variance corr
    array_agg string_agg first_value last_value approx_distinct bool_and bool_or
    """.split()  # noqa: SIM905
)
"""Names refused with their own message: they have no meaning for a single row."""
