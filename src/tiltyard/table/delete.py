"""Deleting rows by predicate: always decided on the newest version (case T08), merged by the commit loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned
from tiltyard.table.row_changes import RowChanges
from tiltyard.table.scan import Scan, ScanRequest

if TYPE_CHECKING:
    from tiltyard.format.fragment import Fragment
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The version that a delete made, and how many rows it deleted."""

    snapshot: Snapshot
    rows: int


def delete(
    store: Store,
    session: Session,
    predicate: Any,
    *,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
    properties: Mapping[str, str] | None = None,
) -> Deleted:
    """Delete the rows of the newest version for which `predicate` (SQL or an Arrow expression) is true.

    Commits also when no row matches. A conflict on the same rows plans again on the newest version; see
    `replanned`. Raises `InvalidExpression` for bad SQL, before anything is written.
    """

    def attempt(snapshot: Snapshot) -> Deleted:
        scan = Scan(snapshot, ScanRequest(columns=[], where=predicate))
        assert scan.predicate is not None
        text = predicate if isinstance(predicate, str) else scan.predicate.sql
        with RowChanges(snapshot) as changes:
            changes.take_away(scan.offsets())
            after = changes.commit(changes.deleting(text), properties=properties)
        return Deleted(after, changes.rows_taken)

    return replanned(
        attempt,
        store,
        session,
        what="delete",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def offsets_of(snapshot: Snapshot, fragment: Fragment, predicate: str) -> Offsets:
    """Sorted physical offsets of one fragment's live rows for which the predicate is true."""
    request = ScanRequest(columns=[], where=predicate, fragments=[fragment.id])
    found: Any = Scan(snapshot, request).offsets().get(fragment.id)
    return np.empty(0, dtype=np.uint32) if found is None else found
