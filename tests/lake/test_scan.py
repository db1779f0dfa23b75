"""Scans and searches of the plain face."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import InvalidInput, WrongType


@pytest.fixture
def table(tmp_path: Path) -> Any:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12, dtype=np.float32)), 2)
    data = pa.table({"id": [3, 1, 2, None, 5, 4], "s": list("abcabc"), "v": vectors})
    return ty.create_table(tmp_path / "t", data)


def test_rows_in_an_order_asked_for(table: Any) -> None:
    assert table.scan(order_by="id").to_arrow()["id"].to_pylist() == [1, 2, 3, 4, 5, None]
    ordered = table.scan(columns=["id"], where="id > 1", limit=3, order_by=["s", ("id", "desc")])
    assert ordered.to_arrow()["id"].to_pylist() == [3, 5, 4]
    assert pickle.loads(pickle.dumps(ordered)).to_arrow() == ordered.to_arrow()
    assert "order_by" in repr(ordered)


@pytest.mark.parametrize("bad", [3, [3], ("id", "down"), {"id": "asc"}, [("id", "asc", 1)]])
def test_an_order_that_is_none_is_refused(bad: Any, table: Any) -> None:
    with pytest.raises(InvalidInput, match="order_by"):
        table.scan(order_by=bad)


def test_a_scan_is_iterated_by_batches(table: Any) -> None:
    scan = table.scan(where="id > 2")
    assert sum(batch.num_rows for batch in scan) == 3
    assert sum(batch.num_rows for batch in scan) == 3
    assert "filter" in scan.explain()


def test_the_first_rows(table: Any) -> None:
    assert table.head(2, columns=["id"])["id"].to_pylist() == [3, 1]
    assert table.head().num_rows == 6
    with pytest.raises(InvalidInput, match="rows"):
        table.head(-1)


def test_the_nearest_rows(table: Any) -> None:
    found = table.search([4, 5], k=2, columns=["id"]).to_arrow()
    assert found.to_pydict() == {"id": [2, 1], "_distance": [0, 8]}
    some = table.search([4, 5], "v", k=2, where="id != 2", metric="l2")
    assert some.to_arrow()["id"].to_pylist() == [1, 3]
    assert some.count() == 2
    assert table.search([4, 5], distance_range=(1, 20)).count() == 2
    assert table.search([[0, 1], [10, 11]], k=1).to_arrow()["id"].to_pylist() == [3, 4]
    assert pickle.loads(pickle.dumps(some)).to_arrow() == some.to_arrow()
    assert "nearest=2 in 'v'" in repr(some)


def test_the_column_searched_is_named_where_there_are_several(tmp_path: Path, table: Any) -> None:
    plain = ty.create_table(tmp_path / "plain", pa.table({"a": [1]}))
    with pytest.raises(InvalidInput, match="name the column"):
        plain.search([1])
    with pytest.raises(InvalidInput, match="dimensions"):
        table.search([1])
    with pytest.raises(WrongType, match="id"):
        table.search([1, 2], "id")
