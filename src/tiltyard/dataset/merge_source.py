"""What a merge needs to know of the data that it is given: whether the caller holds it, and the types that
Python values in it shall have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

MAX_INFERRED = 1000
"""Values that the type of a column which the table does not have is taken from."""


def is_held(data: Any) -> bool:
    """Whether the caller holds all of the data in memory: tables, frames, dicts and lists, not streams."""
    if isinstance(data, (pa.Table, pa.RecordBatch, Mapping, list, tuple)):
        return True
    library = type(data).__module__.partition(".")[0]
    return library in ("pandas", "polars") and library in sys.modules


def table_guide(data: Any, table: Any) -> Any:
    """The `pa.Schema` that Python values are read by: the table's types for the columns, and the fields of
    structs, that the data brings. What it leaves out is not brought: an update leaves it alone.

    A dict of columns and a list of dicts are looked through; anything else is read by the table's schema.
    """
    columns = _python_columns(data)
    if columns is None:
        return table
    names = {name.lower(): name for name in reversed(table.names)}
    fields = []
    for name, values in columns.items():
        known = name if name in table.names else names.get(name.lower())
        if known is not None:
            field = table.field(known).with_name(name).with_nullable(True)
            fields.append(field.with_type(_brought(field.type, values)))
        elif not isinstance(values, (pa.Array, pa.ChunkedArray)):
            fields.append(pa.field(name, _inferred(values)))
        else:
            fields.append(pa.field(name, values.type))
    return pa.schema(fields)


def _python_columns(data: Any) -> dict[str, Any] | None:
    """Column to values of a dict of columns or a list of dicts; None for other data, and for what the reader
    of the data will refuse.
    """
    if isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        if any(
            hasattr(value, "__len__") and isinstance(value, (pa.Array, pa.ChunkedArray))
            for value in data[0].values()
        ):
            return None
        names = dict.fromkeys(name for row in data for name in row)
        found = {name: [row.get(name) for row in data] for name in names}
    elif isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):
        found = dict(data)
    else:
        return None
    return found if all(isinstance(name, str) for name in found) else None


def _brought(kind: Any, values: Any) -> Any:
    """The struct type with those fields that any of the Python values has; other types as they are."""
    if not pa.types.is_struct(kind) or not isinstance(values, (list, tuple)):
        return kind
    held = [value for value in values if isinstance(value, Mapping)]
    names = {name for value in held for name in value}
    fields = [
        field.with_type(_brought(field.type, [value.get(field.name) for value in held]))
        for field in kind
        if field.name in names
    ]
    unknown = names - {field.name for field in fields}
    return kind if unknown or not fields else pa.struct(fields)


def _inferred(values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        try:
            return pa.infer_type(values[:MAX_INFERRED])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):
            return pa.null()
    if isinstance(values, Iterable) and hasattr(values, "dtype"):
        try:
            return pa.from_numpy_dtype(values.dtype)
        except (pa.ArrowNotImplementedError, TypeError):
            return pa.null()
    return pa.null()
