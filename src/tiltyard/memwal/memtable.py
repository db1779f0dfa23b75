"""The rows of one generation in memory, and how far they stand in the log.

A MemTable only grows, in the order of the log; a reader keeps what it saw. Batches that are put into the log
together are kept together: many small puts do not stay many small batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiltyard.memwal.joining import DictionaryRoom
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.memwal.sstable import Rows


@dataclass(frozen=True, slots=True)
class View:
    """What a reader saw of a MemTable."""

    generation: int
    batches: tuple[Any, ...]

    @property
    def rows(self) -> int:
        """Rows, superseded ones included."""
        return sum(each.num_rows for each in self.batches)


class MemTable:
    """One generation. Changed by one thread at a time (the log's leader); `view` may be called by any."""

    def __init__(self, generation: int, schema: LogSchema, stamp: int | None = None) -> None:
        self.generation = generation
        self.stamp = generation if stamp is None else stamp
        """The generation that log entries carry: ours, or above that of other writers' entries."""
        self.schema = schema
        self.rows = 0
        self.nbytes = 0
        self.entries = 0
        """Log entries that hold its rows."""
        self.pending_bytes = 0
        """Of the batches that are not in the log yet."""
        self.logged_to = 0
        """The last log position with rows of it."""
        self._room = DictionaryRoom(schema.stored.arrow)
        self._held: tuple[tuple[Any, ...], list[Any]] = ((), [])  # in the log, not in the log yet

    def takes(self, batch: Any) -> bool:
        """Whether the dictionaries of a batch can become one with those of all that were asked about."""
        return self._room.takes(batch)

    def add(self, batch: Any) -> None:
        """Take rows (columns of `LogSchema.stored`) that are not in the log yet; readers see them at once."""
        nbytes = batch.nbytes
        self.rows += batch.num_rows
        self.nbytes += nbytes
        self.pending_bytes += nbytes
        self._held[1].append(batch)

    def logged(self, position: int, combined: Any, more: int) -> None:
        """All pending rows and `more` rows after them stand in the log at this position, as `combined`."""
        self.rows += more
        self.nbytes += combined.nbytes - self.pending_bytes
        self.pending_bytes = 0
        self.entries += 1
        self.logged_to = position
        self._held = ((*self._held[0], combined), [])  # one step: a reader sees each row once

    @property
    def pending(self) -> list[Any]:
        """Batches that are not in the log yet."""
        return self._held[1]

    def view(self) -> View:
        """What is in it now."""
        logged, pending = self._held
        return View(self.generation, (*logged, *pending))

    def stored(self) -> Rows:
        """Its rows, to be written as an SSTable."""
        return Rows(self.view().batches, self.schema)
