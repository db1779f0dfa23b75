"""Exact nearest-neighbour search against a plain computation in double precision, and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature, WrongType
from tiltyard.table.nearest import search as search_module
from tiltyard.table.nearest import vectors as vectors_module

ITEMS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def _column(matrix: npt.NDArray[Any], nulls: list[int] | None = None) -> Any:
    mask = None
    if nulls:
        mask = np.zeros(len(matrix), dtype=bool)
        mask[nulls] = True
        mask = pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1], mask=mask)


def _expected(
    matrix: npt.NDArray[Any], query: npt.NDArray[Any], metric: str, k: int, keep: npt.NDArray[np.bool_]
) -> tuple[list[int], list[float]]:
    wide, q = matrix.astype(np.float64), query.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric == "l2":
            found = ((wide - q) ** 2).sum(axis=1)
        elif metric == "dot":
            found = 1 - (wide * q).sum(axis=1)
        else:
            lengths = np.sqrt((wide**2).sum(axis=1)) * np.sqrt((q**2).sum())
            found = 1 - (wide * q).sum(axis=1) / lengths
    found = found.astype(np.float32)
    rows = np.flatnonzero(keep & ~np.isnan(found))
    order = rows[np.lexsort((rows, found[rows]))][:k]
    return order.tolist(), found[order].tolist()


def _search(ds: Any, query: Any, k: int = 5, **options: Any) -> Any:
    nearest = {"column": "v", "q": query, "k": k}
    for name in ("metric", "distance_range"):
        if name in options:
            nearest[name] = options.pop(name)
    return ds.to_table(columns=["id"], nearest=nearest, **options)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK_BYTES", 256)
    monkeypatch.setattr(search_module, "UNDECIDED_ROWS", 8)
    monkeypatch.setattr(search_module, "QUERIES_AT_ONCE", 2)


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 120),
    dimension=st.integers(1, 9),
    item=st.sampled_from(sorted(ITEMS)),
    metric=st.sampled_from(["l2", "cosine", "dot"]),
    k=st.integers(1, 30),
    coarse=st.booleans(),
)
def test_the_nearest_are_those_of_a_plain_computation(
    seed: int, rows: int, dimension: int, item: str, metric: str, k: int, coarse: bool
) -> None:
    """Over several fragments with nulls, NaN and deleted rows, and with many equal distances."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((rows, dimension))
    matrix = (matrix.round() if coarse else matrix).astype(ITEMS[item])
    nulls = np.flatnonzero(random.random(rows) < 0.1).tolist()
    matrix[random.random(rows) < 0.1] = np.nan
    keep = ~np.isin(np.arange(rows), nulls)
    table = pa.table({"id": np.arange(rows), "v": _column(matrix, nulls)})
    ds = lance.write_dataset(table, f"memory://nearest-{seed}-{rows}", max_rows_per_file=40, mode="overwrite")
    gone = np.flatnonzero(random.random(rows) < 0.2).tolist()
    if gone:
        ds.delete(f"id IN ({', '.join(map(str, gone))})")
        keep[gone] = False
    query = random.standard_normal(dimension).astype(ITEMS[item])
    query[0] = query[0] or 1
    for where, passes in ((None, keep), ("id % 3 = 1", keep & (np.arange(rows) % 3 == 1))):
        found = _search(ds, query, k, metric=metric, filter=where, prefilter=True)
        ids, distances = _expected(matrix, query, metric, k, passes)
        assert found["id"].to_pylist() == ids
        assert found["_distance"].to_pylist() == distances


@pytest.fixture
def points(tmp_path: Path) -> Any:
    matrix = np.array([[0, 0], [1, 0], [0, 1], [2, 2], [np.nan, 0], [3, 4], [1, 0], [-1, 0]], np.float32)
    table = pa.table({"id": np.arange(8), "v": _column(matrix, [3]), "s": [f"r{i}" for i in range(8)]})
    return lance.write_dataset(table, tmp_path / "points")


