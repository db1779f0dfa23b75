"""Evaluation of a bound tree over one record batch.

Predicates are computed as `Truth` (NumPy masks, with the mask of what is false only where something is
unknown); everything else as Arrow arrays, constants as Arrow scalars that kernels broadcast. A comparison
of plain numbers with a literal is one NumPy operation; `pyarrow.compute` is imported by the first node that
needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import InvalidExpression
from tiltyard.expr.arrays import boolean_array, column_of, dtype_of, plain, truth, truth_of, valid_of
from tiltyard.expr.coerce import Kind, Mismatch, kind_of, time_literal
from tiltyard.expr.decimals import decimals_of
from tiltyard.expr.moment_texts import moments
from tiltyard.expr.types import (
    And,
    Case,
    Cast,
    Column,
    Compare,
    Expr,
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
    Truth,
)
from tiltyard.format.jsonb import float_text


def mask(expr: Expr, batch: pa.RecordBatch) -> np.ndarray:
    """bool[rows]: the rows for which a boolean expression is true (unknown counts as false).

    Raises `FieldNotFound` when the batch lacks a column of `expr.paths`, `InvalidExpression` when a value
    cannot be computed (overflow, division by zero, a cast that does not fit) or the expression is not
    boolean.
    """
    try:
        return truth_at(expr.node, batch).true
    except InvalidExpression:
        return truth_at(expr.node, batch, careful=True).true


def evaluate(expr: Expr, batch: pa.RecordBatch) -> pa.Array:
    """The value of an expression for each row, an array of `expr.type`; raises as `mask` does."""
    try:
        found = operand(expr.node, batch)
    except InvalidExpression:
        found = operand(expr.node, batch, careful=True)
    if isinstance(found, pa.Scalar):
        return pa.repeat(found, batch.num_rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def scalar_of(literal: Literal) -> pa.Scalar:
    """A literal as an Arrow scalar of its type. Where Arrow would make it of a Python value, it loads pandas
    first, to see whether that is one of its own: so the plain types are made of bytes.
    """
    value, arrow = literal.value, literal.type
    if value is None:
        return pa.nulls(1, arrow)[0]
    if isinstance(value, int) and arrow == pa.int64() and -(2**63) <= value < 2**63:
        return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(struct.pack("<q", value))])[0]
    if isinstance(value, float) and arrow == pa.float64():
        return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(struct.pack("<d", value))])[0]
    if isinstance(value, str) and arrow == pa.string():
        text = value.encode()
        offsets = pa.py_buffer(struct.pack("<ii", 0, len(text)))
        return pa.Array.from_buffers(arrow, 1, [None, offsets, pa.py_buffer(text)])[0]
    if isinstance(value, Interval):
        return pa.scalar(pa.MonthDayNano(value), arrow)
    if isinstance(value, Decimal) and pa.types.is_floating(literal.type):
        value = float(value)
    if isinstance(value, float) and pa.types.is_float16(literal.type):
        with np.errstate(over="ignore"):
            return pa.scalar(np.float16(value), literal.type)
    return pa.scalar(value, literal.type)


_ZONE = r"(Z|[+-]\d\d:\d\d)?"

# -- predicates ---------------------------------------------------------------------------------------


def truth_at(node: Node, batch: pa.RecordBatch, careful: bool = False) -> Truth:
    """Evaluate a boolean node.

    Everything is computed for all rows, which is fast; where that fails, once more and `careful`: what stands
    in a branch of CASE, and behind AND and OR, only for the rows that come to it, so that conditions guard
    divisions and casts.
    """
    predicate = _PREDICATES.get(type(node))
    if predicate is not None:
        return predicate(node, batch, careful)
    found = operand(node, batch, careful)
    if isinstance(found, pa.Scalar):
        answer = found.as_py()
        rows = batch.num_rows
        return Truth(np.full(rows, answer is True), None if answer is not None else np.zeros(rows, np.bool_))
    if not (pa.types.is_boolean(found.type) or pa.types.is_null(found.type)):
        raise InvalidExpression(f"a predicate must be boolean; this one is {found.type}")
    return truth_of(found)


def _array(node: Node, batch: pa.RecordBatch, careful: bool) -> pa.Array:
    found = operand(node, batch, careful)
    if isinstance(found, pa.Scalar):
        return pa.repeat(found, batch.num_rows)
    return found


def _compare(node: Compare, batch: pa.RecordBatch, careful: bool) -> Truth:
    left = _array(node.left, batch, careful)
    if node.test is not None:
        return truth(node.test(left), valid_of(left))
    assert node.pair is not None
    right = _array(node.right, batch, careful)
    valid, other = valid_of(left), valid_of(right)
    if valid is not None and other is not None:
        valid = valid & other
    return truth(node.pair(left, right), other if valid is None else valid)


def _and(node: And, batch: pa.RecordBatch, careful: bool) -> Truth:
    if careful:
        return _in_turn(node.items, batch, False)
    found = [truth_at(item, batch) for item in node.items]
    true = found[0].true.copy()
    for one in found[1:]:
        true &= one.true
    if all(one.false is None for one in found):
        return Truth(true, None)
    false = np.zeros(len(true), np.bool_)
    for one in found:
        false |= ~one.true if one.false is None else one.false
    return Truth(true, false)


def _or(node: Or, batch: pa.RecordBatch, careful: bool) -> Truth:
    if careful:
        return _in_turn(node.items, batch, True)
    first, *others = node.items
    found = truth_at(first, batch)
    true, false = found.true.copy(), found.false
    for item in others:
        one = truth_at(item, batch)
        if false is not None or one.false is not None:
            here = ~true if false is None else false
            false = here & (~one.true if one.false is None else one.false)
        true |= one.true
    return Truth(true, false)


def _in_turn(items: Sequence[Node], batch: pa.RecordBatch, decisive: bool) -> Truth:
    """AND (decided by what is false) and OR (by what is true): each item for the rows not decided before."""
    answers = {True: np.zeros(batch.num_rows, np.bool_), False: np.zeros(batch.num_rows, np.bool_)}
    unknown = np.zeros(batch.num_rows, np.bool_)
    for item in items:
        left = np.flatnonzero(~answers[decisive])
        found = truth_at(item, batch.take(pa.array(left)), careful=True)
        false = ~found.true if found.false is None else found.false
        answers[decisive][left[found.true if decisive else false]] = True
        unknown[left[~(found.true | false)]] = True
    answers[not decisive] = ~(answers[decisive] | unknown)
    return Truth(answers[True], answers[False])


def _not(node: Not, batch: pa.RecordBatch, careful: bool) -> Truth:
    return truth_at(node.item, batch, careful).negated()


def _in(node: In, batch: pa.RecordBatch, careful: bool) -> Truth:
    array = _array(node.item, batch, careful)
    valid = valid_of(array)
    assert node.test is not None
    found = truth(node.test(array), valid)
    if node.has_null:
        return Truth(found.true, np.zeros(len(found.true), np.bool_))
    return found


def _is_null(node: IsNull, batch: pa.RecordBatch, careful: bool) -> Truth:
    if node.item.type == pa.bool_():
        known = truth_at(node.item, batch, careful).known
        return Truth(np.zeros(batch.num_rows, np.bool_) if known is None else ~known, None)
    found = operand(node.item, batch, careful)
    if isinstance(found, pa.Scalar):
        return Truth(np.full(batch.num_rows, not found.is_valid), None)
    valid = valid_of(found)
    return Truth(np.zeros(len(found), np.bool_) if valid is None else ~valid, None)


def _is_truth(node: IsTruth, batch: pa.RecordBatch, careful: bool) -> Truth:
    found = truth_at(node.item, batch, careful)
    if node.value:
        return Truth(found.true, None)
    return Truth(~found.true if found.false is None else found.false, None)


def _like(node: Like, batch: pa.RecordBatch, careful: bool) -> Truth:
    import pyarrow.compute as pc

    array = plain(_array(node.item, batch, careful))
    return truth_of(pc.match_like(array, node.pattern, ignore_case=node.ignore_case))


_PREDICATES: dict[type, Callable[[Any, pa.RecordBatch, bool], Truth]] = {
    Compare: _compare,
    And: _and,
    Or: _or,
    Not: _not,
    In: _in,
    IsNull: _is_null,
    IsTruth: _is_truth,
    Like: _like,
}


# -- values -------------------------------------------------------------------------------------------


def operand(node: Node, batch: pa.RecordBatch, careful: bool = False) -> Any:
    """Evaluate any node: a `pa.Array` of the batch's rows or, for a constant, a `pa.Scalar`."""
    if isinstance(node, Column):
        return column_of(batch, node.path)
    if isinstance(node, Literal):
        return scalar_of(node)
    if isinstance(node, Function):
        args = [operand(item, batch, careful) for item in node.args]
        try:
            return node.run(
                [plain(arg) if isinstance(arg, pa.Array) else arg for arg in args], batch.num_rows
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
            raise _failed(node, error) from error
    if isinstance(node, Cast):
        return _cast(node, batch, careful)
    if isinstance(node, Case):
        return _case_by_rows(node, batch) if careful else _case(node, batch)
    return boolean_array(truth_at(node, batch, careful))


def _failed(node: Node, error: Exception) -> InvalidExpression:
    from tiltyard.expr.text import sql_of

    return InvalidExpression(f"{sql_of(node)} cannot be computed: {error}")


def _cast(node: Cast, batch: pa.RecordBatch, careful: bool) -> Any:
    found = operand(node.item, batch, careful)
    if isinstance(found, pa.Scalar):
        array = cast_array(pa.repeat(found, 1), node)
        return array[0]
    return cast_array(found, node)


def cast_array(array: pa.Array, node: Cast) -> pa.Array:
    """Cast as SQL does: fractions are cut off (of decimals rounded), what does not fit is an error or,
    with TRY_CAST, null."""
    import pyarrow.compute as pc

    array = plain(array)
    if kind_of(node.type) is Kind.TEXT and kind_of(array.type) in (Kind.INSTANT, Kind.TIME):
        return _temporal_text(array).cast(node.type)
    if kind_of(node.type) is Kind.TEXT and pa.types.is_floating(array.type):
        return _float_text(array).cast(node.type)
    via = _stepping_stone(array.type, node.type)
    if kind_of(array.type) is Kind.TEXT and kind_of(node.type) not in (Kind.TEXT, Kind.BINARY):
        array = pc.utf8_trim_whitespace(array)
    to_whole = pa.types.is_floating(array.type) and pa.types.is_integer(node.type)
    if to_whole:  # Arrow cuts fractions off only where it checks nothing, neither NaN nor the range
        array = pc.trunc(array.cast(pa.float64()))
    zone = node.type.tz if pa.types.is_timestamp(node.type) else None
    if zone and pa.types.is_timestamp(array.type) and array.type.tz is None:
        # as comparisons take it: the time that clocks there show
        array = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    options = pc.CastOptions(
        target_type=node.type,
        allow_float_truncate=not to_whole,
        allow_time_truncate=True,
        allow_decimal_truncate=True,
    )

    def run(part: pa.Array) -> pa.Array:
        if pa.types.is_decimal(node.type):
            return decimals_of(part, node.type)
        if pa.types.is_time(node.type) and kind_of(part.type) is Kind.TEXT:
            part = _times(part)
        return pc.cast(part if via is None else part.cast(via), options=options)

    try:
        return run(array)
    except pa.ArrowInvalid as error:
        if kind_of(array.type) is Kind.TEXT and kind_of(node.type) is Kind.INSTANT:
            try:
                return moments(array, node.type, node.lenient)
            except pa.ArrowInvalid as found:
                raise _failed(node, found) from found
        if not node.lenient:
            raise _failed(node, error) from error
        return _cast_leniently(_without_misfits(array, node.type), node.type, run)


def _temporal_text(array: pa.Array) -> pa.Array:
    """Dates and times in ISO 8601, with no more groups of three decimals than they need: the text that the
    official package gives.
    """
    import pyarrow.compute as pc

    if pa.types.is_date64(array.type):
        array = array.cast(pa.timestamp("ms"))
    found = array.cast(pa.string())
    if pa.types.is_date32(array.type):
        return found
    found = pc.replace_substring(found, " ", "T", max_replacements=1)
    if getattr(array.type, "tz", None) is not None:
        found = pc.replace_substring_regex(found, r"([+-]\d\d)(\d\d)$", r"\1:\2")
    found = pc.replace_substring_regex(found, rf"(\.\d{{3}}(?:\d{{3}})*?)(?:000)+{_ZONE}$", r"\1\2")
    return pc.replace_substring_regex(found, rf"\.000{_ZONE}$", r"\1")


def _float_text(array: pa.Array) -> pa.Array:
    """Floats as the shortest text that reads back, in the form of the official package: `1.0`, `1e20`."""
    coded = array.dictionary_encode()
    most, least = (16, -5) if pa.types.is_float64(array.type) else (13, -6)
    texts = [_pretty(value, most, least) for value in coded.dictionary.to_numpy(zero_copy_only=False)]
    return pa.array(texts, pa.string()).take(coded.indices)


def _pretty(value: Any, most: int, least: int) -> str:
    if not np.isfinite(value):
        return str(value).replace("nan", "NaN")
    return float_text(value, "", most, least)


def _stepping_stone(source: pa.DataType, target: pa.DataType) -> pa.DataType | None:
    """The type to pass through where Arrow has no direct cast, or one that asks for more room than needed."""
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        return pa.float64()  # Arrow's way to narrower floats is off by one in the last place
    if not pa.types.is_integer(source):
        return None
    if pa.types.is_temporal(target) and dtype_of(target) != dtype_of(source):
        return pa.int64() if target.bit_width == 64 else pa.int32()
    return None


def _times(array: pa.Array) -> pa.Array:
    """Texts as times of day: Arrow has no such cast, so one value at a time."""
    try:
        found = [None if text is None else time_literal(text).value for text in array.to_pylist()]
    except Mismatch as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array(found, pa.time64("ns"))


_WHOLE = r"^[+-]?(\d+|0[xX][0-9a-fA-F]+)$"
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:nan|inf|infinity))$"


