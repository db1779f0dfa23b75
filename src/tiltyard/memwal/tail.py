"""A shard's log as a feed of changes: every entry's rows, in the order in which they became durable.

The feed begins after a position and follows the log as it grows. Entries that were collected are told, never
skipped; so is a log that cannot be read on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tiltyard import runtime
from tiltyard.errors import LogTruncated, ObjectNotFound, ShardError
from tiltyard.memwal import layout
from tiltyard.memwal.entry import Entry
from tiltyard.memwal.joining import joined
from tiltyard.memwal.log_schema import TOMBSTONE, LogSchema, reconciled
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.wal import first_hole, positions, read_entry, without_holes
from tiltyard.store import Store

POLL_SECONDS = 0.05
"""How often a log that has ended is looked at again."""


@dataclass(frozen=True, slots=True)
class Change:
    """One log entry: its position, its writer's epoch, rows that were put and keys that were deleted, in the
    order of the log.

    `rows`: a `pa.RecordBatch` in the table's columns and `_tombstone`: where that is true, the row deletes
    its key and has nothing in the other columns.
    """

    position: int
    epoch: int
    rows: Any

    @property
    def deletes(self) -> Any:
        """Which rows delete (a boolean `pa.Array`)."""
        return self.rows.column(TOMBSTONE)


class Follower:
    """Reads a shard's log on from a position, each time as far as it goes."""

    def __init__(self, shard: Store, after: int = 0) -> None:
        self._shard = shard
        self.at = after
        """The last position that was passed: entries above it come next."""

    def changes(self, schema: LogSchema) -> Iterator[Change]:
        """The entries above `at` that hold rows, in the columns of `schema`; each moves `at` before it is
        given. Raises as `tail` does.
        """
        found = positions(self._shard)
        if not found and newest(self._shard) is None:
            raise ShardError(f"there is no shard at {self._shard.uri}")
        for position in self._standing(found):
            try:
                entry = read_entry(self._shard, position)
            except ObjectNotFound:  # collected since
                self._standing(positions(self._shard))
                raise
            self.at = position
            change = _change(entry, schema, self._shard)
            if change is not None:
                yield change

    def _standing(self, found: list[int]) -> list[int]:
        """The positions to read next. Raises rather than go on over entries that are not there."""
        standing = [each for each in found if each > self.at]
        if first_hole(self.at, standing) is None:
            return standing
        manifest = newest(self._shard)
        cursor = 0 if manifest is None else manifest.replay_after
        there = set(standing)
        gone = [each for each in range(self.at + 1, cursor + 1) if each not in there]
        if gone:
            raise LogTruncated(
                f"entries {gone[0]} to {gone[-1]} of the log at {self._shard.uri} were collected: their rows "
                f"are in SSTables or the base. Read the table, then follow from {gone[-1]}",
                gone[-1],
            )
        return without_holes(self._shard, self.at, standing)


def tail(
    shard: Store,
    schema: LogSchema,
    after: int = 0,
    *,
    follow: bool = False,
    deadline: float | None = None,
) -> Iterator[Change]:
    """The entries above position `after` that hold rows; 0 for all that are kept.

    `follow`: wait for more when the end is reached, until `deadline` (boot clock, seconds), or for ever.
    Raises `LogTruncated` where entries above `after` were collected, `CorruptFile` for a hole or damage,
    `ShardError` where there is no shard.
    """
    follower = Follower(shard, after)
    while True:
        before = follower.at
        yield from follower.changes(schema)
        if not follow or (deadline is not None and runtime.monotonic() >= deadline):
            return
        if follower.at == before:
            runtime.sleep(POLL_SECONDS)


def _change(entry: Entry, schema: LogSchema, shard: Store) -> Change | None:
    if not entry.batches:
        return None
    where = f"{shard.uri}/{layout.entry_path(entry.position)}"
    batches = [reconciled(each, schema, where) for each in entry.batches]
    return Change(entry.position, entry.epoch, batches[0] if len(batches) == 1 else joined(batches))
