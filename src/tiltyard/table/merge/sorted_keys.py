"""Keys of rows that stay, in order: for whoever looks a few up again and again.

A key is a 64-bit *word*: itself where it is one number, else its hash, and then whoever finds a row compares
the key itself. Words are kept sorted with the number of each one's row, so that one is found in two binary
searches, without an object per row.

Invariant: `last` and `every` find the rows that a dictionary of all words would (test_sorted_keys.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.table.merge.key_filter import hashes
from tiltyard.table.merge.keys import Words, is_word, words_of_key

Ints = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)
Rows = npt.NDArray[Any]
"""Numbers of rows: uint32 where that holds them, else uint64."""


def is_exact(types: Sequence[Any]) -> bool:
    """Whether keys of these Arrow types are their words, and rows that are found need not be compared."""
    return len(types) == 1 and is_word(types[0])


def key_words(columns: Sequence[Any]) -> tuple[Words, npt.NDArray[np.bool_] | None]:
    """The words of keys (one plain `pa.Array` per key column) and bool[rows] of keys without a null (None:
    all). Words of keys with a null say nothing.
    """
    if is_exact([each.type for each in columns]):
        return words_of_key(columns[0])
    valid = None
    for each in columns:
        if each.null_count:
            known = np.asarray(each.is_valid())
            valid = known if valid is None else valid & known
    if valid is None:
        return hashes(columns), None
    words = np.zeros(len(valid), np.uint64)
    words[valid] = hashes([each.filter(pa.array(valid)) for each in columns])
    return words, valid


class SortedKeys:
    """Words in order, and the row of each; rows of one word ascend."""

    __slots__ = ("_rows", "_words")

    def __init__(self, words: Words, rows: Rows | None = None) -> None:
        """`rows`: the row of each word, None for 0, 1, 2, ...; the words may be in any order, and rows of one
        word must ascend.
        """
        if len(words) > 1 and not bool((words[1:] >= words[:-1]).all()):
            order = words.argsort(kind="stable")
            words = words[order]
            rows = order.astype(_row_type(len(order)), copy=False) if rows is None else rows[order]
        self._words, self._rows = words, rows

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._words.nbytes) + (0 if self._rows is None else int(self._rows.nbytes))

    def __len__(self) -> int:
        return len(self._words)

    @property
    def bounds(self) -> tuple[np.uint64, np.uint64]:
        """The least and the greatest word, of some."""
        return self._words[0], self._words[-1]

    def joined(self, later: SortedKeys) -> SortedKeys:
        """These and those of rows that all come later, as one."""
        mine, theirs = self._numbers(), later._numbers()
        return SortedKeys(np.concatenate([self._words, later._words]), np.concatenate([mine, theirs]))

    def _numbers(self) -> Rows:
        if self._rows is not None:
            return self._rows
        return np.arange(len(self._words), dtype=_row_type(len(self._words)))

    def last_of(self, word: np.uint64, below: int | None) -> int:
        """The last row of one word among rows below a number; -1 where there is none."""
        words, rows = self._words, self._rows
        at = int(words.searchsorted(word, "right")) - 1
        while at >= 0 and words[at] == word:
            row = at if rows is None else int(rows[at])
            if below is None or row < below:
                return row
            first = int(words.searchsorted(word))
            at = first + int(self._numbers()[first:at].searchsorted(below)) - 1
            if at < first:
                break
        return -1

    def only(self, word: np.uint64) -> int:
        """The row of one word; -1 where there is none, -2 where there are several."""
        at = int(self._words.searchsorted(word))
        words = self._words[at : at + 2]
        if not len(words) or words[0] != word:
            return -1
        if len(words) == 2 and words[1] == word:
            return -2
        return at if self._rows is None else int(self._rows[at])

    def last(self, words: Words, below: int | None = None) -> tuple[Ints, Rows]:
        """The last row of each of some words, among those below a number: positions in `words`, ascending,
        and a row beside each.
        """
        if not len(self._words):
            return np.empty(0, np.int64), np.empty(0, np.uint32)
        if len(words) == 1:
            row = self.last_of(words[0], below)
            return (_NONE, _NONE) if row < 0 else (np.zeros(1, np.int64), np.array([row]))
        at = self._words.searchsorted(words, "right") - 1
        at[at < 0] = 0
        hit = np.flatnonzero(self._words[at] == words)
        rows = at[hit] if self._rows is None else self._rows[at[hit]]
        if below is None:
            return hit, rows
        late = np.flatnonzero(rows >= below)
        if len(late):  # of words that came again since
            earlier = np.array([self.last_of(words[hit[each]], below) for each in late.tolist()], np.int64)
            rows = rows.astype(np.int64)
            rows[late] = earlier
            kept = rows >= 0
            hit, rows = hit[kept], rows[kept]
        return hit, rows

    def every(self, words: Words) -> tuple[Ints, Rows]:
        """All rows of some words: positions in `words`, ascending, and a row beside each."""
        low, high = self._words.searchsorted(words), self._words.searchsorted(words, "right")
        counts = high - low
        hit = np.flatnonzero(counts)
        if len(hit) == 1:
            first, end = int(low[hit[0]]), int(high[hit[0]])
            at = np.arange(first, end)
            positions = hit if end == first + 1 else np.full(end - first, hit[0])
        else:
            counts = counts[hit]
            positions = np.repeat(hit, counts)
            before = np.repeat(np.cumsum(counts) - counts, counts)
            at = np.repeat(low[hit], counts) + (np.arange(len(positions)) - before)
        return positions, at if self._rows is None else self._rows[at]


def _row_type(rows: int) -> Any:
    return np.uint32 if rows <= np.iinfo(np.uint32).max else np.uint64
