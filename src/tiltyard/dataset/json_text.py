"""JSON columns as callers see them: text of Arrow's type `arrow.json`, where tables hold the binary form; at
any depth, inside structs, lists and maps as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.format import jsonb
from tiltyard.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME, says_json
from tiltyard.format.nested import mapped, parts, rebuilt
from tiltyard.format.schema import Schema

_MARKS = (EXTENSION_NAME.encode(), EXTENSION_METADATA.encode())
_TYPE = pa.json_(pa.string())


def has_json(schema: Schema) -> bool:
    """Whether a table may give JSON columns: it has a field of that type, at any depth."""
    pending = list(schema.fields)
    while pending:
        field = pending.pop()
        if field.logical_type == "json":
            return True
        pending.extend(field.children)
    return False


def is_json(field: Any) -> bool:
    """Whether an Arrow field holds JSON in its binary form."""
    return types.is_large_binary(field.type) and says_json(field)


def _holds_json(field: Any) -> bool:
    return is_json(field) or any(map(_holds_json, parts(field.type)))


def shown_schema(schema: Any) -> Any:
    """A `pa.Schema` as callers see it."""
    if not any(map(_holds_json, schema)):
        return schema
    return pa.schema([_shown_field(field) for field in schema], schema.metadata)


def _shown_field(field: Any) -> Any:
    if is_json(field):
        kept = {key: value for key, value in field.metadata.items() if key not in _MARKS}
        return pa.field(field.name, _TYPE, field.nullable, kept or None)
    if not _holds_json(field):
        return field
    return field.with_type(rebuilt(field.type, [_shown_field(each) for each in parts(field.type)]))


def shown_table(table: Any) -> Any:
    """A `pa.Table` as callers see it. Raises `CorruptFile` for damaged values."""
    held = table.schema  # a new object each time that it is asked for
    schema = shown_schema(held)
    if schema is held:
        return table
    columns = [
        pa.chunked_array([_shown(chunk, before) for chunk in column.chunks], after.type)
        for column, before, after in zip(table.columns, held, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def shown_batch(batch: Any) -> Any:
    """A `pa.RecordBatch` as callers see it; raises as `shown_table` does."""
    held = batch.schema
    schema = shown_schema(held)
    if schema is held:
        return batch
    columns = [_shown(column, field) for column, field in zip(batch.columns, held, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def shown_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """`pa.RecordBatch`es as callers see them; raises as `shown_table` does."""
    return map(shown_batch, batches)


def _shown(array: Any, field: Any) -> Any:
    if is_json(field):
        texts = [None if value is None else jsonb.text_of(value) for value in array.to_pylist()]
        return pa.ExtensionArray.from_storage(_TYPE, pa.array(texts, pa.string()))
    if not _holds_json(field):
        return array
    return mapped(array, _shown_field(field).type, lambda part, at: _shown(part, parts(field.type)[at]))
