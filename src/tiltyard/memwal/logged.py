"""What stands in the log of a shard that is not open in this process: durable rows that no SSTable has yet.

Whoever reads them sees what other processes have acknowledged, and what a writer that died has left, without
taking the shard over. The rows make the same MemTables that the shard's next owner would begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.errors import CorruptFile, ObjectNotFound, ShardError, WriterFenced
from tiltyard.memwal import layout
from tiltyard.memwal.config import MAX_REPLAYED_BATCHES, MAX_REPLAYED_ROWS
from tiltyard.memwal.entry import Entry
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.replay import Replay
from tiltyard.memwal.wal import read_entry
from tiltyard.memwal.writer import ShardView
from tiltyard.table.back_off import back_off

if TYPE_CHECKING:
    from tiltyard.memwal.log_schema import LogSchema
    from tiltyard.session import Session
    from tiltyard.store import Store

MAX_LOOKS = 8
"""How often the log is read again because the shard changed hands meanwhile."""

ENTRY_BYTES = 512
"""What a kept log entry is accounted as beside its rows."""


def logged_view(shard: Store, shard_id: str, schema: LogSchema, session: Session) -> ShardView | None:
    """The rows above the replay cursor of a shard, newest MemTable first; None where there is no shard.

    Raises `CorruptFile` where the log cannot be read on: a hole, or a damaged entry.
    """
    for attempt in range(MAX_LOOKS):
        manifest = newest(shard)
        if manifest is None:
            return None
        replay = Replay(
            shard,
            schema,
            manifest.replay_after,
            MAX_REPLAYED_ROWS,
            MAX_REPLAYED_BATCHES,
            lambda store, position: _kept(store, position, session),
        )
        try:
            replay.read()
        except (CorruptFile, ObjectNotFound):
            now = newest(shard)
            if now is None or now.replay_after <= manifest.replay_after or attempt == MAX_LOOKS - 1:
                raise
            continue  # what was missing is published, and collected
        try:
            tables = replay.memtables(manifest)
        except WriterFenced:  # claimed since the manifest was read
            back_off(0.0, attempt + 1)
            continue
        views = [each.view() for each in reversed(tables)]
        return ShardView(shard_id, tuple(each for each in views if each.batches), manifest)
    raise ShardError(f"shard {shard_id} changed hands {MAX_LOOKS} times while its log was read; read again")


def _kept(shard: Store, position: int, session: Session) -> Entry:
    """An entry, kept in the session: entries do not change, but where one is repaired its file is another."""
    tag = shard.stat(layout.entry_path(position)).tag

    def made() -> tuple[Entry, int]:
        entry = read_entry(shard, position)
        return entry, ENTRY_BYTES + sum(each.nbytes for each in entry.batches)

    found: Entry = session.cache.get_or((shard.identity, str(position), "log entry", tag), made)
    return found
