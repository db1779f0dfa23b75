"""Random expressions against their plain-Python meaning: exact comparison, three-valued logic."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr_rows import and3, batch_of, holds, not3, or3, order_key
from tiltyard.expr import evaluate, mask, parse_expression, parse_predicate

OPS = ("=", "!=", "<", "<=", ">", ">=")
EDGES = [0, 1, -1, 2**7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**53) - 1]


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [edge for edge in EDGES if low <= edge <= high]
    return st.one_of(st.integers(low, high), st.sampled_from(edges), st.integers(max(low, -3), 3))


def _floats(width: int) -> st.SearchStrategy[float]:
    edges = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.0]
    more = [float(edge) for edge in EDGES] if width == 64 else []
    return st.one_of(st.floats(width=width), st.sampled_from(edges + more))  # type: ignore[arg-type]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    unscaled = st.one_of(st.integers(-limit, limit), st.integers(-20, 20))
    return unscaled.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


NUMBERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): _integers(8, True),
    pa.int32(): _integers(32, True),
    pa.int64(): _integers(64, True),
    pa.uint16(): _integers(16, False),
    pa.uint64(): _integers(64, False),
    pa.float16(): _floats(16),
    pa.float32(): _floats(32),
    pa.float64(): _floats(64),
    pa.decimal128(5, 2): _decimals(5, 2),
    pa.decimal128(38, 3): _decimals(38, 3),
    pa.decimal256(60, 20): _decimals(60, 20),
}
_DAYS = st.dates(datetime.date(1960, 1, 1), datetime.date(2060, 1, 1))
_STAMPS = st.datetimes(datetime.datetime(1960, 1, 1), datetime.datetime(2060, 1, 1))
INSTANTS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.date32(): _DAYS,
    pa.date64(): _DAYS,
    pa.timestamp("s"): _STAMPS.map(lambda stamp: stamp.replace(microsecond=0)),
    pa.timestamp("ms"): _STAMPS.map(
        lambda stamp: stamp.replace(microsecond=stamp.microsecond // 1000 * 1000)
    ),
    pa.timestamp("us"): _STAMPS,
    pa.timestamp("ns"): _STAMPS,
}
TEXTS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=3),
    pa.large_string(): st.text("ab'", max_size=2),
}


def _array(values: list[Any], arrow: pa.DataType) -> pa.Array:
    if pa.types.is_float16(arrow):
        nulls = np.array([value is None for value in values], np.bool_)
        return pa.array(np.array([value or 0.0 for value in values], np.float16), mask=nulls)
    return pa.array(values, arrow)


def _written(value: Any) -> str:
    """A value as a literal of SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"CAST('{value}' AS double)"
    if isinstance(value, datetime.datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS decimal(76, 20))" if value.adjusted() < 50 else f"{value:f}"
    return str(value)


def _check(text: str, batch: pa.RecordBatch, expected: list[bool | None]) -> None:
    expr = parse_predicate(text, batch.schema)
    assert evaluate(expr, batch).to_pylist() == expected, text
    assert mask(expr, batch).tolist() == [item is True for item in expected]
    assert evaluate(parse_predicate(expr.sql, batch.schema), batch).to_pylist() == expected, expr.sql


@st.composite
def _pairs(draw: st.DrawFn, family: dict[pa.DataType, st.SearchStrategy[Any]]) -> tuple[pa.Array, pa.Array]:
    sides = []
    count = draw(st.integers(1, 6))
    for _ in range(2):
        arrow = draw(st.sampled_from(list(family)))
        column = draw(st.lists(st.none() | family[arrow], min_size=count, max_size=count))
        sides.append(_array(column, arrow))
    return sides[0], sides[1]


