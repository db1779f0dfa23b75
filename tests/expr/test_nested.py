"""Lists and structs as whole values: equality and order against plain Python, for random values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr_rows import batch_of, rows, values
from tiltyard.errors import InvalidExpression
from tiltyard.expr import evaluate, parse_expression

_NUMBERS = st.none() | st.integers(-2, 2)
_LISTS = st.none() | st.lists(_NUMBERS, max_size=3)
_STRUCTS = st.none() | st.fixed_dictionaries({"a": _NUMBERS, "b": _LISTS})
_LIST = pa.list_(pa.int64())
_NARROW = pa.large_list(pa.int16())
_STRUCT = pa.struct({"a": pa.int64(), "b": _LIST})


def _key(value: Any) -> Any:
    """A key by which Python orders nested values as expressions do: null first, then element by element."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, _key(value["a"]), _key(value["b"]))
    if isinstance(value, list):
        return (1, [_key(item) for item in value])
    return (1, value)


@settings(max_examples=50, deadline=None)
@given(
    st.one_of(
        st.lists(st.tuples(_LISTS, _LISTS), min_size=1, max_size=8).map(
            lambda pairs: (_LIST, _NARROW, pairs)
        ),
        st.lists(st.tuples(_STRUCTS, _STRUCTS), min_size=1, max_size=8).map(
            lambda pairs: (_STRUCT, _STRUCT, pairs)
        ),
    )
)
def test_nested_values_compare_as_their_parts(case: tuple[pa.DataType, pa.DataType, list[Any]]) -> None:
    left, right, pairs = case
    batch = batch_of(x=pa.array([a for a, _ in pairs], left), y=pa.array([b for _, b in pairs], right))
    for op in ("=", "!=", "<", "<=", ">", ">="):
        expected = []
        for a, b in pairs:
            one, other = _key(a), _key(b)
            answer = {
                "=": one == other,
                "!=": one != other,
                "<": one < other,
                "<=": one <= other,
                ">": one > other,
                ">=": one >= other,
            }[op]
            expected.append(None if a is None or b is None else answer)
        found = evaluate(parse_expression(f"x {op} y", batch.schema), batch)
        assert found.to_pylist() == expected, op
        assert evaluate(parse_expression(f"x {op} y", batch.schema), batch[1:]).to_pylist() == expected[1:]


def test_structs_compare_with_structs_in_braces() -> None:
    x = pa.array(
        [{"a": 1, "b": "x"}, {"a": 1, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.string()})
    )
    assert rows("x = {'a': 1, 'b': 'x'}", x=x) == [0]
    assert rows("x = {b: 'x', a: 1}", x=x) == [0]
    assert rows("x IN (struct(1, NULL), struct(2, 'x'))", x=x) == [1]
    assert rows("x IS DISTINCT FROM struct(1, 'x')", x=x) == [1, 2]
    assert values("{'n': x.a + 1, 'l': [x.b]}.l[1]", x=x) == ["x", None, None]


def test_what_does_not_compare_is_refused() -> None:
    for text in ("x = [1]", "x = {'a': 1, 'c': 2, 'd': 3}", "l = ['a']", "l = 1"):
        with pytest.raises(InvalidExpression, match="does not compare"):
            rows(text, x=pa.array([{"a": 1, "b": 2}]), l=pa.array([[1]]))


def test_slices_and_subscripts_follow_any_value() -> None:
    lists = pa.array([[1, 2, 3], [], None], _LIST)
    assert values("l[2:3]", l=lists) == [[2, 3], [], None]
    assert values("array_reverse(l)[1]", l=lists) == [3, None, None]
    assert values("(l)[-1]", l=lists) == [3, None, None]
    assert values("[4, 5][l[1] + 1]", l=lists) == [5, None, None]
