"""Values of functions, casts and arithmetic."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from expr_rows import batch_of, rows, values
from tiltyard.errors import InvalidExpression
from tiltyard.expr import evaluate, parse_expression

COLUMNS: dict[str, Any] = {
    "i": pa.array([7, -7, None], pa.int32()),
    "u": pa.array([1, 2, None], pa.uint8()),
    "f": pa.array([2.5, -2.5, None], pa.float32()),
    "m": pa.array([Decimal("1.25"), Decimal("-1.25"), None], pa.decimal128(6, 2)),
    "s": ["Äb c", "", None],
    "q": ["x", None, "z"],
    "b": [True, False, None],
    "d": [datetime.date(2020, 2, 29), datetime.date(1969, 12, 31), None],
    "t": pa.array([datetime.datetime(2020, 2, 29, 23, 59, 58, 5), None, datetime.datetime(1970, 1, 1)]),
    "l": [[1, None, 2], [], None],
}


@pytest.mark.parametrize(
    ("text", "arrow", "expected"),
    [
        ("i + 1", pa.int32(), [8, -6, None]),
        ("i + u", pa.int32(), [8, -5, None]),
        ("i / 2", pa.int32(), [3, -3, None]),
        ("i % 4", pa.int32(), [3, -3, None]),
        ("i / 2.0", pa.float64(), [3.5, -3.5, None]),
        ("f * 2", pa.float32(), [5.0, -5.0, None]),
        ("f % 2", pa.float32(), [0.5, -0.5, None]),
        ("f / 0", pa.float32(), [float("inf"), float("-inf"), None]),
        ("m + 0.125", pa.decimal128(8, 3), [Decimal("1.375"), Decimal("-1.125"), None]),
        ("m * m", pa.decimal128(13, 4), [Decimal("1.5625"), Decimal("1.5625"), None]),
        ("-i", pa.int32(), [-7, 7, None]),
        ("-u", pa.int64(), [-1, -2, None]),
        ("+i", pa.int32(), [7, -7, None]),
        ("i + 2 * 3 - 1", pa.int32(), [12, -2, None]),
        ("d - date '2020-02-28'", pa.int64(), None),
        ("abs(i)", pa.int32(), [7, 7, None]),
        ("round(f)", pa.float32(), [3.0, -3.0, None]),
        ("round(m, 1)", pa.decimal128(6, 2), [Decimal("1.30"), Decimal("-1.30"), None]),
        ("floor(f)", pa.float32(), [2.0, -3.0, None]),
        ("ceil(f)", pa.float32(), [3.0, -2.0, None]),
        ("lower(s)", pa.string(), ["äb c", "", None]),
        ("upper(s)", pa.string(), ["ÄB C", "", None]),
        ("length(s)", pa.int32(), [4, 0, None]),
        ("char_length(s)", pa.int32(), [4, 0, None]),
        ("octet_length(s)", pa.int32(), [5, 0, None]),
        ("reverse(s)", pa.string(), ["c bÄ", "", None]),
        ("substr(s, 2)", pa.string(), ["b c", "", None]),
        ("substr(s, 2, 2)", pa.string(), ["b ", "", None]),
        ("substr(s, 0, 2)", pa.string(), ["Ä", "", None]),
        ("substr(s, -1, 1)", pa.string(), ["", "", None]),
        ("trim('  a ') || s", pa.string(), ["aÄb c", "a", None]),
        ("ltrim(q, 'x')", pa.string(), ["", None, "z"]),
        ("rtrim(' a ')", pa.string(), [" a"] * 3),
        ("s || q || '!'", pa.string(), ["Äb cx!", None, None]),
        ("concat(s, q, '!')", pa.string(), ["Äb cx!", "!", "z!"]),
        ("starts_with(s, 'Ä')", pa.bool_(), [True, False, None]),
        ("ends_with(s, 'c')", pa.bool_(), [True, False, None]),
        ("contains(s, 'b ')", pa.bool_(), [True, False, None]),
        ("regexp_like(s, '^.b')", pa.bool_(), [True, False, None]),
        ("coalesce(i, 0)", pa.int32(), [7, -7, 0]),
        ("coalesce(i, 0.5)", pa.float64(), [7.0, -7.0, 0.5]),
        ("coalesce(q, s)", pa.string(), ["x", "", "z"]),
        ("ifnull(q, 'none')", pa.string(), ["x", "none", "z"]),
        ("nullif(i, 7)", pa.int32(), [None, -7, None]),
        ("nullif(q, s)", pa.string(), ["x", None, "z"]),
        ("greatest(i, u)", pa.int32(), [7, 2, None]),
        ("greatest(i, 0)", pa.int32(), [7, 0, 0]),
        ("least(i, 0, -8)", pa.int32(), [-8, -8, -8]),
        ("isnan(f)", pa.bool_(), [False, False, None]),
        ("CASE WHEN i > 0 THEN 'pos' WHEN i < 0 THEN 'neg' END", pa.string(), ["pos", "neg", None]),
        ("CASE u WHEN 1 THEN 10 WHEN 2 THEN 20 ELSE 0 END", pa.int64(), [10, 20, 0]),
        ("CASE WHEN b THEN i ELSE u END", pa.int32(), [7, 2, None]),
        ("date_part('year', d)", pa.int32(), [2020, 1969, None]),
        ("date_part('dow', d)", pa.int32(), [6, 3, None]),
        ("extract(month FROM t)", pa.int32(), [2, None, 1]),
        ("extract('second' FROM t)", pa.int32(), [58, None, 0]),
        (
            "date_trunc('month', d)",
            pa.date32(),
            [datetime.date(2020, 2, 1), datetime.date(1969, 12, 1), None],
        ),
        ("array_length(l)", pa.uint64(), [3, 0, None]),
        ("array_has(l, 2)", pa.bool_(), [True, False, None]),
        ("array_has(l, 9)", pa.bool_(), [False, False, None]),
        ("array_has(l, u)", pa.bool_(), [True, False, None]),
        ("array_has(l, NULL)", pa.bool_(), [None, None, None]),
        ("array_has_any(l, [2, 9])", pa.bool_(), [True, False, None]),
        ("array_has_all(l, [2, 9])", pa.bool_(), [False, False, None]),
        ("array_has_all(l, [2, 1])", pa.bool_(), [True, False, None]),
        ("array_has_all(l, [])", pa.bool_(), [True, True, True]),
        ("i > 0", pa.bool_(), [True, False, None]),
        ("i", pa.int32(), [7, -7, None]),
        ("'k'", pa.string(), ["k"] * 3),
        ("NULL", pa.null(), [None] * 3),
        ("1 + 1", pa.int64(), [2] * 3),
        ("1.5", pa.float64(), [1.5] * 3),
    ],
)
def test_functions(text: str, arrow: pa.DataType, expected: list[Any] | None) -> None:
    batch = batch_of(**COLUMNS)
    expr = parse_expression(text, batch.schema)
    found = evaluate(expr, batch)
    if expected is not None:
        assert found.to_pylist() == expected
    assert expr.type == found.type == arrow
    assert evaluate(parse_expression(expr.sql, batch.schema), batch).equals(found), expr.sql


@pytest.mark.parametrize(
    ("text", "arrow", "expected"),
    [
        ("CAST(i AS bigint)", pa.int64(), [7, -7, None]),
        ("i::smallint", pa.int16(), [7, -7, None]),
        ("u::int unsigned", pa.uint32(), [1, 2, None]),
        ("u::uint16", pa.uint16(), [1, 2, None]),
        ("f::int", pa.int32(), [2, -2, None]),
        ("m::int", pa.int32(), [1, -1, None]),
        ("i::float", pa.float32(), [7.0, -7.0, None]),
        ("i::real", pa.float32(), [7.0, -7.0, None]),
        ("i::double precision", pa.float64(), [7.0, -7.0, None]),
        ("i::float16", pa.float16(), [7.0, -7.0, None]),
        ("i::decimal(5, 1)", pa.decimal128(5, 1), [Decimal("7.0"), Decimal("-7.0"), None]),
        ("i::decimal256(50, 1)", pa.decimal256(50, 1), [Decimal("7.0"), Decimal("-7.0"), None]),
        ("0.1::decimal(20, 19)", pa.decimal128(20, 19), [Decimal("0.1000000000000000000")] * 3),
        ("i::string", pa.string(), ["7", "-7", None]),
        ("i::varchar", pa.string(), ["7", "-7", None]),
        ("q::large_string", pa.large_string(), ["x", None, "z"]),
        ("q::binary", pa.binary(), [b"x", None, b"z"]),
        ("i::boolean", pa.bool_(), [True, True, None]),
        ("b::int", pa.int32(), [1, 0, None]),
        ("d::timestamp", pa.timestamp("us"), None),
        ("t::date", pa.date32(), [datetime.date(2020, 2, 29), None, datetime.date(1970, 1, 1)]),
        ("t::timestamp(0)", pa.timestamp("s"), None),
        ("t::timestamp[ms]", pa.timestamp("ms"), None),
        ("t::timestamp[ns, tz=UTC]", pa.timestamp("ns", "UTC"), None),
        ("t::timestamp[us, tz='+05:30']", pa.timestamp("us", "+05:30"), None),
        ("t::timestamp with time zone", pa.timestamp("us", "UTC"), None),
        ("i::date32", pa.date32(), [datetime.date(1970, 1, 8), datetime.date(1969, 12, 25), None]),
        ("i::timestamp[s]", pa.timestamp("s"), None),
        ("i::duration[s]", pa.duration("s"), None),
        ("' 12 '::int", pa.int32(), [12] * 3),
        ("'2020-01-02'::date", pa.date32(), [datetime.date(2020, 1, 2)] * 3),
        ("'12:30:00'::time", pa.time64("us"), [datetime.time(12, 30)] * 3),
        ("TRY_CAST(s AS int)", pa.int32(), [None, None, None]),
        ("TRY_CAST(i + 300 AS tinyint)", pa.int8(), [None, None, None]),
        ("TRY_CAST('x' AS int)", pa.int32(), [None] * 3),
        ("CAST(NULL AS int)", pa.int32(), [None] * 3),
    ],
)
def test_casts(text: str, arrow: pa.DataType, expected: list[Any] | None) -> None:
    batch = batch_of(**COLUMNS)
    expr = parse_expression(text, batch.schema)
    found = evaluate(expr, batch)
    assert expr.type == found.type == arrow
    if expected is not None:
        assert found.to_pylist() == expected
    assert evaluate(parse_expression(expr.sql, batch.schema), batch).equals(found), expr.sql


def test_try_cast_keeps_what_fits() -> None:
    texts = [str(number) if number % 7 else "x" for number in range(100)]
    expected = [number if number % 7 else None for number in range(100)]
    assert values("TRY_CAST(s AS int)", s=texts) == expected


def test_list_functions_see_through_slices_and_null_lists() -> None:
    """F03: a null element is no reason for a null answer."""
    lists = pa.array([[9], [1, None], [], None, [2, 1]])[1:]
    assert rows("array_has(l, 1)", l=lists) == [0, 3]
    assert rows("NOT array_has(l, 2)", l=lists) == [0, 1]
    assert rows("array_has(l, x)", l=lists, x=[1, 1, 1, None]) == [0]
    fixed = pa.array([[1, 2], None, [3, 4], [1, None]], pa.list_(pa.int8(), 2))[1:]
    assert rows("array_has(l, 1)", l=fixed) == [2]
    assert rows("NOT array_has(l, 1)", l=fixed) == [1]
    large = pa.array([["a", "b"], ["c"]], pa.large_list(pa.string()))
    assert rows("list_has_any(l, ['b', 'z'])", l=large) == [0]
    assert rows("array_has(l, 'c')", l=large) == [1]
    nan = float("nan")
    assert rows("array_has(l, 'NaN'::double)", l=[[1.0, nan], [2.0]]) == [0]


def test_arithmetic_in_predicates() -> None:
    assert rows("x + 1 > 5 AND x * 2 < 12", x=[4, 5, 6, None]) == [1]
    assert rows("x - y = 1", x=[4, 5], y=[3, 5]) == [0]
    assert rows(
        "t - d > CAST(3600 AS duration[s])", t=COLUMNS["t"], d=COLUMNS["d"].__class__(COLUMNS["d"])
    ) == [0]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.timestamp("s"), 1_577_836_800, "2020-01-01T00:00:00"),
        (pa.timestamp("us"), 1_577_836_800_000_000, "2020-01-01T00:00:00"),
        (pa.timestamp("us"), 1_577_836_800_500_000, "2020-01-01T00:00:00.500"),
        (pa.timestamp("us"), 1_577_836_800_000_010, "2020-01-01T00:00:00.000010"),
        (pa.timestamp("ns"), 1_000_000, "1970-01-01T00:00:00.001"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (pa.timestamp("ms", "UTC"), 1_577_836_800_000, "2020-01-01T00:00:00Z"),
        (pa.timestamp("ms", "America/New_York"), 1_577_836_800_020, "2019-12-31T19:00:00.020-05:00"),
        (pa.date32(), 0, "1970-01-01"),
        (pa.date64(), 0, "1970-01-01T00:00:00"),
        (pa.time32("ms"), 1_500, "00:00:01.500"),
        (pa.time64("ns"), 3_600_000_000_000, "01:00:00"),
    ],
)
def test_times_as_text_have_the_form_of_the_official_package(kind: Any, given: int, expected: str) -> None:
    """The expected texts were given by the official package for the same values."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    column = pa.array([given, None], width).cast(kind)
    assert values("CAST(t AS string)", t=column) == [expected, None]
    assert values("CAST(t AS large_string)", t=column) == [expected, None]


