"""The algebra of merge functions against a dictionary into which rows are put one after the other."""

from __future__ import annotations

import datetime
import math
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.memwal.folding import combined, runs, shortened
from tiltyard.memwal.merge_functions import FIRST, KEEP, LAST, MAX, MIN, NAMES, SUM

Row = tuple[int, bool, Any]
"""Key, whether it deletes, value."""


def wrapped(value: Any, kind: Any) -> Any:
    """A sum in the range of its type."""
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return (value + half) % (2 * half) - half
    if pa.types.is_unsigned_integer(kind):
        return value % (1 << kind.bit_width)
    if pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        unscaled = int(value.scaleb(kind.scale))
        return Decimal((unscaled + largest) % (2 * largest + 1) - largest).scaleb(-kind.scale)
    return value


def added(old: Any, new: Any, kind: Any) -> Any:
    with localcontext(Context(prec=200)):
        return wrapped(old + new, kind)


def order(value: Any) -> Any:
    """NaN above all numbers."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def merged(function: str, old: Any, new: Any, kind: Any) -> Any:
    """What becomes of a value when another comes."""
    if function == LAST:
        return new
    if function == FIRST:
        return old
    if old is None or new is None:
        return new if old is None else old
    if function == KEEP:
        return new
    if function == SUM:
        return added(old, new, kind)
    return min(old, new, key=order) if function == MIN else max(old, new, key=order)


def model(rows: list[Row], function: str, kind: Any) -> dict[int, Any]:
    state: dict[int, Any] = {}
    for key, deletes, value in rows:
        if deletes:
            state.pop(key, None)
        elif key in state:
            state[key] = merged(function, state[key], value, kind)
        else:
            state[key] = value
    return state


def table(rows: list[Row], kind: Any) -> tuple[pa.Table, Any, Any]:
    keys = np.array([key for key, _, _ in rows], np.int64)
    deletes = np.array([gone for _, gone, _ in rows], np.bool_)
    values = pa.array([None if gone else value for _, gone, value in rows], kind)
    columns = {"key": pa.array(keys), "gone": pa.array(deletes), "value": values}
    return pa.table(columns), keys, deletes


def outcome(rows: pa.Table, function: str) -> dict[int, Any]:
    keys = rows.column("key").to_numpy()
    which = runs(keys, np.asarray(rows.column("gone")))
    found = combined(rows, which, [LAST, LAST, function])
    return dict(zip(found.column(0).to_pylist(), found.column(2).to_pylist(), strict=True))


def same(left: dict[int, Any], right: dict[int, Any]) -> bool:
    def plain(value: Any) -> Any:
        return "nan" if isinstance(value, float) and math.isnan(value) else value

    return {k: plain(v) for k, v in left.items()} == {k: plain(v) for k, v in right.items()}


NUMBERS = {
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65535),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.sampled_from([-8.0, -0.5, 0.0, 3.0, math.nan]),
    pa.float16(): st.sampled_from([-8.0, 0.0, 3.0]),
    pa.float64(): st.sampled_from([-8.0, 0.0, 3.0, math.inf]),
    pa.decimal128(4, 2): st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal256(60, 0): st.integers(-(10**60) + 1, 10**60 - 1).map(Decimal),
}
OTHERS = {
    pa.string(): st.sampled_from(["", "a", "b", "é"]),
    pa.large_binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.timestamp("us"): st.integers(0, 9).map(lambda n: datetime.datetime(2026, 1, 1 + n)),
    pa.date32(): st.integers(1, 9).map(lambda n: datetime.date(2026, 1, n)),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["x", "y"]),
}
NESTED = {
    pa.list_(pa.float32(), 2): st.sampled_from([[1.0, 2.0], [3.0, 4.0]]),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.sampled_from(
        [{"a": 1, "b": "x"}, {"a": None, "b": ""}]
    ),
    pa.list_(pa.string()): st.sampled_from([[], ["a"], ["b", None]]),
}
SERVED = (
    [(kind, name) for kind in NUMBERS for name in NAMES]
    + [(kind, name) for kind in OTHERS for name in NAMES if name != SUM]
    + [(kind, name) for kind in NESTED for name in (LAST, FIRST, KEEP)]
)
VALUES = {**NUMBERS, **OTHERS, **NESTED}


def rows_of(kind: Any) -> st.SearchStrategy[list[Row]]:
    value = st.none() | VALUES[kind]
    return st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([False, False, False, True]), value), max_size=24
    )


@pytest.mark.parametrize(("kind", "function"), SERVED, ids=lambda each: str(each).replace(" ", ""))
def test_rows_are_what_putting_them_one_after_the_other_gives(kind: Any, function: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(rows_of(kind))
    def check(rows: list[Row]) -> None:
        assert same(outcome(table(rows, kind)[0], function), model(rows, function, kind))

    check()


@pytest.mark.parametrize(("kind", "function"), SERVED, ids=lambda each: str(each).replace(" ", ""))
def test_any_part_may_be_shortened_first(kind: Any, function: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(rows_of(kind), st.integers(0, 24), st.integers(0, 24))
    def check(rows: list[Row], start: int, end: int) -> None:
        whole, keys, deletes = table(rows, kind)
        start, end = sorted((min(start, len(rows)), min(end, len(rows))))
        part = slice(start, end)
        short = shortened(whole.slice(start, end - start), keys[part], deletes[part], [LAST, LAST, function])
        assert short.num_rows <= end - start
        again = pa.concat_tables([whole.slice(0, start), short, whole.slice(end)])
        assert same(outcome(again, function), model(rows, function, kind))

    check()


def test_what_was_deleted_and_came_again_says_so_when_it_is_shortened() -> None:
    rows: list[Row] = [(1, False, 5), (1, True, None), (1, False, 7), (2, False, 1), (2, True, None)]
    whole, keys, deletes = table(rows, pa.int64())
    short = shortened(whole, keys, deletes, [LAST, LAST, SUM]).to_pydict()
    assert list(zip(short["key"], short["gone"], short["value"], strict=True)) == [
        (1, True, None),
        (2, True, None),
        (1, False, 7),
    ]


def test_runs_tell_which_keys_older_rows_do_not_reach() -> None:
    which = runs(np.array([3, 1, 3, 0, 1]), np.array([False, True, False, True, False]))
    assert which.codes.tolist() == [1, 3]
    assert which.after_delete.tolist() == [True, False]
    assert which.order.tolist() == [4, 0, 2]
    assert which.deleted.tolist() == [0]
    assert which.resets.tolist() == [1]
    assert which.deletions.tolist() == [3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40), st.integers(1, 12))
def test_pieces_are_the_runs_each_once_in_order(rows: list[tuple[int, bool]], count: int) -> None:
    which = runs(np.array([key for key, _ in rows], np.int64), np.array([gone for _, gone in rows], np.bool_))
    found = list(which.pieces(count))
    assert len(found) <= count
    assert [row for each in found for row in each.order.tolist()] == which.order.tolist()
    assert [code for each in found for code in each.codes.tolist()] == which.codes.tolist()
    for each in found:
        assert each.starts[0] == 0
        assert len(each) == len(each.codes) == len(each.after_delete)


def test_an_empty_sequence_has_no_runs() -> None:
    whole, keys, deletes = table([], pa.int64())
    assert len(runs(keys, deletes)) == 0
    assert shortened(whole, keys, deletes, [LAST, LAST, MAX]).num_rows == 0


def test_a_sum_that_leaves_its_range_and_comes_back_is_right() -> None:
    rows: list[Row] = [(1, False, 100), (1, False, 100), (1, False, -100)]
    whole, keys, deletes = table(rows, pa.int8())
    assert outcome(whole, SUM) == {1: 100}
    short = shortened(whole.slice(0, 2), keys[:2], deletes[:2], [LAST, LAST, SUM])
    assert short.column("value").to_pylist() == [-56]
    assert outcome(pa.concat_tables([short, whole.slice(2)]), SUM) == {1: 100}
