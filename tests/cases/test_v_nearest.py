"""Public bug reports about vector search, tried on exact search without an index (cases V03, V04)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput

ROWS, DIMENSION = 1000, 16
RNG = np.random.default_rng(7)
MATRIX = RNG.standard_normal((ROWS, DIMENSION), dtype=np.float32)


def _table(matrix: Any = MATRIX, nulls: Any = None) -> pa.Table:
    mask = None if nulls is None else pa.array(np.isin(np.arange(len(matrix)), nulls))
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1], mask=mask)
    return pa.table({"id": pa.array(range(len(matrix)), pa.int64()), "v": column})


def _ids(ds: Any, query: Any, k: int, **more: Any) -> list[int]:
    return ds.to_table(columns=["id"], nearest={"column": "v", "q": query, "k": k, **more})["id"].to_pylist()


def test_v03_deleted_neighbours_make_room_for_the_next(tmp_path: Path) -> None:
    """V03."""
    ds = lance.write_dataset(_table(), tmp_path / "v", max_rows_per_file=300)
    order = _ids(ds, MATRIX[0], ROWS)
    assert len(order) == ROWS
    assert order[0] == 0
    ds.delete(f"id IN ({', '.join(map(str, order[:500]))})")
    assert _ids(ds, MATRIX[0], 500) == order[500:]
    assert _ids(ds, MATRIX[0], 1) == order[500:501]
    assert _ids(ds, MATRIX[0], ROWS) == order[500:]
    ds.optimize.compact_files()
    assert _ids(ds, MATRIX[0], 500) == order[500:]
    assert _ids(ds, MATRIX[0], 1) == order[500:501]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_v04_what_has_no_distance_is_never_given_and_what_cannot_be_asked_is_refused(
    metric: str, tmp_path: Path
) -> None:
    """V04."""
    matrix = MATRIX[:20].copy()
    matrix[3], matrix[5, 2] = np.nan, np.nan
    matrix[7] = 0
    ds = lance.write_dataset(_table(matrix, nulls=[1, 9]), tmp_path / "v")
    given = set(_ids(ds, MATRIX[0], 100, metric=metric))
    assert given == set(range(20)) - {1, 9, 3, 5} - ({7} if metric == "cosine" else set())
    for bad in ({"k": 0}, {"k": -1}, {"q": MATRIX[0][:5]}, {"q": [np.nan] * DIMENSION}):
        with pytest.raises(InvalidInput):
            ds.to_table(nearest={"column": "v", "q": MATRIX[0], "k": 3, "metric": metric, **bad})
    if metric == "cosine":
        with pytest.raises(InvalidInput, match="direction"):
            _ids(ds, np.zeros(DIMENSION), 3, metric=metric)
    assert ds.version == 1


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("item", ["float16", "float32", "float64"])
def test_the_official_package_finds_the_same_at_the_same_distance(
    metric: str, item: str, tmp_path: Path, peer: Peer
) -> None:
    path = str(tmp_path / "v")
    ds = lance.write_dataset(_table(MATRIX[:, :8].astype(item)), path, max_rows_per_file=300)
    ds.delete("id % 7 = 3")
    query = MATRIX[11, :8].astype(item).astype(np.float32).tolist()
    near = {"column": "v", "q": query, "k": 25, "metric": metric}
    for more in ({}, {"filter": "id % 2 = 0"}, {"filter": "id % 2 = 0", "prefilter": True}):
        ours = ds.to_table(columns=["id"], nearest=near, **more)
        theirs = peer("lance.dataset(p).to_table(columns=['id'], nearest=n, **m)", p=path, n=near, m=more)
        assert ours.schema == theirs.schema
        tolerance = 5e-3 if item == "float16" else 1e-5
        np.testing.assert_allclose(
            ours["_distance"].to_numpy(), theirs["_distance"].to_numpy(), rtol=tolerance, atol=tolerance
        )
        if item != "float16":
            assert ours["id"].to_pylist() == theirs["id"].to_pylist()


def test_a_table_with_a_vector_index_of_the_official_package_is_searched_exactly(
    tmp_path: Path, peer: Peer
) -> None:
    path = str(tmp_path / "v")
    lance.write_dataset(_table(), path)
    peer("lance.dataset(p).create_index('v', 'IVF_FLAT', num_partitions=4, metric='l2').version", p=path)
    ds = lance.dataset(path)
    query = RNG.standard_normal(DIMENSION, dtype=np.float32)
    exact = np.argsort(((MATRIX - query) ** 2).sum(axis=1), kind="stable")[:20].tolist()
    for use_index in (True, False):
        assert _ids(ds, query, 20, use_index=use_index, nprobes=1) == exact
    ds.delete("id = 0")
    assert peer("[i.name for i in lance.dataset(p).describe_indices()]", p=path) == ["v_idx"]
