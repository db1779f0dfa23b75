"""Whatever a caller hands in as data, as one Arrow schema and a stream of record batches.

Accepted: Arrow tables, batches, readers, datasets and scanners; anything with `__arrow_c_stream__`; pandas
and Polars frames; lists of dicts and dicts of lists; iterables of record batches with a schema; our own
datasets and scanners.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tiltyard.errors import InvalidInput, SchemaMismatch


def read_source(data: Any, schema: Any = None) -> tuple[Any, Iterator[Any]]:
    """The `pa.Schema` of the data and its `pa.RecordBatch`es.

    With `schema`, the data is brought to it. Raises `InvalidInput` for what is not data and for an iterable
    without a schema.
    """
    found, batches = _read(data, schema)
    if schema is not None and not found.equals(schema, check_metadata=True):
        return schema, _cast(batches, schema)
    return found, batches


def _read(data: Any, schema: Any) -> tuple[Any, Iterator[Any]]:
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if isinstance(data, Mapping):
        table = pa.Table.from_pydict(dict(data), schema=schema)
        return table.schema, iter(table.to_batches())
    if isinstance(data, list) and (not data or isinstance(data[0], Mapping)):
        table = _from_rows(data, schema)
        return table.schema, iter(table.to_batches())
    frame = _frame(data, schema)
    if frame is not None:
        return frame.schema, iter(frame.to_batches())
    if hasattr(data, "to_batches") and hasattr(data, "projected_schema"):
        return data.projected_schema, iter(data.to_batches())  # a scanner, Arrow's or ours
    if hasattr(data, "to_batches") and isinstance(getattr(data, "schema", None), pa.Schema):
        return data.schema, iter(data.to_batches())  # a dataset, Arrow's or ours
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return batch.schema, iter([batch])
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        if schema is None:
            raise InvalidInput("an iterable of record batches needs a schema: pass schema=")
        return schema, _from_iterable(data, schema)
    raise InvalidInput(
        f"cannot write an object of type {type(data).__name__}; give an Arrow table, batch or reader, a "
        f"pandas or "
        "Polars frame, a dict of lists, a list of dicts, or an iterable of record batches with schema="
    )


def _from_rows(rows: list[Any], schema: Any) -> Any:
    if not rows and schema is None:
        raise InvalidInput("an empty list has no schema: pass schema=")
    return pa.Table.from_pylist(rows, schema=schema)


def _frame(data: Any, schema: Any) -> Any:
    """pandas and Polars frames as a table; None for anything else. Loads neither library."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, getattr(pandas, "DataFrame", ())):
        return pa.Table.from_pandas(data, schema=schema, preserve_index=None if schema is None else False)
    polars: Any = sys.modules.get("polars")
    if polars is None:
        return None
    lazy: Any = getattr(polars, "LazyFrame", ())
    eager: Any = getattr(polars, "DataFrame", ())
    frame = data.collect() if isinstance(data, lazy) else data
    return frame.to_arrow(compat_level=polars.CompatLevel.oldest()) if isinstance(frame, eager) else None


def _from_iterable(data: Iterable[Any], schema: Any) -> Iterator[Any]:
    for part in data:
        if isinstance(part, pa.RecordBatch):
            yield part
        elif isinstance(part, pa.Table):
            yield from part.to_batches()
        elif isinstance(part, Mapping):
            yield from pa.Table.from_pydict(dict(part), schema=schema).to_batches()
        else:
            _, batches = _read(part, schema)
            yield from batches


def _cast(batches: Iterator[Any], schema: Any) -> Iterator[Any]:
    for batch in batches:
        if batch.schema.equals(schema, check_metadata=False):
            yield batch.replace_schema_metadata(schema.metadata)
            continue
        try:
            yield pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"the data does not fit the schema given: {error}") from error


def _column(batch: Any, field: Any) -> Any:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        if not field.nullable:
            raise SchemaMismatch(f"the data lacks column {field.name!r}, which may not be null")
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    if column.type.equals(field.type):
        return column
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(field.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(field.type, column.cast(field.type.storage_type))
    return column.cast(field.type)
