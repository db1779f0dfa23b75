"""The distinct keys of a set of rows, and finding them among the keys of other rows: the join of a merge.

Pure, in NumPy and Arrow. Every distinct key has a *code*, 0 to `distinct - 1`; rows with a null in the key
have none (-1). Plain numbers and times are looked up in two steps: a table of bits that stays in the cache
throws out nearly all that is not there, then a binary search decides. Everything else goes through Arrow's
hash tables. A key of several columns is found column by column, each step only where the one before it hit.

Invariant J1: `find` gives exactly the rows whose key equals a key of the set, each once, in order
(test_join.py, against a dictionary).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.file.direct import WordFilter
from tiltyard.table.merge.key_filter import hashes
from tiltyard.table.merge.keys import Words, is_word, words_of_key

FILTER_ROOM = 32
"""Places of the table of bits for each key: one in so many absent keys passes it."""

MIN_FILTER_BITS = 16
MAX_FILTER_BITS = 25
SPARSE_ROOM, MIN_SPARSE_BITS, MAX_SPARSE_BITS = 32, 10, 19
"""Places for each key in the table of bytes for words that are looked up while they are unpacked: with up to
2 to the 19 of them it stays in the cache of a core.
"""

DENSE_ROOM, MAX_DENSE_WORDS = 64, 1 << 22
"""Where one in so many words or more is a key, each word has a byte of its own there: words that count up go
through it from one end to the other.
"""

STEP_ROWS = 1 << 16
"""Rows that are looked up at a time, so that what is computed for them stays in the cache."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

HASHED_VALUES = 1 << 16
"""Values from which they are looked up by a hash of ours: Arrow builds its table anew for each call."""

Ints = npt.NDArray[np.int64]
"""Numbers of rows and codes: int64, or int32 where that holds them, for there may be many."""

NO_KEY = -1


class _WordSet:
    """Distinct 64-bit words, in order."""

    def __init__(self, words: Words) -> None:
        self.codes, self._distinct = _sorted_distinct(words)
        self.distinct = len(self._distinct)
        bits = int(max(self.distinct * FILTER_ROOM, 1)).bit_length()
        self._shift = np.uint64(64 - min(max(bits, MIN_FILTER_BITS), MAX_FILTER_BITS))
        self._filter: Any = None
        self._filter_helps = True

    def find(self, words: Words) -> tuple[Ints, Ints]:
        """Positions of the words that are in the set, ascending, and their codes."""
        if not self.distinct or not len(words):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if bool((words[1:] > words[:-1]).all()):
            return self._find_ascending(words)
        if not self._filter_helps:
            return self._decide(words, None)
        passing = []
        for at in range(0, len(words), STEP_ROWS):
            placed = _placed(words[at : at + STEP_ROWS], self._shift)
            passing.append(np.flatnonzero(self._bits().take(placed, mode="clip")) + at)
        candidates = np.concatenate(passing)
        self._filter_helps = len(candidates) * 2 < len(words)
        return self._decide(words, candidates)

    def _find_ascending(self, words: Words) -> tuple[Ints, Ints]:
        """The same for words that ascend, as keys that count up do: the set is looked up in them."""
        low, high = np.searchsorted(self._distinct, (words[0], words[-1]))
        codes = np.arange(low, min(high + 1, self.distinct), dtype=self.codes.dtype)
        at = np.searchsorted(words, self._distinct[low : high + 1])
        at[at == len(words)] = len(words) - 1
        hit = words[at] == self._distinct[low : high + 1]
        return at[hit], codes[hit]

    def filter(self) -> WordFilter | None:
        """The set for looking words up as they are unpacked; None where its table would be too large."""
        if not self.distinct:
            return None
        span = int(self._distinct[-1] - self._distinct[0])
        if span < min(self.distinct * DENSE_ROOM, MAX_DENSE_WORDS):
            return WordFilter.dense(self._distinct)
        bits = max((self.distinct * SPARSE_ROOM).bit_length(), MIN_SPARSE_BITS)
        return WordFilter.sparse(self._distinct, bits) if bits <= MAX_SPARSE_BITS else None

    def decide(self, words: Words) -> tuple[Ints, Ints]:
        """Positions of the words that are in the set, ascending, and their codes, without the filter."""
        return self._decide(words, None) if len(words) else (np.empty(0, np.int64), self.codes[:0])

    def _bits(self) -> Any:
        if self._filter is None:
            made = np.zeros(1 << (64 - int(self._shift)), np.bool_)
            made[_placed(self._distinct, self._shift)] = True
            self._filter = made
        return self._filter

    def _decide(self, words: Words, candidates: Ints | None) -> tuple[Ints, Ints]:
        asked = words if candidates is None else words[candidates]
        at = np.searchsorted(self._distinct, asked)
        at[at == self.distinct] = self.distinct - 1
        hit = self._distinct[at] == asked
        positions = np.flatnonzero(hit) if candidates is None else candidates[hit]
        return positions, at[hit].astype(self.codes.dtype, copy=False)


