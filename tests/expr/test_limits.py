"""Long and deep expressions, the cache, and what evaluation does not import."""

from __future__ import annotations

import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from expr_rows import batch_of, rows, values
from tiltyard.errors import InvalidExpression, InvalidInput, UnsupportedFeature
from tiltyard.expr import evaluate, mask, parse_expression, parse_predicate
from tiltyard.expr.bind import cached_expressions
from tiltyard.expr.types import MAX_HEIGHT, In, Or

BATCH = batch_of(x=[0, 4_999, 5_000, None], s=["s0", "s4999", "other", None])


@pytest.mark.parametrize("count", [100, 600, 5_000])
def test_long_or_chains_work(count: int) -> None:
    """F12."""
    equalities = " OR ".join(f"x = {number}" for number in range(count))
    assert rows(equalities, x=[0, count - 1, count, None]) == [0, 1]
    ranges = " OR ".join(f"x < {number}" for number in range(count))
    assert rows(ranges, x=[0, count - 2, count, None]) == [0, 1]
    mixed = " OR ".join(f"(x = {number} AND s = 's{number}')" for number in range(count))
    found = mask(parse_predicate(mixed, BATCH.schema), BATCH).tolist()
    assert found == [True, count == 5_000, False, False]
    nested = "(" * count + "x = 0" + "".join(f" OR x = {number})" for number in range(count))
    assert rows(nested, x=[0, count - 1, count, None]) == [0, 1]


def test_long_and_chains_work() -> None:
    text = " AND ".join(f"x != {number}" for number in range(5_000))
    assert rows(text, x=[0, 4_999, 5_000, None]) == [2]


def test_lists_of_100_000_work_for_all_kinds_of_literals() -> None:
    for name, literal in (("x", "{}"), ("s", "'s{}'"), ("x", "{}.0"), ("x", "-{}")):
        members = ", ".join(literal.format(number) for number in range(100_000))
        found = rows(f"{name} IN ({members})", x=[0, 4_999, 100_000, None], s=["s0", "s4999", "other", None])
        assert found == ([0] if literal == "-{}" else [0, 1])


def test_equalities_on_one_column_become_a_list() -> None:
    text = " OR ".join(["s = 'q'", *(f"x = {number}" for number in range(20))])
    node = parse_predicate(text, BATCH.schema).node
    assert isinstance(node, Or)
    assert sorted(type(item).__name__ for item in node.items) == ["Compare", "In"]
    only = parse_predicate(" OR ".join(f"x = {number}" for number in range(20)), BATCH.schema).node
    assert isinstance(only, In)
    assert only.values == tuple(range(20))


def test_depth_is_bounded_by_the_tree_and_never_by_the_stack() -> None:
    assert rows("(" * 5_000 + "x = 1" + ")" * 5_000, x=[1]) == [0]
    assert rows("NOT " * 5_000 + "x = 1", x=[1]) == [0]
    assert rows("- " * 40 + "x = 1", x=[1]) == [0]
    for text in ("- " * 5_000 + "x = 1", "abs(" * 5_000 + "x" + ")" * 5_000 + " = 1"):
        with pytest.raises(InvalidExpression, match=f"deeper than {MAX_HEIGHT}"):
            parse_predicate(text, BATCH.schema)
    with pytest.raises(InvalidExpression, match="levels of nesting"):
        parse_predicate("(" * 50_000 + "x = 1", BATCH.schema)


def test_an_expression_of_the_greatest_depth_works_on_a_small_stack() -> None:
    text = "- " * (MAX_HEIGHT - 3) + "x = 1"
    found: list[list[int]] = []

    def run(depth: int) -> None:
        if depth:
            run(depth - 1)
        else:
            found.append(rows(text, x=[-1, 1]))

    thread = threading.Thread(target=run, args=(400,))
    thread.start()
    thread.join()
    assert found == [[0]]


def test_bound_expressions_are_cached_by_text_and_schema() -> None:
    schema = pa.schema({"cached": pa.int64()})
    first = parse_predicate("cached = 1", schema)
    hits = cached_expressions()[0]
    assert parse_predicate("cached = 1", pa.schema({"cached": pa.int64()})) is first
    assert cached_expressions()[0] == hits + 1
    assert parse_predicate("cached = 1", pa.schema({"cached": pa.int32()})) is not first
    assert parse_expression("cached = 1", schema) is not first


