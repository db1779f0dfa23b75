"""Finding keys among keys, against a dictionary of Python values."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.table.merge import join
from tiltyard.table.merge.join import NO_KEY, KeyIndex

TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), st.integers(-5, 5)),
    "int64": (pa.int64(), st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))),
    "uint64": (pa.uint64(), st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))),
    "float64": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, math.inf, 5e-324])),
    "float16": (pa.float16(), st.sampled_from([np.float16(0), np.float16(-0.0), np.float16(1.5)])),
    "bool": (pa.bool_(), st.booleans()),
    "date32": (pa.date32(), st.sampled_from([datetime.date(1969, 1, 1), datetime.date(2024, 2, 29)])),
    "timestamp": (
        pa.timestamp("ms"),
        st.sampled_from([datetime.datetime(1960, 1, 1), datetime.datetime(2024, 1, 1)]),
    ),
    "string": (pa.string(), st.text("abé", max_size=2)),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([decimal.Decimal("1.00"), decimal.Decimal("-7.25")])),
}


def _same(value: Any) -> Any:
    """The value as a dictionary compares it: zeros and NaNs are one each."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _keys(columns: list[list[Any]]) -> list[Any]:
    rows = [tuple(_same(value) for value in row) for row in zip(*columns, strict=True)]
    return [None if None in row else row for row in rows]


@st.composite
def _sets(draw: Any) -> tuple[list[pa.DataType], list[list[Any]], list[list[Any]]]:
    chosen = [TYPES[name] for name in draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))]
    sides = []
    for _ in range(2):
        rows = draw(st.integers(0, 12))
        sides.append(
            [draw(st.lists(st.one_of(st.none(), v), min_size=rows, max_size=rows)) for _, v in chosen]
        )
    return [kind for kind, _ in chosen], sides[0], sides[1]


@settings(max_examples=50)
@given(_sets(), st.integers(0, 2))
def test_find_gives_the_rows_whose_key_is_in_the_set(
    sets: tuple[list[pa.DataType], list[list[Any]], list[list[Any]]], skipped: int
) -> None:
    types, known, asked = sets
    columns = [pa.array(values, kind) for values, kind in zip(known, types, strict=True)]
    index = KeyIndex(columns)
    keys = _keys(known)
    assert [code == NO_KEY for code in index.codes] == [key is None for key in keys]
    assert index.distinct == len({key for key in keys if key is not None})
    assert index.has_duplicates == (index.distinct < sum(key is not None for key in keys))
    by_code = {int(code): key for code, key in zip(index.codes, keys, strict=True) if code != NO_KEY}
    others = [pa.array(values, kind).slice(skipped) for values, kind in zip(asked, types, strict=True)]
    positions, codes = index.find(others)
    wanted = _keys([values[skipped:] for values in asked])
    assert positions.tolist() == [at for at, key in enumerate(wanted) if key is not None and key in keys]
    assert [by_code[int(code)] for code in codes] == [wanted[at] for at in positions]
    rows, starts = index.rows_by_code()
    for code, key in by_code.items():
        held = rows[starts[code] : starts[code + 1]].tolist()
        assert held == [at for at, each in enumerate(keys) if each == key]
        assert index.first_rows()[code] == held[0]
        assert index.last_rows()[code] == held[-1]


@pytest.mark.parametrize("collide", [False, True])
def test_many_texts_are_found_by_hash_and_compared(monkeypatch: pytest.MonkeyPatch, collide: bool) -> None:
    monkeypatch.setattr(join, "HASHED_VALUES", 10)
    if collide:  # two different keys with one hash: then Arrow's tables decide
        plain = join.hashes
        monkeypatch.setattr(join, "hashes", lambda columns: plain(columns) >> np.uint64(60))
    known = [f"key {n % 90}" for n in range(100)] + [None]
    asked = [None, "key 3", "other", *(f"key {n}" for n in range(80, 120)), "key 3"]
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        index = KeyIndex([pa.array(known, pa.string()).cast(kind)])
        assert isinstance(index._sets[0], join._ValueSet) is collide
        assert index.distinct == 90
        assert index.has_duplicates
        positions, codes = index.find([pa.array(asked, pa.string()).cast(kind)])
        assert positions.tolist() == [at for at, key in enumerate(asked) if key in known and key is not None]
        assert [known[row] for row in index.first_rows()[codes]] == [asked[at] for at in positions]
        assert index.first_rows()[index.codes[95]] == 5
        assert index.last_rows()[index.codes[95]] == 95


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("share", [0.001, 0.5, 1.0])
def test_large_sets_are_found_by_each_way_of_looking(
    monkeypatch: pytest.MonkeyPatch, ascending: bool, share: float
) -> None:
    monkeypatch.setattr(join, "STEP_ROWS", 1000)
    chance = np.random.default_rng(7)
    table = np.sort(chance.choice(10**12, 20000, replace=False))
    known = np.concatenate([chance.choice(table, int(len(table) * share), replace=False), [-1, 10**13]])
    chance.shuffle(known)
    index = KeyIndex([pa.array(known)])
    if not ascending:
        chance.shuffle(table)
    for _ in range(2):  # the second time with what the first one taught it
        positions, codes = index.find([pa.array(table)])
        assert positions.tolist() == np.flatnonzero(np.isin(table, known)).tolist()
        assert (known[index.first_rows()[codes]] == table[positions]).all()
