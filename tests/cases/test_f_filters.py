"""Public bug reports about filters, tried on us through a table (cases F01-F03, F06, F07, F10, F12)."""

from __future__ import annotations

from pathlib import Path

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
from tiltyard.errors import InvalidExpression, TiltyardError


def rows_where(table: pa.Table, predicate: str, tmp_path: Path) -> list[int]:
    """Numbers of the rows that the predicate keeps; a scan, a count and a delete must agree."""
    path = str(tmp_path / "t.lance")
    numbered = table.append_column("n", pa.array(range(table.num_rows), pa.int64()))
    lance.write_dataset(numbered, path, mode="overwrite")
    dataset = lance.dataset(path)
    kept = dataset.to_table(columns=["n"], filter=predicate)["n"].to_pylist()
    assert dataset.count_rows(predicate) == len(kept)
    dataset.delete(predicate)
    left = lance.dataset(path).to_table(columns=["n"])["n"].to_pylist()
    assert sorted(kept + left) == list(range(table.num_rows))
    return kept


@pytest.mark.parametrize(("predicate", "right"), NULL_LOGIC)
def test_f01_a_null_is_neither_true_nor_false(predicate: str, right: list[int], tmp_path: Path) -> None:
    assert rows_where(WITH_NULL, predicate, tmp_path) == right


@pytest.mark.parametrize(("predicate", "right"), NULLS_IN_LISTS)
def test_f02_a_null_in_a_list_of_values(predicate: str, right: list[int], tmp_path: Path) -> None:
    assert rows_where(WITH_NULL, predicate, tmp_path) == right


@pytest.mark.parametrize(
    ("predicate", "right"),
    [("l IS NOT NULL", [0, 2, 3, 4]), ("l IS NULL", [1]), ("NOT (l IS NULL)", [0, 2, 3, 4])],
)
def test_f03_lists_that_are_empty_or_hold_a_null_are_not_null(
    predicate: str, right: list[int], tmp_path: Path
) -> None:
    assert rows_where(LISTS, predicate, tmp_path) == right


def test_f03_array_functions_answer_as_the_official_ones_or_are_refused(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    numbered = LISTS.append_column("n", pa.array(range(5)))
    lance.write_dataset(numbered, path)
    for predicate in ("array_has(l, 'a')", "NOT array_has(l, 'a')", "array_has_any(l, make_array('b'))"):
        try:
            mine = lance.dataset(path).to_table(columns=["n"], filter=predicate)["n"].to_pylist()
        except InvalidExpression:
            continue  # refused: nothing is answered wrongly
        official = "lance.dataset(p).to_table(columns=['n'], filter=f)['n'].to_pylist()"
        assert mine == peer(official, p=path, f=predicate)


@pytest.mark.parametrize(("predicate", "right"), EQUAL_ZEROS)
def test_f06_the_two_zeros_are_equal(predicate: str, right: list[int], tmp_path: Path) -> None:
    assert rows_where(ZEROS, predicate, tmp_path) == right


@pytest.mark.parametrize(("predicate", "right"), GREATEST_NANS)
def test_f07_the_sign_of_nan_makes_no_difference(predicate: str, right: list[int], tmp_path: Path) -> None:
    assert rows_where(NANS, predicate, tmp_path) == right


NAMES = pa.table({"Name": ["C", "D"], "name": ["x", "y"], "two words": [1, 2]})


@pytest.mark.parametrize(
    ("predicate", "right"),
    [
        ("\"Name\" = 'D'", [1]),
        ("`Name` = 'D'", [1]),
        ("\"name\" = 'x'", [0]),
        ('"two words" = 2', [1]),
        ("`two words` < 2", [0]),
    ],
)
def test_f10_a_quoted_name_is_a_name_and_never_a_text(
    predicate: str, right: list[int], tmp_path: Path
) -> None:
    assert rows_where(NAMES, predicate, tmp_path) == right


def test_f10_a_quoted_name_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(NAMES, path)
    with pytest.raises(TiltyardError, match="NAME"):
        lance.dataset(path).to_table(filter="\"NAME\" = 'D'")
    with pytest.raises(TiltyardError):
        lance.dataset(path).to_table(filter='Name = "D"')


@pytest.mark.parametrize("length", [100, 600, 5000])
def test_f12_long_chains_of_or_work(length: int, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": list(range(10_000))}), path)
    chain = " OR ".join(f"x = {2 * i}" for i in range(length))
    found = lance.dataset(path).to_table(filter=chain)["x"].to_pylist()
    assert found == [2 * i for i in range(min(length, 5000))]


def test_f12_a_hundred_thousand_values_in_a_list_work(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": list(range(10_000))}), path)
    values = ", ".join(str(3 * i) for i in range(100_000))
    assert lance.dataset(path).count_rows(f"x IN ({values})") == 3334


@pytest.mark.parametrize("depth", [50, 2000])
def test_f12_deep_nesting_works_or_is_refused_by_name(depth: int, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1, 2]}), path)
    nested = "(" * depth + "x = 1" + ")" * depth
    try:
        assert lance.dataset(path).to_table(filter=nested)["x"].to_pylist() == [1]
    except InvalidExpression:
        assert depth == 2000