def test_equal_distances_come_in_table_order(points: Any) -> None:
    found = _search(points, [1.0, 0.0], 8)
    assert found["id"].to_pylist() == [1, 6, 0, 2, 7, 5]
    assert found["_distance"].to_pylist() == [0, 0, 1, 2, 4, 20]
    assert found.schema.field("_distance").type == pa.float32()


def test_the_columns_are_those_asked_for_and_the_distance(points: Any) -> None:
    near = {"column": "v", "q": [1.0, 0.0], "k": 2}
    assert points.to_table(nearest=near).column_names == ["id", "v", "s", "_distance"]
    assert points.to_table(columns=["_distance", "s"], nearest=near).column_names == ["_distance", "s"]
    found = points.to_table(columns={"twice": "_distance * 2 + id"}, nearest=near, with_row_id=True)
    assert found.to_pydict() == {"twice": [1, 6], "_distance": [0, 0], "_rowid": [1, 6]}
    assert points.to_table(columns=[], nearest=near).column_names == ["_distance"]
    alone = points.to_table(columns=["s"], nearest=near, disable_scoring_autoprojection=True)
    assert alone.to_pydict() == {"s": ["r1", "r6"]}
    assert points.to_table(nearest=near, disable_scoring_autoprojection=True).num_columns == 4


def test_a_filter_after_the_search_picks_among_the_nearest(points: Any) -> None:
    after = _search(points, [1.0, 0.0], 3, filter="id > 3")
    before = _search(points, [1.0, 0.0], 3, filter="id > 3", prefilter=True)
    assert after["id"].to_pylist() == [6]
    assert before["id"].to_pylist() == [6, 7, 5]
    assert _search(points, [1.0, 0.0], 4, filter="_distance >= 1")["id"].to_pylist() == [0, 2]
    with pytest.raises(FieldNotFound, match="_distance"):
        _search(points, [1.0, 0.0], 4, filter="_distance >= 1", prefilter=True)


def test_limit_and_offset_cut_the_result(points: Any) -> None:
    assert _search(points, [1.0, 0.0], 4, limit=2, offset=1)["id"].to_pylist() == [6, 0]
    assert points.scanner(nearest={"column": "v", "q": [1, 0], "k": 4}, limit=3).count_rows() == 3
    assert points.scanner(nearest={"column": "v", "q": [1, 0]}).head(1)["id"].to_pylist() == [1]


def test_distances_within_a_range(points: Any) -> None:
    assert _search(points, [1.0, 0.0], 8, distance_range=(1, 4))["id"].to_pylist() == [0, 2]
    assert _search(points, [1.0, 0.0], 1, distance_range=(1, None))["id"].to_pylist() == [0]
    assert _search(points, [1.0, 0.0], 8, distance_range=(4, 1)).num_rows == 0


