"""The functions and operators that an expression may call, each over Arrow arrays and scalars.

A `Signature` says how many arguments of which kinds a function takes and which of them must be constants.
The type of a result is what the kernel gives for arrays without rows, so that it cannot disagree with the
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.coerce import Kind, Mismatch, kind_of

Run = Callable[[Sequence[Any], int], Any]

_NUMBER = frozenset({Kind.INT, Kind.FLOAT, Kind.DECIMAL})
_TEXT = frozenset({Kind.TEXT})
_BYTES = frozenset({Kind.TEXT, Kind.BINARY})
_INSTANT = frozenset({Kind.INSTANT})
_CLOCK = frozenset({Kind.INSTANT, Kind.TIME})


@dataclass(frozen=True, slots=True)
class Signature:
    """`kinds` per argument (the last one repeats), the least and most arguments (None: any number),
    `constants`: the positions that must be literals."""

    kinds: tuple[frozenset[Kind], ...]
    least: int
    most: int | None
    run: Run
    constants: frozenset[int] = frozenset()


def _call(kernel: str, **options: Any) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        return getattr(pc, kernel)(*args, **options)

    return run


def _array(arg: Any, rows: int) -> pa.Array:
    return pa.repeat(arg, rows) if isinstance(arg, pa.Scalar) else arg


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


def _fmod(left: Any, right: Any, rows: int) -> pa.Array:
    first, second = (_array(side, rows) for side in (left, right))
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
    is_float = common is not None and pa.types.is_floating(common)

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        a, b = args if common is None else (arg.cast(common) for arg in args)
        if op in _CHECKED:
            return getattr(pc, _CHECKED[op])(a, b)
        if op == "/":
            return pc.divide(a, b) if is_float else pc.divide_checked(a, b)
        if is_float:
            return _fmod(a, b, rows)
        if is_decimal:
            raise pa.ArrowNotImplementedError("% of decimals: cast the operands to bigint or double")
        divisor = b.as_py() if isinstance(b, pa.Scalar) else None
        if divisor and isinstance(a, pa.Array) and not a.null_count:
            return pa.array(np.fmod(a.to_numpy(), divisor), common)
        return pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b))

    return run


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
    if kinds not in allowed.get(op, ()):
        raise Mismatch(f"{left} {op} {right} is not defined: cast the operands to numbers first")
    return _call(_CHECKED[op])


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


def _on_text(kernel: str, **options: Any) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        return getattr(pc, kernel)(args[0], **options)

    return run


def _with_pattern(kernel: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        pattern = args[1].as_py()
        if pattern is None:
            return pa.nulls(rows, pa.bool_())
        return getattr(pc, kernel)(args[0], pattern)

    return run


def _trim(kernel: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        characters = args[1].as_py() if len(args) > 1 else " "
        if characters is None:
            return pa.nulls(rows, args[0].type)
        return getattr(pc, kernel)(args[0], characters=characters)

    return run


def _substr(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

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


# -- time -----------------------------------------------------------------------------------------------

_PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "year": ("year", {}),
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
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _constant_word(arg: Any, known: Sequence[str], of: str) -> str:
    word = str(arg.as_py()).lower()
    if word not in known:
        raise pa.ArrowInvalid(f"{word!r} is no {of}: choose one of {', '.join(known)}")
    return word


def _date_part(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    kernel, options = _PARTS[_constant_word(args[0], tuple(_PARTS), "part of a date")]
    return getattr(pc, kernel)(args[1], **options).cast(pa.int32())


def _date_trunc(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    unit = _constant_word(args[0], _UNITS, "unit of time")
    return pc.floor_temporal(args[1], 1, unit).cast(args[1].type)


# -- lists ----------------------------------------------------------------------------------------------


def list_bounds(array: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """A list array as (flat elements, int64[rows] first element, int64[rows] end); null lists are empty."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        flat = array.values[array.offset * size : (array.offset + len(array)) * size]
        first = np.arange(len(array), dtype=np.int64) * size
        return flat, first, first + size
    offsets = array.offsets.to_numpy().astype(np.int64)
    flat = array.values[offsets[0] : offsets[-1]] if len(offsets) else array.values[:0]
    if len(offsets):
        offsets -= offsets[0]
    return flat, offsets[:-1], offsets[1:]


