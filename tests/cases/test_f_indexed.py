"""Public bug reports about filters, tried with a B-tree index of ours and one of the official package (cases
F01-F07).

The questions and the row numbers are those of the tests without index (`filters.py`).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from cases.filters import (
    EQUAL_ZEROS,
    GREATEST_NANS,
    LISTS,
    NANS,
    NULL_LOGIC,
    NULLS_IN_LISTS,
    WITH_NULL,
    ZEROS,
)
from peer import Peer
from tiltyard.errors import TiltyardError

Indexed = Callable[..., Any]


@pytest.fixture(params=["ours", "theirs"])
def indexed(request: pytest.FixtureRequest, tmp_path: Path, peer: Peer) -> Indexed:
    """Writes a table with row numbers `n` and an index on each of the columns named."""

    def made(table: pa.Table, *columns: str) -> Any:
        path = str(tmp_path / "t.lance")
        numbered = table.append_column("n", pa.array(range(table.num_rows), pa.int64()))
        ds = lance.write_dataset(numbered, path, mode="overwrite")
        for column in columns:
            if request.param == "ours":
                ds.create_scalar_index(column, "BTREE")
            else:
                peer("lance.dataset(p).create_scalar_index(c, 'BTREE')", p=path, c=column)
        return lance.dataset(path)

    return made


def rows_where(ds: Any, predicate: str) -> list[int]:
    """Numbers of the rows that the predicate keeps; scans with and without the index, a count, a stream and a
    delete must agree.
    """
    kept = ds.to_table(columns=["n"], filter=predicate)["n"].to_pylist()
    plain = ds.to_table(columns=["n"], filter=predicate, use_scalar_index=False)["n"].to_pylist()
    assert kept == plain
    assert ds.count_rows(predicate) == len(kept)
    assert [n for batch in ds.to_batches(filter=predicate) for n in batch["n"].to_pylist()] == kept
    total = ds.count_rows()
    ds.delete(predicate)
    left = ds.to_table(columns=["n"])["n"].to_pylist()
    assert sorted(kept + left) == list(range(total))
    assert ds.count_rows(predicate) == 0
    return kept


def uses_index(ds: Any, predicate: str) -> bool:
    return "index x_idx (BTree)" in ds.scanner(filter=predicate).explain_plan()


@pytest.mark.parametrize(("predicate", "right"), NULL_LOGIC)
def test_f01_a_null_is_neither_true_nor_false(predicate: str, right: list[int], indexed: Indexed) -> None:
    ds = indexed(WITH_NULL, "x")
    assert uses_index(ds, predicate)
    assert rows_where(ds, predicate) == right


@pytest.mark.parametrize(("predicate", "right"), NULLS_IN_LISTS)
def test_f02_a_null_in_a_list_of_values(predicate: str, right: list[int], indexed: Indexed) -> None:
    ds = indexed(WITH_NULL, "x")
    assert uses_index(ds, predicate) or "no row can pass" in ds.scanner(filter=predicate).explain_plan()
    assert rows_where(ds, predicate) == right


def test_f03_a_tree_on_lists_is_refused_when_it_is_made(tmp_path: Path) -> None:
    ds = lance.write_dataset(LISTS, tmp_path / "t.lance")
    with pytest.raises(TiltyardError, match="list"):
        ds.create_scalar_index("l", "BTREE")
    assert ds.version == 1


def test_f03_a_filter_on_lists_beside_an_indexed_column(indexed: Indexed) -> None:
    ds = indexed(LISTS.append_column("x", pa.array([1, 1, 1, 2, 2])), "x")
    assert uses_index(ds, "x = 1 AND l IS NOT NULL")
    assert rows_where(ds, "x = 1 AND l IS NOT NULL") == [0, 2]


@pytest.mark.parametrize(
    ("predicate", "right"), [("x < 0", [0]), ("x = 0", [1, 2]), ("x <= -0.0", [0, 1, 2])]
)
def test_f04_zero_is_not_below_zero(predicate: str, right: list[int], indexed: Indexed) -> None:
    ds = indexed(pa.table({"x": [-1.0, -0.0, 0.0, 1.0]}), "x")
    assert uses_index(ds, predicate)
    assert rows_where(ds, predicate) == right


DAY = datetime.date(2020, 1, 1)
F05 = [
    (
        pa.array(
            [decimal.Decimal("1.10"), None, decimal.Decimal("-2.5"), decimal.Decimal("7")],
            pa.decimal128(9, 2),
        ),
        ["x = 1.10", "x < 7", "x IN (7, -2.5)", "x IS NULL"],
    ),
    (
        pa.array([3, None, 1, 2], pa.duration("ms")),
        ["x IS NULL", "x IS NOT NULL"],
    ),
    (pa.array([b"b", None, b"a", b""], pa.large_binary()), ["x IS NULL", "x IS NOT NULL"]),
    (
        pa.array(["b", None, "a", ""], pa.large_string()),
        ["x = 'a'", "x < 'b'", "x IN ('', 'b')", "x LIKE 'a%'"],
    ),
    (
        pa.array([DAY, None, DAY + datetime.timedelta(1), DAY]),
        ["x = date '2020-01-01'", "x > date '2020-01-01'"],
    ),
    (pa.array([True, None, False, True]), ["x", "NOT x", "x = false", "x IS NULL"]),
    (pa.array([1.5, None, -2.0, 0.5], pa.float16()), ["x > 0", "x = 1.5", "x IN (0.5, -2.0)"]),
    (pa.array(["b", None, "a", "b"]).dictionary_encode(), ["x = 'a'", "x < 'b'"]),
]


@pytest.mark.parametrize(("column", "predicates"), F05, ids=[str(column.type) for column, _ in F05])
def test_f05_each_type_answers_as_a_scan_or_is_refused_when_the_index_is_made(
    column: Any, predicates: list[str], tmp_path: Path
) -> None:
    table = pa.table({"x": column, "n": pa.array(range(4), pa.int64())})
    for number, predicate in enumerate(predicates):
        ds = lance.write_dataset(table, tmp_path / f"{number}.lance")
        try:
            ds.create_scalar_index("x", "BTREE")
        except TiltyardError:
            assert ds.version == 1
            continue
        assert uses_index(ds, predicate), predicate
        rows_where(ds, predicate)


@pytest.mark.parametrize(("predicate", "right"), EQUAL_ZEROS)
def test_f06_the_two_zeros_are_equal(predicate: str, right: list[int], indexed: Indexed) -> None:
    assert rows_where(indexed(ZEROS, "x", "y"), predicate) == right


@pytest.mark.parametrize(("predicate", "right"), GREATEST_NANS)
def test_f07_the_sign_of_nan_makes_no_difference(predicate: str, right: list[int], indexed: Indexed) -> None:
    ds = indexed(NANS, "x")
    assert uses_index(ds, predicate)
    assert rows_where(ds, predicate) == right
