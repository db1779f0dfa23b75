"""Sorting for an index: by the values' own order, whatever path they take; equals keep theirs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from index.index_values import VALUES, array_of
from tiltyard.index.order import order_of

ROWS = 3000


def _random_bytes(rng: np.random.Generator, longest: int) -> list[bytes]:
    lengths = rng.integers(0, longest + 1, ROWS)
    return [bytes(rng.choice(np.array([0, 0, 1, 97, 98, 255], np.uint8), n)) for n in lengths]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("longest", [0, 3, 8, 20, 64, 65])
@pytest.mark.parametrize("start", [0, 5])
def test_many_byte_strings_are_sorted_by_their_bytes(kind: pa.DataType, longest: int, start: int) -> None:
    values = _random_bytes(np.random.default_rng(longest), longest)
    found = order_of(kind).argsort(pa.array(values, kind).slice(start))
    rest = values[start:]
    assert found.tolist() == sorted(range(len(rest)), key=rest.__getitem__)


@pytest.mark.parametrize("width", [1, 7, 8, 16, 20, 70])
def test_byte_strings_of_one_width_are_sorted_by_their_bytes(width: int) -> None:
    rng = np.random.default_rng(width)
    values = [bytes(rng.choice(np.array([0, 1, 255], np.uint8), width)) for _ in range(ROWS)]
    found = order_of(pa.binary(width)).argsort(pa.array(values, pa.binary(width)))
    assert found.tolist() == sorted(range(ROWS), key=values.__getitem__)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_values_and_row_ids_are_sorted_together(kind: pa.DataType) -> None:
    rng = np.random.default_rng(0)
    known = [value for value in VALUES[kind] if value is not None]
    array = array_of(kind, [known[i] for i in rng.integers(0, len(known), ROWS)])
    ids = np.arange(ROWS, dtype=np.uint64)
    order: Any = order_of(kind)
    values, along = order.sorted(array, ids)
    assert values.type == kind
    keys, before = _keys(order, values), _keys(order, array)
    assert keys == sorted(before)
    assert [before[i] for i in along.tolist()] == keys
    pairs = itertools.pairwise(zip(keys, along.tolist(), strict=True))
    assert all(before_id < id for (key, before_id), (next_key, id) in pairs if key == next_key)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_no_values_at_all_are_in_order(kind: pa.DataType) -> None:
    order = order_of(kind)
    assert order.argsort(pa.array([], kind)).tolist() == []
    assert len(order.keys(pa.array([], kind))) == 0


def _keys(order: Any, array: pa.Array) -> list[Any]:
    keys = order.keys(array)
    return [keys.at(i) for i in range(len(keys))] if order.is_text else keys.tolist()