def _array_length(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.list_value_length(args[0]).cast(pa.uint64())


def _round(kernel: str, **options: Any) -> Run:
    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        side = args[0]
        if pa.types.is_integer(side.type) and len(args) == 1:
            return side
        more = dict(options)
        if len(args) > 1 and args[1].as_py() is None:
            return pa.nulls(rows, side.type)
        if len(args) > 1:
            more["ndigits"] = args[1].as_py()
        return getattr(pc, kernel)(side, **more)

    return run


def _is_nan(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.is_nan(args[0])


def _one(kinds: frozenset[Kind], run: Run) -> Signature:
    return Signature((kinds,), 1, 1, run)


_SECOND = frozenset({1})

SIGNATURES: dict[str, Signature] = {
    "abs": _one(_NUMBER, _call("abs_checked")),
    "ceil": _one(_NUMBER, _round("ceil")),
    "floor": _one(_NUMBER, _round("floor")),
    "round": Signature(
        (_NUMBER, frozenset({Kind.INT})), 1, 2, _round("round", round_mode="half_towards_infinity"), _SECOND
    ),
    "isnan": _one(_NUMBER, _is_nan),
    "lower": _one(_TEXT, _on_text("utf8_lower")),
    "upper": _one(_TEXT, _on_text("utf8_upper")),
    "reverse": _one(_TEXT, _on_text("utf8_reverse")),
    "length": _one(_TEXT, _on_text("utf8_length")),
    "octet_length": _one(_BYTES, _on_text("binary_length")),
    "btrim": Signature((_TEXT,), 1, 2, _trim("utf8_trim"), _SECOND),
    "ltrim": Signature((_TEXT,), 1, 2, _trim("utf8_ltrim"), _SECOND),
    "rtrim": Signature((_TEXT,), 1, 2, _trim("utf8_rtrim"), _SECOND),
    "substr": Signature((_TEXT, frozenset({Kind.INT})), 2, 3, _substr, frozenset({1, 2})),
    "concat": Signature((_TEXT | {Kind.NULL},), 1, None, _joined("replace")),
    "||": Signature((_TEXT | {Kind.NULL},), 2, None, _joined("emit_null")),
    "starts_with": Signature((_TEXT,), 2, 2, _with_pattern("starts_with"), _SECOND),
    "ends_with": Signature((_TEXT,), 2, 2, _with_pattern("ends_with"), _SECOND),
    "contains": Signature((_TEXT,), 2, 2, _with_pattern("match_substring"), _SECOND),
    "regexp_like": Signature((_TEXT,), 2, 2, _with_pattern("match_substring_regex"), _SECOND),
    "date_part": Signature((_TEXT, _CLOCK), 2, 2, _date_part, frozenset({0})),
    "date_trunc": Signature((_TEXT, _INSTANT), 2, 2, _date_trunc, frozenset({0})),
}

LIST_FUNCTIONS = {
    "array_has",
    "array_has_any",
    "array_has_all",
    "array_length",
    "array_element",
    "get_field",
    "make_array",
}
"""Functions over a list column; the builder makes them, for the elements decide what the constants mean."""

SPECIAL_FUNCTIONS = {"coalesce", "nullif", "greatest", "least"}
"""Functions whose arguments must first agree on a type; the builder makes them."""

ALIASES = {
    "char_length": "length",
    "character_length": "length",
    "ceiling": "ceil",
    "trim": "btrim",
    "substring": "substr",
    "regexp_match": "regexp_like",
    "is_nan": "isnan",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "datepart": "date_part",
    "datetrunc": "date_trunc",
    "array_contains": "array_has",
    "list_has": "array_has",
    "list_contains": "array_has",
    "list_has_any": "array_has_any",
    "list_has_all": "array_has_all",
    "arrays_overlap": "array_has_any",
    "cardinality": "array_length",
    "list_length": "array_length",
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

array_length = _array_length