def test_several_query_vectors_each_have_their_nearest(points: Any) -> None:
    found = points.to_table(columns=["id"], nearest={"column": "v", "q": [[1.0, 0], [0, 1], [9, 9]], "k": 2})
    assert found.column_names == ["query_index", "id", "_distance"]
    assert found["query_index"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert found["id"].to_pylist() == [1, 6, 2, 0, 5, 1]
    assert not found.schema.field("query_index").nullable


@pytest.mark.parametrize(
    "query",
    [
        (1, 0),
        np.array([1, 0]),
        pa.array([1.0, 0.0]),
        pa.scalar([1.0, 0.0], pa.list_(pa.float32(), 2)),
        pa.chunked_array([[1.0], [0.0]]),
    ],
)
def test_a_query_vector_may_be_any_list_of_numbers(query: Any, points: Any) -> None:
    assert _search(points, query, 2)["id"].to_pylist() == [1, 6]


def test_bits_are_compared_by_hamming_distance(tmp_path: Path) -> None:
    matrix = np.array([[0, 255], [1, 255], [3, 255], [0, 0]], np.uint8)
    table = pa.table({"id": np.arange(4), "v": _column(matrix, [0])})
    ds = lance.write_dataset(table, tmp_path / "bits")
    found = _search(ds, [0, 255], 10)
    assert found["id"].to_pylist() == [1, 2, 3]
    assert found["_distance"].to_pylist() == [1, 2, 8]
    with pytest.raises(InvalidInput, match="hamming"):
        _search(ds, [0, 255], metric="l2")
    with pytest.raises(InvalidInput, match="from 0 to 255"):
        _search(ds, [0.5, 1])


def test_vectors_inside_a_struct_and_with_null_items(tmp_path: Path) -> None:
    vectors = pa.array([[1, 0], None, [None, 1], [0, 1], [5, 5]], pa.list_(pa.float32(), 2))
    mask = pa.array([False, False, False, False, True])
    inner = pa.StructArray.from_arrays([vectors], ["v"], mask=mask)
    ds = lance.write_dataset(pa.table({"id": range(5), "s": inner}), tmp_path / "struct")
    found = ds.to_table(columns=["id"], nearest={"column": "s.v", "q": [0, 1], "k": 9})
    assert found["id"].to_pylist() == [3, 0]


def test_infinite_distances_come_last(tmp_path: Path) -> None:
    matrix = np.array([[np.inf, 1], [3e38, 3e38], [1, 1], [1e30, 0]], np.float32)
    ds = lance.write_dataset(pa.table({"id": np.arange(4), "v": _column(matrix)}), tmp_path / "inf")
    assert _search(ds, [1, 2], 9)["id"].to_pylist() == [2, 0, 1, 3]
    assert _search(ds, [1, 2], 9)["_distance"].to_pylist() == [1, np.inf, np.inf, np.inf]
    assert _search(ds, [1, 2], 1)["id"].to_pylist() == [2]


def test_batches_are_cut_to_size(points: Any) -> None:
    scanner = points.scanner(nearest={"column": "v", "q": [1, 0], "k": 5}, batch_size=2)
    assert [batch.num_rows for batch in scanner.to_batches()] == [2, 2, 1]
    assert scanner.to_reader().read_all() == scanner.to_table()


def test_pseudo_columns_and_a_column_that_older_fragments_lack(tmp_path: Path, peer: Peer) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(6, 2)
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": np.arange(6), "v": _column(matrix)}), path, max_rows_per_file=4)
    peer("lance.dataset(p).add_columns(pa.field('w', pa.list_(pa.float32(), 2)))", p=path)
    ds = lance.dataset(path)
    ds.delete("id = 0")
    columns = ["_rowoffset", "_rowaddr", "id"]
    found = ds.to_table(columns=columns, nearest={"column": "v", "q": [9, 9], "k": 2})
    assert found.drop(["_distance"]).to_pydict() == {
        "_rowoffset": [3, 4],
        "_rowaddr": [1 << 32, (1 << 32) + 1],
        "id": [4, 5],
    }
    near = {"column": "w", "q": [0, 0]}
    assert ds.to_table(nearest=near).num_rows == 0
    more = pa.table({"id": [7], "v": _column(matrix[:1]), "w": _column(matrix[1:2])})
    ds = lance.write_dataset(more, path, mode="append")
    assert ds.to_table(columns=["id"], nearest=near).to_pydict() == {"id": [7], "_distance": [13]}


def test_only_the_fragments_named_are_searched(tmp_path: Path) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(6, 2)
    table = pa.table({"id": np.arange(6), "v": _column(matrix)})
    ds = lance.write_dataset(table, tmp_path / "parts", max_rows_per_file=2)
    found = _search(ds, [0, 0], 9, fragments=[ds.get_fragment(1), ds.get_fragment(2)])
    assert found["id"].to_pylist() == [2, 3, 4, 5]
    assert ds.get_fragment(2).to_table(nearest={"column": "v", "q": [0, 0], "k": 1})["id"].to_pylist() == [4]


def test_what_tunes_a_vector_index_changes_nothing(points: Any) -> None:
    near = {"column": "v", "q": [1, 0], "k": 3}
    plain = points.to_table(nearest=near)
    for more in (
        {"nprobes": 1},
        {"refine_factor": 5, "ef": 20},
        {"use_index": False},
        {"query_parallelism": -1},
    ):
        assert points.to_table(nearest={**near, **more}) == plain


def test_the_plan_says_that_the_search_is_exact(points: Any) -> None:
    scanner = points.scanner(nearest={"column": "v", "q": [1, 0], "k": 3}, filter="id > 2", prefilter=True)
    plan = scanner.explain_plan()
    assert "nearest: 3 by l2 in v, exact" in plan
    assert "filter before the search: id > 2" in plan
    assert "rows: 3" in scanner.analyze_plan()


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"k": 0}, InvalidInput, "k must be positive"),
        ({"k": 1.0}, WrongType, "whole number"),
        ({"q": [1, 2, 3]}, InvalidInput, "3 dimensions"),
        ({"q": [[1, 2], [3]]}, InvalidInput, "one length"),
        ({"q": [np.nan, 0]}, InvalidInput, "finite"),
        ({"q": [1e300, 0]}, InvalidInput, "finite"),
        ({"q": [0, 0], "metric": "cosine"}, InvalidInput, "direction"),
        ({"q": "text"}, WrongType, "list of numbers"),
        ({"q": [True, False]}, WrongType, "list of numbers"),
        ({"q": ["a", "b"]}, WrongType, "list of numbers"),
        ({"q": pa.array([1.0, None])}, InvalidInput, "null"),
        ({"q": None}, WrongType, "needs 'q'"),
        ({"column": "w"}, FieldNotFound, "w"),
        ({"column": "id"}, WrongType, "vectors"),
        ({"metric": "manhattan"}, InvalidInput, "manhattan"),
        ({"metric": "hamming"}, InvalidInput, "hamming"),
        ({"nprobes": 0}, InvalidInput, "nprobes"),
        ({"minimum_nprobes": 3, "maximum_nprobes": 2}, InvalidInput, "minimum_nprobes"),
        ({"refine_factor": 0}, InvalidInput, "refine_factor"),
        ({"distance_range": 3}, WrongType, "distance_range"),
        ({"distance_range": (np.nan, 1)}, InvalidInput, "distance_range"),
        ({"search_effort": 2}, InvalidInput, "search_effort"),
        ({"approx_mode": "best"}, InvalidInput, "approx_mode"),
        ({"top": 3}, WrongType, "top"),
    ],
)
def test_what_is_wrong_with_a_search_is_said(
    changes: dict[str, Any], error: type[Exception], told: str, points: Any
) -> None:
    with pytest.raises(error, match=told):
        points.to_table(nearest={"column": "v", "q": [1, 0], "k": 3, **changes})


