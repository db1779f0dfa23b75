"""Every operator and function over every type: values of the type that was announced, or a typed refusal."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from tiltyard.errors import InvalidInput
from tiltyard.expr import evaluate, parse_expression
from tiltyard.expr.functions import SIGNATURES, SPECIAL_FUNCTIONS
from tiltyard.expr.lists import LIST_FUNCTIONS

_NUMBERS = pa.array([1, None, 3])
_TEXTS = pa.array(["1", None, "b"])
_BYTES = pa.array([b"1", None, b"b"])
_DECIMALS = [Decimal("1.5"), None, Decimal("2.25")]
COLUMNS: dict[str, pa.Array] = {
    "i8": _NUMBERS.cast(pa.int8()),
    "u8": _NUMBERS.cast(pa.uint8()),
    "i64": _NUMBERS,
    "u64": _NUMBERS.cast(pa.uint64()),
    "f16": _NUMBERS.cast(pa.float16()),
    "f64": _NUMBERS.cast(pa.float64()),
    "dec32": pa.array(_DECIMALS, pa.decimal32(5, 2)),
    "dec128": pa.array(_DECIMALS, pa.decimal128(10, 2)),
    "dec256": pa.array(_DECIMALS, pa.decimal256(60, 2)),
    "bool": pa.array([True, None, False]),
    "str": _TEXTS,
    "lstr": _TEXTS.cast(pa.large_string()),
    "sview": _TEXTS.cast(pa.string_view()),
    "bin": _BYTES,
    "fixed": _BYTES.cast(pa.binary(1)),
    "bview": _BYTES.cast(pa.binary_view()),
    "d32": pa.array([1, None, 3], pa.int32()).cast(pa.date32()),
    "d64": pa.array([datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)], pa.date64()),
    "ts": pa.array([1, None, 3], pa.timestamp("us")),
    "tz": pa.array([1, None, 3], pa.timestamp("ns", "Europe/Berlin")),
    "t32": pa.array([1, None, 3], pa.time32("s")),
    "t64": pa.array([1, None, 3], pa.time64("ns")),
    "dur": pa.array([1, None, 3], pa.duration("ms")),
    "nothing": pa.nulls(3),
    "list": pa.array([[1], None, [2, None]]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1}, None, {"a": None}]),
    "dtext": _TEXTS.dictionary_encode(),
    "dnum": _NUMBERS.dictionary_encode(),
}
LITERALS = ["1", "1.5", "'a'", "'2020-01-01'", "NULL", "'NaN'::double", "X'31'", "99999999999999999999999"]
TARGETS = ["int", "float16", "double", "decimal(10, 2)", "string", "large_binary", "bool", "date", "date64"]
TARGETS += ["timestamp[s]", "timestamp[ns, tz=UTC]", "time", "duration[us]", "bigint unsigned"]
BATCH = pa.RecordBatch.from_arrays(list(COLUMNS.values()), list(COLUMNS))


def _texts(name: str) -> Iterator[str]:
    column = f'"{name}"'
    others = [f'"{other}"' for other in COLUMNS] + LITERALS
    for other in others:
        yield from (f"{column} {op} {other}" for op in ("=", "<", "+", "-", "*", "/", "%", "||"))
        yield from (f"{other} {op} {column}" for op in ("<", "-"))
        yield from (
            f"{function}({column}, {other})" for function in sorted(SPECIAL_FUNCTIONS | LIST_FUNCTIONS)
        )
        yield f"{column} IN ({other}, NULL)"
        yield f"CASE WHEN bool THEN {column} ELSE {other} END"
    for target in TARGETS:
        yield f"CAST({column} AS {target})"
        yield f"TRY_CAST({column} AS {target})"
    for function in [*SIGNATURES, *sorted(LIST_FUNCTIONS)]:
        if function != "||":
            yield f"{function}({column})"
            yield from (f"{function}({column}, {extra})" for extra in ("1", "'a'", "NULL", column))
            yield f"{function}('year', {column})"
    yield from (column, f"-{column}", f"NOT {column}", f"{column} IS NULL", f"{column} IS TRUE")
    yield f"{column} LIKE '1%'"


@pytest.mark.parametrize("name", COLUMNS)
def test_values_have_the_announced_type_or_are_refused(name: str) -> None:
    served = 0
    for text in _texts(name):
        try:
            expr = parse_expression(text, BATCH.schema)
            for batch in (BATCH, BATCH[1:], BATCH[:0]):
                found = evaluate(expr, batch)
                assert found.type == expr.type, text
                assert len(found) == batch.num_rows
                found.validate(full=True)
            again = evaluate(parse_expression(expr.sql, BATCH.schema), BATCH)
        except InvalidInput:
            continue
        assert (again.type, str(again)) == (expr.type, str(evaluate(expr, BATCH))), (text, expr.sql)
        served += 1
    assert served > 3
