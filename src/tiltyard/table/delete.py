"""Deleting rows by predicate: always decided on the newest version (case T08), merged by the commit loop.

Rows are marked in a new cumulative deletion file per fragment; a fragment whose last row goes is removed
whole (transactions, sections 4 and 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.errors import OutcomeUnknown, RetryableConflict, StoreError, TiltyardError, TooMuchContention
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.fragment import DeletionFile, Fragment
from tiltyard.format.transaction import Delete, Transaction
from tiltyard.store import Created
from tiltyard.table.commit import commit
from tiltyard.table.deletions import load_deletions, union
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import open_snapshot

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

CONFLICT_RETRIES = 10
RETRY_SECONDS = 30.0

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The version that a delete made, and how many rows it deleted."""

    snapshot: Snapshot
    rows: int


def delete(
    store: Store,
    session: Session,
    predicate: str,
    *,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
    properties: Mapping[str, str] | None = None,
) -> Deleted:
    """Delete the rows of the newest version for which `predicate` (SQL) is true.

    Commits also when no row matches. A conflict on the same rows plans again on the newest version, at most
    `conflict_retries` times and `retry_seconds`; then raises `TooMuchContention`. Raises `InvalidExpression`
    for bad SQL, before anything is written.
    """
    deadline = runtime.monotonic() + retry_seconds
    attempt = 0
    while True:
        snapshot = open_snapshot(store, session)
        try:
            return _delete_once(snapshot, predicate, properties)
        except RetryableConflict as error:
            if attempt >= conflict_retries or runtime.monotonic() >= deadline:
                raise TooMuchContention(
                    f"delete from {store.uri} gave up after {attempt + 1} attempts: other writers kept "
                    f"changing the same rows ({error}); try again later"
                ) from error
            attempt += 1


def _delete_once(snapshot: Snapshot, predicate: str, properties: Mapping[str, str] | None) -> Deleted:
    found = Scan(snapshot, ScanRequest(columns=[], where=predicate)).offsets()
    written: list[str] = []
    updated: list[Fragment] = []
    removed: list[int] = []
    try:
        for id, offsets in found.items():
            fragment = snapshot.fragment(id)
            assert fragment is not None
            changed = mark_deleted(snapshot, fragment, offsets, written)
            if changed is None:
                removed.append(id)
            else:
                updated.append(changed)
    except BaseException:
        _remove(snapshot.store, written)
        raise
    transaction = Transaction(
        read_version=snapshot.version,
        uuid=str(runtime.uuid4()),
        operation=Delete(tuple(updated), tuple(removed), predicate),
        properties=dict(properties or {}),
    )
    try:
        after = commit(snapshot.store, transaction, session=snapshot.session, base=snapshot, affected=found)
    except OutcomeUnknown:
        raise
    except TiltyardError as error:
        if not error.files_referenced:
            _remove(snapshot.store, written)  # a definite answer: no version names them
        raise
    return Deleted(after, sum(len(offsets) for offsets in found.values()))


def mark_deleted(
    snapshot: Snapshot, fragment: Fragment, offsets: Offsets, written: list[str] | None = None
) -> Fragment | None:
    """The fragment with these rows deleted too, its new deletion file durable; None when no row is left.

    `offsets` are sorted physical offsets (uint32). The path of the file is added to `written`.
    """
    deleted = union(load_deletions(snapshot, fragment), offsets)
    if len(deleted) >= fragment.physical_rows:
        return None
    kind, data = encode_deletions(deleted)
    deletion = DeletionFile(
        kind=kind,
        read_version=snapshot.version,
        id=runtime.uuid4().int & ((1 << 64) - 1),
        rows=len(deleted),
        base_id=None,
    )
    path = deletion.path(fragment.id)
    answer = snapshot.store.create(path, data)
    if written is not None and answer is not Created.EXISTS:
        written.append(path)
    if answer is not Created.WON:
        cause = snapshot.store.failure(path)
        raise StoreError(
            f"deletion file {path} of {snapshot.store.uri} could not be written ({cause or answer.value}); "
            "nothing was deleted"
        ) from cause
    return replace(fragment, deletion=deletion)


def _remove(store: Store, paths: list[str]) -> None:
    for path in paths:
        try:
            store.delete(path)
        except StoreError:
            continue  # waste, collected by age


def offsets_of(snapshot: Snapshot, fragment: Fragment, predicate: str) -> Offsets:
    """Sorted physical offsets of one fragment's live rows for which the predicate is true."""
    request = ScanRequest(columns=[], where=predicate, fragments=[fragment.id])
    found: Any = Scan(snapshot, request).offsets().get(fragment.id)
    return np.empty(0, dtype=np.uint32) if found is None else found
