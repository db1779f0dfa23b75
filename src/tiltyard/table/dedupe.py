"""Rows that share a key: finding them, and deleting all but one of each.

All keys are read once, as one 64-bit word each: the value itself where that fits, else its hash. Only rows
whose word stands twice are looked at whole. In memory: 16 bytes a row, and the keys that stand twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.expr.arrays import valid_of
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_filter import hashes
from tiltyard.table.merge.keys import Key, column_at, is_word, resolve_key, shown_key, words_of_key
from tiltyard.table.merge.lookup import Places, key_columns
from tiltyard.table.merge.plan import by_fragment
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned
from tiltyard.table.row_changes import RowChanges
from tiltyard.table.touched_rows import read_touched
from tiltyard.table.unique import UNIQUE, unique_key

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

Addresses = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """`addresses`: rows (uint64, ascending) whose key another row has; `codes`: equal where the keys are.
    `keys`: how many keys; `example` shows one.
    """

    addresses: Addresses
    codes: Ints
    keys: int = 0
    example: str = ""

    def but(self, keep: str) -> Addresses:
        """Addresses of all rows but the first or last of each key, in table order."""
        order = np.lexsort((self.addresses, self.codes))
        codes = self.codes[order]
        edge = np.ones(len(codes), np.bool_)
        if keep == "first":
            edge[1:] = codes[1:] != codes[:-1]
        else:
            edge[:-1] = codes[1:] != codes[:-1]
        return np.sort(self.addresses[order[~edge]])


@dataclass(frozen=True, slots=True)
class Deduped:
    """The version without the duplicates, how many rows were deleted, how many keys stood in several rows."""

    snapshot: Snapshot
    rows: int
    keys: int
    example: str = ""


NO_DUPLICATES = Duplicates(np.empty(0, np.uint64), np.empty(0, np.int64))


def duplicates(snapshot: Snapshot, key: Key) -> Duplicates:
    """The live rows that share a key with another; rows with a null in the key are none of them."""
    words: list[npt.NDArray[np.uint64]] = []
    positions: list[Ints] = []
    first = 0
    for columns, rows in key_columns(snapshot, key):
        keyed = _keyed(columns, rows)
        kept = columns if len(keyed) == rows else [column.take(pa.array(keyed)) for column in columns]
        words.append(_words(key, kept))
        positions.append(keyed + first)
        first += rows
    if not words:
        return NO_DUPLICATES
    every = np.concatenate(words)
    order = np.argsort(every, kind="stable")
    same = every[order][1:] == every[order][:-1]
    repeated = np.zeros(len(every), np.bool_)
    repeated[order[1:][same]] = True
    repeated[order[:-1][same]] = True
    if not repeated.any():
        return NO_DUPLICATES
    return _grouped(snapshot, key, Places(snapshot).addresses(np.concatenate(positions)[repeated]))


def _keyed(columns: Sequence[Any], rows: int) -> Ints:
    valid = np.ones(rows, np.bool_)
    for column in columns:
        known = valid_of(column)
        if known is not None:
            valid &= known
    return np.flatnonzero(valid)


def _words(key: Key, columns: Sequence[Any]) -> npt.NDArray[np.uint64]:
    if len(columns) == 1 and is_word(columns[0].type):
        return words_of_key(columns[0])[0]
    return hashes(columns)


def _grouped(snapshot: Snapshot, key: Key, candidates: Addresses) -> Duplicates:
    """Of rows whose words are equal those whose keys are."""
    parts: list[list[Any]] = [[] for _ in key.fields]
    fields = tuple(snapshot.schema.project(key.paths).fields)
    for rows in read_touched(snapshot, by_fragment(candidates), fields):
        for part, path in zip(parts, key.paths, strict=True):
            part.append(column_at(rows.batch, path))
    columns = [pa.concat_arrays(part) for part in parts]
    index = KeyIndex(columns)
    counts = np.bincount(index.codes, minlength=index.distinct)
    several = np.flatnonzero(counts[index.codes] > 1)
    if not len(several):
        return NO_DUPLICATES
    example = shown_key(key.names, [column[int(several[0])].as_py() for column in columns])
    keys = int(np.count_nonzero(counts > 1))
    return Duplicates(candidates[several], index.codes[several], keys, example)


def dedupe(
    store: Store,
    session: Session,
    on: Sequence[str] | None = None,
    *,
    keep: str = "last",
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
) -> Deduped:
    """Delete all rows of the newest version but the last (or `keep='first'`) of each key, in table order.

    `on`: the key's columns; without them those of config `tiltyard.unique`, else the primary key. Commits
    nothing where no key stands twice. Raises `InvalidInput` where there is no key, and what a commit raises.
    """
    if keep not in ("first", "last"):
        raise InvalidInput(f"keep must be 'first' or 'last', found {keep!r}")

    def attempt(snapshot: Snapshot) -> Deduped:
        key = key_of(snapshot, on)
        found = duplicates(snapshot, key)
        if not found.keys:
            return Deduped(snapshot, 0, 0)
        gone = found.but(keep)
        with RowChanges(snapshot) as changes:
            changes.take_away(by_fragment(gone))
            operation = changes.deleting(f"duplicates of ({', '.join(key.names)})")
            after = changes.commit(operation)
        return Deduped(after, len(gone), found.keys, found.example)

    return replanned(
        attempt,
        store,
        session,
        what="dedupe",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def key_of(snapshot: Snapshot, on: Sequence[str] | None) -> Key:
    """The key that `on` names, else the unique key, else the primary key."""
    if on:
        return resolve_key(snapshot.schema, on)
    declared = unique_key(snapshot.schema, snapshot.manifest.config)
    if declared is not None:
        return declared
    if not snapshot.schema.primary_key:
        raise InvalidInput(
            f"{snapshot.store.uri} has neither a unique key (config {UNIQUE!r}) nor a primary key: say which "
            "columns are the key, with on= (--on on the command line)"
        )
    return resolve_key(snapshot.schema, None)
