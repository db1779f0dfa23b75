"""How far a table's shards are ahead of it: what is published and not compacted, what only the log holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.errors import TiltyardError
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.life import of_this_life, readable
from tiltyard.memwal.marks import marks_of
from tiltyard.memwal.wal import positions
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class ShardLag:
    """One shard. `mark`: up to which generation the base holds it; `published`: up to which one there are
    SSTables. `rows` and `nbytes` of those in between: superseded rows and deletions count too, bytes are
    estimates; a generation whose writer did not measure counts as nothing. `log_entries` are all that stand,
    sentinels too, `unpublished_entries` those above the cursor.
    """

    shard_id: str
    spec_id: int
    epoch: int
    status: int
    mark: int
    published: int
    generations: int
    rows: int
    nbytes: int
    log_entries: int
    unpublished_entries: int
    tip: int
    """The last log position at which something stands, or stood."""


@dataclass(frozen=True, slots=True)
class Lag:
    """All shards, by id, and what kept others from being read."""

    shards: tuple[ShardLag, ...]
    problems: dict[str, Exception]

    @property
    def generations(self) -> int:
        """Published and not compacted, of all shards."""
        return sum(each.generations for each in self.shards)

    @property
    def rows(self) -> int:
        """Rows of those."""
        return sum(each.rows for each in self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes of those, estimated."""
        return sum(each.nbytes for each in self.shards)

    @property
    def log_entries(self) -> int:
        """Log entries that stand, of all shards."""
        return sum(each.log_entries for each in self.shards)


def lag(store: Store, session: Session, *, shards: Collection[str] | None = None) -> Lag:
    """How far the shards of the table's life are ahead of it; those of an earlier life are left out.

    Reads manifests, and names of log entries. Raises `InvalidInput` for a shard that there is not, and what
    opening the table raises.
    """
    found, problems = readable(store, shards)
    base = open_latest(store, session)
    marks = marks_of(base)
    shards_ahead = []
    for shard_id, manifest in of_this_life(base, found).items():
        try:
            standing = positions(store.at(layout.shard_dir(shard_id)))
        except TiltyardError as error:
            problems[shard_id] = error
            continue
        shards_ahead.append(measured(shard_id, manifest, marks.get(shard_id, 0), standing))
    return Lag(tuple(sorted(shards_ahead, key=lambda each: each.shard_id)), problems)


def measured(shard_id: str, manifest: ShardManifest, mark: int, standing: list[int]) -> ShardLag:
    """How far a shard is ahead, by its manifest, its mark and the positions in its log. Pure."""
    waiting = [each for each in manifest.sstables if each.generation > mark]
    return ShardLag(
        shard_id,
        manifest.shard_spec_id,
        manifest.writer_epoch,
        manifest.status,
        mark,
        manifest.current_generation - 1,
        len(waiting),
        sum(each.physical_rows or 0 for each in waiting),
        sum(each.in_memory_bytes or 0 for each in waiting),
        len(standing),
        sum(each > manifest.replay_after for each in standing),
        max([manifest.replay_after, *standing]),
    )
