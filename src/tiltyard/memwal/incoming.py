"""Rows as callers give them, in the columns of the log; what is wrong is refused before it is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import InvalidInput, SchemaMismatch, WrongType, nearest
from tiltyard.memwal.joining import joined
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.table.fit import refuse_nulls, side_by_side

if TYPE_CHECKING:
    from tiltyard.format.schema import Schema

_NO_MARKS = pa.py_buffer(bytes(1 << 13))
"""What says of up to 65,536 rows that they delete nothing."""


def one_batch(data: Any) -> Any:
    """Data of the usual Arrow kinds as one `pa.RecordBatch`. Raises `WrongType`, `BatchTooLarge`."""
    if isinstance(data, pa.RecordBatch):
        return data
    if isinstance(data, pa.Table):
        batches = data.to_batches()
        if not batches:
            return pa.RecordBatch.from_pylist([], data.schema)
        return batches[0] if len(batches) == 1 else joined(batches)
    if isinstance(data, pa.RecordBatchReader):
        return one_batch(data.read_all())
    if isinstance(data, (list, tuple)) and data and all(isinstance(each, pa.RecordBatch) for each in data):
        return one_batch(pa.Table.from_batches(data))
    if hasattr(data, "__arrow_c_stream__"):
        return one_batch(pa.table(data))
    raise WrongType(
        "rows are given as a pa.RecordBatch, a pa.Table, a reader or a list of batches, found a "
        f"{type(data).__name__}"
    )


def rows_of(data: Any, schema: LogSchema) -> Any:
    """Rows to insert or replace: exactly the table's columns, by name, of exactly its types.

    Raises `SchemaMismatch`, and `InvalidInput` for nulls where there may be none.
    """
    batch = one_batch(data)
    names, types = schema.kept("names and types", lambda: (schema.table.names, schema.table.arrow.types))
    if batch.schema.names == names and batch.schema.types == types:
        columns = batch.columns
    else:
        columns = _in_order(batch, schema.table)
    for at in schema.kept("checked for nulls", lambda: _checked(schema)):
        field, column = schema.table.fields[at], columns[at]
        refuse_nulls(column, field, field.name)
        if field.name in schema.key and column.null_count:
            raise InvalidInput(f"key column {field.name!r} has nulls: a row without a key cannot be streamed")
    return _stored(columns, schema, batch.num_rows, False)


def _checked(schema: LogSchema) -> list[int]:
    """Positions of the columns in which there may be a null that there must not be."""
    fields = enumerate(schema.table.fields)
    return [at for at, each in fields if not each.nullable or each.children or each.name in schema.key]


def _in_order(batch: Any, table: Schema) -> list[Any]:
    """The columns of a batch as the table has them. Raises `SchemaMismatch`."""
    columns = []
    problems = []
    for field in table.fields:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            problems.append(f"column {field.name!r} is missing")
        elif not batch.schema.field(at).type.equals(field.arrow_type):
            problems.append(
                f"column {field.name!r} is {batch.schema.field(at).type}, the table's is {field.arrow_type}"
            )
        else:
            columns.append(batch.column(at))
    known = [field.name for field in table.fields]
    problems += [
        f"column {n!r} is not the table's; {nearest(n, known)}" for n in batch.schema.names if n not in known
    ]
    if len(set(batch.schema.names)) < len(batch.schema.names):
        problems.append("two columns have one name")
    if problems:
        raise SchemaMismatch(
            f"batch does not match the base table schema: {'; '.join(problems)}\n"
            f"{side_by_side(table, batch.schema)}"
        )
    return columns


def deletions(data: Any, schema: LogSchema) -> Any:
    """Rows that delete: the key's columns of `data`, nothing in the others. Raises as `rows_of` does."""
    if not schema.has_key:
        raise InvalidInput("delete requires a primary key, but this shard has no primary key columns")
    batch = one_batch(data)
    columns = []
    for field in schema.table.fields:
        if field.name not in schema.key:
            columns.append(pa.nulls(batch.num_rows, field.arrow_type))
            continue
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise SchemaMismatch(f"delete keys batch is missing primary key column '{field.name}'")
        column = batch.column(at)
        if not column.type.equals(field.arrow_type):
            raise SchemaMismatch(
                "failed to build tombstone batch (do the delete keys match the primary key?): column "
                f"{field.name!r} is {column.type}, the table's is {field.arrow_type}"
            )
        if column.null_count:
            raise InvalidInput(
                "failed to build tombstone batch (do the delete keys match the primary key?): column "
                f"{field.name!r} has nulls"
            )
        columns.append(column)
    return _stored(columns, schema, batch.num_rows, True)


def _stored(columns: list[Any], schema: LogSchema, rows: int, deletes: bool) -> Any:
    nbytes = -(-rows // 8)
    marks = _NO_MARKS
    if deletes or nbytes > len(marks):
        marks = pa.py_buffer(np.full(nbytes, 0xFF if deletes else 0, np.uint8))
    tombstones = pa.Array.from_buffers(pa.bool_(), rows, [None, marks])
    return pa.RecordBatch.from_arrays([*columns, tombstones], schema=schema.stored.arrow)
