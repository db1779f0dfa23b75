"""Comparisons with one meaning everywhere: exact across widths, signs, scales and units.

NaN equals NaN and is greater than everything, whatever its sign bit; -0.0 equals 0.0. Fixed-width columns are
compared by NumPy on views of their buffers; text and binary by Arrow's kernels, imported when first needed.
A test is made once per expression (`literal_test`, `membership`; `pairs.py` for two columns) and then runs
once per batch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import (
    bools_of,
    bytes_array,
    dtype_of,
    plain,
    through_dictionary,
    values_of,
    words_of,
)
from tiltyard.expr.coerce import Kind, Mismatch, exact, kind_of, read_text
from tiltyard.expr.types import Literal, Test, Values
from tiltyard.kernels.distinct import distinct

MAX_TABLE_ROWS = 1 << 20
"""Membership in whole numbers that span less than this is one look-up in a table of as many bytes."""

FEW_VALUES = 8
"""Membership in at most this many numbers is that many comparisons; beyond, a search in the sorted values."""

FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KERNELS = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def _constant(answer: bool) -> Test:
    return lambda array: np.full(len(array), answer)


def _beyond(op: str, literal_is_greater: bool) -> Test:
    """The comparison with a literal that lies outside of all values of the column's type."""
    return _constant(op == "!=" or op in (("<", "<=") if literal_is_greater else (">", ">=")))


def _snapped(op: str, is_exact: bool) -> str | None:
    """The operator that compares with the floor of a literal instead of the literal; None where `=` cannot
    hold."""
    if is_exact:
        return op
    return {"=": None, "!=": None, "<": "<=", "<=": "<=", ">": ">", ">=": ">"}[op]


# -- one side is a literal -------------------------------------------------------------------------


def literal_test(op: str, arrow: pa.DataType, literal: Literal) -> Test:
    """The test `column op literal` for a column of type `arrow`; the literal is not null.

    Raises `Mismatch` where the two have no common meaning.
    """
    if pa.types.is_dictionary(arrow):
        inner = literal_test(op, arrow.value_type, literal)
        return lambda array: through_dictionary(array, inner(array.dictionary))
    kind = kind_of(arrow)
    if isinstance(literal.value, str) and kind is not Kind.TEXT:
        literal = read_text(literal.value, arrow)
    if kind is Kind.FLOAT:
        return _float_test(op, dtype_of(arrow).type, literal)
    if kind in (Kind.INT, Kind.INSTANT, Kind.TIME, Kind.DURATION):
        floor, is_exact = exact(literal, arrow)
        return _integer_test(op, np.iinfo(dtype_of(arrow)), floor, is_exact)
    if kind is Kind.DECIMAL:
        floor, is_exact = exact(literal, arrow)
        return _decimal_test(op, arrow, floor, is_exact)
    other = kind_of(literal.type)
    if kind is not other or kind is Kind.OTHER:
        hint = ": a text literal takes single quotes" if kind is Kind.TEXT else ""
        raise Mismatch(f"{arrow} does not compare with {other.value}{hint}")
    if kind is Kind.BOOL:
        answer, compared = bool(literal.value), OPERATORS[op]
        return lambda array: compared(bools_of(array), np.bool_(answer))
    return _arrow_test(op, literal.value)


def snap(op: str, arrow: pa.DataType, literal: Literal) -> tuple[str | None, Values]:
    """The operator and the value of `arrow`'s type (in physical units, decimals as `Decimal`) that decide the
    comparison of such a column with a literal; operator None where `=` never and `!=` always holds. Numbers
    beyond the type stay as they are."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    kind = kind_of(arrow)
    if kind is Kind.FLOAT:
        snapped, bound = _float_bound(op, dtype_of(arrow).type, literal)
        return snapped, float(bound)
    if kind in (Kind.INT, Kind.INSTANT, Kind.TIME, Kind.DURATION, Kind.DECIMAL):
        floor, is_exact = exact(literal, arrow)
        if isinstance(floor, float) or kind is not Kind.DECIMAL:
            return (op if isinstance(floor, float) else _snapped(op, is_exact)), floor
        return _snapped(op, is_exact), decimal_of(floor, arrow.scale)
    return op, literal.value


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """`unscaled` times ten to the minus `scale`, exactly."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _integer_test(op: str, info: np.iinfo[Any], floor: int | float, is_exact: bool) -> Test:
    if isinstance(floor, float):
        return _beyond(op, math.isnan(floor) or floor > 0)
    snapped = _snapped(op, is_exact)
    if snapped is None:
        return _constant(op == "!=")
    if not info.min <= floor <= info.max:
        return _beyond(snapped, floor > info.max)
    bound, compared = info.dtype.type(floor), OPERATORS[snapped]
    return lambda array: compared(values_of(array), bound)


