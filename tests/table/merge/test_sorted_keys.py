"""Keys in order: what is found is what a dictionary of all of them has."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.table.merge.sorted_keys import SortedKeys, is_exact, key_words

WORDS = st.lists(st.sampled_from([0, 1, 2, 3, 7, 2**63, 2**64 - 1]), max_size=40)


def words_of(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


@given(WORDS, WORDS, st.lists(st.integers(0, 9), max_size=8, unique=True), st.integers(0, 60))
@settings(max_examples=50, deadline=None)
def test_rows_are_those_of_a_dictionary(
    first: list[int], later: list[int], asked: list[int], below: int
) -> None:
    known: dict[int, list[int]] = defaultdict(list)
    for row, word in enumerate([*first, *later]):
        known[word].append(row)
    mine = SortedKeys(words_of(first))
    theirs = SortedKeys(words_of(later), np.arange(len(first), len(first) + len(later), dtype=np.uint32))
    keys = mine.joined(theirs)
    assert len(keys) == len(first) + len(later)
    wanted = words_of(asked)
    positions, rows = keys.every(wanted)
    expected = [(at, row) for at, word in enumerate(asked) for row in known.get(word, [])]
    assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == expected
    for limit in (None, below):
        positions, rows = keys.last(wanted, limit)
        kept = {
            at: [row for row in known.get(word, []) if limit is None or row < limit]
            for at, word in enumerate(asked)
        }
        assert dict(zip(positions.tolist(), rows.tolist(), strict=True)) == {
            at: found[-1] for at, found in kept.items() if found
        }
    for word in asked:
        found = [row for row in known.get(word, []) if row < below]
        assert keys.last_of(np.uint64(word), below) == (found[-1] if found else -1)


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array([5, None, -5, 5])],
        [pa.array(["a", None, "", "a"])],
        [pa.array([1, 1, None, 1]), pa.array(["a", "b", "c", "a"])],
    ],
    ids=["number", "text", "two"],
)
def test_equal_keys_have_one_word_and_nulls_are_told(columns: list[pa.Array]) -> None:
    words, valid = key_words(columns)
    assert words[0] == words[3]
    assert valid is not None
    assert [bool(each) for each in valid] == [all(c[row].is_valid for c in columns) for row in range(4)]
    assert is_exact([each.type for each in columns]) is (len(columns) == 1 and columns[0].type == pa.int64())