def _placed(words: Words, shift: np.uint64) -> Ints:
    places = words * _MULTIPLIER
    places >>= shift
    return places.view(np.int64)


def _sorted_distinct(words: Words) -> tuple[Ints, Words]:
    """The code of each word and the distinct words, in order."""
    kind = row_type(len(words))
    if len(words) < 2 or bool((words[1:] > words[:-1]).all()):
        return np.arange(len(words), dtype=kind), words
    order = np.argsort(words)
    ordered = words[order]
    first = np.empty(len(words), np.bool_)
    first[0] = False
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    codes = np.empty(len(words), kind)
    codes[order] = np.cumsum(first, dtype=kind)
    first[0] = True
    return codes, ordered if first.all() else ordered[first]


def row_type(rows: int) -> Any:
    """The type of numbers of so many rows."""
    return np.int32 if rows < np.iinfo(np.int32).max else np.int64


class _ValueSet:
    """Distinct values of any type that Arrow hashes."""

    def __init__(self, values: Any) -> None:
        import pyarrow.compute as pc

        self._values = pc.unique(values)
        self.distinct = len(self._values)
        found = pc.index_in(values, value_set=self._values)
        self.codes = _joined(found).to_numpy(zero_copy_only=False).astype(np.int64)

    def find(self, values: Any) -> tuple[Ints, Ints]:
        import pyarrow.compute as pc

        if not self.distinct or not len(values):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = _joined(pc.index_in(values, value_set=self._values))
        codes = found.fill_null(NO_KEY).to_numpy(zero_copy_only=False)
        positions = np.flatnonzero(codes >= 0)
        return positions, codes[positions].astype(np.int64)


class _HashedSet:
    """Many distinct values that are no words: found by their hash, then compared."""

    def __init__(self, values: Any) -> None:
        self._words = _WordSet(hashes([values]))
        self.codes, self.distinct = self._words.codes, self._words.distinct
        first = np.empty(self.distinct, np.int64)
        first[self.codes[::-1]] = np.arange(len(values) - 1, -1, -1)
        self._values = values.take(pa.array(first))
        self.is_sound = bool(_equal(values, self._values.take(pa.array(self.codes))).all())
        """Whether no two different values have one hash."""

    def find(self, values: Any) -> tuple[Ints, Ints]:
        positions, codes = self._words.find(hashes([values]))
        if values.null_count:
            valid = np.asarray(values.is_valid())[positions]
            positions, codes = positions[valid], codes[valid]
        same = _equal(values.take(pa.array(positions)), self._values.take(pa.array(codes)))
        return positions[same], codes[same]


def _equal(left: Any, right: Any) -> npt.NDArray[np.bool_]:
    """Where two arrays without nulls are equal."""
    import pyarrow.compute as pc

    return np.asarray(pc.equal(left, right), dtype=np.bool_)