def _float_bound(op: str, scalar: type[Any], literal: Literal) -> tuple[str | None, Any]:
    """The operator and float that decide a comparison; a fraction written as a literal rounds to the
    column."""
    value = literal.value
    if not kind_of(literal.type).is_number:
        raise Mismatch(f"a floating-point number does not compare with {kind_of(literal.type).value}")
    assert isinstance(value, int | float | Decimal)
    with np.errstate(over="ignore"):
        try:
            near = scalar(float(value))
        except OverflowError:
            near = scalar(math.copysign(math.inf, value))
    is_written = isinstance(value, Decimal) and pa.types.is_floating(literal.type)
    if is_written or (isinstance(value, float) and not math.isfinite(value)):
        return op, near
    if np.isinf(near) or Fraction(float(near)) != Fraction(value):
        is_above = bool(near > 0) if np.isinf(near) else Fraction(float(near)) > Fraction(value)
        if is_above:
            return {"=": None, "!=": None, "<": "<", "<=": "<", ">": ">=", ">=": ">="}[op], near
        return {"=": None, "!=": None, "<": "<=", "<=": "<=", ">": ">", ">=": ">"}[op], near
    return op, near


def _float_test(op: str, scalar: type[Any], literal: Literal) -> Test:
    snapped, bound = _float_bound(op, scalar, literal)
    if snapped is None:
        return _constant(op == "!=")
    if np.isnan(bound):
        if snapped in ("<=", ">"):
            return _constant(snapped == "<=")
        is_nan = snapped in ("=", ">=")
        return lambda array: np.isnan(values_of(array)) == is_nan
    # NaN is greater than the bound: `>` is what is not `<=`, and NumPy's `<=` is false for NaN.
    if snapped == ">":
        return lambda array: ~(values_of(array) <= bound)
    if snapped == ">=":
        return lambda array: ~(values_of(array) < bound)
    compared = OPERATORS[snapped]
    return lambda array: compared(values_of(array), bound)


def word_order(op: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare two's complement numbers of several uint64 words; `right` may be one number, uint64[1,
    words]."""
    if op in ("=", "!="):
        same = np.all(left == right, axis=1)
        return same if op == "=" else ~same
    if op in (">", "<="):
        found = word_order("<", right, left)
        return found if op == ">" else ~found
    if op == ">=":
        return ~word_order("<", left, right)
    less = left[:, 0] < right[:, 0]
    for word in range(1, left.shape[1]):
        a, b = left[:, word], right[:, word]
        if word == left.shape[1] - 1:
            a, b = a.view(np.int64), b.view(np.int64)
        less = (a < b) | ((a == b) & less)
    return less


def _decimal_test(op: str, arrow: pa.DataType, floor: int | float, is_exact: bool) -> Test:
    if isinstance(floor, float):
        return _beyond(op, math.isnan(floor) or floor > 0)
    snapped = _snapped(op, is_exact)
    if snapped is None:
        return _constant(op == "!=")
    bits = arrow.bit_width
    if not -(2 ** (bits - 1)) <= floor < 2 ** (bits - 1):
        return _beyond(snapped, floor > 0)
    if bits <= 64:
        bound, compared = np.dtype(f"i{bits // 8}").type(floor), OPERATORS[snapped]
        return lambda array: compared(words_of(array), bound)
    words = np.frombuffer(floor.to_bytes(bits // 8, "little", signed=True), np.uint64)[None, :]
    return lambda array: word_order(snapped, np.ascontiguousarray(words_of(array)), words)


def _arrow_test(op: str, value: Values) -> Test:
    def test(array: pa.Array) -> np.ndarray:
        import pyarrow.compute as pc

        array = plain(array)
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        return bools_of(pc.call_function(KERNELS[op], [array, pa.scalar(value, array.type)]))

    return test


# -- membership in a list of literals -----------------------------------------------------------------


def membership(arrow: pa.DataType, literals: Sequence[Literal]) -> tuple[tuple[Values, ...], Test]:
    """The distinct values of `arrow`'s type that a column can equal, and the test for being one of them.

    No literal is null. Raises `Mismatch` where one has no common meaning with the column.
    """
    if pa.types.is_dictionary(arrow):
        values, inner = membership(arrow.value_type, literals)
        return values, lambda array: through_dictionary(array, inner(array.dictionary))
    kind = kind_of(arrow)
    if kind is not Kind.TEXT:
        literals = [
            read_text(item.value, arrow) if isinstance(item.value, str) else item for item in literals
        ]
    if kind is Kind.FLOAT:
        scalar = dtype_of(arrow).type
        bounds = [_float_bound("=", scalar, item) for item in literals]
        floats = np.array([bound for op, bound in bounds if op is not None], dtype_of(arrow))
        return _float_membership(np.unique(floats + scalar(0)))
    if kind in (Kind.INT, Kind.INSTANT, Kind.TIME, Kind.DURATION):
        return _integer_membership(arrow, literals)
    if kind is Kind.DECIMAL:
        return _decimal_membership(arrow, literals)
    if kind is Kind.OTHER:
        raise Mismatch(f"{arrow} does not compare with anything")
    for item in literals:
        if kind_of(item.type) is not kind:
            raise Mismatch(f"{arrow} does not compare with {kind_of(item.type).value}")
    values = tuple(dict.fromkeys(item.value for item in literals))
    if kind is Kind.BOOL:
        return values, lambda array: np.isin(bools_of(array), np.array(values, np.bool_))
    return values, _arrow_membership(values)


def integer_membership(arrow: pa.DataType, numbers: Sequence[int]) -> tuple[tuple[Values, ...], Test]:
    """`membership` of plain integers in an integer column, without a literal for each."""
    info = np.iinfo(dtype_of(arrow))
    try:
        found = distinct(np.array(numbers, np.int64))
    except OverflowError:
        found = distinct(np.array([n for n in numbers if info.min <= n <= info.max], info.dtype))
    if found.dtype != info.dtype:
        found = found[(found >= max(info.min, -(2**63))) & (found <= min(info.max, 2**63 - 1))].astype(
            info.dtype
        )
    return tuple(found.tolist()), _search(found)


def text_membership(texts: Sequence[str]) -> tuple[tuple[Values, ...], Test]:
    """`membership` of plain texts in a text column, without a literal for each."""
    values = tuple(dict.fromkeys(texts))
    return values, _arrow_membership(values)


def _integer_membership(arrow: pa.DataType, literals: Sequence[Literal]) -> tuple[tuple[Values, ...], Test]:
    floors = [exact(item, arrow) for item in literals]
    return integer_membership(arrow, [int(floor) for floor, is_exact in floors if is_exact])


def _search(found: np.ndarray) -> Test:
    """Whether a column's values are among sorted distinct numbers."""
    if len(found) <= FEW_VALUES:

        def test_few(array: pa.Array) -> np.ndarray:
            values = values_of(array)
            hits = np.zeros(len(values), np.bool_)
            for number in found:
                hits |= values == number
            return hits

        return test_few

    if found.dtype.kind in "iu" and int(found[-1]) - int(found[0]) < MAX_TABLE_ROWS:
        return _look_up(found)

    def test(array: pa.Array) -> np.ndarray:
        values = values_of(array)
        places = np.searchsorted(found, values)
        return found.take(places, mode="clip") == values

    return test


