"""Random expressions over random rows, here and in the official implementation: the same values in every row.

Expressions are made by type from what both accept; where the official one refuses an expression or fails on a
value, ours may answer, but where it answers ours must give the same.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from peer import Peer
from tiltyard.expr import evaluate, parse_expression

ROWS = 12
TOGETHER = 12
"""Expressions over one table: writing it costs more than they do."""

_TEXT = st.sampled_from(["", "a", "ab", "A b", "é,x", "x,y,z", "12", "aXa"])
_SMALL = st.integers(-9, 9)
_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), _SMALL | st.sampled_from([2**40, -(2**40)])),
    "k": (pa.int32(), _SMALL),
    "f": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e10, math.nan, math.inf])),
    "m": (pa.decimal128(10, 2), _SMALL.map(lambda n: Decimal(n).scaleb(-1))),
    "s": (pa.string(), _TEXT),
    "t": (pa.string(), _TEXT),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.date32(), st.dates(datetime.date(1950, 1, 1), datetime.date(2050, 1, 1))),
    "ts": (pa.timestamp("us"), st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2050, 1, 1))),
    "l": (pa.list_(pa.int64()), st.lists(st.none() | _SMALL, max_size=4)),
    "ls": (pa.list_(pa.string()), st.lists(st.none() | _TEXT, max_size=3)),
}


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    columns = {
        name: pa.array(draw(st.lists(st.none() | values, min_size=ROWS, max_size=ROWS)), arrow)
        for name, (arrow, values) in _COLUMNS.items()
    }
    return pa.table(columns)


def _call(name: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda given: f"{name}({', '.join(given)})")


def _infix(left: st.SearchStrategy[str], ops: str, right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    made = st.tuples(left, st.sampled_from(ops.split()), right)
    return made.map(lambda given: f"({given[0]} {given[1]} {given[2]})")


_NUMERAL = st.integers(1, 4).map(str)
_WORD = st.sampled_from(["'a'", "','", "'x'", "'b'", "'X'"])
_WHOLE: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["i", "k"]),
        _infix(_WHOLE, "+ - *", _NUMERAL),
        _infix(_WHOLE, "/ %", st.integers(2, 5).map(str)),
        _call("abs", _WHOLE),
        _call("coalesce", _WHOLE, _NUMERAL),
        _call("nullif", _WHOLE, _NUMERAL),
        _call("greatest", _WHOLE, _WHOLE),
        _call("least", _WHOLE, _WHOLE),
        _call("gcd", st.sampled_from(["i", "k"]), _NUMERAL),
        _call("length", _STRING),
        _call("octet_length", _STRING),
        _call("ascii", _STRING),
        _call("strpos", _STRING, _WORD),
        _call("levenshtein", _STRING, st.sampled_from(["s", "t"])),
        _call("find_in_set", _STRING, st.just("'a,ab,12'")),
        _call("date_part", st.sampled_from(["'year'", "'week'", "'doy'", "'dow'", "'quarter'"]), _INSTANT),
        _call("array_element", _LIST, _NUMERAL),
        _call("array_max", _LIST),
        _call("array_min", _LIST),
        _call("regexp_count", _STRING, _WORD),
        _call("to_unixtime", _INSTANT),
    )
)
_STRING: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["s", "t"]),
        _call("lower", _STRING),
        _call("upper", _STRING),
        _call("initcap", _STRING),
        _call("reverse", _STRING),
        _call("left", _STRING, st.integers(-3, 3).map(str)),
        _call("right", _STRING, st.integers(-3, 3).map(str)),
        _call("lpad", _STRING, _NUMERAL, _WORD),
        _call("rpad", _STRING, _NUMERAL),
        _call("repeat", _STRING, _NUMERAL),
        _call("replace", _STRING, _WORD, _WORD),
        _call("translate", _STRING, st.just("'abx'"), st.just("'xy'")),
        _call("split_part", _STRING, st.just("','"), st.sampled_from(["1", "2", "-1"])),
        _call("concat", _STRING, _STRING),
        _call("concat_ws", st.just("'-'"), _STRING, _STRING),
        _call("btrim", _STRING, _WORD),
        _call("overlay", _STRING, _WORD, _NUMERAL),
        _call("regexp_replace", _STRING, _WORD, _WORD),
        _call("substr_index", _STRING, st.just("','"), st.sampled_from(["1", "-1"])),
        _call("array_to_string", st.just("ls"), st.just("'+'")),
        _call("md5", _STRING),
        _call("coalesce", _STRING, _WORD),
        st.just("CAST(i AS string)"),
        st.just("CAST(f AS string)"),
        st.just("CAST(ts AS string)"),
        _infix(_STRING, "||", _STRING),
    )
)
_REAL: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.just("f"),
        st.just("CAST(i AS double)"),
        _call("abs", _REAL),
        _call("sqrt", _REAL),
        _call("signum", st.just("f")),
        _call("trunc", _REAL),
        _call("nanvl", _REAL, st.just("1.5")),
        _infix(_REAL, "+ - *", _REAL),
    )
)
_INSTANT: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["d", "ts"]),
        _call("date_trunc", st.sampled_from(["'month'", "'day'", "'hour'", "'week'"]), st.just("ts")),
        _call("to_date", st.just("ts")),
        _call("coalesce", st.just("ts"), st.just("timestamp '2020-01-02 03:04:05'")),
    )
)
_LIST: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.just("l"),
        _call("array_append", _LIST, _NUMERAL),
        _call("array_prepend", _NUMERAL, _LIST),
        _call("array_concat", _LIST, _LIST),
        _call("array_reverse", _LIST),
        _call("array_sort", _LIST),
        _call("array_distinct", _LIST),
        _call("array_pop_back", _LIST),
        _call("array_pop_front", _LIST),
        _call("array_slice", _LIST, st.integers(-3, 3).map(str), st.integers(-3, 3).map(str)),
        _call("array_remove", _LIST, _NUMERAL),
        _call("array_replace_all", _LIST, _NUMERAL, _NUMERAL),
        _call("array_resize", _LIST, _NUMERAL, _NUMERAL),
        _call("array_union", _LIST, _LIST),
        _call("array_intersect", _LIST, _LIST),
        _call("array_except", _LIST, _LIST),
        _call("make_array", _WHOLE, _WHOLE),
    )
)
_TRUTH: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.just("b"),
        _infix(_WHOLE, "= != < <= > >=", _WHOLE),
        _infix(st.just("m"), "= != < <= > >=", _NUMERAL),
        _infix(_STRING, "= != < >=", _STRING),
        _infix(st.just("ts"), "= < >=", st.just("timestamp '2000-01-01 00:00:00'")),
        _infix(_LIST, "= !=", _LIST),
        _infix(_TRUTH, "AND OR", _TRUTH),
        _TRUTH.map(lambda text: f"(NOT {text})"),
        _TRUTH.map(lambda text: f"({text} IS NULL)"),
        _TRUTH.map(lambda text: f"({text} IS TRUE)"),
        _WHOLE.map(lambda text: f"({text} IN (1, 2, NULL))"),
        _WHOLE.map(lambda text: f"({text} BETWEEN -2 AND 4)"),
        _STRING.map(lambda text: f"({text} LIKE '%a_')"),
        _STRING.map(lambda text: f"({text} ILIKE 'a%')"),
        _infix(st.sampled_from(["s", "t"]), "LIKE", st.sampled_from(["s", "t"])),
        _call("starts_with", _STRING, _WORD),
        _call("contains", _STRING, _STRING),
        _call("regexp_like", _STRING, _WORD),
        _call("array_has", _LIST, _NUMERAL),
        _call("array_has_any", _LIST, _LIST),
        _call("array_has_all", _LIST, _LIST),
        _call("empty", _LIST),
        _call("isnan", _REAL),
        _infix(_WHOLE, "IS&DISTINCT&FROM", _WHOLE).map(lambda text: text.replace("&", " ")),
    )
)
_ANY = st.one_of(_WHOLE, _STRING, _REAL, _INSTANT, _LIST, _TRUTH, _TRUTH)


def _alike(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, list):
        return [_alike(item) for item in value]
    return value


_ASK = """
def ask(text):
    try:
        return dataset.to_table(columns={"r": text, "i": "i"})["r"].to_pylist()
    except BaseException as error:
        return repr(error)
