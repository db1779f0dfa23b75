"""A question to an index finds every row of the predicate, and no other where it says so."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr_rows import holds
from tiltyard.expr import mask, parse_predicate
from tiltyard.expr.index_query import (
    NOTHING,
    AllOf,
    AnyOf,
    ColumnQuery,
    IndexQuery,
    Range,
    asked,
    index_query,
)

SCHEMA = pa.schema(
    {"a": pa.int64(), "f": pa.float64(), "s": pa.string(), "p": pa.bool_(), "other": pa.int64()}
)
NAN = float("nan")
ROWS = [
    {"a": a, "f": f, "s": s, "p": p, "other": o}
    for a in (None, -1, 0, 2)
    for f, s in ((None, None), (-0.5, "ab"), (0.0, "abc"), (NAN, "b"), (1.5, "a%"))
    for p, o in ((None, 1), (True, None), (False, 0))
]
BATCH = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
COLUMNS = [("a",), ("f",), ("s",), ("p",)]


def _inside(span: Range, value: Any) -> bool:
    above = span.low is None or holds(">=" if span.has_low else ">", value, span.low)
    below = span.high is None or holds("<=" if span.has_high else "<", value, span.high)
    return bool(above and below)


def _answers(query: IndexQuery | None, row: dict[str, Any]) -> bool:
    if query is None:
        return True
    if isinstance(query, AllOf):
        return all(_answers(item, row) for item in query.items)
    if isinstance(query, AnyOf):
        return any(_answers(item, row) for item in query.items)
    value = row[query.path[0]]
    if value is None:
        return query.nulls
    return any(holds("=", value, member) for member in query.values) or any(
        _inside(span, value) for span in query.ranges
    )


_NUMBERS = st.sampled_from(["-1", "0", "2", "1.5", "NULL", "99999999999999999999", "'NaN'::double", "1e500"])
_OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_LIKES = st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"])
_LEAVES = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["a", "f", "other"]), _OPS, _NUMBERS),
    st.builds(
        lambda name, word, items: f"{name} {word} ({', '.join(items)})",
        st.sampled_from(["a", "f"]),
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(_NUMBERS, min_size=1, max_size=3),
    ),
    st.builds("s {} '{}'".format, _OPS, st.sampled_from(["ab", "abc", ""])),
    st.builds(
        "s {} '{}'".format,
        st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"]),
        st.sampled_from(["ab%", "a\\%", "%b", "a_c", "b"]),
    ),
    st.sampled_from(
        ["p", "a IS NULL", "s IS NOT NULL", "p IS TRUE", "p IS NOT FALSE", "a = other", "TRUE", "NULL"]
    ),
    st.builds("a + 1 {} {}".format, _OPS, st.sampled_from(["0", "1"])),
)


def _joined(word: str, parts: list[str]) -> str:
    return word.join(f"({part})" for part in parts)


_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda w, parts: w.join(f"({part})" for part in parts),
            st.sampled_from([" AND ", " OR "]),
            st.lists(inner, min_size=2, max_size=3),
        ),
        inner.map("NOT ({})".format),
        inner.map("({}) IS FALSE".format),
    ),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(_TREES)
def test_a_row_of_the_predicate_answers_the_question(text: str) -> None:
    """Q1."""
    expr = parse_predicate(text, SCHEMA)
    query = index_query(expr, COLUMNS)
    for row, wanted in zip(ROWS, mask(expr, BATCH).tolist(), strict=True):
        answered = _answers(query, row)
        assert answered or not wanted
        if query is not None and query.is_exact:
            assert answered == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 5", ColumnQuery(("a",), pa.int64(), values=(5,))),
        ("a < 1.5", ColumnQuery(("a",), pa.int64(), ranges=(Range(high=1),))),
        ("NOT a < 2", ColumnQuery(("a",), pa.int64(), ranges=(Range(low=2),))),
        ("a IN (3, 1, 3)", ColumnQuery(("a",), pa.int64(), values=(1, 3))),
        ("a NOT IN (1, NULL)", NOTHING),
        ("a IS NULL", ColumnQuery(("a",), pa.int64(), nulls=True)),
        ("s LIKE 'ab%'", ColumnQuery(("s",), pa.string(), ranges=(Range("ab", "ac", has_high=False),))),
        ("s LIKE 'a\\%'", ColumnQuery(("s",), pa.string(), values=("a%",))),
        ("a = 5 AND other = 1", AllOf((ColumnQuery(("a",), pa.int64(), values=(5,)),), False)),
        ("a = 5 OR other = 1", None),
        ("other = 1", None),
        ("p", ColumnQuery(("p",), pa.bool_(), values=(True,))),
    ],
)
def test_questions(text: str, expected: IndexQuery | None) -> None:
    assert index_query(parse_predicate(text, SCHEMA), COLUMNS) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 10", "x = 10"),
        ("x IN (1, 2, 3)", "x IN (3 values)"),
        ("x >= 3", "x >= 3"),
        ("x IS NULL", "x IS NULL"),
        ("s = 'it''s'", "s = 'it''s'"),
    ],
)
def test_a_question_is_told_as_sql(text: str, told: str) -> None:
    schema = pa.schema({"x": pa.int64(), "s": pa.string()})
    found = index_query(parse_predicate(text, schema), {("x",), ("s",)})
    assert isinstance(found, ColumnQuery)
    assert asked(found) == told
