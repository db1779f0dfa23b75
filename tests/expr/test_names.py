"""Which column a name in an expression means."""

from __future__ import annotations

import pyarrow as pa
import pytest

from expr_rows import batch_of, rows
from tiltyard.errors import FieldNotFound, InvalidExpression
from tiltyard.expr import parse_expression, parse_predicate


def test_quoted_names_are_names_never_text() -> None:
    """F10."""
    columns = {"Name": ["D", "E"], "other": ["Name", "D"]}
    for text in ("\"Name\" = 'D'", "`Name` = 'D'", "Name = 'D'", "name = 'D'"):
        assert rows(text, **columns) == [0]


def test_a_quoted_name_is_exact_and_its_absence_an_error() -> None:
    schema = pa.schema({"Name": pa.string()})
    with pytest.raises(
        FieldNotFound, match=r"^No field named name; nearest: Name; a text takes single quotes: 'name'$"
    ):
        parse_predicate("\"name\" = 'D'", schema)
    with pytest.raises(FieldNotFound, match="single quotes"):
        parse_predicate('Name = "D"', schema)


def test_unquoted_names_prefer_the_exact_one_and_refuse_to_guess() -> None:
    columns = {"k": [1, 2], "K": [2, 1]}
    assert rows("k = 1", **columns) == [0]
    assert rows("K = 1", **columns) == [1]
    with pytest.raises(FieldNotFound, match="named aB;"):
        parse_predicate("aB = 1", pa.schema({"ab": pa.int8(), "AB": pa.int8()}))


def test_dotted_and_odd_names_are_reached_by_quoting() -> None:
    """F14."""
    columns = {
        "a.b": [1, 2],
        "a": [{"b": 2, "c d": 5}, {"b": 1, "c d": 6}],
        'q`u"o': [1, 2],
        "select": [1, 2],
        "ü": [1, 2],
    }
    assert rows("`a.b` = 1", **columns) == [0]
    assert rows('"a.b" = 1', **columns) == [0]
    assert rows("a.b = 1", **columns) == [1]
    assert rows("`a`.`b` = 1", **columns) == [1]
    assert rows('a."c d" = 5', **columns) == [0]
    assert rows("a['c d'] = 5", **columns) == [0]
    assert rows('`q``u"o` = 2', **columns) == [1]
    assert rows('"q`u""o" = 2', **columns) == [1]
    assert rows("`select` = 2", **columns) == [1]
    assert rows("ü = 2", **columns) == [1]


def test_words_of_the_language_that_are_not_reserved_name_columns() -> None:
    columns = {"date": ["x", "y"], "timestamp": [1, 2], "value": [3, 4], "year": [5, 6], "length": [1, 2]}
    assert rows("date = 'x'", **columns) == [0]
    assert rows("timestamp = 2 AND value = 4 AND year = 6 AND length = 2", **columns) == [1]


def test_reserved_words_name_columns_where_they_can_mean_nothing_else() -> None:
    columns = {"by": [1, 2], "order": [3, 4], "Limit": [5, 6], "end": [7, 8], "all": [[1], [2]]}
    assert rows("by = 1 AND order IN (3) AND limit < 6", **columns) == [0]
    assert rows("array_has(all, 2)", **columns) == [1]
    assert rows('"end" = 8', **columns) == [1]
    with pytest.raises(InvalidExpression, match="the column of this name is written in double quotes"):
        rows("end = 8", **columns)
    with pytest.raises(InvalidExpression, match="ORDER BY is not supported"):
        rows("x = 1 ORDER BY x", x=[1])


def test_an_unknown_column_is_named_with_its_nearest() -> None:
    schema = pa.schema({"carrier": pa.string(), "delay": pa.int32()})
    with pytest.raises(FieldNotFound, match=r"^No field named carier; nearest: carrier$"):
        parse_predicate("carier = 'AA'", schema)
    with pytest.raises(
        FieldNotFound, match=r"No field named delay\.x: column 'delay' is int32 and has no fields"
    ):
        parse_predicate("delay.x = 1", schema)
    with pytest.raises(FieldNotFound, match=r"No field named HA; there are: .*single quotes: 'HA'"):
        parse_predicate("carrier = HA", schema)
    with pytest.raises(FieldNotFound, match="2 columns 'a'"):
        parse_predicate("a = 1", pa.schema([("a", pa.int8()), ("a", pa.int8())]))


def test_paths_name_each_column_once() -> None:
    batch = batch_of(n=[{"a": 1, "b": {"c": 1}}], x=[1], y=[1])
    expr = parse_predicate("n.b.c = 1 AND (x > 2 OR n.b.c < 5) AND n.a IN (1)", batch.schema)
    assert expr.paths == (("n", "b", "c"), ("x",), ("n", "a"))
    assert parse_expression("x + coalesce(y, 0)", batch.schema).paths == (("x",), ("y",))


def test_a_batch_that_lacks_a_column_is_refused() -> None:
    from tiltyard.expr import mask

    expr = parse_predicate("x = 1", pa.schema({"x": pa.int64()}))
    with pytest.raises(FieldNotFound, match="'x' is not in the batch"):
        mask(expr, batch_of(y=[1]))
