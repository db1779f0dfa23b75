"""The keys of a version's rows, kept in the session for who looks a few up again and again.

Keys are kept by data file, which never changes, in order (`sorted_keys`), rows that were deleted since
included: a version that adds a fragment reads that one's keys only. The first who asks of a version is told
nothing, and reads the keys or an index as if for once; nor is anybody where the keys are too many to keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.expr.arrays import plain
from tiltyard.table.deletions import load_deletions, without_deleted
from tiltyard.table.gather import Gather
from tiltyard.table.merge.keys import Key, Words
from tiltyard.table.merge.sorted_keys import Ints, SortedKeys, key_words
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.format.fragment import Fragment
    from tiltyard.table.snapshot import Snapshot

MAX_ROWS = 1 << 22
"""Rows of a version up to which their keys are kept (about 12 bytes each)."""

MAX_FRAGMENTS = 256
"""Fragments of a version up to which each one's keys are kept."""

CACHE_SHARE = 4
"""One in so many of the session's bytes may be the keys of one version."""

ROW_BYTES = 12
ENTRY_BYTES = 512
"""What kept keys are accounted as beside the words and rows (bytes)."""

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The keys of one version: of each fragment, with the least and the greatest word."""

    manifest: Any
    parts: tuple[tuple[Fragment, SortedKeys], ...] | None
    low: Words
    high: Words


_NONE = np.empty(0, np.uint64)


def find_kept(snapshot: Snapshot, key: Key, words: Words) -> tuple[Ints, Addresses] | None:
    """The live rows whose key has one of some words (see `sorted_keys.key_words`): positions in `words`, and
    an address beside each. None where the keys are not kept.
    """
    kept = _kept(snapshot, key)
    if kept is None or kept.parts is None:
        return None
    positions: list[Ints] = []
    addresses: list[Addresses] = []
    for at in _may_hold(kept, words):
        fragment, keys = kept.parts[at]
        hit, rows = keys.every(words)
        if not len(hit):
            continue
        deleted = load_deletions(snapshot, fragment)
        if deleted is not None:
            live = without_deleted(deleted, rows.astype(np.int64))
            hit, rows = hit[live], rows[live]
        positions.append(hit)
        addresses.append(rows.astype(np.uint64) | np.uint64(fragment.id << FRAGMENT_SHIFT))
    if len(positions) == 1:
        return positions[0], addresses[0]
    if not positions:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    return np.concatenate(positions), np.concatenate(addresses)


def find_one_kept(snapshot: Snapshot, key: Key, word: np.uint64) -> int | None:
    """The address of the one live row whose key has a word, -1 where there is none. None where keys are not
    kept, or several rows may have it.
    """
    kept = _kept(snapshot, key)
    if kept is None or kept.parts is None:
        return None
    found = -1
    for at in _may_hold_one(kept, word):
        fragment, keys = kept.parts[at]
        row = keys.only(word)
        if row == -1:
            continue
        if row < 0 or found >= 0:
            return None
        deleted = load_deletions(snapshot, fragment)
        if deleted is None or without_deleted(deleted, np.array([row]))[0]:
            found = row | fragment.id << FRAGMENT_SHIFT
    return found


def _may_hold_one(kept: _Kept, word: np.uint64) -> list[int]:
    if len(kept.low) == 1:
        return [0] if kept.low[0] <= word <= kept.high[0] else []
    return np.flatnonzero((kept.low <= word) & (kept.high >= word)).tolist()


def _may_hold(kept: _Kept, words: Words) -> list[int]:
    """The fragments whose words may be some of these."""
    if len(words) == 1:
        return _may_hold_one(kept, words[0])
    return list(range(len(kept.low)))


def _kept(snapshot: Snapshot, key: Key) -> _Kept | None:
    cache = snapshot.session.cache
    name = (snapshot.store.identity, snapshot.location.path, "kept keys", key.field_ids)
    found: _Kept | None = cache.get(name)
    if found is not None and found.manifest is snapshot.manifest:
        if found.parts is not None:
            return found
        made = _made(snapshot, key)
        nbytes = sum(keys.nbytes for _, keys in made.parts or ())
        cache.put(name, made, ENTRY_BYTES * (1 + len(made.low)) + nbytes)
        return made
    if _are_few(snapshot) and all(len(path) == 1 for path in key.paths):
        cache.put(name, _Kept(snapshot.manifest, None, _NONE, _NONE), ENTRY_BYTES)
    return None


def _are_few(snapshot: Snapshot) -> bool:
    rows = np.asarray(snapshot.fragments.physical_rows)
    most = min(MAX_ROWS, snapshot.session.cache.max_bytes // (CACHE_SHARE * ROW_BYTES))
    # Very old manifests do not say how many rows there are.
    return 0 < len(rows) <= MAX_FRAGMENTS and bool((rows > 0).all()) and int(rows.sum()) <= most


def _made(snapshot: Snapshot, key: Key) -> _Kept:
    fields = tuple(snapshot.schema.field((path[0],)) for path in key.paths)
    reader = Gather(snapshot, fields)
    parts = [(each, _of_fragment(snapshot, reader, each, key)) for each in snapshot.fragments]
    held = [(fragment, keys) for fragment, keys in parts if len(keys)]
    bounds = np.array([keys.bounds for _, keys in held], np.uint64).reshape(-1, 2)
    return _Kept(snapshot.manifest, tuple(held), bounds[:, 0], bounds[:, 1])


def _of_fragment(snapshot: Snapshot, reader: Gather, fragment: Fragment, key: Key) -> SortedKeys:
    cache = snapshot.session.cache
    paths = tuple(file.path for file in fragment.files)
    name = (snapshot.store.identity, paths, "fragment keys", key.field_ids)
    found: SortedKeys | None = cache.get(name)
    if found is not None:
        return found
    read = reader.read(fragment, slice(0, fragment.physical_rows))
    words, valid = key_words([plain(each) for each in read])
    rows = None
    if valid is not None and not valid.all():
        rows = np.flatnonzero(valid).astype(np.uint32)
        words = words[rows]
    made = SortedKeys(words.copy(), rows)  # what was read may be a part of much more
    cache.put(name, made, made.nbytes + ENTRY_BYTES)
    return made
