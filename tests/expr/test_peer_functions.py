"""Functions and operators through the official implementation: `peer_expressions.txt` has one expression a
line, and each gives the same values for every row there and here."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard.expr import evaluate, parse_expression

EXPRESSIONS = (Path(__file__).parent / "peer_expressions.txt").read_text().splitlines()
CHUNK = 60

_MOMENTS = [
    datetime.datetime(2020, 1, 31, 3, 4, 5, 678901),
    datetime.datetime(1969, 12, 31, 23, 59, 59),
    None,
    datetime.datetime(2024, 2, 29),
]
TABLE = pa.table(
    {
        "i": pa.array([1, 5, None, -3], pa.int64()),
        "k": pa.array([1, 2, 3, 4], pa.int32()),
        "u": pa.array([1, 2**64 - 1, None, 3], pa.uint64()),
        "f": pa.array([1.5, -2.5, None, 9.0]),
        "s": pa.array(["abc", "xyz,q é", None, "Hello wORLD-x"]),
        "p": pa.array(["a%", "b", None, "l+"]),
        "d": pa.array(
            [datetime.date(2020, 1, 31), datetime.date(1969, 5, 6), None, datetime.date(2024, 2, 29)]
        ),
        "ts": pa.array(_MOMENTS, pa.timestamp("us")),
        "tz": pa.array(_MOMENTS, pa.timestamp("us", "UTC")),
        "l": pa.array([[1, 2, 2, None], [], None, [3]], pa.list_(pa.int64())),
        "ls": pa.array([["a", "b"], [], None, ["c", None]], pa.list_(pa.string())),
        "st": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None, {"a": 3, "b": "z"}]),
        "b": pa.array([True, False, None, True]),
        "v": pa.array([b"a", b"\xff\x00", None, b""]),
        "tm": pa.array(
            [datetime.time(1, 2, 3), datetime.time(23, 59, 59, 999999), None, datetime.time(0)],
            pa.time64("us"),
        ),
        "m": pa.array([Decimal("1.50"), Decimal("-2.55"), None, Decimal("7.00")], pa.decimal128(10, 2)),
        "du": pa.array(
            [datetime.timedelta(seconds=90), datetime.timedelta(days=-1), None, datetime.timedelta(0)],
            pa.duration("us"),
        ),
        "ll": pa.array([[[1], [2, 3]], [], None, [[4], None]], pa.list_(pa.list_(pa.int64()))),
        "fl": pa.array([[1.0, 2.0], [3.0, 4.0], None, [0.0, 0.0]], pa.list_(pa.float32(), 2)),
    }
)

FILTERS = """
l = make_array(1, 2, 2, NULL)
l != [3]
l < [2]
l = l
l IN ([3], [1])
l IS DISTINCT FROM [3]
ls = ['a', 'b']
fl = [1.0, 2.0]
fl > [1.5, 0.0]
st = named_struct('a', 1, 'b', 'x')
st < named_struct('a', 2, 'b', 'x')
st > named_struct('a', 1, 'b', 'y')
struct(i, k) = struct(1, k)
s LIKE p
regexp_match(s, 'b')
NOT regexp_match(s, 'b')
regexp_match(s, 'b') IS NULL
regexp_like(s, p)
starts_with(s, p) OR contains(s, 'w')
d - 1 > date '2020-01-01'
d - d = 0
i << 1 = 2
ts > now()
d < today()
to_timestamp('2020-01-31T03:04:05.678901') = ts
make_date(2020, 1, 31) = d
date_trunc('day', ts) = timestamp '2020-01-31 00:00:00'
array_element(string_to_array(s, ','), 2) = 'q é'
array_has_any(l, [NULL])
ll[1][1] = 1
l[k] = 1
i IN (k, 5)
iszero(i - 1)
coalesce(b, true)
b = (i = 1)
i BETWEEN k AND 9
""".strip().splitlines()


def alike(value: Any) -> Any:
    """A value in which NaN equals NaN and floats agree in 12 digits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, list | tuple):
        return [alike(item) for item in value]
    if isinstance(value, dict):
        return {key: alike(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def path(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("functions") / "t")
    peer("kept['functions'] = lance.write_dataset(t, p)", t=TABLE, p=where)
    return where


@pytest.mark.parametrize("first", range(0, len(EXPRESSIONS), CHUNK))
def test_expressions_have_the_values_of_the_official_implementation(
    peer: Peer, path: str, first: int
) -> None:
    texts = EXPRESSIONS[first : first + CHUNK]
    columns = {f"c{at}": text for at, text in enumerate(texts)} | {"i": "i"}
    theirs = peer("lance.dataset(p).to_table(columns=c)", p=path, c=columns).to_pydict()
    batch = TABLE.combine_chunks().to_batches()[0]
    ours = {f"c{at}": evaluate(parse_expression(text, batch.schema), batch) for at, text in enumerate(texts)}
    found = {text: alike(ours[f"c{at}"].to_pylist()) for at, text in enumerate(texts)}
    assert found == {text: alike(theirs[f"c{at}"]) for at, text in enumerate(texts)}


@pytest.mark.parametrize("text", FILTERS)
def test_filters_of_nested_values_and_functions_select_the_same(peer: Peer, path: str, text: str) -> None:
    theirs = peer("kept['functions'].to_table(filter=f, with_row_id=True)['_rowid'].to_pylist()", f=text)
    batch = TABLE.combine_chunks().to_batches()[0]
    kept = evaluate(parse_expression(text, batch.schema), batch).to_pylist()
    assert [row for row, answer in enumerate(_as_bools(kept)) if answer] == theirs


def _as_bools(values: list[Any]) -> list[bool]:
    # a list, as regexp_match gives it, is true in a filter
    return [isinstance(value, list) or value is True for value in values]


def test_the_text_of_an_expression_reads_back_with_the_same_values() -> None:
    batch = TABLE.combine_chunks().to_batches()[0]
    for text in EXPRESSIONS:
        expr = parse_expression(text, batch.schema)
        again = parse_expression(expr.sql, batch.schema)
        assert again.type == expr.type, (text, expr.sql)
        found, expected = evaluate(again, batch), evaluate(expr, batch)
        assert alike(found.to_pylist()) == alike(expected.to_pylist()), (text, expr.sql)


BEFORE_1970 = (
    "to_unixtime(ts)",
    "to_unixtime(s)",
    "to_timestamp_seconds(ts)",
    "to_timestamp_seconds(s)",
    "to_timestamp_millis(s)",
    "cast(ts as timestamp(0))",
    "cast(ts as bigint)",
    "cast(ts as date)",
    "to_date(ts)",
    "to_date(s)",
    "to_time(ts)",
    "date_trunc('second', ts)",
    "date_trunc('hour', ts)",
    "date_part('epoch', ts)",
    "date_part('second', ts)",
    "date_bin(interval '1 hour', ts)",
)


def test_parts_of_seconds_before_1970_go_the_same_way(peer: Peer, tmp_path: Path) -> None:
    moments = ["1964-11-07T15:21:59.053246", "1969-12-31T23:59:59.5", "2001-01-01T00:00:00.5"]
    table = pa.table({"s": moments, "ts": pa.array(moments).cast(pa.timestamp("us"))})
    theirs = peer(
        "lance.write_dataset(t, p).to_table(columns=c)",
        t=table,
        p=str(tmp_path),
        c={each: each for each in BEFORE_1970},
    ).to_pydict()
    batch = table.to_batches()[0]
    ours = {text: evaluate(parse_expression(text, batch.schema), batch).to_pylist() for text in BEFORE_1970}
    assert ours == theirs
