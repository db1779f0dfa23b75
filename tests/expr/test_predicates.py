"""The meaning of predicates, rule by rule; the F-numbers are public bug reports that the rules answer."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from expr_rows import batch_of, rows, values
from tiltyard.expr import mask, parse_predicate

NAN = float("nan")
MINUS_NAN = float(np.frombuffer(np.uint64(0xFFF8000000000000).tobytes(), np.float64)[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOT (x < 2)", [1]),  # F01
        ("x != 7", [0, 1]),
        ("(x != 0) OR (x < 5)", [0, 1]),
        ("x IN (1, NULL)", [0]),  # F02
        ("x NOT IN (1, NULL)", []),
        ("x IN (5, 1)", [0, 1]),
        ("x NOT IN (5)", [0]),
        ("x IN (NULL)", []),
        ("x IN (1, NULL) IS NULL", [1, 2]),
        ("x BETWEEN 1 AND 4", [0]),
        ("x NOT BETWEEN 1 AND 4", [1]),
        ("x IS NULL", [2]),
        ("x IS NOT NULL", [0, 1]),
        ("(x = 1) IS TRUE", [0]),
        ("(x = 1) IS NOT TRUE", [1, 2]),
        ("(x = 1) IS FALSE", [1]),
        ("(x = 1) IS NOT FALSE", [0, 2]),
        ("(x = 1) IS UNKNOWN", [2]),
        ("x IS DISTINCT FROM 1", [1, 2]),
        ("x IS NOT DISTINCT FROM NULL", [2]),
        ("x IS NOT DISTINCT FROM x", [0, 1, 2]),
        ("x = NULL", []),
        ("NOT (x = NULL)", []),
        ("x = NULL OR x = 1", [0]),
        ("NULL", []),
        ("TRUE", [0, 1, 2]),
        ("NOT TRUE OR x = 1", [0]),
        ("5 = x", [1]),
        ("2 < x", [1]),
        ("-x = -5", [1]),
        ("x = 1 AND x = 5 OR x = 5", [1]),
        ("NOT x = 1 AND x = 5", [1]),
        ("1 = 1", [0, 1, 2]),
        ("'a' = 'b'", []),
        ("1 < 1.5 AND x = 1", [0]),
        ("x IN (x, 7)", [0, 1]),
    ],
)
def test_null_is_neither_true_nor_false(text: str, expected: list[int]) -> None:
    assert rows(text, x=[1, 5, None]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 0", [0]),
        ("x = 0", [1, 2]),
        ("x <= 0", [0, 1, 2]),
        ("x = -0.0", [1, 2]),
        ("x IN (0.0)", [1, 2]),
        ("x IN (-0.0)", [1, 2]),
        ("x >= 0.0", [1, 2, 3]),
        ("x != 0", [0, 3]),
        ("x NOT IN (0, 5)", [0, 3]),
    ],
)
def test_minus_zero_is_zero(text: str, expected: list[int]) -> None:
    """F04."""
    assert rows(text, x=[-1.0, -0.0, 0.0, 1.0]) == expected


def test_minus_zero_is_zero_between_columns_and_in_lists() -> None:
    """F06."""
    columns = {"x": [-0.0, 0.0], "y": [0.0, -0.0], "l": [[-0.0], [0.0]]}
    assert rows("x = y", **columns) == [0, 1]
    assert rows("x < y", **columns) == []
    assert rows("x <= y", **columns) == [0, 1]
    assert rows("array_has(l, 0.0)", **columns) == [0, 1]
    assert rows("array_has(l, y)", **columns) == [0, 1]
    assert rows("array_has_any(l, [0.0, 3.0])", **columns) == [0, 1]
    assert rows("array_has_all(l, [-0.0])", **columns) == [0, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 0", []),
        ("x > 1", [0, 1]),
        ("x = 'NaN'::double", [0, 1]),
        ("x >= 'NaN'::double", [0, 1]),
        ("x != CAST('NaN' AS double)", [2]),
        ("x < 'NaN'::double", [2]),
        ("x <= 'NaN'::double", [0, 1, 2]),
        ("x > 'NaN'::double", []),
        ("x = y", [0, 1, 2]),
        ("x > y", []),
        ("x >= y", [0, 1, 2]),
        ("x < y", []),
        ("isnan(x)", [0, 1]),
        ("x IN ('NaN'::double, 4)", [0, 1]),
        ("x NOT IN ('NaN'::double)", [2]),
        ("x > 1e308", [0, 1]),
        ("x > CAST('inf' AS double)", [0, 1]),
    ],
)
@pytest.mark.parametrize("arrow", [pa.float64(), pa.float32(), pa.float16()])
def test_nan_is_one_value_greater_than_all(text: str, expected: list[int], arrow: pa.DataType) -> None:
    """F07: whatever the sign bit of the NaN."""
    dtype = arrow.to_pandas_dtype()
    x = pa.array(np.array([MINUS_NAN, NAN, 1.0]).astype(dtype))
    y = pa.array(np.array([NAN, MINUS_NAN, 1.0]).astype(dtype))
    assert rows(text, x=x, y=y) == expected


def test_decimals_compare_to_the_last_digit() -> None:
    """F09: values that are one float."""
    low, high = Decimal("1.000000000000000001"), Decimal("1.000000000000000002")
    for arrow in (pa.decimal128(19, 18), pa.decimal256(50, 18)):
        x = pa.array([low, high, None, -low], arrow)
        assert rows("x < 1.000000000000000002", x=x) == [0, 3]
        assert rows("x = 1.000000000000000002", x=x) == [1]
        assert rows("x <= 1.0000000000000000015", x=x) == [0, 3]
        assert rows("x = 1.0000000000000000015", x=x) == []
        assert rows("x IN (1.000000000000000001, 7)", x=x) == [0]
        assert rows("x > 1", x=x) == [0, 1]
        assert rows("x > '1.000000000000000001'", x=x) == [1]
        assert rows("x < 1e300 AND x > -1e300", x=x) == [0, 1, 3]
        assert rows("x = y", x=x, y=pa.array([low, low, low, None], pa.decimal128(38, 30))) == [0]
        assert rows("x < y", x=x, y=[2, 2, 2, -2]) == [0, 1]
        assert rows("x > y", x=x, y=[1.0, NAN, 1.0, float("-inf")]) == [0, 3]


def test_a_decimal_column_takes_a_plain_fraction() -> None:
    x = pa.array([Decimal("1.50"), Decimal("1.49"), None], pa.decimal128(10, 2))
    assert rows("x = 1.5", x=x) == [0]
    assert rows("x < 1.5", x=x) == [1]
    assert rows("x < 1.495", x=x) == [1]
    assert rows("x + 0.25 = 1.75", x=x) == [0]


def test_integers_compare_exactly_whatever_their_width_and_sign() -> None:
    big = 2**53 + 1
    columns = {
        "u": pa.array([2**64 - 1, 0, big], pa.uint64()),
        "i": pa.array([-1, 0, big], pa.int64()),
        "f": pa.array([float(2**64), -0.0, float(2**53)], pa.float64()),
        "b": pa.array([-1, 0, 1], pa.int8()),
    }
    assert rows("u = i", **columns) == [1, 2]
    assert rows("u > i", **columns) == [0]
    assert rows("i = f", **columns) == [1]
    assert rows("i > f", **columns) == [2]
    assert rows("u < f", **columns) == [0]
    assert rows("f < u", **columns) == [2]
    assert rows("u >= 18446744073709551615", **columns) == [0]
    assert rows("u > 18446744073709551616", **columns) == []
    assert rows("b < 1000", **columns) == [0, 1, 2]
    assert rows("b = 255", **columns) == []
    assert rows("b != 255", **columns) == [0, 1, 2]
    assert rows("b < 0.5", **columns) == [0, 1]
    assert rows("f > 9007199254740991", **columns) == [0, 2]
    assert rows(f"f = {big}", **columns) == []
    assert rows(f"f < {big}", **columns) == [1, 2]
    assert rows("i IN (9007199254740993, 99999999999999999999)", **columns) == [2]
    assert rows("b IN (255, 1)", **columns) == [2]


def test_a_fraction_beside_a_narrow_float_is_of_its_width() -> None:
    f = pa.array([0.1, 0.2, None], pa.float32())
    assert rows("f = 0.1", f=f) == [0]
    assert rows("f < 0.1", f=f) == []
    assert rows("f IN (0.1, 0.3)", f=f) == [0]
    assert rows("f < 16777217", f=pa.array([16777216.0, 16777218.0], pa.float32())) == [0]
    assert rows("f = 0.1::double", f=f) == []


STAMPS = [datetime.datetime(2020, 6, 1, 12) + datetime.timedelta(hours=hour) for hour in range(100)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "+02:00", "America/New_York"])
def test_timestamps_compare_as_instants_in_every_unit(unit: str, zone: str | None) -> None:
    """F08: 49 rows after the fiftieth of 100 hours."""
    x = pa.array(STAMPS, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    shown = STAMPS[50].isoformat(sep=" ")
    assert len(rows(f"x > '{shown}Z'", x=x)) == 49
    assert len(rows(f"x > timestamp '{shown}+00:00'", x=x)) == 49
    assert len(rows(f"x > '{STAMPS[50].isoformat()}.0000001Z'", x=x)) == 49
    assert len(rows(f"x >= '{shown}Z'", x=x)) == 50
    assert rows(f"x IN ('{shown}Z', '{shown}.5Z')", x=x) == [50]
    assert rows(f"x BETWEEN '{shown}Z' AND '{shown}Z'", x=x) == [50]
    local = {
        None: shown,
        "UTC": shown,
        "+02:00": "2020-06-03 16:00:00",
        "America/New_York": "2020-06-03 10:00:00",
    }
    assert rows(f"x = '{local[zone]}'", x=x) == [50]


def test_temporal_columns_of_different_units_compare_exactly() -> None:
    x = pa.array([0, 1, 2, None, -1], pa.timestamp("s"))
    y = pa.array([0, 1_000_000_001, 1_999_999_999, 0, -1], pa.timestamp("ns"))
    assert rows("x = y", x=x, y=y) == [0]
    assert rows("x < y", x=x, y=y) == [1, 4]
    assert rows("x > y", x=x, y=y) == [2]
    assert rows("y >= x", x=x, y=y) == [0, 1, 4]
    assert rows("d = x", d=pa.array([0, 0, 0, 0, 0], pa.date32()), x=x) == [0]
    assert rows("d > x", d=pa.array([0, 0, 0, 0, 0], pa.date32()), x=x) == [4]
    far = pa.array([2**62], pa.timestamp("s"))
    assert rows("x > y", x=far, y=pa.array([2**62], pa.timestamp("ns"))) == [0]


def test_a_date_column_takes_text() -> None:
    """F09."""
    for arrow in (pa.date32(), pa.date64()):
        d = pa.array([datetime.date(2020, 5, 31), datetime.date(2020, 6, 1), None], arrow)
        assert rows("d < '2020-06-01'", d=d) == [0]
        assert rows("d = date '2020-06-01'", d=d) == [1]
        assert rows("d < '2020-06-01 12:00'", d=d) == [0, 1]
        assert rows("d = '2020-06-01 12:00'", d=d) == []
        assert rows("d IN ('2020-06-01', '1999-01-01')", d=d) == [1]


def test_a_time_column_takes_text() -> None:
    for arrow in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        t = pa.array([datetime.time(12, 30), datetime.time(23, 59, 59), None], arrow)
        assert rows("t < '12:30:01'", t=t) == [0]
        assert rows("t = time '23:59:59'", t=t) == [1]
        assert rows("t > '23:59:58.999999999'", t=t) == [1]


def test_durations_compare_across_units() -> None:
    x = pa.array([1, 2, None], pa.duration("s"))
    y = pa.array([1000, 1999, 0], pa.duration("ms"))
    assert rows("x = y", x=x, y=y) == [0]
    assert rows("x > y", x=x, y=y) == [1]
    assert rows("x > CAST(1 AS duration[s])", x=x) == [1]


def test_text_coerces_to_what_stands_beside_it() -> None:
    assert rows("x = '5'", x=[1, 5]) == [1]
    assert rows("'1.5' < x", x=[1, 5]) == [1]
    assert rows("x = 'true'", x=[True, False, None]) == [0]
    assert rows("x IN ('1', '5')", x=[1, 5]) == [0, 1]


def test_boolean_columns_are_predicates() -> None:
    columns = {"b": [True, False, None], "c": [True, True, True]}
    assert rows("b", **columns) == [0]
    assert rows("NOT b", **columns) == [1]
    assert rows("b AND c", **columns) == [0]
    assert rows("b = c", **columns) == [0]
    assert rows("b != c", **columns) == [1]
    assert rows("b = true", **columns) == [0]
    assert rows("b < true", **columns) == [1]
    assert rows("b IS NULL", **columns) == [2]
    assert rows("b IN (true, false)", **columns) == [0, 1]


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_compares_by_bytes(arrow: pa.DataType) -> None:
    x = pa.array(["a", "B", "ä", "", None, "it's"], arrow)
    assert rows("x > 'a'", x=x) == [2, 5]
    assert rows("x = 'it''s'", x=x) == [5]
    assert rows("x = ''", x=x) == [3]
    assert rows("x IN ('B', '', 'nope')", x=x) == [1, 3]
    assert rows("x NOT IN ('B', 'a')", x=x) == [2, 3, 5]
    assert rows("x = y", x=x, y=["a", "b", "ä", "", "", None]) == [0, 2, 3]


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary(), pa.binary(2)])
def test_binary_takes_hexadecimal_literals(arrow: pa.DataType) -> None:
    x = pa.array([b"\x00\xff", b"ab", None], arrow)
    assert rows("x = X'00ff'", x=x) == [0]
    assert rows("x > x'00FF'", x=x) == [1]
    assert rows("x IN (X'6162')", x=x) == [1]


def test_dictionary_columns_compare_by_their_values() -> None:
    """E10: also where dictionaries hold nulls or differ."""
    x = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0], pa.int8()), pa.array(["a", "b", None]))
    assert rows("x = 'a'", x=x) == [0, 4]
    assert rows("x != 'a'", x=x) == [1]
    assert rows("x IS NULL", x=x) == [2, 3]
    assert rows("x IN ('b', 'c')", x=x) == [1]
    assert rows("x LIKE 'b%'", x=x) == [1]
    assert rows("x = y", x=x, y=["a", "a", "a", "a", None]) == [0]
    assert rows("upper(x) = 'A'", x=x) == [0, 4]
    numbers = pa.array([1.5, -0.0, None]).dictionary_encode()
    assert rows("x = 0", x=numbers) == [1]
    assert rows("x = 'q'", x=pa.array([], pa.dictionary(pa.int8(), pa.string()))) == []


def test_slices_and_pruned_structs_evaluate_as_their_rows() -> None:
    n = pa.array([{"a": 1, "b": {"c": 1}}, None, {"a": None, "b": None}, {"a": 4, "b": {"c": 9}}])
    batch = batch_of(n=n, b=[True, None, False, True], x=[None, 2, 3, 4])
    for text in ("n.a >= 1", "n.b.c IS NULL", "b", "x > 2", "x IN (2, 4)", "NOT b", "n.b.c = 9 OR x = 3"):
        expr = parse_predicate(text, batch.schema)
        whole = mask(expr, batch).tolist()
        for start in range(5):
            assert mask(expr, batch[start:]).tolist() == whole[start:], text
    pruned = batch_of(n=pa.array([{"b": {"c": 9}}]))
    assert mask(parse_predicate("n.b.c = 9", batch.schema), pruned).tolist() == [True]


def test_a_struct_that_is_null_has_null_fields() -> None:
    children = [pa.array([1, 2, 3])]
    n = pa.StructArray.from_arrays(children, ["a"], mask=pa.array([False, True, False]))
    assert rows("n.a = 2", n=n) == []
    assert rows("n.a IS NULL", n=n) == [1]
    assert rows("n IS NULL", n=n) == [1]
    assert values("n.a + 1", n=n) == [2, None, 4]


def test_null_typed_columns_are_unknown() -> None:
    x = pa.nulls(2)
    assert rows("x = 1", x=x) == []
    assert rows("x IS NULL", x=x) == [0, 1]
    assert rows("x IN (1)", x=x) == []
    assert rows("x", x=x) == []
    assert rows("NOT x", x=x) == []


def test_batches_without_rows_give_masks_without_rows() -> None:
    empty = batch_of(
        x=pa.array([], pa.int64()), s=pa.array([], pa.string()), l=pa.array([], pa.list_(pa.int8()))
    )
    for text in ("x < 5", "x IN (1, 2)", "s LIKE 'a%'", "array_has(l, 1)", "x + 1 = 2", "s = 'a' OR x = 1"):
        assert mask(parse_predicate(text, empty.schema), empty).tolist() == []


@pytest.mark.parametrize("arrow", [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()])
def test_long_lists_find_the_edges_of_every_integer_type(arrow: pa.DataType) -> None:
    info = np.iinfo(arrow.to_pandas_dtype())
    edges = [info.min, info.min + 1, info.max - 1, info.max, 0, 50]
    x = pa.array([*edges, None, 51], arrow)
    near_zero = ", ".join(str(number) for number in range(0, 51, 2))
    assert rows(f"x IN ({near_zero})", x=x) == [
        at for at, edge in enumerate(edges) if edge in range(0, 51, 2)
    ]
    everything = ", ".join(map(str, [*edges, *range(10, 30)]))
    assert rows(f"x IN ({everything})", x=x) == [0, 1, 2, 3, 4, 5]
    top = range(info.max - 38, info.max + 1, 2)
    found = rows(f"x IN ({', '.join(map(str, top))})", x=x)
    assert found == [at for at, edge in enumerate([*edges, None, 51]) if edge in top]
