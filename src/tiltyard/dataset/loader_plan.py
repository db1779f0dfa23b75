"""Which rows a worker of a training run reads, in which order: decided purely, from row counts and a seed.

1. The live rows are cut into blocks of neighbours; a block never spans fragments.
2. The blocks are shuffled, the same for all workers of an epoch.
3. In that order, each shard gets as many rows as any other, give or take one.
4. A shard's rows come in pools of whole blocks; a pool is read at once, and its rows are shuffled.

So a place in the pass is a pool and a number of rows in it, and whoever knows the seed finds the same row
there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.table.plan import Unit

Ints = npt.NDArray[np.int64]


def chance(seed: int, *more: int) -> Any:
    """A generator of NumPy that gives the same numbers for the same arguments."""
    return np.random.Generator(np.random.PCG64([seed, *more]))


@dataclass(frozen=True, slots=True)
class Order:
    """How rows are put in order: `seed` None keeps that of the table."""

    seed: int | None
    block_rows: int
    pool_rows: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of a pass. `is_even`: all have the same number of rows; what is left goes to
    none.
    """

    number: int
    count: int
    is_even: bool = False

    def bounds(self, rows: int) -> tuple[int, int]:
        """From which row to which the part goes, of so many."""
        if self.is_even:
            share = rows // self.count
            return self.number * share, (self.number + 1) * share
        return rows * self.number // self.count, rows * (self.number + 1) // self.count


class Pools:
    """The pools of a shard, in order; their rows before any filter."""

    def __init__(self, live_rows: Ints, order: Order, shard: Shard, epoch: int) -> None:
        self._order = order
        self._shard = shard
        self._epoch = epoch
        size = order.block_rows
        counts = -(-live_rows // size)
        fragment = np.repeat(np.arange(len(live_rows)), counts)
        start = (np.arange(len(fragment)) - np.repeat(np.cumsum(counts) - counts, counts)) * size
        if order.seed is not None:
            chosen = chance(order.seed, epoch).permutation(len(fragment))
            fragment, start = fragment[chosen], start[chosen]
        stop = np.minimum(start + size, live_rows[fragment])
        ends = np.cumsum(stop - start)
        low, high = shard.bounds(int(live_rows.sum()))
        begin, last = np.searchsorted(ends, [low, high - 1], side="right") if high > low else (0, -1)
        part = slice(int(begin), int(last) + 1)
        self._fragment, self._start, self._stop = fragment[part], start[part].copy(), stop[part].copy()
        if high > low:
            self._start[0] = self._stop[0] - (int(ends[begin]) - low)
            self._stop[-1] -= int(ends[last]) - high
        self._firsts = np.cumsum(live_rows) - live_rows
        self.rows = high - low
        """Rows of the shard."""
        begins = np.cumsum(self._stop - self._start) - (self._stop - self._start)
        cuts = np.flatnonzero(np.diff(begins // order.pool_rows)) + 1
        self._bounds = np.concatenate([[0], cuts, [len(begins)]]) if len(begins) else np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def rows_of(self, pool: int) -> int:
        """Rows of a pool, before any filter; 0 where there is no pool."""
        if not len(self):
            return 0
        part = slice(int(self._bounds[pool]), int(self._bounds[pool + 1]))
        return int((self._stop[part] - self._start[part]).sum())

    def units(self, pool: int) -> list[Unit]:
        """What to read for a pool: in table order, neighbours as one."""
        part = slice(int(self._bounds[pool]), int(self._bounds[pool + 1]))
        fragment, start, stop = self._fragment[part], self._start[part], self._stop[part]
        by_place = np.lexsort((start, fragment))
        fragment, start, stop = fragment[by_place], start[by_place], stop[by_place]
        joins = (fragment[1:] == fragment[:-1]) & (start[1:] == stop[:-1])
        begins = np.flatnonzero(np.concatenate([[True], ~joins]))
        ends = np.concatenate([begins[1:], [len(start)]]) - 1
        return [
            Unit(int(fragment[a]), int(start[a]), int(stop[z]), int(self._firsts[fragment[a]] + start[a]))
            for a, z in zip(begins, ends, strict=True)
        ]

    def shuffled(self, pool: int, rows: int) -> Ints | None:
        """The order of the rows of a pool that passed the filter; None as they are."""
        seed = self._order.seed
        if seed is None:
            return None
        return chance(seed, self._epoch, 1 + self._shard.number, pool).permutation(rows)
