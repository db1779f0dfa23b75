"""How far a table's shards are ahead of it: what is published and not compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal.life import of_this_life, readable
from tiltyard.memwal.marks import marks_of
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class ShardLag:
    """How much of one shard is published and not compacted: generations, their rows and bytes in memory.
    Superseded rows and deletions count too, bytes are estimates; a generation whose writer did not measure
    counts as nothing.
    """

    generations: int
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Lag:
    """All shards, by id, and what kept others from being read."""

    shards: Mapping[str, ShardLag]
    problems: Mapping[str, Exception]

    @property
    def generations(self) -> int:
        """Published and not compacted, of all shards."""
        return sum(each.generations for each in self.shards.values())

    @property
    def rows(self) -> int:
        """Rows of those."""
        return sum(each.rows for each in self.shards.values())


def lag(store: Store, session: Session) -> Lag:
    """How far the shards of the table's life are ahead of it; those of an earlier life are left out.

    Reads manifests alone. Raises what opening the table raises.
    """
    found, problems = readable(store)
    base = open_latest(store, session)
    marks = marks_of(base)
    shards = of_this_life(base, found)
    return Lag({each: measured(shards[each], marks.get(each, 0)) for each in sorted(shards)}, problems)


def measured(manifest: ShardManifest, mark: int) -> ShardLag:
    """How far a shard is ahead, by its manifest and its mark. Pure."""
    waiting = [each for each in manifest.sstables if each.generation > mark]
    return ShardLag(
        len(waiting),
        sum(each.physical_rows or 0 for each in waiting),
        sum(each.in_memory_bytes or 0 for each in waiting),
    )
