"""Whether two filters of inserted keys may share a key (transactions pack, section 9).

The bloom form is a Parquet split-block filter: a key sets one bit in each of the eight words of one block.
The official test calls any common bit an intersection. Ours is finer and still sound: a shared key leaves a
common bit in *all* eight words of some block.
"""

from __future__ import annotations

import numpy as np

from tiltyard.format.operations import BloomKeys, KeyExistenceFilter

WORDS_PER_BLOCK = 8
BLOCK_BYTES = 4 * WORDS_PER_BLOCK
DEFAULT_ITEMS = 8192
DEFAULT_PROBABILITY = 0.00057
"""What 0 items and probability 0 stand for on the wire."""


def is_empty(filter_: KeyExistenceFilter) -> bool:
    """Whether no key was recorded."""
    return not (any(filter_.bloom.bitmap) if filter_.bloom is not None else filter_.exact)


def may_share_a_key(mine: KeyExistenceFilter, theirs: KeyExistenceFilter) -> bool:
    """True when the filters have a key in common, may have one, or cannot be compared."""
    ours, other = mine.bloom, theirs.bloom
    if ours is None and other is None:
        return bool(frozenset(mine.exact or ()) & frozenset(theirs.exact or ()))
    if ours is None or other is None:
        return True
    if _configuration(ours) != _configuration(other) or len(ours.bitmap) % BLOCK_BYTES:
        return True
    common = np.frombuffer(ours.bitmap, "<u4") & np.frombuffer(other.bitmap, "<u4")
    return bool((common.reshape(-1, WORDS_PER_BLOCK) != 0).all(axis=1).any())


def _configuration(keys: BloomKeys) -> tuple[int, int, float]:
    return len(keys.bitmap), keys.number_of_items or DEFAULT_ITEMS, keys.probability or DEFAULT_PROBABILITY
