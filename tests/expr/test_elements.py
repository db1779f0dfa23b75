"""Elements of lists and fields of structs below them, typed literals with parameters, and today."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from tiltyard import runtime
from tiltyard.errors import InvalidExpression
from tiltyard.expr import evaluate, mask, parse_expression, parse_predicate

TABLE = pa.table(
    {
        "l": pa.array([[1, 2], [3], [], None, [None, 5, 6]]),
        "of": pa.array([[{"x": 1, "y": "a"}], [None], [], None, [{"x": None, "y": "b"}, {"x": 2, "y": "c"}]]),
        "s": pa.array([{"l": [1]}, None, {"l": None}, {"l": [3, 4]}, {"l": []}]),
        "f": pa.array([[1.0, 2.0]] * 4 + [None], pa.list_(pa.float32(), 2)),
        "t": pa.array([0, 1, 2, 3, None], pa.timestamp("us")),
    }
)
BATCH = TABLE.to_batches()[0]


def _rows(text: str) -> list[int]:
    found = mask(parse_predicate(text, TABLE.schema), BATCH)
    return [int(at) for at in found.nonzero()[0]]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("l[1] = 1", [0]),
        ("l[0] IS NULL", [0, 1, 2, 3, 4]),
        ("l[-1] = 6", [4]),
        ("l[2] IS NULL", [1, 2, 3]),
        ("of[1]['x'] = 1", [0]),
        ("of[2].y = 'c'", [4]),
        ("of[1].x IS NULL", [1, 2, 3, 4]),
        ("s.l[1] = 3", [3]),
        ("s['l'][2] = 4", [3]),
        ("f[2] = 2", [0, 1, 2, 3]),
        ("array_element(l, 2) = 5", [4]),
        ("get_field(of[1], 'y') = 'a'", [0]),
        ("array_has_any(l, ARRAY[5, 3])", [1, 4]),
        ("t = TIMESTAMP(6) '1970-01-01 00:00:00.000002'", [2]),
    ],
)
def test_elements_count_from_one_and_are_null_where_there_is_none(text: str, rows: list[int]) -> None:
    # The rows are those that the official package 14.0.2 gives for this table.
    assert _rows(text) == rows


def test_an_element_can_be_a_computed_column() -> None:
    found = evaluate(parse_expression("of[1]['y']", TABLE.schema), BATCH)
    assert found.to_pylist() == ["a", None, None, None, "b"]


def test_the_text_of_an_element_parses_to_the_same_tree() -> None:
    bound = parse_predicate("of[2].y = 'c'", TABLE.schema)
    assert parse_predicate(bound.sql, TABLE.schema) == bound


@pytest.mark.parametrize("text", ["[1, 2.5]", "ARRAY[1, 2.5]", "make_array(1, 2.5)"])
def test_a_list_of_constants_is_the_same_in_every_row(text: str) -> None:
    bound = parse_expression(text, TABLE.schema)
    found = evaluate(bound, BATCH)
    assert (found.type, found.to_pylist()) == (pa.list_(pa.float64()), [[1.0, 2.5]] * 5)
    assert parse_expression(bound.sql, TABLE.schema) == bound


def test_a_time_in_double_quotes_is_a_literal_unless_a_column_has_the_name_of_the_type() -> None:
    assert _rows('t < TIMESTAMP "1970-01-01 00:00:00.000002"') == [0, 1]


@pytest.mark.parametrize(
    "text",
    ["of[1]['z'] = 1", "l[1][1] = 1", "t[1] = 1", "l['x'] = 1", "get_field(l[1], 'x') = 1", "of[1][x] = 1"],
)
def test_what_has_no_such_part_is_refused(text: str) -> None:
    with pytest.raises((InvalidExpression, ValueError)):
        parse_predicate(text, TABLE.schema)


def test_today_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter([1, 2])
    monkeypatch.setattr(runtime, "now_ns", lambda: next(days) * 86_400_000_000_000)
    schema = pa.schema({"d": pa.date32()})
    batch = pa.record_batch({"d": pa.array([date(1970, 1, 2)])})
    answers = [mask(parse_predicate("d = current_date()", schema), batch).tolist() for _ in range(2)]
    assert answers == [[True], [False]]
