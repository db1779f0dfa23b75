"""Rows and keys as people give them to a stream, in the table's own types.

Rows are whole: a stream replaces the row of a key, so a column that is left out is refused, not made null. A
value comes out equal or is refused, as for `append` (`table.fit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tiltyard.dataset.mem_wal import one_batch_of
from tiltyard.errors import InvalidInput, SchemaMismatch
from tiltyard.format.schema import Schema
from tiltyard.table.fit import fit, side_by_side

SCALARS = (str, bytes, bytearray)
_ARRAYS = (pa.Array, pa.ChunkedArray)


def rows_given(data: Any, table: Schema, schema: Any = None) -> Any:
    """Rows as one `pa.RecordBatch` in the table's columns: Arrow, pandas or Polars data, a dict of columns, a
    list of dicts, one dict, an iterator of batches or dicts. `schema`: what to bring them to first.

    Raises `InvalidInput` for what is no data, `SchemaMismatch`.
    """
    if schema is None and isinstance(data, pa.RecordBatch) and data.schema.equals(table.arrow):
        return data
    if isinstance(data, Mapping) and _is_one_row(data, table):
        data = [data]
    batch = one_batch_of(data, schema, table.arrow)
    if not batch.num_columns and not batch.num_rows:
        return _empty(table)
    doubled = [each.name for each in table.fields if len(batch.schema.get_all_field_indices(each.name)) > 1]
    if doubled:
        raise SchemaMismatch(f"the data has several columns of the name {doubled[0]!r}: give one")
    missing = [each.name for each in table.fields if batch.schema.get_field_index(each.name) < 0]
    if missing:
        named = ", ".join(repr(name) for name in missing)
        raise SchemaMismatch(
            f"{'columns' if len(missing) > 1 else 'column'} {named} {'are' if len(missing) > 1 else 'is'} "
            "missing: a stream replaces whole rows; give every column (None for null), or use upsert, which "
            f"keeps the values of columns that are left out\n{side_by_side(table, batch.schema)}"
        )
    return fit(table, batch.schema).apply(batch)


def keys_given(keys: Any, table: Schema) -> Any:
    """Keys as one `pa.RecordBatch` with the key's columns: one value, or several in a list, set, array or
    series; of a key of several columns tuples; or data that has the key's columns, whatever else it has.

    Raises `InvalidInput` for a table without a key, `SchemaMismatch`.
    """
    fields = table.primary_key
    if not fields:
        raise InvalidInput(
            "the table has no key: its rows can be neither asked for nor deleted by one; "
            "create_table(key=...) gives a table one"
        )
    key = Schema(tuple(fields))
    data = _key_columns(keys, key, table)
    if isinstance(data, list) and not data:
        return _empty(key)
    if isinstance(data, dict):
        batch = one_batch_of(data, None, key.arrow)
    else:
        batch = one_batch_of(data, None, table.arrow)
        missing = [each.name for each in fields if batch.schema.get_field_index(each.name) < 0]
        if missing:
            raise SchemaMismatch(
                f"the keys lack column {missing[0]!r}: the key is {', '.join(key.names)}, given are "
                f"{', '.join(batch.schema.names) or 'no columns'}"
            )
        batch = batch.select(list(key.names))
    for field in fields:
        if batch.column(field.name).null_count:
            raise InvalidInput(f"key column {field.name!r} has nulls: no row has such a key")
    return fit(key, batch.schema).apply(batch)


def _empty(schema: Schema) -> Any:
    return pa.RecordBatch.from_pylist([], schema.arrow)


def _is_one_row(data: Mapping[Any, Any], table: Schema) -> bool:
    """Whether a dict is a row and not columns: its key's values, or all where there is no key, are single."""
    named = [each.name for each in table.primary_key if each.name in data] or list(data)
    return bool(named) and all(_is_single(data[name]) for name in named)


def _is_single(value: Any) -> bool:
    if isinstance(value, (*SCALARS, Mapping)):
        return True
    if hasattr(value, "ndim"):  # a number of NumPy's is one, an array of its is not
        return int(value.ndim) == 0
    return not isinstance(value, (Iterable, *_ARRAYS))


def _key_columns(keys: Any, key: Schema, table: Schema) -> Any:
    """A dict of columns where the keys are values; else data that has the key's columns."""
    names = key.names
    if isinstance(keys, Mapping):
        return [keys] if _is_one_row(keys, table) else {n: keys[n] for n in _named(keys, key)}
    if _is_tabular(keys):
        return keys
    if keys is None:
        raise InvalidInput(f"keys are given as values of {' and '.join(names)}, found None")
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.StructArray):
        return pa.Table.from_struct_array(keys)
    if len(names) == 1:
        if _is_single(keys):
            return {names[0]: [keys]}
        if hasattr(keys, "dtype") or isinstance(keys, pa.Array):  # NumPy, pandas, Polars, Arrow
            return {names[0]: keys}
        listed = _listed(keys)
        return listed if listed and isinstance(listed[0], Mapping) else {names[0]: listed}
    listed = [keys] if isinstance(keys, tuple) and keys and _is_single(keys[0]) else _listed(keys)
    if listed and isinstance(listed[0], Mapping):
        return listed
    return dict(zip(names, _parts(listed, names), strict=True)) if listed else []


def _named(keys: Mapping[Any, Any], key: Schema) -> Sequence[str]:
    for name in key.names:
        if name not in keys:
            raise SchemaMismatch(
                f"the keys lack column {name!r}: the key is {', '.join(key.names)}, given are "
                f"{', '.join(map(str, keys))}"
            )
    return key.names


def _is_tabular(keys: Any) -> bool:
    if isinstance(keys, (*_ARRAYS, *SCALARS)) or type(keys).__name__ == "Series":
        return False
    return hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "columns") or hasattr(keys, "to_batches")


def _listed(keys: Any) -> list[Any]:
    if isinstance(keys, (set, frozenset)):
        return sorted(keys)
    if isinstance(keys, Iterable) and not isinstance(keys, SCALARS):
        return list(keys)
    return [keys]


def _parts(keys: list[Any], names: Sequence[str]) -> list[list[Any]]:
    for each in keys:
        if not isinstance(each, (tuple, list)) or len(each) != len(names):
            raise InvalidInput(
                f"the key has the columns {', '.join(names)}: give a tuple of {len(names)} values for each "
                f"key, or dicts, found {each!r}"
            )
    return [list(column) for column in zip(*keys, strict=True)]
