"""Everything that was streamed, brought into the table: what this process has in memory, what the shards have
published, and, if asked for, what stands in the logs of shards that nobody has open here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.errors import (
    ClaimLost,
    CorruptFile,
    OutcomeUnknown,
    ShardError,
    StoreError,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.memwal import layout
from tiltyard.memwal.compaction import Compaction, compact_streams
from tiltyard.memwal.ending import Undrained, undrained
from tiltyard.memwal.life import of_this_life, readable, shards_of
from tiltyard.memwal.manifest import on_newest
from tiltyard.memwal.owner import Streamable, take_over_to_empty
from tiltyard.memwal.replay import is_published
from tiltyard.memwal.resharding import compacted, tidy
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.sealing import publish_replayed
from tiltyard.memwal.stream import open_writers
from tiltyard.memwal.wal import positions, read_entry
from tiltyard.table.snapshot import open_latest
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.format.shard_manifest import ShardManifest
    from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class Drained:
    """What was brought in, and what is left: rows that other processes have put and not published."""

    compaction: Compaction
    left: Undrained

    @property
    def version(self) -> int:
        """The table's version afterwards."""
        return self.compaction.version

    @property
    def rows_written(self) -> int:
        """Rows that were inserted or replaced."""
        return self.compaction.upserted

    @property
    def rows_deleted(self) -> int:
        """Rows that were deleted."""
        return self.compaction.deleted

    def __str__(self) -> str:
        told = told_compaction(self.compaction)
        return f"{told}; {self.left} are left" if self.left else told


def told_compaction(done: Compaction) -> str:
    """What a compaction did, in words."""
    if not done.generations:
        return "nothing to compact"
    told = f"{counted(done.generations, 'generation')} compacted: {counted(done.upserted, 'row')} written"
    return f"{told}, {done.deleted:,} deleted" if done.deleted else told


def drain(table: Streamable, *, take_over: bool = False) -> Drained:
    """Bring everything that was streamed into the table.

    `take_over`: of shards whose logs hold rows and that are not open in this process, too: their writers, if
    they live, are fenced. Raises what compaction raises, and in the end what kept a shard from being
    compacted.
    """
    store, session = table._store, table._session
    here = open_writers(store, session)
    for writer in here:
        with suppress(ShardError, OutcomeUnknown):  # ended: what it put is in the log, and counted as left
            writer.flush()
    problems: dict[str, Exception] = {}
    if take_over:
        found, _ = readable(store)  # those that cannot be read are told by the compaction
        shards = of_this_life(open_latest(store, session), found)
        open_here = {each.shard_id for each in here if each.works}
        for shard_id, manifest in shards.items():
            if shard_id in open_here or is_closed(manifest):
                continue
            try:
                if _logs_rows(store, manifest):
                    _emptied(table, shard_id)
            except (CorruptFile, StoreError, UnsupportedFeature) as error:
                problems[shard_id] = error  # told when the others are drained
    tidy(table, compacted)
    done = compact_streams(store, session)
    for problem in (*done.problems.values(), *problems.values()):
        raise problem
    return Drained(done, undrained(*shards_of(store, session)))


def _logs_rows(store: Store, known: ShardManifest) -> bool:
    shard = store.at(layout.shard_dir(known.shard_id))

    def look(manifest: ShardManifest) -> bool:
        above = [each for each in positions(shard) if each > manifest.replay_after]
        entries = (read_entry(shard, each) for each in above)
        return any(each.batches and not is_published(each, manifest) for each in entries)

    return on_newest(shard, known, look)


def _emptied(table: Streamable, shard_id: str) -> None:
    """Take a shard over and publish what its log holds. Nothing where somebody else opens it meanwhile: it
    has an owner that lives.
    """
    with suppress(ClaimLost, WriterFenced):
        publish_replayed(take_over_to_empty(table, shard_id))
