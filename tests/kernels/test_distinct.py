"""Distinct numbers, against a set."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.kernels.distinct import distinct


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1)))
def test_every_number_comes_once_in_order(numbers: list[int]) -> None:
    given_ = np.array(numbers, np.uint64)
    found = distinct(given_)
    assert found.dtype == np.uint64
    assert found.tolist() == sorted(set(numbers))
    assert given_.tolist() == numbers
