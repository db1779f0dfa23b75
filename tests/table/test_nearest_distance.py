"""Bounds of distances hold the exact values, over random vectors of every scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.table.nearest.distance import _widened, bounds, exact, hamming, products, squared_norms

METRICS = ("l2", "cosine", "dot")
DTYPES = (np.float16, np.float32, np.float64)


def _vectors(seed: int, rows: int, dimension: int, dtype: Any, scale: float) -> npt.NDArray[Any]:
    made = np.random.default_rng(seed).standard_normal((rows, dimension)) * scale
    with np.errstate(over="ignore"):
        return made.astype(dtype)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    dimension=st.integers(1, 40),
    metric=st.sampled_from(METRICS),
    dtype=st.sampled_from(DTYPES),
    exponent=st.integers(-25, 25),
)
def test_the_exact_distance_lies_within_the_bounds(
    seed: int, dimension: int, metric: str, dtype: Any, exponent: int
) -> None:
    scale = 10.0**exponent if dtype is not np.float16 else 10.0 ** (exponent / 10)
    block = _vectors(seed, 50, dimension, dtype, scale)
    block[0], block[1] = 0, block[2]
    block[3] = np.nan
    query = _vectors(seed + 1, 1, dimension, dtype, scale)
    query[0, 0] = query[0, 0] or 1
    with np.errstate(all="ignore"):
        length = float((query[0].astype(np.float64) ** 2).sum())
        lower, upper = bounds(metric, products(block, query)[:, 0], squared_norms(block), length, dimension)
        found = exact(metric, block, query[0])
    known = ~np.isnan(found)
    assert not known[3]
    assert np.isnan(lower[3])
    assert (lower[known] <= found[known]).all()
    assert (found[known] <= upper[known]).all()
    assert found[1] == found[2] or np.isnan(found[1])


@pytest.mark.parametrize("metric", METRICS)
def test_bounds_are_tight_for_ordinary_vectors(metric: str) -> None:
    block = _vectors(1, 100, 768, np.float32, 1.0)
    query = _vectors(2, 1, 768, np.float32, 1.0)
    length = float((query.astype(np.float64) ** 2).sum())
    lower, upper = bounds(metric, products(block, query)[:, 0], squared_norms(block), length, 768)
    assert (upper - lower).max() < 1e-2 * np.abs(upper).max()


@pytest.mark.parametrize("dimension", [1, 7, 8, 64])
def test_hamming_counts_bits(dimension: int) -> None:
    block = np.random.default_rng(3).integers(0, 256, (20, dimension), dtype=np.uint8)
    wanted = np.unpackbits(block ^ block[4], axis=1).sum(axis=1)
    assert hamming(block, block[4]).tolist() == wanted.tolist()


def test_half_precision_is_widened_exactly() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 31)
    assert (_widened(finite) == finite.astype(np.float32)).all()
    with np.errstate(all="ignore"):
        assert np.isnan(squared_norms(np.array([[np.nan, 1], [np.inf, 1], [2, 1]], np.float16)))[0]
        assert squared_norms(np.array([[np.inf, 1], [2, 1]], np.float16)).tolist() == [np.inf, 5]
