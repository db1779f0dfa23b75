"""Updating rows by predicate: always decided on the newest version (case T08), merged by the commit loop.

Two ways to write (transactions pack, sections 4 and 8.3). Changed rows *move*: they are marked deleted where
they are and written whole into new fragments; other writers may change other rows of the same fragments
meanwhile. Or the changed *columns* are written anew beside the others, for all rows of the fragments: less
to write when nearly every row of a wide table changes, and indices on other columns go on covering the rows;
but any concurrent change of such a fragment makes the update plan again. `rewrites_columns` chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.table.assignments import Assignments, bind
from tiltyard.table.plan import estimated_row_bytes
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned
from tiltyard.table.row_changes import NewRows, RowChanges, table_file_version
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.touched_rows import TouchedRows, read_touched, scattered
from tiltyard.table.write import WriteOptions

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

COLUMN_REWRITE_ROWS = 65536
"""Changed rows from which rewriting columns is thought of."""

COLUMN_REWRITE_SHARE = 0.5
"""Least share of the rows of every touched fragment that must change for it."""

COLUMN_REWRITE_GAIN = 2
"""How many times less it must write."""

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Updated:
    """The version that an update made, and how many rows it changed."""

    snapshot: Snapshot
    rows: int


def update(
    store: Store,
    session: Session,
    updates: Mapping[str, str],
    where: Any = None,
    *,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
    file_version: FileVersion | None = None,
    properties: Mapping[str, str] | None = None,
) -> Updated:
    """Set columns of the rows of the newest version for which `where` is true (None: of all rows).

    `updates`: column or dotted path -> SQL expression over the row as it was; see `assignments`. Commits also
    when no row matches. `file_version`: of the new data files, the table's by default. A conflict on the same
    rows plans again on the newest version; see `replanned`. Raises `InvalidExpression`, `FieldNotFound` and
    `InvalidInput` for what cannot be, before anything is written where that can be known then.
    """

    def attempt(snapshot: Snapshot) -> Updated:
        assignments = bind(snapshot.schema, updates)
        taken = Scan(snapshot, ScanRequest(columns=[], where=where)).offsets()
        version = file_version or table_file_version(snapshot)
        with RowChanges(snapshot) as changes:
            if rewrites_columns(snapshot, assignments, taken):
                for id, offsets in taken.items():
                    _rewrite(changes, assignments, id, offsets, version)
                operation = changes.updating()
            else:
                changes.take_away(taken)
                options = WriteOptions(version=version)
                changes.add(_moved(snapshot, assignments, taken), options=options)
                operation = changes.updating(changed_fields=assignments.field_ids)
            after = changes.commit(operation, properties=properties)
        return Updated(after, sum(map(len, taken.values())))

    return replanned(
        attempt,
        store,
        session,
        what="update",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def rewrites_columns(snapshot: Snapshot, assignments: Assignments, taken: Mapping[int, Offsets]) -> bool:
    """Whether the changed columns are written anew rather than the changed rows: for many rows, most of those
    of each touched fragment, and where it writes much less.
    """
    changed = sum(map(len, taken.values()))
    if changed < COLUMN_REWRITE_ROWS:
        return False
    rows = 0
    for id, offsets in taken.items():
        fragment = snapshot.fragment(id)
        if fragment is None or len(offsets) < COLUMN_REWRITE_SHARE * fragment.physical_rows:
            return False
        rows += fragment.physical_rows
    moved = changed * estimated_row_bytes(snapshot.schema.fields)
    return COLUMN_REWRITE_GAIN * rows * estimated_row_bytes(assignments.columns) <= moved


# -- moving rows ----------------------------------------------------------------------------------


def _moved(snapshot: Snapshot, assignments: Assignments, taken: Mapping[int, Offsets]) -> Iterator[NewRows]:
    """The touched rows as they are to be, with the addresses that they had."""
    schema = snapshot.schema
    for touched in read_touched(snapshot, taken, schema.fields):
        batch = touched.batch
        changed = assignments.apply(_columns(batch), batch)
        arrays = [changed.get(name, batch.column(i)) for i, name in enumerate(batch.schema.names)]
        yield NewRows(pa.RecordBatch.from_arrays(arrays, schema=batch.schema), touched.addresses)


def _columns(batch: Any) -> dict[str, Any]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


# -- rewriting columns -------------------------------------------------------------------------------


def _rewrite(
    changes: RowChanges, assignments: Assignments, fragment_id: int, offsets: Offsets, version: FileVersion
) -> None:
    columns = Schema(assignments.columns)
    batches = _rewritten(changes.snapshot, assignments, columns, fragment_id, offsets)
    changes.rewrite(fragment_id, columns, batches, offsets, version=version)


def _rewritten(
    snapshot: Snapshot, assignments: Assignments, columns: Schema, fragment_id: int, offsets: Offsets
) -> Iterator[Any]:
    """The changed columns for all physical rows of a fragment, in order."""
    fragment = snapshot.fragment(fragment_id)
    assert fragment is not None
    every = {fragment_id: np.arange(fragment.physical_rows, dtype=np.uint32)}
    for touched in read_touched(snapshot, every, _read_fields(snapshot.schema, assignments)):
        first, last = np.searchsorted(offsets, (int(touched.offsets[0]), int(touched.offsets[-1]) + 1))
        yield _scattered(touched, assignments, columns, offsets[first:last])


def _read_fields(schema: Schema, assignments: Assignments) -> tuple[Field, ...]:
    """The top-level columns that are set or read, whole."""
    names = {path[0] for path in assignments.paths} | {field.name for field in assignments.columns}
    return tuple(field for field in schema.fields if field.name in names)


def _scattered(touched: TouchedRows, assignments: Assignments, columns: Schema, offsets: Offsets) -> Any:
    """The columns with new values at some offsets. Rows that do not change are not computed: what is deleted
    or left alone cannot fail.
    """
    batch = touched.batch
    before = _columns(batch)
    at = (offsets - touched.offsets[0]).astype(np.int64)
    some = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
    changed = assignments.apply(_columns(some), some) if len(at) else {}
    arrays = [
        scattered(before[name], at, changed[name]) if name in changed else before[name]
        for name in columns.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)
