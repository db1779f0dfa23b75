"""Whatever a caller hands in as data, as one Arrow schema and a stream of record batches.

Accepted: Arrow tables, batches, readers, datasets and scanners; anything with `__arrow_c_stream__`; pandas
and Polars frames; dicts of columns; lists of dicts, of batches, of tables; iterators of them; our own
datasets, tables and scanners.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.merge_source import is_held
from tiltyard.dataset.rows import looks_like_columns, refuse_unknown, table_of_columns, table_of_rows
from tiltyard.errors import InvalidInput, SchemaMismatch
from tiltyard.format.nested import mapped, parts

ROWS_AT_ONCE = 1 << 16
"""Rows of an iterator of dicts that become one batch; the first ones settle the types where no schema does.
"""

ACCEPTED = (
    "give an Arrow table, batch or reader, a pandas or Polars frame, a dict of columns, a list of dicts, or "
    "an iterable of record batches"
)

_TABULAR = ("__arrow_c_stream__", "__arrow_c_array__", "to_batches")

_NOTHING = object()

Read = tuple[Any, Iterator[Any]]


def read_source(data: Any, schema: Any = None, table: Any = None) -> Read:
    """The `pa.Schema` of the data and its `pa.RecordBatch`es.

    `schema`: what the caller says that the data shall have; the data is brought to it, columns that it does
    not have are refused, nullable ones that the data lacks are filled with nulls. `table`: the schema of
    the table that is appended to; it guides Python values, which have no type of their own, and columns
    without any value, whose type says nothing (where all of the data is at hand). Raises `InvalidInput` for
    what is not data and for data without a schema, `SchemaMismatch`.
    """
    if schema is not None and not isinstance(schema, pa.Schema):
        schema = _as_schema(schema)
    guide = table if schema is None else schema
    found, batches = _read(data, guide)
    batches = _only_batches(batches)
    if schema is None:
        if table is not None:
            found, batches = _valueless_as(table, data, found, batches)
            _refuse_gaps(data, found, table)
        return found, batches
    refuse_unknown(found.names, schema)
    if found.equals(schema, check_metadata=True):
        return schema, batches
    return schema, _cast(batches, schema)


def _as_schema(schema: Any) -> Any:
    if hasattr(schema, "to_pyarrow"):
        return schema.to_pyarrow()
    raise arguments.wrong("schema", "a pyarrow.Schema", schema)


def _read(data: Any, guide: Any) -> Read:
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, _from_reader(data)
    if isinstance(data, Mapping):
        return _read(table_of_columns(data, guide), guide)
    _refuse_no_table(data)
    frame = _frame(data)
    if frame is not None:
        return frame.schema, iter(frame.to_batches())
    if hasattr(data, "to_batches") and hasattr(data, "projected_schema"):
        return _from_batches(data, data.projected_schema)  # a scanner, Arrow's or ours
    if hasattr(data, "to_batches") and isinstance(getattr(data, "schema", None), pa.Schema):
        return _from_batches(data, data.schema)  # a dataset, Arrow's or ours
    if hasattr(data, "__arrow_c_stream__"):
        return _stream(data)
    if hasattr(data, "__arrow_c_array__"):
        try:
            batch = pa.record_batch(data)
        except (pa.ArrowInvalid, TypeError, ValueError) as error:
            raise InvalidInput(f"the Arrow array of this {type(data).__name__} has no columns") from error
        return batch.schema, iter([batch])
    if isinstance(data, list) and data and all(isinstance(each, Mapping) for each in data):
        return _read(table_of_rows(data, guide), guide)
    if isinstance(data, Iterable):
        return _iterable(data, guide)
    raise InvalidInput(f"an object of type {type(data).__name__} is no data; {ACCEPTED}")


def _refuse_no_table(data: Any) -> None:
    """Name what people take for a table."""
    if isinstance(data, (str, bytes, os.PathLike)):
        raise InvalidInput(
            f"the data is the {'path' if isinstance(data, os.PathLike) else 'text'} {str(data)[:80]!r}; "
            f"files are not read here, read it first: {ACCEPTED}"
        )
    if isinstance(data, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(data.type):
        raise InvalidInput("an Arrow array is one column without a name; give {'name': array}")
    library = type(data).__module__.partition(".")[0]
    if library == "numpy":
        raise InvalidInput(
            "a NumPy array has no column names; give {'name': array}, an array for each column"
        )
    if library in ("pandas", "polars") and type(data).__name__ == "Series":
        raise InvalidInput(f"a {library} Series is one column; give a frame (series.to_frame('name'))")


def _stream(data: Any) -> Read:
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the Arrow stream of this {type(data).__name__} has no columns; {ACCEPTED}"
        ) from error
    return reader.schema, _from_reader(reader)


def _from_reader(reader: Any) -> Iterator[Any]:
    try:
        yield from reader
    except pa.ArrowTypeError as error:  # what the generator behind the reader raises comes through as it is
        raise InvalidInput(f"the reader gives something that is no record batch: {error}") from error


def _from_batches(data: Any, schema: Any) -> Read:
    batches = data.to_batches()
    if not isinstance(schema, pa.Schema) or not isinstance(batches, Iterable):
        raise InvalidInput(f"to_batches() of this {type(data).__name__} gives no record batches; {ACCEPTED}")
    return schema, iter(batches)


def _only_batches(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise arguments.wrong("each part of the data", "a record batch", batch)
        yield batch


def _frame(data: Any) -> Any:
    """pandas and Polars frames as a table; None for anything else. Loads neither library."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, getattr(pandas, "DataFrame", ())):
        return _from_pandas(data)
    polars: Any = sys.modules.get("polars")
    if polars is None:
        return None
    lazy: Any = getattr(polars, "LazyFrame", ())
    eager: Any = getattr(polars, "DataFrame", ())
    frame = data.collect() if isinstance(data, lazy) else data
    return frame.to_arrow(compat_level=polars.CompatLevel.oldest()) if isinstance(frame, eager) else None