def test_what_does_not_go_with_a_search_is_refused(points: Any) -> None:
    near = {"column": "v", "q": [1, 0]}
    with pytest.raises(InvalidInput, match="include_deleted_rows"):
        points.to_table(nearest=near, include_deleted_rows=True, with_row_id=True)
    with pytest.raises(InvalidInput, match="order_by"):
        points.to_table(nearest=near, order_by=["id"])


def test_vectors_of_other_types_are_refused_by_name(tmp_path: Path) -> None:
    several = pa.array([[[1.0, 0.0]]], pa.list_(pa.list_(pa.float32(), 2)))
    whole = pa.array([[1, 2]], pa.list_(pa.int32(), 2))
    ds = lance.write_dataset(pa.table({"m": several, "i": whole}), tmp_path / "other")
    with pytest.raises(UnsupportedFeature, match="several vectors a row"):
        ds.to_table(nearest={"column": "m", "q": [1, 0]})
    with pytest.raises(UnsupportedFeature, match="int32"):
        ds.to_table(nearest={"column": "i", "q": [1, 0]})


def test_names_that_a_search_gives_must_be_free(tmp_path: Path) -> None:
    column = _column(np.zeros((1, 2), np.float32))
    ds = lance.write_dataset(pa.table({"v": column, "query_index": [1]}), tmp_path / "taken")
    assert ds.to_table(nearest={"column": "v", "q": [1, 0]}).num_rows == 1
    with pytest.raises(InvalidInput, match="query_index"):
        ds.to_table(nearest={"column": "v", "q": [[1, 0]]})
