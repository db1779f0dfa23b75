"""What the log holds above the replay cursor, as the MemTables that its new owner begins with (MemWAL, 3.5).

Entries are put in order by position, and only by it. An entry's generation says where a MemTable ended, and
whether it was published: the official writer's cursor may stop short of the last entries of the generation
that it publishes with it (seen in pylance 14.0.2), and rows of a table without a key would come twice. An
entry without a generation, or of one that the manifest has not come to, is kept, whoever's epoch.

Invariant: what a MemTable holds carries no generation below the MemTable's own number, so that no other owner
takes it for published (tests/memwal/test_replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tiltyard.errors import CorruptFile, WriterFenced
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.entry import Entry
from tiltyard.memwal.joining import in_few, joined
from tiltyard.memwal.log_schema import LogSchema, check_keys, is_as_stored, reconciled
from tiltyard.memwal.memtable import MemTable
from tiltyard.memwal.wal import positions, read_entry, without_holes
from tiltyard.store import Store


def is_published(entry: Entry, manifest: ShardManifest) -> bool:
    """Whether an entry's rows are in an SSTable, even if it stands above the cursor."""
    return entry.position <= manifest.replay_after or (
        entry.generation is not None and entry.generation < manifest.current_generation
    )


@dataclass(slots=True)
class _Filling:
    """A MemTable and the entries that it is to hold."""

    table: MemTable
    rows: int = 0
    entries: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    """Position and batches of each."""

    def add(self, entry: Entry, batches: tuple[Any, ...]) -> None:
        """One more entry, with its batches in the log's columns."""
        self.rows += entry.rows
        self.entries.append((entry.position, batches))

    def filled(self) -> MemTable:
        """The MemTable with the rows of all; those of small entries are put together."""
        table = self.table
        if not table.is_plain:
            for position, batches in self.entries:
                whole = _named(
                    batches[0] if len(batches) == 1 else joined(batches), table.schema.stored.arrow
                )
                table.takes(whole)
                table.logged(position, whole, whole.nbytes, whole.num_rows)
            return table
        if self.entries:
            schema, tip = table.schema.stored.arrow, self.entries[-1][0]
            every = (each for _, batches in self.entries for each in batches)
            for whole in in_few(every, range(len(schema)), schema, is_plain=True):
                table.logged(tip, whole, whole.nbytes, whole.num_rows, 0)
            table.entries = len(self.entries)
        return table


@dataclass(slots=True)
class Replay:
    """The entries above a cursor that were read so far, and the MemTables that they make."""

    shard: Store
    schema: LogSchema
    after: int
    """Positions up to here are in SSTables."""
    rows_of_generation: int
    entries_of_generation: int
    entry_at: Callable[[Store, int], Entry] = read_entry
    """How an entry is read."""
    _entries: list[Entry] = field(default_factory=list)
    _fitted: list[tuple[Any, ...]] = field(default_factory=list)
    """The batches of each entry in the columns of `schema.stored`, but for what those say beside their types.
    """
    _as_stored: Any = None
    """The schema of the last entry whose columns are those as they are."""
    _is_named: bool = False
    """Whether it is that of `schema.stored`, but for its metadata."""
    _never_null: Sequence[int] = ()

    def read(self) -> None:
        """Read what was added to the log since the last call. Raises `CorruptFile` for a hole or damage."""
        known = self._entries[-1].position if self._entries else self.after
        standing = [each for each in positions(self.shard) if each > known]
        standing = without_holes(self.shard, known, standing)
        self._entries += [self.entry_at(self.shard, each) for each in standing]
        self._check()

    @property
    def tip(self) -> int:
        """The last position that was read."""
        return self._entries[-1].position if self._entries else self.after

    @property
    def highest_epoch(self) -> int:
        """The greatest epoch among the entries."""
        return max((each.epoch for each in self._entries), default=0)

    def check_epochs(self, manifest: ShardManifest) -> None:
        """Raise `CorruptFile` for an entry of an epoch that the owner after this manifest would not reach."""
        for entry in self._entries:
            if entry.epoch > manifest.writer_epoch + 1:
                raise CorruptFile(
                    f"WAL entry at position {entry.position} has writer_epoch {entry.epoch}, which no "
                    f"manifest of the shard has come to (the newest has {manifest.writer_epoch}): manifests "
                    "were lost, or the entry was copied here. `tiltyard shard check` tells what is there",
                    self._where(entry),
                )

    def _check(self) -> None:
        """What no owner could replay: wrong columns, generations that go back."""
        for entry in self._entries[len(self._fitted) :]:
            self._fitted.append(tuple([self._fit(batch, entry) for batch in entry.batches]))
        last = 0
        for entry in self._entries:
            if entry.batches and entry.generation is not None:
                if entry.generation < last:
                    raise CorruptFile(
                        f"WAL entry at position {entry.position} has generation {entry.generation} below the "
                        f"generation {last} replayed before it",
                        self._where(entry),
                    )
                last = entry.generation

    def _fit(self, batch: Any, entry: Entry) -> Any:
        """A batch with the columns of `schema.stored`; most entries have them as the one before has."""
        if self._as_stored is not None and batch.schema.equals(self._as_stored, True):
            if any(batch.column(at).null_count for at in self._never_null):
                check_keys(batch, self.schema, self._where(entry))
            return batch if self._is_named else _named(batch, self.schema.stored.arrow)
        fitted = reconciled(batch, self.schema, self._where(entry))
        self._as_stored = batch.schema if is_as_stored(batch.schema, self.schema) else None
        self._is_named = batch.schema.equals(self.schema.stored.arrow)
        self._never_null = self.schema.never_null()
        return fitted

    def _where(self, entry: Entry) -> str:
        return f"{self.shard.uri}/{layout.entry_path(entry.position)}"

    def memtables(self, manifest: ShardManifest) -> list[MemTable]:
        """The MemTables, oldest first, the last of them the active one. Raises `WriterFenced`."""
        if self.highest_epoch > manifest.writer_epoch:
            raise WriterFenced(
                f"WAL replay aborted: the log of the shard at {self.shard.uri} has an entry of writer_epoch "
                f"{self.highest_epoch} > our claimed epoch {manifest.writer_epoch} (writer was fenced during "
                "open)"
            )
        tables = [_Filling(MemTable(manifest.current_generation, self.schema))]
        last: int | None = None
        fitted_at = {
            each.position: batches for each, batches in zip(self._entries, self._fitted, strict=True)
        }
        for entry in self._unpublished(manifest):
            active = tables[-1]
            ended = entry.generation is not None and last is not None and entry.generation > last
            if active.rows and (ended or self._is_full(active, entry)):
                table = active.table
                active = _Filling(MemTable(table.generation + 1, self.schema, table.stamp + 1))
                tables.append(active)
            if entry.generation is not None:
                active.table.stamp = max(active.table.stamp, entry.generation)
            last = entry.generation if entry.generation is not None else last
            active.add(entry, fitted_at[entry.position])
        return [each.filled() for each in tables]

    def _unpublished(self, manifest: ShardManifest) -> Iterable[Entry]:
        return (e for e in self._entries if e.batches and not is_published(e, manifest))

    def _is_full(self, active: _Filling, entry: Entry) -> bool:
        """Whether a boundary is needed that the log does not name: only entries without a generation."""
        if entry.generation is not None:
            return False
        too_many = active.rows + entry.rows > self.rows_of_generation
        return too_many or len(active.entries) >= self.entries_of_generation


def _named(batch: Any, schema: Any) -> Any:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