LONG = Decimal("-1234567890123456789012345678.9012345678")


@pytest.mark.parametrize(
    "text",
    [
        "x = -1234567890123456789012345678.9012345678",
        "x IN (7, -1234567890123456789012345678.9012345678)",
        "x = CAST(-1234567890123456789012345678.9012345678 AS decimal(38, 10))",
        "x = -(DECIMAL(38, 10) '1234567890123456789012345678.9012345678')",
        "x < -1234567890123456789012345678.9012345677",
        "round(x, 2) = -1234567890123456789012345678.90",
    ],
)
def test_negative_constants_keep_all_their_digits(text: str) -> None:
    assert rows(text, x=pa.array([LONG, 0, None], pa.decimal128(38, 10))) == [0]


def test_decimals_beyond_38_digits_are_computed() -> None:
    x = pa.array([LONG, Decimal(3), None], pa.decimal128(38, 10))
    assert values("x + 1", x=x) == [Decimal("-1234567890123456789012345677.9012345678"), 4, None]
    assert values("x * 2", x=x) == [Decimal("-2469135780246913578024691357.8024691356"), 6, None]
    assert values("x - x", x=x) == [0, 0, None]
    n = pa.array([10**18, 5, None])
    assert values("d * n * n", n=n, d=pa.array([Decimal("1.25")] * 3, pa.decimal128(20, 2))) == [
        Decimal("1.25e36"),
        Decimal("31.25"),
        None,
    ]