def _look_up(found: np.ndarray) -> Test:
    """`_search` by a table of bool over the span of the numbers."""
    low, high = found[0], found[-1]
    wide = found.astype(np.int64 if found.dtype.itemsize < 8 else found.dtype)
    first = wide[0]
    table = np.zeros(int(high) - int(low) + 1, np.bool_)
    table[(wide - first).astype(np.intp)] = True

    def test(array: pa.Array) -> np.ndarray:
        values = values_of(array)
        # beyond the table the difference may wrap around; the range decides there
        places = (values.astype(wide.dtype, copy=False) - first).astype(np.intp, copy=False)
        return table.take(places, mode="clip") & (values >= low) & (values <= high)

    return test


def _float_membership(found: np.ndarray) -> tuple[tuple[Values, ...], Test]:
    has_nan = bool(np.isnan(found).any())
    numbers = found[~np.isnan(found)]
    among = _search(numbers)
    values = (*numbers.tolist(), *([math.nan] if has_nan else []))
    if not has_nan:
        return values, among
    return values, lambda array: among(array) | np.isnan(values_of(array))


def _decimal_membership(arrow: pa.DataType, literals: Sequence[Literal]) -> tuple[tuple[Values, ...], Test]:
    floors = [exact(item, arrow) for item in literals]
    unscaled = dict.fromkeys(floor for floor, is_exact in floors if is_exact and isinstance(floor, int))
    limit = 10**arrow.precision
    kept = [number for number in unscaled if -limit < number < limit]
    values = tuple(decimal_of(number, arrow.scale) for number in kept)
    if len(kept) <= FEW_VALUES:
        tests = [_decimal_test("=", arrow, number, True) for number in kept]

        def test_few(array: pa.Array) -> np.ndarray:
            hits = np.zeros(len(array), np.bool_)
            for test in tests:
                hits |= test(array)
            return hits

        return values, test_few
    return values, _arrow_membership(values)


def _arrow_membership(values: tuple[Values, ...]) -> Test:
    sets: dict[pa.DataType, pa.Array] = {}

    def test(array: pa.Array) -> np.ndarray:
        import pyarrow.compute as pc

        array = plain(array)
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        if array.type not in sets:
            is_decimal = pa.types.is_decimal(array.type)
            sets[array.type] = pa.array(values, array.type) if is_decimal else bytes_array(values, array.type)
        return bools_of(pc.is_in(array, value_set=sets[array.type]))

    return test