@pytest.mark.parametrize("family", [NUMBERS, INSTANTS, TEXTS], ids=["numbers", "instants", "texts"])
def test_columns_compare_as_their_exact_values_do(family: dict[pa.DataType, st.SearchStrategy[Any]]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(_pairs(family), st.sampled_from(OPS))
    def check(pair: tuple[pa.Array, pa.Array], op: str) -> None:
        left, right = pair
        expected = [holds(op, a, b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)]
        _check(f"a {op} b", batch_of(a=left, b=right), expected)

    check()


@pytest.mark.parametrize("family", [NUMBERS, INSTANTS, TEXTS], ids=["numbers", "instants", "texts"])
def test_literals_compare_as_their_exact_values_do(family: dict[pa.DataType, st.SearchStrategy[Any]]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(_pairs(family), st.sampled_from(OPS), st.booleans())
    def check(pair: tuple[pa.Array, pa.Array], op: str, flip: bool) -> None:
        column, constants = pair
        batch = batch_of(a=column)
        for constant in constants.to_pylist():
            if (
                isinstance(constant, Decimal)
                and constant.adjusted() >= 50
                and pa.types.is_floating(column.type)
            ):
                continue  # written as a plain fraction, which rounds to the column
            if flip:
                expected = [holds(op, constant, item) for item in column.to_pylist()]
                _check(f"{_written(constant)} {op} a", batch, expected)
            else:
                expected = [holds(op, item, constant) for item in column.to_pylist()]
                _check(f"a {op} {_written(constant)}", batch, expected)

    check()


@pytest.mark.parametrize("family", [NUMBERS, INSTANTS, TEXTS], ids=["numbers", "instants", "texts"])
def test_membership_is_any_equality(family: dict[pa.DataType, st.SearchStrategy[Any]]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(_pairs(family), st.integers(1, 3), st.booleans())
    def check(pair: tuple[pa.Array, pa.Array], times: int, negated: bool) -> None:
        column, constants = pair
        wanted = [
            item
            for item in constants.to_pylist()
            if not (isinstance(item, Decimal) and item.adjusted() >= 50 and pa.types.is_floating(column.type))
        ] or [None]
        # a long list takes the search, a short one the comparisons
        padding = [item for item in column.to_pylist() if not isinstance(item, Decimal)] * (times - 1) * 4
        wanted += padding
        expected = [or3([holds("=", item, member) for member in wanted]) for item in column.to_pylist()]
        if negated:
            expected = [not3(item) for item in expected]
        members = ", ".join(map(_written, wanted))
        _check(f"a {'NOT ' if negated else ''}IN ({members})", batch_of(a=column), expected)

    check()


Meaning = Callable[[dict[str, Any]], bool | None]


def _leaf() -> st.SearchStrategy[tuple[str, Meaning]]:
    columns = st.sampled_from(["a", "b"])
    constants = st.none() | st.integers(-2, 2)

    def compare(name: str, op: str, constant: int | None) -> tuple[str, Meaning]:
        return f"{name} {op} {_written(constant)}", lambda row: holds(op, row[name], constant)

    def among(name: str, members: list[int | None], negated: bool) -> tuple[str, Meaning]:
        text = f"{name} {'NOT ' if negated else ''}IN ({', '.join(map(_written, members))})"

        def meaning(row: dict[str, Any]) -> bool | None:
            found = or3([holds("=", row[name], member) for member in members])
            return not3(found) if negated else found

        return text, meaning

    def between(name: str, low: int | None, high: int | None, negated: bool) -> tuple[str, Meaning]:
        def meaning(row: dict[str, Any]) -> bool | None:
            found = and3([holds(">=", row[name], low), holds("<=", row[name], high)])
            return not3(found) if negated else found

        word = "NOT BETWEEN" if negated else "BETWEEN"
        return f"{name} {word} {_written(low)} AND {_written(high)}", meaning

    return st.one_of(
        st.builds(compare, columns, st.sampled_from(OPS), constants),
        st.builds(among, columns, st.lists(constants, min_size=1, max_size=4), st.booleans()),
        st.builds(between, columns, constants, constants, st.booleans()),
        columns.map(lambda name: (f"{name} IS NULL", lambda row: row[name] is None)),
        columns.map(lambda name: (f"{name} IS NOT NULL", lambda row: row[name] is not None)),
        st.sampled_from(OPS).map(lambda op: (f"a {op} b", lambda row: holds(op, row["a"], row["b"]))),
        st.just(("p", lambda row: row["p"])),
        st.just(("TRUE", lambda row: True)),
        st.just(("NULL", lambda row: None)),
    )


def _tree(inner: st.SearchStrategy[tuple[str, Meaning]]) -> st.SearchStrategy[tuple[str, Meaning]]:
    def joined(word: str, parts: list[tuple[str, Meaning]]) -> tuple[str, Meaning]:
        combine = and3 if word == "AND" else or3
        meanings = [meaning for _, meaning in parts]
        return f" {word} ".join(f"({text})" for text, _ in parts), lambda row: combine(
            [m(row) for m in meanings]
        )

    def negated(part: tuple[str, Meaning]) -> tuple[str, Meaning]:
        return f"NOT ({part[0]})", lambda row: not3(part[1](row))

    def truth(part: tuple[str, Meaning], value: bool, keeps: bool) -> tuple[str, Meaning]:
        text = f"({part[0]}) IS {'' if keeps else 'NOT '}{str(value).upper()}"
        return text, lambda row: (part[1](row) is value) is keeps

    def cased(condition: tuple[str, Meaning], then: tuple[str, Meaning], other: tuple[str, Meaning]) -> Any:
        text = f"CASE WHEN {condition[0]} THEN {then[0]} ELSE {other[0]} END"
        return text, lambda row: then[1](row) if condition[1](row) is True else other[1](row)

    return st.one_of(
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=10)),
        inner.map(negated),
        st.builds(truth, inner, st.booleans(), st.booleans()),
        st.builds(cased, inner, inner, inner),
    )


ROWS = [
    {"a": a, "b": b, "p": p} for a in (None, -1, 0, 1, 2) for b in (None, 0, 1) for p in (None, True, False)
]


@settings(max_examples=50, deadline=None)
@given(st.recursive(_leaf(), _tree, max_leaves=20))
def test_predicates_follow_three_valued_logic(case: tuple[str, Meaning]) -> None:
    text, meaning = case
    batch = pa.RecordBatch.from_pylist(ROWS, pa.schema({"a": pa.int64(), "b": pa.int32(), "p": pa.bool_()}))
    _check(text, batch, [meaning(row) for row in ROWS])


def _like(text: str, pattern: str, escape: str | None, ignore_case: bool) -> bool:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return re.fullmatch("".join(parts), text, flags) is not None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text("aA_%\\!b\n'(*", max_size=5), min_size=1, max_size=8),
    st.text("aA_%\\!b\n'(*", max_size=5),
    st.sampled_from(["\\", "!", None]),
    st.booleans(),
)
def test_like_matches_as_its_pattern_reads(
    column: list[str], pattern: str, escape: str | None, ignore_case: bool
) -> None:
    try:
        expected = [_like(text, pattern, escape, ignore_case) for text in column]
    except (StopIteration, RuntimeError):
        return  # ends with its escape character: refused, see the refusals
    clause = {"\\": "", "!": " ESCAPE '!'", None: " ESCAPE ''"}[escape]
    _check(
        f"s {'ILIKE' if ignore_case else 'LIKE'} {_written(pattern)}{clause}", batch_of(s=column), expected
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=6),
    st.sampled_from("+-*/%"),
)
def test_whole_numbers_calculate_towards_zero(pairs: list[tuple[int, int]], op: str) -> None:
    pairs = [(a, b or 7) for a, b in pairs]
    batch = batch_of(
        a=pa.array([a for a, _ in pairs], pa.int16()), b=pa.array([b for _, b in pairs], pa.int64())
    )
    found = evaluate(parse_expression(f"a {op} b", batch.schema), batch)
    assert found.type == pa.int64()
    meaning: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: int(a / b),
        "%": lambda a, b: int(math.fmod(a, b)),
    }
    assert found.to_pylist() == [meaning[op](a, b) for a, b in pairs]


@settings(max_examples=50, deadline=None)
@given(
    st.text(max_size=60) | st.text("xsb ()'\"`=<>+-*/%.,[]0123456789ANDORNOTINISNULLCASEWHEN:", max_size=60)
)
def test_any_text_is_an_expression_or_a_typed_error(text: str) -> None:
    from tiltyard.errors import InvalidInput

    schema = pa.schema({"x": pa.int64(), "s": pa.string(), "b": pa.bool_()})
    try:
        expr = parse_expression(text, schema)
    except InvalidInput:
        return
    assert parse_expression(expr.sql, schema).sql == expr.sql


def test_the_order_of_the_tests_is_the_order_of_the_rules() -> None:
    ranked = sorted([math.nan, 1, -math.inf, Decimal("0.5"), math.inf, -0.0], key=order_key)
    assert [str(item) for item in ranked] == ["-inf", "-0.0", "0.5", "1", "inf", "nan"]
