"""New values for some columns of one fragment, joined to its rows by key; not committed.

The rows stay where they are: the columns are written anew beside the others (transactions pack, section 8.3,
the column-rewriting form). Whoever commits the fragment says which fields changed and, with stable row ids,
which rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import FieldNotFound, InvalidInput, SchemaMismatch
from tiltyard.format.fragment import Fragment
from tiltyard.format.schema import Schema
from tiltyard.table.fit import fit
from tiltyard.table.projection import ROW_ADDRESS, SYSTEM_COLUMNS
from tiltyard.table.rewriting import among, every_row, scattered
from tiltyard.table.row_changes import rewritten_fragment, table_file_version
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.touched_rows import read_touched

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

OFFSET_MASK = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class UpdatedFragment:
    """The fragment with its new data file, the ids of the fields that it replaces, and the physical offsets
    (uint32, ascending) of the rows that got new values.
    """

    fragment: Fragment
    field_ids: tuple[int, ...]
    offsets: npt.NDArray[np.uint32]


def update_columns(
    snapshot: Snapshot, fragment: Fragment, data: Any, left_on: str, right_on: str
) -> UpdatedFragment:
    """Set the columns of `data` (a `pa.Table`) in the rows whose `left_on` equals a row's `right_on` there.

    `left_on` may be a pseudo column. Rows without a partner keep their values; of several partners the first
    counts; a null key has none. Raises `FieldNotFound`, `InvalidInput` and `SchemaMismatch` before anything
    is written.
    """
    if right_on not in data.column_names:
        raise FieldNotFound(f"the data has no column {right_on!r} to join on; it has {data.column_names}")
    values = data.drop_columns([right_on])
    fields = _fields(snapshot, values.schema, left_on)
    fitted = fit(fields, values.schema)
    keys = Scan(snapshot, keys_of(fragment, left_on)).table()
    matched, partners = joined(keys.column(0).combine_chunks(), data[right_on].combine_chunks())
    offsets = (keys[ROW_ADDRESS].to_numpy()[matched] & OFFSET_MASK).astype(np.uint32)
    taken = values.take(pa.array(partners)).combine_chunks()
    batches = taken.to_batches()
    new = fitted.apply(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=values.schema))

    def columns() -> Any:
        for touched in read_touched(snapshot, every_row(fragment), fields.fields):
            chosen, at = among(touched, offsets)
            part = new.slice(chosen.start, len(at))
            arrays = [
                scattered(old, at, fresh)
                for old, fresh in zip(touched.batch.columns, part.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=fields.arrow)

    written = rewritten_fragment(snapshot, fragment, fields, columns(), table_file_version(snapshot))
    return UpdatedFragment(written, tuple(field.id for field in fields.walk()), offsets)


def _fields(snapshot: Snapshot, arrow: Any, left_on: str) -> Schema:
    """The table's fields that the data brings, in the table's order."""
    if not arrow.names:
        raise InvalidInput("the data has no column besides the one to join on; there is nothing to update")
    for name in arrow.names:
        if name in SYSTEM_COLUMNS:
            raise InvalidInput(f"{name} is a metadata column, which cannot be updated")
        if name == left_on:
            raise InvalidInput(f"{name!r} is the column to join on, which cannot be updated")
        if not snapshot.schema.has_column(name):
            raise FieldNotFound(
                f"column {name!r} does not exist in the table: it has {snapshot.schema.names}"
            )
    return Schema(tuple(field for field in snapshot.schema.fields if field.name in arrow.names))


def keys_of(fragment: Fragment, left_on: str) -> ScanRequest:
    """A scan of the keys of a fragment's live rows, with their addresses."""
    return ScanRequest(columns=[left_on], fragments=[fragment.id], row_address=True)


def joined(left: Any, right: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions in `left` that have a partner, ascending, and the partner of each in `right`."""
    import pyarrow.compute as pc

    if not right.type.equals(left.type):
        try:
            right = right.cast(left.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(
                f"keys of type {right.type} do not join with {left.type}: {error}"
            ) from error
    found = pc.index_in(left, value_set=right, skip_nulls=True)
    matched = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    partners = found.drop_null().to_numpy().astype(np.int64)
    return matched, partners