def _without_misfits(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The values, null where one plainly does not fit: to try them one by one is slow."""
    import pyarrow.compute as pc

    source, kind = kind_of(array.type), kind_of(target)
    if source is Kind.TEXT and kind.is_number:
        keep = pc.match_substring_regex(array, _WHOLE if kind is Kind.INT else _NUMBER)
    elif source is Kind.FLOAT and kind in (Kind.INT, Kind.DECIMAL):
        if kind is Kind.INT:
            bounds = np.iinfo(dtype_of(target))
            low, high = float(bounds.min), float(bounds.max)
        else:
            high = 10.0 ** (target.precision - target.scale)
            low = -high
        values = array.cast(pa.float64())
        keep = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    else:
        return array
    return pc.if_else(keep, array, pa.scalar(None, array.type))


def _cast_leniently(array: pa.Array, target: pa.DataType, run: Callable[[pa.Array], pa.Array]) -> pa.Array:
    # Halve until the values that fail stand alone; recursion is as deep as the number of rows has bits.
    try:
        return run(array)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, target)
    half = len(array) // 2
    parts = [_cast_leniently(part, target, run) for part in (array[:half], array[half:])]
    return pa.concat_arrays(parts)


def _case_by_rows(node: Case, batch: pa.RecordBatch) -> pa.Array:
    """CASE, each condition and each value for the rows that come to it."""
    left = np.arange(batch.num_rows)
    places: list[np.ndarray] = []
    parts: list[pa.Array] = []

    def choose(rows: np.ndarray, value: Node) -> None:
        found = plain(_array(value, batch.take(pa.array(rows)), True))
        places.append(rows)
        parts.append(found if found.type == node.type else found.cast(node.type))

    for condition, value in node.whens:
        chosen = truth_at(condition, batch.take(pa.array(left)), careful=True).true
        choose(left[chosen], value)
        left = left[~chosen]
    choose(left, node.otherwise)
    order = np.argsort(np.concatenate(places))
    return pa.concat_arrays(parts).take(pa.array(order))


def _case(node: Case, batch: pa.RecordBatch) -> Any:
    import pyarrow.compute as pc

    def branch(value: Node) -> Any:
        found = operand(value, batch)
        return plain(found) if isinstance(found, pa.Array) else found

    result = branch(node.otherwise)
    for condition, value in reversed(node.whens):
        chosen = boolean_array(Truth(truth_at(condition, batch).true, None))
        result = pc.if_else(chosen, branch(value), result)
    # Arrow's kernel widens narrow decimals
    return result if result.type == node.type else result.cast(node.type)