def test_plain_predicates_import_no_arrow_kernels() -> None:
    code = """
import sys
import pyarrow as pa
from tiltyard.expr import mask, parse_predicate
batch = pa.RecordBatch.from_arrays([pa.nulls(3, pa.int64()), pa.nulls(3, pa.float32())], ["k", "f"])
mask(parse_predicate("k < 5 AND (f > 1.5 OR k IN (1, 2)) OR k IS NULL AND f = k", batch.schema), batch)
heavy = {"pandas", "sqlglot", "pyarrow.compute", "pyarrow.dataset", "pyroaring", "obstore"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("literal", ["{}", "'{}'"])
def test_100_000_equalities_in_one_or_are_one_list(literal: str) -> None:
    name = "s" if "'" in literal else "x"
    text = " or ".join(f"{name} = {literal.format(number)}" for number in range(100_000))
    node = parse_predicate(text, BATCH.schema).node
    assert isinstance(node, In)
    assert len(node.values) == 100_000


@pytest.mark.parametrize(
    "end", [" + 1", " AND x > 3", " IS TRUE", " OR x == 4", " OR x = 1.5", " OR s = 'q'", " OR x != 7", ""]
)
@pytest.mark.parametrize("form", ["x = {}", "x={}", '"x" = {}', "x  =  -{}"])
def test_a_run_of_equalities_means_what_its_terms_mean(form: str, end: str) -> None:
    terms = [form.format(number) for number in range(12)]
    data = {"x": [None, *range(-14, 14)], "s": ["q", *["r"] * 28]}
    apart = [*(f"({term})" for term in terms[:-1]), terms[-1]]
    assert rows(" OR ".join(terms) + end, **data) == rows(" OR ".join(apart) + end, **data)


def test_like_takes_a_bounded_number_of_wildcards() -> None:
    with pytest.raises(InvalidExpression, match="256 separate %"):
        parse_predicate(f"s LIKE '{'%a' * 2_000}'", BATCH.schema)
    assert rows(f"s LIKE '{'%' * 2_000}b'", s=["ab", "ba"]) == [0]


@pytest.mark.parametrize("name", ["i", "small", "u", "f", "s", "nothing", "current_date", "null", "TRUE"])
def test_an_equality_with_another_number_is_what_its_text_says(name: str) -> None:
    """Made of the one before it where that is possible; the text in parentheses is read."""
    schema = pa.schema(
        [("i", pa.int64()), ("small", pa.int8()), ("u", pa.uint64()), ("f", pa.float64()), ("s", pa.string())]
    )
    for number in (5, 300, 0, -5, -300, 2**53 + 1, 10**18 - 1, 10**18):
        told = []
        for text in (f"{name} = {number}", f"({name} = {number})"):
            try:
                told.append(parse_predicate(text, schema))
            except (InvalidInput, UnsupportedFeature) as error:
                told.append(type(error))
        assert told[0] == told[1]


@pytest.mark.parametrize(
    "text",
    [
        "arrow_cast(x, '" + "List(" * 3_000 + "Int8" + ")" * 3_000 + "') IS NULL",
        "[" * 3_000 + "1" + "]" * 3_000 + " = x",
        "x" + "[1]" * 3_000 + " = 1",
        "{'a': " * 3_000 + "x" + "}" * 3_000 + " IS NULL",
        "CASE WHEN " * 3_000 + "true",
        "x = 1" + " IS TRUE" * 3_000,
        "array_append(" * 3_000 + "[x]" + ", 1)" * 3_000 + " IS NULL",
        "x " + "+ (x " * 3_000 + ")" * 3_000 + "= 1",
    ],
    ids=["type", "list", "element", "struct", "case", "truth", "call", "sum"],
)
def test_what_is_nested_too_deep_is_a_typed_error(text: str) -> None:
    with pytest.raises(InvalidExpression):
        parse_predicate(text, BATCH.schema)


@pytest.mark.parametrize(
    "text", ["array_resize([x], n)", "array_repeat(x, n)", "range(n)", "range(-n, n, x)"]
)
def test_lists_that_no_batch_can_hold_are_refused_before_they_are_made(text: str) -> None:
    """Four lengths of 2^62 sum to nothing in 64 bits."""
    batch = batch_of(x=[1] * 4, n=[2**62] * 4)
    with pytest.raises(InvalidExpression, match="2,147,483,647 elements"):
        evaluate(parse_expression(text, batch.schema), batch)


def test_series_reach_the_ends_of_64_bits() -> None:
    low, high = -(2**63), 2**63 - 1
    ends = (low, low + 3, -2, 0, 5, high - 3, high)
    sizes = (1, 2, -1, -3, high, low)
    cases = [(a, b, step) for a in ends for b in ends for step in sizes if abs(b - a) // abs(step) < 100]
    start, end, step = (list(each) for each in zip(*cases, strict=True))
    batch = batch_of(a=start, b=end, s=step)
    found = evaluate(parse_expression("range(a, b, s)", batch.schema), batch).to_pylist()
    assert found == [list(range(*case)) for case in cases]
    whole = evaluate(parse_expression("generate_series(a, b, s)", batch.schema), batch).to_pylist()
    assert whole == [list(range(a, b + (1 if s > 0 else -1), s)) for a, b, s in cases]


def test_texts_are_compared_letter_by_letter_up_to_a_size() -> None:
    long = "".join(chr(97 + number * 7 % 11) for number in range(3_000))
    other = long[:1_000] + "?" + long[1_002:] + "!!"
    assert values(f"levenshtein(s, '{other}')", s=[long, other, "", None]) == [4, 0, 3_001, None]
    with pytest.raises(InvalidExpression, match=r"20,000 and 20,000 characters; their product may be"):
        values("levenshtein(repeat(s, 20000), repeat(s, 20000))", s=["x"])


@pytest.mark.parametrize("text", ["f = 1e{}", "f = -1e{}", "1e{} < f", "f IN (1e{}, 2.0)"])
def test_exponents_without_end_are_refused(text: str) -> None:
    with pytest.raises(InvalidExpression, match="exponent of more than 18 digits"):
        rows(text.format("9" * 1_000), f=[1.0])
    assert rows(text.format("1000000000"), f=[1.0, float("nan")]) == ([1] if text.startswith("1e") else [])


@pytest.mark.parametrize(
    "text",
    ["s = TIMESTAMP '{}'", "CAST(s || '{}' AS int) = 1", "encode(s, '{}') = ''", "s ~ '({}'", "{} = 1"],
)
def test_messages_stay_short_whatever_the_length_of_a_constant(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rows(text.format("x" * 100_000), s=["a"])
    assert len(str(caught.value)) < 2_100
    assert "characters are not shown" in str(caught.value)