def _from_pandas(frame: Any) -> Any:
    """The frame with those parts of its index that have a name; the others are row labels, no data."""
    unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
    named = len(unnamed) < frame.index.nlevels
    if unnamed and named:
        frame = frame.reset_index(level=unnamed, drop=True)
    try:
        # A definite answer: left to itself, Arrow keeps a range of labels as metadata only, named or not.
        return pa.Table.from_pandas(frame, preserve_index=named)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInput(f"the frame cannot be brought to Arrow: {error}") from error


def _valueless_as(table: Any, data: Any, found: Any, batches: Iterator[Any]) -> Read:
    """The data with columns that hold nulls only in the table's types; frames give such a column any type
    (pandas: float64 for texts). Of streams nobody knows it in time: they are left as they are.
    """
    others = [
        at
        for at, field in enumerate(found)
        if (place := table.get_field_index(field.name)) >= 0
        and not field.type.equals(table.field(place).type)
    ]
    if not others or not is_held(data):
        return found, batches
    parts = list(batches)
    if not all(part.schema.equals(found) for part in parts):
        return found, iter(parts)
    schema = found
    for at in others:
        if all(part.column(at).null_count == part.num_rows for part in parts):
            name = found.field(at).name
            schema = schema.set(at, pa.field(name, table.field(name).type))
    if schema is found:
        return found, iter(parts)
    settled = []
    for part in parts:
        columns = [
            column if kept.equals(field) else pa.nulls(part.num_rows, field.type)
            for column, kept, field in zip(part.columns, found, schema, strict=True)
        ]
        settled.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return schema, iter(settled)


def _refuse_gaps(data: Any, found: Any, table: Any) -> None:
    """Name what to do where pandas made floats of a column of whole numbers with gaps."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, getattr(pandas, "DataFrame", ())):
        return
    for field in found:
        at = table.get_field_index(field.name)
        if at < 0 or not pa.types.is_floating(field.type) or not pa.types.is_integer(table.field(at).type):
            continue
        raise SchemaMismatch(
            f"column {field.name!r} has type {table.field(at).type}, the data has {field.type}. pandas turns "
            f"whole numbers with gaps into floats: give frame.astype({{{field.name!r}: 'Int64'}}) or pass "
            "schema="
        )


def _iterable(data: Iterable[Any], guide: Any) -> Read:
    """Batches, tables or dicts one after another; the first one shows what they are."""
    parts = iter(data)
    first = next(parts, _NOTHING)
    if first is _NOTHING:
        if guide is None:
            raise InvalidInput("the data is empty and has no schema; pass schema=")
        return guide, iter(())
    parts = chain((first,), parts)
    if isinstance(first, Mapping) and not looks_like_columns(first, guide):
        return _rows(parts, guide)
    if isinstance(first, Mapping) or any(hasattr(first, name) for name in _TABULAR):
        return _read(first, guide)[0], _parts(parts, guide)
    kind = type(data).__name__
    raise InvalidInput(f"a {kind} of {type(first).__name__} is no data; {ACCEPTED}")


def _rows(rows: Iterator[Any], guide: Any) -> Read:
    first = table_of_rows(list(islice(rows, ROWS_AT_ONCE)), guide)
    guide = first.schema if guide is None else guide

    def batches() -> Iterator[Any]:
        yield from first.to_batches()
        while more := list(islice(rows, ROWS_AT_ONCE)):
            yield from table_of_rows(more, guide).to_batches()

    return first.schema, batches()


def _parts(parts: Iterator[Any], guide: Any) -> Iterator[Any]:
    for part in parts:
        yield from [part] if isinstance(part, pa.RecordBatch) else _read(part, guide)[1]


def _cast(batches: Iterator[Any], schema: Any) -> Iterator[Any]:
    for batch in batches:
        if batch.schema.equals(schema, check_metadata=False):
            yield batch.replace_schema_metadata(schema.metadata)
            continue
        refuse_unknown(batch.schema.names, schema)
        yield pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: Any, field: Any) -> Any:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        if not field.nullable:
            raise SchemaMismatch(f"the data lacks column {field.name!r}, which may not be null")
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    if column.type.equals(field.type):
        return column
    try:
        return _as_type(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(
            f"column {field.name!r} does not fit the schema given: cannot bring {column.type} to "
            f"{field.type}: {error}"
        ) from error


def _as_type(array: Any, wanted: Any) -> Any:
    """The array cast to a type, which Arrow does not do by itself where that has extension types inside."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, array.cast(wanted.storage_type))
    ours, theirs = parts(array.type), parts(wanted)
    if array.type.id != wanted.id or len(ours) != len(theirs) or not _has_extension([*ours, *theirs]):
        return array.cast(wanted)
    if pa.types.is_struct(wanted) and [each.name for each in ours] != [each.name for each in theirs]:
        return array.cast(wanted)
    return mapped(array, wanted, lambda values, at: _as_type(values, theirs[at].type))


def _has_extension(fields: list[Any]) -> bool:
    return any(
        isinstance(each.type, pa.BaseExtensionType) or _has_extension(parts(each.type)) for each in fields
    )
