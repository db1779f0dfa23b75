"""Lists as one flat array and, for each row, where its part begins and how long it is: what functions over
lists compute on, all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import bools_of, valid_of, values_of
from tiltyard.expr.signatures import array_of

MAX_ELEMENTS = np.iinfo(np.int32).max
"""Elements of all lists that one batch of a result can have."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def is_list(arrow: pa.DataType) -> bool:
    """Whether a type is a list of any of the three kinds."""
    return bool(
        pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)
    )


def list_bounds(array: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """A list array as (flat elements, int64[rows] first element, int64[rows] end); null lists are empty."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        flat = array.values[array.offset * size : (array.offset + len(array)) * size]
        first = np.arange(len(array), dtype=np.int64) * size
        return flat, first, first + size
    offsets = array.offsets.to_numpy().astype(np.int64)
    flat = array.values[offsets[0] : offsets[-1]] if len(offsets) else array.values[:0]
    if len(offsets):
        offsets -= offsets[0]
    return flat, offsets[:-1], offsets[1:]


@dataclass(frozen=True, slots=True)
class Ragged:
    """`flat[first[row] : first[row] + count[row]]` are the elements of a row, none where it is null."""

    flat: pa.Array
    first: Numbers
    count: Numbers
    valid: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.first)

    def places(self) -> Numbers:
        """The places in `flat` of all elements, row by row."""
        return spans(self.first, self.count)

    def owners(self) -> Numbers:
        """The row of each of those elements."""
        return np.repeat(np.arange(self.rows), self.count)


def ragged(arg: Any, rows: int) -> Ragged:
    """A list array, or one list for all rows."""
    array = array_of(arg, rows)
    flat, first, end = list_bounds(array)
    known = valid_of(array)
    valid = np.ones(len(array), np.bool_) if known is None else known
    return Ragged(flat, first, np.where(valid, end - first, 0), valid)


def starts(count: np.ndarray) -> Numbers:
    """int64[rows + 1]: where each row of so many elements begins, and the end of the last."""
    return np.concatenate(([0], np.cumsum(count, dtype=np.int64)))


def spans(first: np.ndarray, count: np.ndarray, step: Any = 1) -> Numbers:
    """first, first + step, ...: `count` numbers for each row, one row after the other."""
    before = starts(count)
    inside = np.arange(before[-1]) - np.repeat(before[:-1], count)
    steps = np.repeat(step, count) if isinstance(step, np.ndarray) else step
    return np.repeat(first, count) + inside * steps


def check_elements(count: np.ndarray) -> None:
    """Raises `pa.ArrowInvalid` for more elements of all rows than a batch can have, before they are made."""
    if len(count) and (count.max() > MAX_ELEMENTS or count.sum() > MAX_ELEMENTS):  # a sum alone may wrap
        raise pa.ArrowInvalid(f"lists of more than {MAX_ELEMENTS:,} elements in one batch")


def lists_of(flat: pa.Array, places: np.ndarray, count: np.ndarray, valid: np.ndarray) -> pa.Array:
    """Lists of the elements at `places` (null where negative), `count` of them for each row."""
    check_elements(count)
    offsets = starts(count)
    absent = places < 0
    values = flat.take(pa.array(places, pa.int64(), mask=absent if bool(absent.any()) else None))
    mask = None if bool(valid.all()) else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def chosen(lists: Ragged, keep: np.ndarray) -> pa.Array:
    """The lists without the elements for which `keep`, bool over `places()`, is false."""
    owners = lists.owners()[keep]
    return lists_of(lists.flat, lists.places()[keep], np.bincount(owners, minlength=lists.rows), lists.valid)


def codes(arrays: Sequence[pa.Array]) -> list[Numbers]:
    """Numbers that are ordered as the values of all arrays together, equal where those are; -1 for null.

    NaN equals NaN and is the greatest, -0.0 equals 0.0. Raises `pa.ArrowNotImplementedError` for nested
    values.
    """
    import pyarrow.compute as pc

    whole = pa.concat_arrays(list(arrays))
    arrow = whole.type
    if pa.types.is_nested(arrow):
        raise pa.ArrowNotImplementedError(f"elements of type {arrow} have no order")
    known = valid_of(whole)
    if pa.types.is_null(arrow):
        found = np.full(len(whole), -1, np.int64)
    elif pa.types.is_boolean(arrow):
        found = bools_of(whole).astype(np.int64)
    elif pa.types.is_primitive(arrow) and not pa.types.is_decimal(arrow):
        found = np.unique(values_of(whole), return_inverse=True)[1].astype(np.int64)
    else:
        coded = whole.dictionary_encode()
        rank = np.empty(len(coded.dictionary), np.int64)
        rank[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(rank))
        indices = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        found = rank[indices] if len(rank) else np.full(len(whole), -1, np.int64)
    if known is not None:
        found = np.where(known, found, -1)
    ends = np.cumsum([len(array) for array in arrays])
    return np.split(found, ends[:-1])