dataset = lance.write_dataset(t, p, mode="overwrite")
result = [ask(text) for text in texts]
"""


def _check(peer: Peer, path: Path, table: pa.Table, texts: list[str]) -> None:
    theirs = peer(_ASK, t=table, p=str(path / "t"), texts=texts)
    batch = table.combine_chunks().to_batches()[0]
    for text, expected in zip(texts, theirs, strict=True):
        if isinstance(expected, str):
            continue  # refused there, or failed on a value
        found = evaluate(parse_expression(text, batch.schema), batch).to_pylist()
        assert _alike(found) == _alike(expected), text


def _compare(peer: Peer, path: Path, examples: int, *, always_the_same: bool = False) -> None:
    # without shrinking: the text that differs is short as it is, and each try asks another process
    phases = [Phase.explicit, Phase.reuse, Phase.generate]

    @settings(
        max_examples=examples,
        deadline=None,
        phases=phases,
        derandomize=always_the_same,
        suppress_health_check=list(HealthCheck),
    )
    @given(_tables(), st.lists(_ANY, min_size=TOGETHER, max_size=TOGETHER))
    def check(table: pa.Table, texts: list[str]) -> None:
        _check(peer, path, table, texts)

    check()


def test_random_expressions_give_the_same_values(peer: Peer, tmp_path: Path) -> None:
    _compare(peer, tmp_path, 5, always_the_same=True)


@pytest.mark.wide
@pytest.mark.parametrize("part", range(8))
def test_many_random_expressions_give_the_same_values(peer: Peer, tmp_path: Path, part: int) -> None:
    _compare(peer, tmp_path, 50)
