"""The rows of one generation in memory, and how far they stand in the log.

A MemTable only grows, in the order of the log; a reader keeps what it saw. Batches that are put into the log
together are kept together: many small puts do not stay many small batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltyard.expr.arrays import plain
from tiltyard.format.concatenated import concatenated
from tiltyard.memwal.joining import DictionaryRoom
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.table.merge.keys import Words
from tiltyard.table.merge.sorted_keys import Ints, SortedKeys, key_words

Runs = tuple[SortedKeys, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a generation: batches in the order in which they came (columns of `LogSchema.stored`)."""

    batches: Sequence[Any]
    schema: LogSchema

    def key_columns(self) -> list[Any]:
        """The key's columns over all batches, plain."""
        return [plain(concatenated([each.column(name) for each in self.batches])) for name in self.schema.key]

    @property
    def rows(self) -> int:
        """How many rows, superseded ones included."""
        return sum(each.num_rows for each in self.batches)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class View:
    """What a reader saw of a MemTable."""

    generation: int
    batches: tuple[Any, ...]
    keys: KeyRuns = field(repr=False, compare=False)
    """Where keys stand, in this MemTable as it grows."""
    _ends: Sequence[int] = field(repr=False, compare=False)
    """Rows up to and with each batch of the MemTable that is in the log; those of the view are the first."""
    _logged: int = field(repr=False, compare=False)

    @property
    def rows(self) -> int:
        """Rows, superseded ones included."""
        logged = self._ends[self._logged - 1] if self._logged else 0
        return logged + sum(each.num_rows for each in self.batches[self._logged :])

    def place(self, row: int) -> tuple[int, int]:
        """Which batch a row is in, and which of its rows it is."""
        at = bisect_right(self._ends, row, 0, self._logged)
        start = self._ends[at - 1] if at else 0
        while at >= self._logged and row >= start + self.batches[at].num_rows:
            start += self.batches[at].num_rows
            at += 1
        return at, row - start

    def last_row(self, word: np.uint64) -> int:
        """The last row of one key among the view's, by its word; -1 where there is none."""
        rows = self.rows
        for run in reversed(self.keys.up_to(self, rows)):
            row = run.last_of(word, rows)
            if row >= 0:
                return row
        return -1

    def last_rows(self, words: Words) -> tuple[Ints, Ints]:
        """The last row of each key among the view's, by its word: positions in `words`, and rows."""
        rows = self.rows
        runs = self.keys.up_to(self, rows)
        last = np.full(len(words), -1, np.int64)
        for run in reversed(runs):
            missing = np.flatnonzero(last < 0)
            at, found = run.last(words[missing], rows)
            last[missing[at]] = found
        positions = np.flatnonzero(last >= 0)
        return positions, last[positions]


class KeyRuns:
    """The keys of a MemTable in sorted runs, as far as somebody has asked for them: rows that came since make
    a run of their own, and runs of like size are joined.

    Rows of a MemTable keep their numbers, so that a reader whose view is older leaves the later ones out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._made: tuple[Runs, int] = ((), 0)  # one step: readers at once may each make the same

    def up_to(self, view: View, rows: int) -> Runs:
        """Runs, oldest first, that hold the keys of the view's rows; maybe of later ones too."""
        runs, covered = self._made
        if covered >= rows:
            return runs
        words = key_words([plain(self._column(view, name, covered)) for name in self._names])[0]
        numbers = np.arange(covered, rows, dtype=np.uint32)
        runs = _joined([*runs, SortedKeys(words, numbers)])
        self._made = runs, rows
        return runs

    def _column(self, view: View, name: str, first: int) -> Any:
        at, offset = view.place(first)
        chunks = [each.column(name) for each in view.batches[at:]]
        chunks[0] = chunks[0].slice(offset)
        return concatenated(chunks)


def _joined(runs: Iterable[SortedKeys]) -> Runs:
    """The same keys in few runs, each more than twice as long as the next."""
    made = list(runs)
    while len(made) > 1 and len(made[-2]) <= 2 * len(made[-1]):
        last = made.pop()
        made[-1] = made[-1].joined(last)
    return tuple(made)


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
        self._ends: list[int] = []  # rows up to and with each batch that is in the log
        self._seen: View | None = None  # by the last reader
        self._keys = KeyRuns(schema.key)

    @property
    def is_plain(self) -> bool:
        """Whether no column is a dictionary, or has one inside."""
        return self._room.is_plain

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

    def logged(self, position: int, combined: Any, nbytes: int, more: int, entries: int = 1) -> None:
        """All pending rows and `more` rows after them stand in the log up to this position, in so many
        entries, as `combined`, which has so many bytes.
        """
        self.rows += more
        self.nbytes += nbytes - self.pending_bytes
        self.pending_bytes = 0
        self.entries += entries
        self.logged_to = position
        self._ends.append((self._ends[-1] if self._ends else 0) + combined.num_rows)
        self._held = ((*self._held[0], combined), [])  # one step: a reader sees each row once

    @property
    def pending(self) -> list[Any]:
        """Batches that are not in the log yet."""
        return self._held[1]

    def view(self) -> View:
        """What is in it now."""
        logged, pending = self._held
        seen = self._seen
        if seen is None or seen._logged != len(logged) or len(seen.batches) - seen._logged != len(pending):
            batches = (*logged, *pending)
            seen = self._seen = View(self.generation, batches, self._keys, self._ends, len(logged))
        return seen

    def stored(self) -> Rows:
        """Its rows, to be written as an SSTable."""
        return Rows(self.view().batches, self.schema)
