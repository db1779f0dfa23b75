"""Which rows of a captured table count: of each key the newest, and none where that one deletes (MemWAL,
sections 6.1 and 6.2).

Filters come after this, never before: a row that was superseded does not come back because the newer one
fails a filter.

Invariants, and their tests in tests/memwal/test_scan.py:
1. Of each key in the levels of the shards exactly the newest row is chosen, or none where that row deletes.
2. A row of the base is chosen only if no level holds its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.kernels.distinct import distinct
from tiltyard.memwal.capture import ShardLevels
from tiltyard.memwal.levels import Keys, Level, MemoryLevel, SsTableLevel
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.memwal.memtable import View
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows

if TYPE_CHECKING:
    from tiltyard.memwal.capture import Captured
    from tiltyard.memwal.merged import MergedLevel

KEPT_BYTES = 1024
"""What is kept of which rows count is accounted as beside the rows (bytes)."""

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
        of_shard, gone_of_shard = _of_shard(captured, shard)
        chosen += of_shard
        shadowed += gone_of_shard
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


def _of_shard(captured: Captured, shard: ShardLevels) -> tuple[list[Chosen], list[Addresses]]:
    """Which rows of each level of a shard count, newest level first, and which of the base do not."""
    memory = [each for each in shard.levels if isinstance(each, MemoryLevel)]
    published = [each for each in shard.levels if isinstance(each, SsTableLevel)]
    if not memory or shard.levels[: len(memory)] != tuple(memory):
        if memory or not published:
            chosen, gone, _ = _chosen(captured, shard.levels)
            return chosen, [gone]
        of_published, gone = _of_published(captured, shard.shard_id, published)
        return [*of_published], [gone]
    cache, key = captured.base.session.cache, (captured.base.store.identity, shard.shard_id, "newer", "")
    known: _KeptWithMemory | None = cache.get(key)
    if known is None or not known.is_of(captured, shard.levels):
        known = _with_memory(captured, shard, memory, published)
        cache.put(key, known, KEPT_BYTES + sum(each.nbytes for each in (*known.rows, *known.gone)))
    return [*map(Chosen, shard.levels, known.rows)], list(known.gone)


def _with_memory(
    captured: Captured, shard: ShardLevels, memory: Sequence[MemoryLevel], published: Sequence[SsTableLevel]
) -> _KeptWithMemory:
    """What counts where some levels are in memory: those are matched with what is known of the others."""
    newer, more_gone, index = _chosen(captured, memory)
    rows, gone = [each.rows for each in newer], [more_gone]
    if published:
        older, gone_before = _of_published(captured, shard.shard_id, published)
        gone.append(gone_before)
        for each in older:
            left = each.rows.copy()
            left[index.find(each.level.keys().columns)[0]] = False
            rows.append(left)
    marks = tuple([ref(each.view) if isinstance(each, MemoryLevel) else each for each in shard.levels])
    return _KeptWithMemory(captured.base.manifest, captured.schema, marks, tuple(rows), tuple(gone))


@dataclass(frozen=True, slots=True)
class _KeptWithMemory:
    """Which rows of a shard's levels count, as long as they, the base and its columns are the same objects.
    What is in memory is not kept there by it.
    """

    base: Any
    schema: LogSchema
    levels: tuple[ref[View] | Level, ...]
    rows: tuple[Bools, ...]
    gone: tuple[Addresses, ...]

    def is_of(self, captured: Captured, levels: Sequence[Level]) -> bool:
        """Whether it is known of these levels."""
        return (
            self.base is captured.base.manifest
            and self.schema is captured.schema
            and len(self.levels) == len(levels)
            and all(map(_is, self.levels, levels))
        )


def _is(known: ref[View] | Level, level: Level) -> bool:
    """Whether a level is the one that something is known of."""
    return (
        known() is level.view if isinstance(level, MemoryLevel) and isinstance(known, ref) else known is level
    )


def _of_published(
    captured: Captured, shard_id: str, levels: Sequence[SsTableLevel]
) -> tuple[Sequence[Chosen], Addresses]:
    """The same of a shard's SSTables alone, kept in the session while neither they nor the base change."""
    base, cache = captured.base, captured.base.session.cache
    key = (base.store.identity, shard_id, "winners", "")
    known: _Kept | None = cache.get(key)
    if known is None or known.base is not base.manifest or known.levels != tuple(levels):
        chosen, gone, _ = _chosen(captured, levels)
        known = _Kept(base.manifest, tuple(levels), tuple(chosen), gone)
        cache.put(key, known, KEPT_BYTES + gone.nbytes + sum(each.rows.nbytes for each in chosen))
    return known.chosen, known.gone


@dataclass(frozen=True, slots=True)
class _Kept:
    """Which rows count of a version of the table with these SSTables (the same objects)."""

    base: Any
    levels: tuple[SsTableLevel, ...]
    chosen: tuple[Chosen, ...]
    gone: Addresses


def _chosen(captured: Captured, levels: Sequence[Level]) -> tuple[list[Chosen], Addresses, KeyIndex]:
    """Which rows of levels, newest first, count, which of the base do not, and all of the levels' keys."""
    oldest_first = [(level, level.keys()) for level in reversed(levels)]
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
    key = resolve_key(captured.base.schema, captured.schema.key)
    return chosen[::-1], find_rows(captured.base, key, index, columns).addresses, index


def _columns(keys: Sequence[Keys]) -> list[Any]:
    if len(keys) == 1:
        return list(keys[0].columns)
    return [pa.concat_arrays(list(column)) for column in zip(*(each.columns for each in keys), strict=True)]
