"""Filters given as Arrow expressions mean what the same SQL text means."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from expr_rows import batch_of
from tiltyard.errors import FieldNotFound, InvalidExpression, InvalidInput
from tiltyard.expr import bind_predicate, evaluate, mask, parse_predicate
from tiltyard.expr.from_arrow import from_arrow, is_arrow_expression, predicate_from_arrow

F = pc.field
NAN = float("nan")
BATCH = batch_of(
    a=[1, 5, None, -3],
    f=pa.array([0.1, NAN, None, -0.0], pa.float32()),
    h=pa.array([0.5, 2.0, None, -1.0]).cast(pa.float16()),
    s=["a_b", "axb", None, "b"],
    b=[True, False, None, True],
    d=[datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1), datetime.date(1970, 1, 1)],
    z=pa.array([0, 5, None, 6], pa.timestamp("ns", "UTC")),
    m=pa.array([Decimal("1.50"), Decimal("0.10"), None, Decimal("-1.00")], pa.decimal128(10, 2)),
    n=[{"x": 3}, {"x": None}, None, {"x": 4}],
    k=pa.array(["x", "y", None, "x"]).dictionary_encode(),
    l=[[1], [], None, [2, 3]],
)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (F("a") < 5, "a < 5"),
        (F("a") != 5, "a != 5"),
        (~(F("a") >= 5), "NOT a >= 5"),
        ((F("a") < 5) & ~(F("s") == "axb") | F("b"), "a < 5 AND NOT s = 'axb' OR b"),
        (F("a").isin([1, 2, None]), "a IN (1, 2, NULL)"),
        (~F("a").isin([1, 2]), "a NOT IN (1, 2)"),
        (F("a").isin([]), "a IN (999)"),
        (F("a").isin(pa.array([1, 2], pa.uint8())), "a IN (1, 2)"),
        (F("a").isin(pa.array([2**63, 5], pa.uint64())), "a IN (9223372036854775808, 5)"),
        (F("f").isin(pa.array([0, 7])), "f IN (0, 7)"),
        (F("k").isin(["x", "q"]), "k IN ('x', 'q')"),
        (F("s").isin(["b", "q"]), "s IN ('b', 'q')"),
        (F("a").is_null(), "a IS NULL"),
        (F("a").is_valid(), "a IS NOT NULL"),
        (F("f").is_null(nan_is_null=True), "f IS NULL OR isnan(f)"),
        (F("s").is_null(nan_is_null=True), "s IS NULL"),
        (F("f").is_nan(), "isnan(f)"),
        (F("f") == 0.1, "f = 0.1"),
        (F("f") == 0, "f = 0"),
        (F("f") > 1.0, "f > 1.0"),
        (F("f") == NAN, "f = 'NaN'::double"),
        (F("h") > 1, "h > 1"),
        (F("a") < 1.5, "a < 1.5"),
        (F("m") == 0.1, "m = 0.1"),
        (F("m") > Decimal("1.495"), "m > 1.495"),
        (F("d") == datetime.date(2020, 1, 1), "d = date '2020-01-01'"),
        (F("z") > pa.scalar(5, pa.timestamp("ns", "UTC")), "z > timestamp '1970-01-01 00:00:00.000000005Z'"),
        (F("n", "x") == 3, "n.x = 3"),
        (F("k") == "x", "k = 'x'"),
        (pc.match_like(F("s"), "a\\_b"), "s LIKE 'a\\_b'"),
        (pc.match_like(F("s"), "A%", ignore_case=True), "s ILIKE 'A%'"),
        (pc.starts_with(F("s"), "a"), "starts_with(s, 'a')"),
        (pc.match_substring(F("s"), "x"), "contains(s, 'x')"),
        (pc.utf8_upper(F("s")) == "B", "upper(s) = 'B'"),
        (F("a").cast("int32") == 5, "a::int = 5"),
        (F("a") + 1 == 2, "a + 1 = 2"),
        (F("a") * 2 - 1 > 0, "a * 2 - 1 > 0"),
        (pc.if_else(F("b"), F("a"), 0) == 0, "CASE WHEN b THEN a WHEN b IS NULL THEN NULL ELSE 0 END = 0"),
        (pc.coalesce(F("a"), pc.scalar(0)) == 0, "coalesce(a, 0) = 0"),
        (pc.negate(F("a")) == 3, "-a = 3"),
        (pc.year(F("d")) == 2020, "date_part('year', d) = 2020"),
        (pc.list_value_length(F("l")) == 2, "array_length(l) = 2"),
        (F("a") == pc.scalar(None), "a = NULL"),
        (pc.scalar(True), "TRUE"),
        (F("b"), "b"),
    ],
    ids=str,
)
def test_arrow_expressions_select_what_their_text_selects(expression: Any, text: str) -> None:
    assert is_arrow_expression(expression)
    found = predicate_from_arrow(expression, BATCH.schema)
    expected = parse_predicate(text, BATCH.schema)
    assert mask(found, BATCH).tolist() == mask(expected, BATCH).tolist()
    assert found.paths == expected.paths


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_select_the_same_in_every_form(unit: str, zone: str | None) -> None:
    """F08: 49 of 100 hours are after the fiftieth."""
    stamps = [datetime.datetime(2020, 6, 1, 12) + datetime.timedelta(hours=hour) for hour in range(100)]
    batch = batch_of(t=pa.array(stamps, pa.timestamp(unit)).cast(pa.timestamp(unit, zone)))
    literal = stamps[50] if zone is None else stamps[50].replace(tzinfo=datetime.UTC)
    assert mask(predicate_from_arrow(F("t") > literal, batch.schema), batch).sum() == 49
    assert mask(predicate_from_arrow(F("t") == literal, batch.schema), batch).sum() == 1


def test_deep_expressions_work() -> None:
    expression = F("a") == 0
    for number in range(1, 3_000):
        expression = expression | (F("a") == number)
    found = predicate_from_arrow(expression, BATCH.schema)
    assert mask(found, BATCH).tolist() == [True, True, False, False]


def test_what_has_no_counterpart_is_refused_by_name() -> None:
    for expression, problem in [
        (pc.and_(F("b"), F("b")), "and"),
        (pc.utf8_title(F("s")) == "A", "utf8_title"),
        (pc.field(0) == 1, "by name"),
        (pc.starts_with(F("s"), "A", ignore_case=True), "ignore_case"),
        (F("a") == "x", "no number"),
        (F("a") + 1, "boolean"),
        (F("a") == pa.scalar([1]), "does not compare"),
    ]:
        with pytest.raises(InvalidExpression, match=problem):
            predicate_from_arrow(expression, BATCH.schema)
    with pytest.raises(FieldNotFound, match="No field named A; nearest: a"):
        from_arrow(F("A") == 1, BATCH.schema)
    assert not is_arrow_expression("a = 1")


def test_a_filter_is_text_or_an_arrow_expression() -> None:
    for where in ("a = 1", F("a") == 1):
        assert mask(bind_predicate(where, BATCH.schema), BATCH).tolist() == [True, False, False, False]
    with pytest.raises(InvalidInput, match="found list"):
        bind_predicate([("a", "=", 1)], BATCH.schema)


def test_a_computed_column_keeps_its_type() -> None:
    assert from_arrow(F("a") + 1, BATCH.schema).type == pa.int64()


def test_a_membership_that_is_null_for_null_is_the_membership() -> None:
    """DuckDB writes IN so; only without the CASE an index can answer it."""
    a, nothing = F("a"), pa.scalar(None, pa.bool_())
    within = pc.if_else(a.is_valid(), (a == 0) | a.isin([1, 5]), nothing)
    assert from_arrow(within, BATCH.schema) == from_arrow((a == 0) | a.isin([1, 5]), BATCH.schema)
    for other in (F("f").isin([1.0]), a.is_valid(), pc.scalar(True), ~a.isin([1])):
        kept = from_arrow(pc.if_else(a.is_valid(), other, nothing), BATCH.schema)
        assert kept != from_arrow(other, BATCH.schema)


def test_functions_of_numbers_lists_and_dates_have_their_counterparts() -> None:
    batch = batch_of(
        x=[4.0, -1.0, None],
        l=pa.array([[1, 2], [], None], pa.list_(pa.int64())),
        d=pa.array([0, 400, None], pa.int32()).cast(pa.date32()),
        s=["aB", "c", None],
    )
    x, items, day, text = (pc.field(name) for name in ("x", "l", "d", "s"))
    cases = [
        (pc.sqrt(x) == 2.0, [True, False, None]),
        (pc.sign(x) < 0, [False, True, None]),
        (pc.max_element_wise(x, pc.scalar(0.0)) == 0.0, [False, True, True]),
        (pc.list_element(items, 1) == 2, [True, None, None]),
        (items == pa.scalar([1, 2]), [True, False, None]),
        (pc.day_of_year(day) > 1, [False, True, None]),
        (pc.match_substring_regex(text, "^ab", ignore_case=True), [True, False, None]),
    ]
    for expression, expected in cases:
        assert evaluate(from_arrow(expression, batch.schema), batch).to_pylist() == expected, str(expression)


def test_an_unknown_function_is_named_with_the_nearest() -> None:
    schema = pa.schema({"s": pa.string()})
    with pytest.raises(InvalidExpression, match=r"utf8_title is not supported \(nearest"):
        from_arrow(pc.utf8_title(pc.field("s")) == "A", schema)


def test_deep_arrow_expressions_are_refused() -> None:
    expression = pc.field("x")
    for _ in range(200):
        expression = pc.negate(expression)
    with pytest.raises(InvalidExpression, match="deeper than 50"):
        from_arrow(expression == 1, pa.schema({"x": pa.int64()}))
