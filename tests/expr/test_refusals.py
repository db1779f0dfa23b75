"""What is no expression of ours is refused by name, with its place in the text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from expr_rows import batch_of
from tiltyard.errors import FieldNotFound, InvalidExpression, InvalidInput
from tiltyard.expr import mask, parse_expression, parse_predicate

SCHEMA = pa.schema(
    {
        "x": pa.int64(),
        "s": pa.string(),
        "t": pa.time64("us"),
        "d": pa.date32(),
        "l": pa.list_(pa.int64()),
        "n": pa.struct({"a": pa.int64()}),
        "b": pa.bool_(),
        "v": pa.binary(),
        "m": pa.map_(pa.string(), pa.int8()),
    }
)

REFUSED = [
    ("", 0, "ends"),
    ("x <", 3, "ends"),
    ("x = 1 x", 6, "'x' stands where"),
    ("(x = 1", 6, "ends"),
    ("x = 1)", 5, "stands where"),
    ("x = 1;", 5, "not part of"),
    ("x = ?", 4, "not part of"),
    ("x = $1", 4, "not part of"),
    ("x = :p", 4, "stands where a value"),
    ("x & 1 = 1", 2, "not part of"),
    ("x | 1 = 1", 2, "not part of"),
    ("x ^ 1 = 1", 2, "not part of"),
    ("~x = 1", 0, "stands where a value"),
    ("!b", 0, "not part of"),
    ("s = 'abc", 4, "not closed"),
    ('"x = 1', 0, "not closed"),
    ("`x = 1", 0, "not closed"),
    ("x = 1 /* no end", 6, "a comment"),
    ("x = 12abc", 4, "not part of"),
    ("x = X'0'", 4, "two digits"),
    ("x IN (SELECT 1)", 6, "subquery"),
    ("EXISTS (SELECT 1)", 0, "EXISTS"),
    ("x = (SELECT 1)", 5, "subquery"),
    ("x = ANY (1)", 4, "ANY"),
    ("x = ALL (1)", 4, "ALL"),
    ("SELECT 1", 0, "only what follows WHERE"),
    ("where x = 1", 0, "only what follows WHERE"),
    ("sum(x) > 1", 0, "aggregate function sum"),
    ("count(*) > 1", 0, "aggregate function count"),
    ("lower(s) OVER () = 'a'", 9, "window"),
    ("lower(s) FILTER (WHERE b) = 'a'", 9, "aggregate"),
    ("lower(DISTINCT s) = 'a'", 6, "DISTINCT"),
    ("lower(*) = 'a'", 6, "stands where"),
    ("lower(s,) = 'a'", 8, "stands where"),
    ("lower() = 'a'", 0, "takes 1 arguments, not 0"),
    ("lower(s, s) = 'a'", 0, "takes 1 arguments, not 2"),
    ("lower(x) = 'a'", 0, "must be text"),
    ("lowr(s) = 'a'", 0, "nearest: lower"),
    ("pg_sleep(5)", 0, "pg_sleep is not known"),
    ("s COLLATE nocase = 'a'", 2, "COLLATE"),
    ("s LIKE 'a' ESCAPE 'ab'", 18, "one character"),
    ("s LIKE 'a' ESCAPE s", 18, "one character"),
    ("s LIKE 1", 2, "text literal"),
    ("s LIKE 'a\\'", 2, "ends with its escape"),
    ("s LIKE ANY ('a')", 7, "ANY"),
    ("x LIKE 'a'", 2, "takes text"),
    ("s ESCAPE 'a'", 2, "stands where"),
    ("s = 'a' ESCAPE '!'", 8, "stands where"),
    ("x IN ()", 6, "at least one"),
    ("x IN 1", 5, "stands where"),
    ("x IN (1,)", 8, "stands where"),
    ("x IN (1 2)", 8, "stands where"),
    ("x IN ('a')", 2, "no number"),
    ("x BETWEEN 1", 11, "ends"),
    ("x BETWEEN 1 OR 2", 12, "stands where"),
    ("x NOT 1", 6, "stands where"),
    ("x IS 1", 5, "stands where"),
    ("x IS TRUE", 2, "must be boolean"),
    ("x IS OF (int)", 5, "stands where"),
    ("NOT x", 0, "must be boolean"),
    ("x", 0, "must be boolean"),
    ("s", 0, "must be boolean"),
    ("x AND b", 2, "must be boolean"),
    ("x + 1", 0, "must be boolean"),
    ("1 < x < 5", 6, "does not compare"),
    ("x <=> 1", 2, "IS NOT DISTINCT FROM"),
    ("x = 'abc'", 2, "no number"),
    ("s = 1", 2, "single quotes"),
    ("s = x", 2, "CAST"),
    ("x = b", 2, "CAST"),
    ("b = 1", 2, "does not compare"),
    ("t < 5", 2, "'12:30:00'"),
    ("d = 5", 2, "'2020-06-01'"),
    ("d = '2020-13-01'", 2, "no date"),
    ("d = 'yesterday'", 2, "no date"),
    ("t = '25:00:00'", 2, "no time"),
    ("v = 'abc'", 2, "X'00ff'"),
    ("l = 1", 2, "does not compare"),
    ("n = 1", 2, "does not compare"),
    ("l[1.5] = 1", 1, "whole number"),
    ("l[1:2] = 1", 7, "does not compare"),
    ("array_has(x, 1)", 0, "must be a list"),
    ("array_has(l)", 0, "takes 2"),
    ("(1, 2) = (x, x)", 2, "stands where"),
    ("CAST(x int) = 1", 7, "stands where AS"),
    ("CAST(x AS foo) = 1", 10, "FOO is not known"),
    ("CAST(x AS decimal) = 1", 10, "precision"),
    ("CAST(x AS decimal(99, 2)) = 1", 10, "parameters"),
    ("CAST(x AS varchar(5)) = '1'", 10, "maximal length"),
    ("CAST(x AS int FORMAT 'x') = 1", 14, "stands where"),
    ("CAST(x AS int[]) = 1", 13, "list"),
    ("CAST(l AS int) = 1", 0, "no cast"),
    ("arrow_cast(m, 'List(Int8)') IS NULL", 0, "no cast"),
    ("CAST('a' AS int) = 1", 0, "cannot be computed"),
    ("CASE END = 1", 5, "stands where"),
    ("CASE WHEN b THEN 1 ELSE 's' END = 1", 0, "no common type"),
    ("CASE WHEN x THEN 1 END = 1", 10, "must be boolean"),
    ("CASE WHEN b THEN 1 = 1", 22, "ends"),
    ("x + INTERVAL '1 day' > x", 2, "an interval is added to"),
    ("d AT TIME ZONE 'UTC' > d", 2, "AT TIME ZONE"),
    ("s + 1 = 2", 2, "not defined"),
    ("x / 'a' = 1", 2, "no number"),
    ("-s = 1", 0, "not defined"),
    ("b AS c", 2, "an alias"),
    ("b ORDER BY x", 2, "ORDER BY"),
    ("b LIMIT 1", 2, "LIMIT"),
    ("b UNION SELECT 1", 2, "UNION"),
    ("x = 1, x = 2", 5, "stands where"),
    ("x.* = 1", 2, "a name"),
    ("*", 0, "stands where"),
    ("x = DATE 'nope'", 4, "no date"),
    ("x = E'a'", 4, "before a text literal"),
    ("regexp_like(s, '(')", 0, "regexp_like"),
    ("trim(s, s) = 'a'", 0, "must be a constant"),
    ("1 / 0 = 1", 2, "cannot be computed"),
    ("9223372036854775807 + 1 = 1", 20, "cannot be computed"),
]


@pytest.mark.parametrize(
    ("text", "position", "problem"), REFUSED, ids=[case[0] or "empty" for case in REFUSED]
)
def test_what_is_not_allowed_is_refused_at_its_place(text: str, position: int, problem: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse_predicate(text, SCHEMA)
    assert problem in str(caught.value)
    assert caught.value.text == text
    assert caught.value.position == position
    if text:
        shown, caret = str(caught.value).splitlines()[-2:]
        assert len(caret) - 3 == position
        assert shown[2:] == text


def test_a_long_text_is_shown_around_the_place_only() -> None:
    text = "x = 1 OR " * 1000 + "x = ? OR " + "x = 1 OR " * 1000 + "b"
    with pytest.raises(InvalidExpression) as caught:
        parse_predicate(text, SCHEMA)
    lines = str(caught.value).splitlines()
    assert max(len(line) for line in lines) < 200
    assert lines[1][len(lines[2]) - 1] == "?"


def test_text_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not int"):
        parse_predicate(5, SCHEMA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x + 9223372036854775807 > 0", "overflow"),
        ("x * 9223372036854775807 > 0", "overflow"),
        ("x / (x - x) = 1", "divide by zero"),
        ("x % 0 = 1", "divide by zero"),
        ("CAST(s AS int) = 1", "cannot be computed"),
        ("CAST(x + 1000 AS tinyint) = 1", "cannot be computed"),
        ("abs(x - 9223372036854775807 - 3) > 0", "overflow"),
    ],
)
def test_values_that_cannot_be_computed_are_errors(text: str, problem: str) -> None:
    batch = batch_of(x=[1, 2, None], s=["a", "1", None])
    with pytest.raises(InvalidExpression, match=problem):
        mask(parse_predicate(text, batch.schema), batch)


def test_a_computed_column_need_not_be_boolean_but_must_bind() -> None:
    assert parse_expression("x + 1", SCHEMA).type == pa.int64()
    with pytest.raises(FieldNotFound):
        parse_expression("y + 1", SCHEMA)