def _joined(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


class _Column:
    """One column of keys in the form that it is looked up in: words, or Arrow values."""

    def __init__(self, array: Any) -> None:
        self.is_word = is_word(array.type)
        if self.is_word:
            self.words, self.valid = words_of_key(array)
        else:
            self.array = array
            self.valid = None if array.null_count == 0 else np.asarray(array.is_valid())

    def values(self, positions: Ints | None) -> Any:
        """The values at some positions, all for None."""
        if self.is_word:
            return self.words if positions is None else self.words[positions]
        return self.array if positions is None else self.array.take(pa.array(positions))


class KeyIndex:
    """The keys of rows, given as one `pa.Array` per key column (plain; see `keys.column_at`).

    `codes`: int64[rows]. `distinct`: how many keys there are.
    """

    def __init__(self, columns: Sequence[Any]) -> None:
        self.rows = len(columns[0])
        # Numbers first: they are looked up faster, and the rest only where they hit.
        self._order = sorted(range(len(columns)), key=lambda i: not is_word(columns[i].type))
        prepared = [_Column(columns[i]) for i in self._order]
        valid = None
        for each in prepared:
            if each.valid is not None:
                valid = each.valid if valid is None else valid & each.valid
        kept = None if valid is None or valid.all() else np.flatnonzero(valid)
        self._sets = [_set_of(each, kept) for each in prepared]
        self._pairs: list[_WordSet] = []
        codes, self.distinct = self._sets[0].codes, self._sets[0].distinct
        del prepared
        for other in self._sets[1:]:
            pair = _WordSet(_combined(codes, other.codes, other.distinct))
            self._pairs.append(pair)
            codes, self.distinct = pair.codes, pair.distinct
        self.keyed = len(codes)
        if kept is None:
            self.codes = codes
        else:
            self.codes = np.full(self.rows, NO_KEY, row_type(self.rows))
            self.codes[kept] = codes

    @property
    def _is_counted(self) -> bool:
        """Whether row n has code n, as of keys that ascend."""
        return (
            bool(len(self.codes))
            and bool((self.codes[1:] == self.codes[:-1] + 1).all())
            and self.codes[0] == 0
        )

    @property
    def has_duplicates(self) -> bool:
        """Whether two rows have one key."""
        return self.distinct < self.keyed

    def find(self, columns: Sequence[Any]) -> tuple[Ints, Ints]:
        """Positions of the rows whose key is in the set, ascending (int64), and the code of each (int64)."""
        prepared = [_Column(columns[i]) for i in self._order]
        positions: Ints | None = None
        codes: Ints = np.empty(0, np.int64)
        for number, (column, known) in enumerate(zip(prepared, self._sets, strict=True)):
            hit, found = known.find(column.values(positions))
            if positions is None:
                positions, codes = hit, found
            else:
                positions, codes = positions[hit], codes[hit]
                pair = self._pairs[number - 1]
                hit, codes = pair.find(_combined(codes, found, known.distinct))
                positions = positions[hit]
            if column.valid is not None and column.is_word:
                live = column.valid[positions]
                positions, codes = positions[live], codes[live]
        assert positions is not None
        return positions, codes

    @property
    def words(self) -> _WordSet | None:
        """The keys as a set of words, where each is one."""
        only = self._sets[0]
        return only if len(self._sets) == 1 and isinstance(only, _WordSet) else None

    def first_rows(self) -> Ints:
        """Per code the first row that has the key."""
        if self.distinct == self.rows and self._is_counted:
            return self.codes
        rows = np.empty(self.distinct, row_type(self.rows))
        numbers = np.arange(self.rows - 1, -1, -1, dtype=rows.dtype)
        keyed = slice(None) if self.keyed == self.rows else self.codes[::-1] >= 0
        rows[self.codes[::-1][keyed]] = numbers[keyed]  # written last to first, so that the first one stays
        return rows

    def last_rows(self) -> Ints:
        """Per code the last row that has the key."""
        rows = np.empty(self.distinct, row_type(self.rows))
        keyed = np.flatnonzero(self.codes >= 0)
        rows[self.codes[keyed]] = keyed
        return rows

    def rows_by_code(self) -> tuple[Ints, Ints]:
        """Rows grouped by code, ascending within it, and where each code's group begins (one end more)."""
        keyed = np.flatnonzero(self.codes >= 0)
        order = keyed[np.argsort(self.codes[keyed], kind="stable")]
        starts = np.zeros(self.distinct + 1, np.int64)
        np.cumsum(np.bincount(self.codes[keyed], minlength=self.distinct), out=starts[1:])
        return order, starts


def _set_of(column: _Column, kept: Ints | None) -> _WordSet | _ValueSet | _HashedSet:
    values = column.values(kept)
    if column.is_word:
        return _WordSet(values)
    if len(values) > HASHED_VALUES:
        hashed = _HashedSet(values)
        if hashed.is_sound:
            return hashed
    return _ValueSet(values)


def _combined(left: Ints, right: Ints, radix: int) -> Words:
    """Pairs of codes as one word each: both are below the number of rows, so nothing overflows."""
    words: Words = (left.astype(np.int64) * max(radix, 1) + right).view(np.uint64)
    return words