def test_whole_numbers_beyond_53_bits_beside_floats() -> None:
    """They are rounded, as everywhere: nanoseconds since 1970 divide to seconds."""
    n = pa.array([1_700_000_000_123_456_789, 2**63 - 1, None])
    assert values("n / 1e9", n=n) == [1_700_000_000_123_456_789 / 1e9, (2**63 - 1) / 1e9, None]
    assert rows("n * 0.5 > 1e18 AND nanvl(n, 0.0) > 1", n=n) == [1]
    assert values("u + 0.5", u=pa.array([2**64 - 1], pa.uint64())) == [2.0**64]


@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("function", ["round", "trunc"])
def test_rounding_to_more_digits_than_there_are(function: str, arrow: pa.DataType) -> None:
    f = pa.array([1.5, -0.0, 1e30, None], arrow)
    for digits in (10, 30, 37, 38, 300, 301, 400, 9_999_999_999):
        assert values(f"{function}(f, {digits})", f=f) == f.to_pylist()
    for digits in (-37, -309, -9_999_999_999):
        assert values(f"{function}(f, {digits})", f=f) == [0.0, 0.0, 0.0, None]
    assert values(f"{function}(i, 9999999999)", i=[7, None]) == [7, None]


def test_minus_null_is_null() -> None:
    assert values("-NULL IS NULL", x=[1]) == [True]
    assert values("x + (-NULL)", x=[1]) == [None]


def test_divisors_without_a_64_bit_number() -> None:
    with pytest.raises(InvalidExpression, match="9223372036854775808 is no 64-bit number"):
        values("gcd(x, 0)", x=[-(2**63)])


def test_lists_out_of_nothing() -> None:
    assert values("string_to_array(s, ',')", s=["", "a,", None]) == [[], ["a", ""], None]
    assert values("string_to_array(s, '')", s=["", "ab"]) == [[], ["ab"]]
    assert values("string_to_array(s, ',', '')", s=["", ","]) == [[], [None, None]]
    assert values("array_repeat(x, x)", x=[2, 0, None]) == [[2, 2], [], None]
    assert values("l[NULL]", l=[[1], None]) == [None, None]
