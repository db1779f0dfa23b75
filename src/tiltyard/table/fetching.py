"""Asking object stores for what a scan reads next, while it decodes what is here.

What is asked for and not yet decoded is bounded in bytes, and begins small, so that who stops after a few
rows has not paid for the table. Tests: tests/table/test_fetching.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import TiltyardError
from tiltyard.table.plan import Piece

if TYPE_CHECKING:
    from tiltyard.table.unit_reader import UnitReader

FETCH_BYTES = 64 << 20
"""Asked for ahead of what is decoded: at most about so many bytes."""

FIRST_BYTES = 8 << 20
"""The same at the beginning; every task that was decoded doubles it."""

KEPT_SHARE = 4
"""And no more than this part of what the session keeps of files."""

FETCHERS = 4
"""Pieces that are asked for at a time; each sends its ranges side by side."""


class FetchAhead:
    """Fetches the pieces of a scan in order. Safe among threads; no thread of it ever waits for the scan.

    Invariant: before a piece is asked for, those that were asked for and not passed come to less than the
    allowance: by a guess from `row_bytes` while they are on their way, then by what was fetched.
    """

    def __init__(self, reader: UnitReader, pieces: Sequence[Piece], row_bytes: int) -> None:
        self._reader = reader
        self._pieces = pieces
        self._row_bytes = row_bytes
        self._ends = list(accumulate(piece.rows for piece in pieces))
        self._lock = runtime.leaf_lock()
        self._next = self._passed = self._rows = self._fetchers = 0
        # What was fetched has to be there still when it is read.
        self._most = min(FETCH_BYTES, reader.snapshot.session.limits.map_bytes // KEPT_SHARE)
        self._allowed = min(FIRST_BYTES, self._most)
        self._asked: dict[int, int] = {}  # bytes of each piece from `_passed` to `_next`
        self._kept: dict[int, Any] = {}
        self._is_over = False

    def begin(self) -> None:
        """Have as much asked for as may be."""
        while True:
            with self._lock:
                if self._fetchers >= FETCHERS:
                    return
                number = self._take()
                if number is None:
                    return
                self._fetchers += 1
            runtime.spawn(self._fetch, number)

    def passed(self, rows: int) -> None:
        """So many further rows have been decoded."""
        with self._lock:
            self._rows += rows
            self._allowed = min(2 * self._allowed, self._most)
            done = bisect_right(self._ends, self._rows)
            for number in range(self._passed, done):
                self._asked.pop(number, None)
                self._kept.pop(number, None)
            self._passed = max(self._passed, done)
            self._next = max(self._next, done)
        self.begin()

    def end(self) -> None:
        """Nothing more will be read: ask for nothing more, and keep nothing."""
        with self._lock:
            self._is_over = True
            self._kept.clear()

    def _take(self) -> int | None:
        """The next piece to be asked for, if there is room."""
        number = self._next
        if self._is_over or number >= len(self._pieces) or sum(self._asked.values()) >= self._allowed:
            return None
        self._next += 1
        self._asked[number] = self._pieces[number].rows * self._row_bytes
        return number

    def _fetch(self, number: int | None) -> None:
        try:
            while number is not None:
                kept, nbytes = self._reader.fetch(self._pieces[number])
                with self._lock:
                    if number in self._asked and not self._is_over:  # else it was passed meanwhile
                        self._asked[number], self._kept[number] = nbytes, kept
                    number = self._take()
        except TiltyardError:
            self.end()  # who reads it will say what is wrong
        finally:
            with self._lock:
                self._fetchers -= 1
