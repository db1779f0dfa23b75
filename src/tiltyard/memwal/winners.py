"""Which rows of a captured table count: of each key the newest, and none where that one deletes (MemWAL,
sections 6.1 and 6.2).

Filters come after this, never before: a row that was superseded does not come back because the newer one
fails a filter.

Invariants, and their tests in tests/memwal/test_reading.py:
1. Of each key in the levels of the shards exactly the newest row is chosen, or none where that row deletes.
2. A row of the base is chosen only if no level holds its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.kernels.distinct import distinct
from tiltyard.memwal.capture import ShardLevels
from tiltyard.memwal.levels import Keys, Level
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows

if TYPE_CHECKING:
    from tiltyard.memwal.capture import Captured
    from tiltyard.memwal.merged import MergedLevel

Bools = npt.NDArray[np.bool_]
Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A level and which of its rows count (bool[rows])."""

    level: Level | MergedLevel
    rows: Bools


@dataclass(frozen=True, slots=True)
class Winners:
    """`levels`: newest first within a shard. `shadowed`: addresses of live rows of the base that do not
    count, ascending (uint64).
    """

    levels: tuple[Chosen, ...]
    shadowed: Addresses

    @property
    def rows(self) -> int:
        """Rows of levels that count."""
        return sum(int(np.count_nonzero(each.rows)) for each in self.levels)


def winners(captured: Captured) -> Winners:
    """Choose. Tables without a key keep every row; with merge functions a shard's levels are one."""
    if not captured.schema.has_key:
        every = [_all(level) for shard in captured.shards for level in shard.levels]
        return Winners(tuple(every), np.empty(0, np.uint64))
    chosen: list[Chosen] = []
    shadowed: list[Addresses] = []
    for shard in disjoint(captured.shards):
        if captured.schema.functions is not None:
            from tiltyard.memwal.merged import MergedLevel

            merged = MergedLevel(shard.levels[::-1], captured.base, captured.schema)
            chosen.append(Chosen(merged, ~merged.keys().deletes))
            shadowed.append(merged.shadowed)
            continue
        index, columns, of_shard = _of_shard(shard)
        chosen += of_shard
        key = resolve_key(captured.base.schema, captured.schema.key)
        shadowed.append(find_rows(captured.base, key, index, columns).addresses)
    gone = distinct(np.concatenate(shadowed)) if shadowed else np.empty(0, np.uint64)
    return Winners(tuple(chosen), gone)


def disjoint(shards: Sequence[ShardLevels]) -> Sequence[ShardLevels]:
    """The shards that have rows, so put together that no key is in two. Shards of one spec have no key in
    common; one of another spec, which somebody began late, may have keys of the one in force, which counts.
    """
    held = [each for each in shards if each.levels]
    if len({each.spec_id for each in held}) < 2:
        return held
    return [ShardLevels("", tuple(level for each in held for level in each.levels))]


def _all(level: Level) -> Chosen:
    return Chosen(level, np.ones(level.rows, np.bool_))


def _of_shard(shard: ShardLevels) -> tuple[KeyIndex, list[Any], list[Chosen]]:
    """All keys of a shard's levels, and the rows of each level that count, newest level first."""
    oldest_first = [(level, level.keys()) for level in reversed(shard.levels)]
    columns = _columns([keys for _, keys in oldest_first])
    index = KeyIndex(columns)
    counts = np.zeros(index.rows, np.bool_)
    counts[index.last_rows()] = True
    start = 0
    chosen = []
    for level, keys in oldest_first:
        end = start + len(keys.deletes)
        chosen.append(Chosen(level, counts[start:end] & ~keys.deletes))
        start = end
    return index, columns, chosen[::-1]


def _columns(keys: Sequence[Keys]) -> list[Any]:
    if len(keys) == 1:
        return list(keys[0].columns)
    return [pa.concat_arrays(list(column)) for column in zip(*(each.columns for each in keys), strict=True)]
