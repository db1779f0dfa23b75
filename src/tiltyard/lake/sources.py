"""What a new table is made of, as callers give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tiltyard.dataset.source import read_source
from tiltyard.errors import InvalidInput

_ADVICE = "give a pa.Schema, as data or as schema=, or data with columns, such as {'id': [1, 2]}"


def columns_given(data: Any, schema: Any) -> tuple[Any, Any]:
    """Data and schema of a new table: a schema alone stands for data without rows.

    Raises `InvalidInput` for nothing at all, and for a dict without columns.
    """
    if data is None and isinstance(schema, pa.Schema):
        data, schema = schema, None
    if data is None:
        raise InvalidInput(f"create_table needs data or a schema: {_ADVICE}")
    if schema is None and isinstance(data, Mapping) and not data:
        raise InvalidInput(f"the data have no column: {_ADVICE}")
    return data, schema


def readable(data: Any, schema: Any) -> Any:
    """The same data, after a look whether it is data. Raises `InvalidInput`, `SchemaMismatch`."""
    if isinstance(data, pa.Schema | pa.Table | pa.RecordBatch | pa.RecordBatchReader) and schema is None:
        return data
    return pa.RecordBatchReader.from_batches(*read_source(data, schema))
