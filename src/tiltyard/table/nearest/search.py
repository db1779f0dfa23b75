"""The search itself: every block gives the rows that may be among the nearest; the few that are left at the
end are computed exactly.

Memory is bounded: blocks are read in windows, and the rows kept between windows are cut to those that may
still be among the nearest; where too many are left undecided they are computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.table.nearest.distance import bounds, exact, hamming, products
from tiltyard.table.nearest.vectors import Block, Matrix, VectorColumn

if TYPE_CHECKING:
    from tiltyard.table.nearest.query import VectorQuery

BLOCKS_PER_CORE = 4
"""Blocks of a window per core."""

QUERIES_AT_ONCE = 32
"""Query vectors that share one pass over the data."""

UNDECIDED_ROWS = 1 << 16
"""Rows beyond k that may wait for their exact distance."""

EXACT_BYTES = 8 << 20
"""Bytes of vectors that are read at once for exact distances."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with bounds of their distances: number of the fragment among those searched (int64), physical
    offset (int64), lower and upper bound (float64).
    """

    orders: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.orders)

    def at(self, chosen: npt.NDArray[np.generic]) -> Rows:
        """The rows at these places, or under this mask."""
        return Rows(self.orders[chosen], self.offsets[chosen], self.lower[chosen], self.upper[chosen])


@dataclass(frozen=True, slots=True)
class Found:
    """The nearest rows of one query, nearest first and in row order where distances are equal: fragments'
    positions in the version's list (int64), physical offsets (int64), distances (float32).
    """

    positions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]


def search(
    column: VectorColumn, query: VectorQuery, positions: list[int], physical: npt.NDArray[np.int64]
) -> list[Found]:
    """The nearest rows for each query vector in the fragments at `positions`, in this order.

    `physical`: rows of every fragment of the version, deleted ones too.
    """
    blocks = column.blocks(positions, physical)
    found: list[Found] = []
    for first in range(0, len(query.vectors), QUERIES_AT_ONCE):
        found += _Search(column, query, positions, slice(first, first + QUERIES_AT_ONCE)).run(blocks)
    return found


class _Search:
    """One pass for a few query vectors."""

    def __init__(
        self, column: VectorColumn, query: VectorQuery, positions: list[int], members: slice
    ) -> None:
        self._column = column
        self._query = query
        self._positions = positions
        self._vectors = query.vectors[members]
        wide = self._vectors.astype(np.float64)
        self._lengths = np.einsum("ij,ij->i", wide, wide).tolist()
        nothing = np.empty(0, np.int64)
        empty = Rows(nothing, nothing, np.empty(0), np.empty(0))
        self._kept = [empty for _ in self._vectors]

    def run(self, blocks: list[Block]) -> list[Found]:
        width = BLOCKS_PER_CORE * runtime.cores()
        for start in range(0, len(blocks), width):
            ceilings = [self._ceiling(kept.lower, kept.upper) for kept in self._kept]
            window = runtime.parallel(
                [partial(self._block, block, ceilings) for block in blocks[start : start + width]]
            )
            for number in range(len(self._kept)):
                self._merge(number, [part[number] for part in window if part])
        return [self._found(number) for number in range(len(self._kept))]

    def _block(self, block: Block, ceilings: list[float]) -> list[Rows]:
        """The rows of a block that may be among the nearest, for each query; no list where it has no rows."""
        matrix = self._column.read(block)
        if matrix is None:
            return []
        is_bits = self._query.metric == "hamming"
        dots = None if is_bits else products(matrix.vectors, self._vectors)
        found = []
        for number, ceiling in enumerate(ceilings):
            if dots is None:
                lower = upper = self._bits(matrix, number)
            else:
                lower, upper = bounds(
                    self._query.metric,
                    dots[:, number],
                    matrix.lengths,
                    self._lengths[number],
                    self._query.dimension,
                )
            at = self._candidates(lower, upper, ceiling)
            orders = np.full(len(at), block.order, dtype=np.int64)
            found.append(Rows(orders, matrix.offsets_at(at), _wide(lower[at]), _wide(upper[at])))
        return found

    def _bits(self, matrix: Matrix, number: int) -> npt.NDArray[np.float32]:
        distances = hamming(matrix.vectors, self._vectors[number])
        if matrix.usable is not None:
            distances[~matrix.usable] = np.nan
        return distances

    def _candidates(
        self, lower: npt.NDArray[np.floating], upper: npt.NDArray[np.floating], ceiling: float
    ) -> npt.NDArray[np.intp]:
        """Places of the rows that may be among the nearest, given that k rows lie at or below `ceiling`."""
        keep = (lower <= ceiling) & (upper >= self._query.low)
        if self._query.high < np.inf:
            keep &= lower < self._query.high
        at = np.flatnonzero(keep)
        if len(at) > self._query.k:
            top = self._ceiling(lower[at], upper[at])
            at = at[lower[at] <= top]
        return at

    def _ceiling(self, lower: npt.NDArray[np.floating], upper: npt.NDArray[np.floating]) -> float:
        """A distance that k of these rows, all within the range asked for, surely do not exceed."""
        query = self._query
        sure = upper
        if query.low > -np.inf or query.high < np.inf:
            sure = upper[(lower >= query.low) & (upper < query.high)]
        if len(sure) < query.k:
            return np.inf
        return float(np.partition(sure, query.k - 1)[query.k - 1])

    def _merge(self, number: int, parts: list[Rows]) -> None:
        rows = _joined([self._kept[number], *parts])
        rows = rows.at(self._candidates(rows.lower, rows.upper, np.inf))
        if len(rows) > self._query.k + UNDECIDED_ROWS:
            rows = self._nearest(number, rows)
        self._kept[number] = rows

    def _nearest(self, number: int, rows: Rows) -> Rows:
        """The nearest k of the rows by exact distance, in order of the result."""
        distances = self._exact(number, rows)
        query = self._query
        keep = (distances >= query.low) & ((distances < query.high) | (query.high == np.inf))
        rows, distances = rows.at(keep), distances[keep]
        order = np.lexsort((rows.offsets, rows.orders, distances))[: query.k]
        exactly = distances[order]
        return Rows(rows.orders[order], rows.offsets[order], exactly, exactly)

    def _exact(self, number: int, rows: Rows) -> npt.NDArray[np.float64]:
        found = np.empty(len(rows), dtype=np.float64)
        order = np.lexsort((rows.offsets, rows.orders))
        step = max(1, EXACT_BYTES // max(1, self._vectors[0].nbytes))
        for each in np.unique(rows.orders).tolist():
            low, high = np.searchsorted(rows.orders[order], [each, each + 1])
            for start in range(int(low), int(high), step):
                places = order[start : min(start + step, int(high))]
                vectors = self._column.vectors_at(self._positions[each], rows.offsets[places])
                found[places] = exact(self._query.metric, vectors, self._vectors[number])
        return found

    def _found(self, number: int) -> Found:
        rows = self._nearest(number, self._kept[number])
        positions = np.asarray(self._positions, dtype=np.int64)[rows.orders]
        return Found(positions, rows.offsets, rows.lower.astype(np.float32))


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([each.orders for each in parts]),
        np.concatenate([each.offsets for each in parts]),
        np.concatenate([each.lower for each in parts]),
        np.concatenate([each.upper for each in parts]),
    )


def _wide(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    return values.astype(np.float64)
