"""Many keys against one index at once: for merges, which ask for the rows of every key of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.expr.arrays import valid_of, values_of
from tiltyard.index.order import Order

if TYPE_CHECKING:
    from tiltyard.index.btree.search import BTree, Places, RowIds

ROWS_A_KEY = 1024
"""Texts are looked up one by one where there are more rows than this between the first and the last of them
for each; else the rows are looked up among the texts."""


def find(tree: BTree, keys: pa.Array) -> tuple[Places, RowIds]:
    """See `BTree.find`."""
    if keys.type != tree.type:
        raise InvalidInput(f"keys of type {keys.type} for an index on {tree.type}")
    valid = valid_of(keys)
    positions = np.arange(len(keys), dtype=np.int64) if valid is None else np.flatnonzero(valid)
    if not len(positions) or tree.rows == tree.nulls:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    present = keys if valid is None else keys.take(pa.array(positions))
    order = tree.order
    if order.is_text:
        return _find_texts(tree, present, positions)
    if pa.types.is_floating(keys.type):
        return _find_floats(tree, present, positions)
    return _find_keys(tree, np.asarray(order.keys(present)), positions)


def _find_keys(tree: BTree, keys: npt.NDArray[Any], positions: Places) -> tuple[Places, RowIds]:
    ordered = np.argsort(keys, kind="stable")
    wanted = keys[ordered]
    first = tree.places(wanted, "left")
    return _spread(tree, positions[ordered], first, tree.places(wanted, "right"))


def _find_floats(tree: BTree, keys: pa.Array, positions: Places) -> tuple[Places, RowIds]:
    """-0.0 and 0.0 find each other, and so do all NaNs."""
    order = tree.order
    values = values_of(keys)
    is_nan = np.isnan(values)
    plain = ~is_nan & (values != 0)
    found = [_find_keys(tree, np.asarray(order.keys(keys))[plain], positions[plain])]
    for chosen, value in ((values == 0, 0.0), (is_nan, float("nan"))):
        if not chosen.any():
            continue
        for low, high in order.point(value):
            start, stop = tree.place(low), tree.place(high)
            at = positions[chosen]
            spans = np.full(len(at), start, np.int64), np.full(len(at), stop, np.int64)
            found.append(_spread(tree, at, *spans))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _find_texts(tree: BTree, keys: pa.Array, positions: Places) -> tuple[Places, RowIds]:
    ordered = tree.order.argsort(keys)
    texts: Any = tree.order.keys(keys)
    start = tree.place(_point(tree.order, texts.at(int(ordered[0])))[0])
    stop = tree.place(_point(tree.order, texts.at(int(ordered[-1])))[1])
    if len(keys) * ROWS_A_KEY >= stop - start:
        return _join_texts(tree, keys, positions, start, stop)
    first, last = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    before: bytes | None = None
    for i, row in enumerate(ordered.tolist()):
        key = texts.at(row)
        if key == before:
            first[i], last[i] = first[i - 1], last[i - 1]
            continue
        low, high = _point(tree.order, key)
        first[i] = tree.place(low)
        last[i] = tree.place(high)
        before = key
    return _spread(tree, positions[ordered], first, last)


def _point(order: Order, key: bytes) -> Any:
    return order.point(key)[0]


def _join_texts(
    tree: BTree, keys: pa.Array, positions: Places, start: int, stop: int
) -> tuple[Places, RowIds]:
    """All values of the rows between two places are looked up among the keys."""
    import pyarrow.compute as pc

    encoded = keys.dictionary_encode()
    numbers = values_of(encoded.indices)
    by_number = np.argsort(numbers, kind="stable")
    begins = np.searchsorted(numbers[by_number], np.arange(len(encoded.dictionary) + 1))
    found: list[tuple[Places, RowIds]] = [(np.empty(0, np.int64), np.empty(0, np.uint64))]
    for values, ids in tree.entries(start, stop):
        hits = pc.call_function("index_in", [values], pc.SetLookupOptions(encoded.dictionary))
        present = valid_of(hits)
        rows = np.arange(len(hits)) if present is None else np.flatnonzero(present)
        which = values_of(hits)[rows]
        counts = begins[which + 1] - begins[which]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        at = np.arange(total) + np.repeat(begins[which] - (ends - counts), counts)
        found.append((positions[by_number[at]], np.repeat(ids[rows], counts)))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _spread(tree: BTree, positions: Places, first: Places, last: Places) -> tuple[Places, RowIds]:
    """Each position beside the ids of rows `first` to `last` of the stored order."""
    counts = last - first
    hit = counts > 0
    positions, first, counts = positions[hit], first[hit], counts[hit]
    total = int(counts.sum())
    if not total:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    if int(counts.max()) == 1:
        return positions, tree.ids_at(first)
    ends = np.cumsum(counts)
    rows = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
    return np.repeat(positions, counts), tree.ids_at(rows)
