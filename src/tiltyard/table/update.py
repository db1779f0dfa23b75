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
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned
from tiltyard.table.rewriting import among, every_row, scattered, writes_less
from tiltyard.table.row_changes import NewRows, RowChanges, table_file_version
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.touched_rows import read_touched
from tiltyard.table.write import WriteOptions

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

COLUMN_REWRITE_ROWS = 65536
"""Changed rows from which rewriting columns is thought of."""

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
    if sum(map(len, taken.values())) < COLUMN_REWRITE_ROWS:
        return False
    return writes_less(snapshot, taken, assignments.columns)


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
    read = _read_fields(snapshot.schema, assignments)
    for touched in read_touched(snapshot, every_row(fragment), read):
        _, at = among(touched, offsets)
        yield _changed_columns(touched.batch, assignments, columns, at)


def _read_fields(schema: Schema, assignments: Assignments) -> tuple[Field, ...]:
    """The top-level columns that are set or read, whole."""
    names = {path[0] for path in assignments.paths} | {field.name for field in assignments.columns}
    return tuple(field for field in schema.fields if field.name in names)


def _changed_columns(batch: Any, assignments: Assignments, columns: Schema, at: npt.NDArray[np.int64]) -> Any:
    """The columns with new values at some positions. Rows that do not change are not computed: what is
    deleted or left alone cannot fail.
    """
    before = _columns(batch)
    some = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
    changed = assignments.apply(_columns(some), some) if len(at) else {}
    arrays = [
        scattered(before[name], at, changed[name]) if name in changed else before[name]
        for name in columns.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)
