"""Short words for tests that commit: make a table, commit on a version, look at the newest.

Data files are named but not written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conflict_operations import SCHEMA, new_fragment
from tiltyard import runtime
from tiltyard.format import names
from tiltyard.format.deletion import decode_deletions, encode_deletions
from tiltyard.format.fragment import DeletionFile
from tiltyard.format.operations import (
    Append,
    Delete,
    Overwrite,
)
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import Snapshot, open_snapshot


def transaction(operation: Any, read_version: int = 0, **more: Any) -> Transaction:
    return Transaction(read_version, str(runtime.uuid4()), operation, **more)


def create(store: Store, fragments: int = 2, **more: Any) -> Snapshot:
    operation = Overwrite(tuple(new_fragment(f"first{n}") for n in range(fragments)), SCHEMA)
    return commit(store, transaction(operation), session=Session(), base=None, strict=True, **more)


def on(base: Snapshot, operation: Any, store: Store | None = None, **more: Any) -> Snapshot:
    return commit(
        store or base.store, transaction(operation, base.version), session=Session(), base=base, **more
    )


def append(base: Snapshot, name: str, store: Store | None = None, **more: Any) -> Snapshot:
    return on(base, Append((new_fragment(name),)), store, **more)


def now(store: Store) -> Snapshot:
    return open_snapshot(store, Session())


def paths(snapshot: Snapshot) -> set[str]:
    return {file.path for fragment in snapshot.fragments for file in fragment.files}


def queues(store: Store) -> bool:
    """Whether the store has a turnstile: hints are written only while holding it."""
    with store.turnstile(names.VERSIONS_DIR, 1.0) as ours:
        return ours


def deleting(base: Snapshot, fragment_id: int, *rows: int) -> tuple[Delete, dict[int, np.ndarray]]:
    """A delete of live rows of one fragment, its deletion file written as the delete's plan does."""
    fragment = base.fragment(fragment_id)
    assert fragment is not None
    before = deleted_rows(base, fragment_id)
    everything = np.union1d(before, rows).astype(np.uint32)
    kind, data = encode_deletions(everything)
    file = DeletionFile(kind, base.version, runtime.random().getrandbits(63), len(everything))
    base.store.put(file.path(fragment_id), data)
    return Delete((replace(fragment, deletion=file),), (), "x"), {fragment_id: np.array(rows, np.uint32)}


def deleted_rows(snapshot: Snapshot, fragment_id: int) -> np.ndarray:
    fragment = snapshot.fragment(fragment_id)
    if fragment is None or fragment.deletion is None:
        return np.empty(0, np.uint32)
    path = fragment.deletion.path(fragment_id)
    return decode_deletions(snapshot.store.read(path), fragment.deletion.kind, path)
