"""Sorting pairs: the compiled loop and its reference give the same, stable order."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.kernels.reference import encode as reference


def _compiled() -> ModuleType:
    return pytest.importorskip("tiltyard.kernels._encode")


BOUNDS = st.sampled_from([0, 1, 255, 2**11 - 1, 2**22, 2**33, 2**63, 2**64 - 1])


@given(st.integers(0, 3000), BOUNDS, BOUNDS, st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_both_sort_alike_and_equals_keep_their_order(rows: int, one: int, other: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(min(one, other), max(one, other), rows, dtype=np.uint64, endpoint=True)
    ids = rng.integers(0, 2**64 - 1, rows, dtype=np.uint64)
    expected = np.argsort(keys, kind="stable")
    for loops in (reference, _compiled()):
        mine, along = keys.copy(), ids.copy()
        loops.sort_pairs(mine, along, np.empty_like(mine), np.empty_like(along))
        assert np.array_equal(mine, keys[expected])
        assert np.array_equal(along, ids[expected])


@pytest.mark.parametrize("short", range(4))
def test_arrays_of_different_lengths_are_refused(short: int) -> None:
    arrays = [np.zeros(3 if i == short else 4, np.uint64) for i in range(4)]
    for loops in (reference, importlib.import_module("tiltyard.kernels.encode"), _compiled()):
        with pytest.raises(ValueError, match="four arrays of one length"):
            loops.sort_pairs(*arrays)
