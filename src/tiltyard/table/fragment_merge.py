"""New columns for one fragment, in a data file of their own beside the others; not committed.

Values come for live rows alone, in order. The file has every physical row: a deleted one takes the value of a
live row next to it, which nobody reads. The new fields get the ids that follow the greatest one that the
table has ever given out, so that all fragments of a version get the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import FieldNotFound, InvalidInput
from tiltyard.format.fragment import Fragment
from tiltyard.format.schema import Schema
from tiltyard.table.deletions import load_deletions, physical_offsets
from tiltyard.table.fit import fit, new_schema
from tiltyard.table.fragment_update import joined, keys_of
from tiltyard.table.plan import DEFAULT_BATCH_ROWS, estimated_row_bytes, stream_unit_rows
from tiltyard.table.row_changes import rewritten_fragment, table_file_version
from tiltyard.table.scan import Scan, ScanRequest

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

NO_ROWS = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """The fragment with its new data file, and the schema that a commit of it gives the table."""

    fragment: Fragment
    schema: Schema


def add_columns(snapshot: Snapshot, fragment: Fragment, arrow: Any, batches: Iterable[Any]) -> MergedFragment:
    """Columns of an Arrow schema whose values for all live rows come in `batches`.

    Raises `InvalidInput` for columns that the table has already and for another number of rows,
    `SchemaMismatch`.
    """
    return _added(snapshot, fragment, new_fields(snapshot, arrow), batches)


def add_joined(
    snapshot: Snapshot, fragment: Fragment, data: Any, left_on: str, right_on: str
) -> MergedFragment:
    """The columns of `data` (a `pa.Table`) but `right_on`: of the row there whose `right_on` equals the row's
    `left_on`, which may be a pseudo column. Rows without a partner get nulls; of several partners the first
    counts; a null key has none.
    """
    if right_on not in data.column_names:
        raise FieldNotFound(f"the data has no column {right_on!r} to join on; it has {data.column_names}")
    values = data.drop_columns([right_on])
    fields = new_fields(snapshot, pa.schema([each.with_nullable(True) for each in values.schema]))
    keys = Scan(snapshot, keys_of(fragment, left_on)).table().column(0).combine_chunks()
    matched, partners = joined(keys, data[right_on].combine_chunks())
    source, missing = np.zeros(len(keys), np.int64), np.ones(len(keys), bool)
    source[matched], missing[matched] = partners, False
    step = stream_unit_rows(estimated_row_bytes(fields.fields), DEFAULT_BATCH_ROWS)
    whole = values.combine_chunks()

    def taken() -> Iterator[Any]:
        for start in range(0, len(source), step):
            part = slice(start, start + step)
            yield from whole.take(pa.array(source[part], mask=missing[part])).combine_chunks().to_batches()

    return _added(snapshot, fragment, fields, taken())


def add_computed(
    snapshot: Snapshot,
    fragment: Fragment,
    function: Callable[[Any], Any],
    columns: Sequence[str] | None,
    batch_rows: int,
) -> MergedFragment:
    """The columns that a function makes of `pa.RecordBatch`es of `columns` (None: all) of the live rows, at
    most `batch_rows` at a time; it gives a batch or table of as many rows.
    """
    request = ScanRequest(columns=columns, fragments=[fragment.id], batch_rows=batch_rows)

    def outputs() -> Iterator[Any]:
        for batch in Scan(snapshot, request).batches():
            made = function(batch)
            if not isinstance(made, pa.RecordBatch | pa.Table):
                raise InvalidInput(
                    f"the function must give a pyarrow RecordBatch or Table, found {type(made).__name__}"
                )
            if made.num_rows != batch.num_rows:
                raise InvalidInput(f"the function gave {made.num_rows} rows for {batch.num_rows}")
            if isinstance(made, pa.Table):
                made = pa.RecordBatch.from_arrays(
                    [column.combine_chunks() for column in made.columns], schema=made.schema
                )
            yield made

    stream = outputs()
    first = next(stream, None)
    if first is None:
        raise InvalidInput(f"fragment {fragment.id} has no live row to compute columns of")

    def checked() -> Iterator[Any]:
        yield first
        for made in stream:
            if not made.schema.equals(first.schema):
                raise InvalidInput(
                    "Output schema of function does not match the expected schema: it gave\n"
                    f"{made.schema}\nafter\n{first.schema}"
                )
            yield made

    return add_columns(snapshot, fragment, first.schema, checked())


def new_fields(snapshot: Snapshot, arrow: Any) -> Schema:
    """Fields of new columns. Raises `InvalidInput` for names that the table has, `UnsupportedFeature`."""
    known = {name.lower(): name for name in snapshot.schema.names}
    for name in arrow.names:
        if name.lower() in known:
            raise InvalidInput(
                f"column {name!r} exists in the table already; update it, or give the new one another name"
            )
    if not arrow.names:
        raise InvalidInput("there is no new column: the data has none besides those to join on")
    new_schema(arrow, table_file_version(snapshot))  # refuses names and types without a place
    return Schema.from_arrow(arrow, _next_id(snapshot))


def _next_id(snapshot: Snapshot) -> int:
    """The first field id that the table has never given out."""
    held = [id for fragment in snapshot.fragments for file in fragment.files for id in file.fields]
    marked = snapshot.manifest.max_allocated_field_id
    return max(snapshot.schema.max_id, -1 if marked is None else marked, *held, -1) + 1


def _added(snapshot: Snapshot, fragment: Fragment, fields: Schema, batches: Iterable[Any]) -> MergedFragment:
    rows = _physical(snapshot, fragment, fields, batches)
    written = rewritten_fragment(
        snapshot, fragment, Schema(fields.fields), rows, table_file_version(snapshot)
    )
    return MergedFragment(
        written, Schema((*snapshot.schema.fields, *fields.fields), snapshot.schema.metadata)
    )


def _physical(
    snapshot: Snapshot, fragment: Fragment, fields: Schema, batches: Iterable[Any]
) -> Iterator[Any]:
    """The columns for every physical row, from those for the live ones."""
    found = load_deletions(snapshot, fragment)
    deleted = NO_ROWS if found is None else found
    expected = fragment.physical_rows - len(deleted)
    done = written = 0
    for given in batches:
        if not given.num_rows:
            continue
        if done + given.num_rows > expected:
            raise InvalidInput(
                f"Stream produced more values than expected for dataset: fragment {fragment.id} has "
                f"{expected} live rows"
            )
        batch = fit(fields, given.schema).apply(given)
        live = np.arange(done, done + batch.num_rows, dtype=np.int64)
        places = physical_offsets(deleted, live) if len(deleted) else live
        done += batch.num_rows
        end = fragment.physical_rows if done == expected else int(places[-1]) + 1
        if end - written != batch.num_rows:
            source = np.searchsorted(places, np.arange(written, end))
            batch = batch.take(pa.array(np.minimum(source, batch.num_rows - 1)))
        written = end
        yield batch
    if done < expected:
        raise InvalidInput(
            f"Stream ended before producing values for all rows in dataset: {done} came for the {expected} "
            f"live rows of fragment {fragment.id}"
        )
