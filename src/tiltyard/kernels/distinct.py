"""Distinct numbers by sorting. NumPy has `unique`, which hashes since 2.3, and numbers that count up, such as
addresses of rows, meet in its table: 450,000 of them take it 1.5 s, and 25 ms here.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """The distinct values of a flat array of whole numbers, ascending, in an array of their own."""
    ordered = np.sort(values)
    if len(ordered) < 2:
        return ordered
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
