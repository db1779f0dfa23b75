"""Python values as Arrow: dicts of columns, rows as dicts.

Keys are united in the order in which they first appear. A matrix (2-D array of numbers) is a column of
vectors: lists of a fixed size, unless a schema says otherwise. Where a schema guides the conversion (the
table's on an append, or one that the caller gives), values take its types if nothing of them is lost, and
keys that it does not have are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, SchemaMismatch, nearest
from tiltyard.format.blobs import BLOB, not_written
from tiltyard.format.field import BLOB_EXTENSION
from tiltyard.format.logical_types import EXTENSION_NAME, says_json
from tiltyard.format.nested import parts, rebuilt
from tiltyard.table.json_form import JSON_ADVICE

MAX_NAMES_SHOWN = 8
NUMBERS = "iuf"
"""Kinds of NumPy types whose matrices are vectors."""

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def table_of_rows(rows: Sequence[Any], guide: Any = None) -> Any:
    """Rows as a `pa.Table`; a key that a row lacks is null there.

    `guide`: a `pa.Schema` or None. Raises `InvalidInput` for what is no row and for values of one column that
    have no common type, `SchemaMismatch` for keys and values that do not fit the guide; all name the column.
    """
    keys: dict[Any, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInput(f"rows are dicts, but row {number} is of type {type(row).__name__}")
        keys.update(dict.fromkeys(row))
    refuse_unknown(keys, guide)
    columns = {key: _column(key, [row.get(key) for row in rows], guide) for key in keys}
    return _table(columns, len(rows), guide)


def table_of_columns(data: Mapping[Any, Any], guide: Any = None) -> Any:
    """A dict of columns (lists, NumPy or Arrow arrays, pandas or Polars series) as a `pa.Table`; see
    `table_of_rows`.
    """
    refuse_unknown(data, guide)
    for key, values in data.items():
        if isinstance(values, Set):
            raise InvalidInput(
                f"the values of column {key!r} are a {type(values).__name__}, which has no order"
            )
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, (Iterable, pa.Array)):
            raise InvalidInput(
                f"column {key!r} is the single value {_shown(values)}; give a list with a value for each "
                f"row, as in {{{key!r}: [{_shown(values)}]}}, or rows as a list of dicts"
            )
    columns = {key: _column(key, values, guide) for key, values in data.items()}
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key!r} has {length:,}" for key, length in list(lengths.items())[:MAX_NAMES_SHOWN])
        raise InvalidInput(f"columns must have the same number of values: {told}")
    return _table(columns, next(iter(lengths.values()), 0), guide)


def refuse_unknown(names: Iterable[Any], guide: Any) -> None:
    """Raise `SchemaMismatch` for names that the guide does not have, `InvalidInput` for those that are no
    text.
    """
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"a column is named by text, found {name!r} of type {type(name).__name__}")
        arguments.text("a column's name", name)
    if guide is None:
        return
    for name in names:
        at = guide.get_field_index(name)
        if at >= 0:
            _refuse_blobs(guide.field(at), name)
    unknown = [name for name in names if guide.get_field_index(name) < 0]
    if unknown:
        told = ", ".join(map(repr, unknown[:MAX_NAMES_SHOWN])) + (", ..." * (len(unknown) > MAX_NAMES_SHOWN))
        hint = nearest(unknown[0], guide.names)
        raise SchemaMismatch(
            f"the data has {'columns' if len(unknown) > 1 else 'column'} {told}, which the schema has not; "
            f"{hint}"
        )


def _refuse_blobs(field: Any, path: str) -> None:
    """Raise `UnsupportedFeature` for a column of blobs: what a value of it is, is not known here."""
    found = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    if found.get(BLOB, "").lower() == "true" or found.get(EXTENSION_NAME) == BLOB_EXTENSION:
        raise not_written(path)
    if types.is_struct(field.type):
        for each in parts(field.type):
            _refuse_blobs(each, f"{path}.{each.name}")


def looks_like_columns(part: Mapping[Any, Any], guide: Any) -> bool:
    """Whether a dict from an iterator is a batch of columns and no row: a list stands where the guide wants
    one value.
    """
    if guide is None:
        return False
    for name, value in part.items():
        at = guide.get_field_index(name) if isinstance(name, str) else -1
        if at >= 0 and not types.is_nested(guide.field(at).type) and _is_list(value):
            return True
    return False


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, pa.Array, pa.ChunkedArray)) or hasattr(value, "__array__")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _table(columns: Mapping[str, Any], rows: int, guide: Any) -> Any:
    if not columns:
        names = None if guide is None else pa.Table.from_batches([], guide)
        if rows and names is not None:
            return pa.table([pa.nulls(rows, each.type) for each in guide], schema=guide)
        return pa.table({}) if names is None else names
    fields = []
    for name, column in columns.items():
        at = -1 if guide is None else guide.get_field_index(name)
        if at >= 0 and column.type.equals(guide.field(at).type):
            fields.append(guide.field(at).with_nullable(True))
        else:
            fields.append(pa.field(name, column.type))
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def _column(name: str, values: Any, guide: Any) -> Any:
    """One column; Arrow data keeps its type, Python values take the guide's."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    field = None if guide is None else guide.field(name)
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if getattr(values, "ndim", 1) == 2:
            if field is None and values.dtype.kind in NUMBERS and values.shape[1]:
                return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
            values = list(values)  # a list for each row
        elif not hasattr(values, "__len__"):
            values = list(values)
        if field is None or says_json(field):
            return pa.array(values)
    except _CONVERSION_ERRORS as error:
        advice = f"; the column holds JSON: {JSON_ADVICE}" if field is not None and says_json(field) else ""
        raise InvalidInput(f"the values of column {name!r} have no common type: {error}{advice}") from error
    return _guided(name, values, field)


def _guided(name: str, values: Any, field: Any) -> Any:
    wanted = _written_type(field)
    if types.is_timestamp(wanted):
        values = _times(name, values, wanted)
    try:
        column = pa.array(values, type=wanted)
    except _CONVERSION_ERRORS as error:
        raise SchemaMismatch(f"column {name!r}: a value is no {wanted}: {error}") from error
    try:
        given = pa.array(values)
    except _CONVERSION_ERRORS:
        return column  # such as maps, which have no type without a schema
    problem = _loss(given, column, name)
    if problem is not None:
        raise SchemaMismatch(problem)
    return column


def _times(name: str, values: Any, wanted: Any) -> Any:
    """Python values for a column of timestamps: dates are the midnights that they begin with. Raises
    `SchemaMismatch` for dates where the column has a time zone, and for text.
    """
    if hasattr(values, "dtype") and values.dtype != object:
        return values
    values = list(values)
    if any(isinstance(value, str) for value in values):
        raise SchemaMismatch(
            f"column {name!r}: text is no {wanted}; give datetime values, as in "
            "datetime.fromisoformat('2026-01-31 12:00')"
        )
    if not any(type(value) is date for value in values):
        return values
    if wanted.tz is not None:
        raise SchemaMismatch(
            f"column {name!r}: a date is no {wanted}, as midnight differs by zone; give datetime values "
            "with a time zone"
        )
    return [datetime.combine(value, time()) if type(value) is date else value for value in values]


def _written_type(field: Any) -> Any:
    """The type that Python values of the field have: JSON is text, which the table layer converts."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    made = [
        each.with_type(pa.string() if says_json(each) else _written_type(each)).remove_metadata()
        for each in parts(kind)
    ]
    return rebuilt(kind, made) if made else kind


def _loss(given: Any, made: Any, path: str) -> str | None:
    """What the conversion of Python values to a type lost; None when nothing. pyarrow converts 1.5 to 1, cuts
    times and drops unknown keys of structs without a word.
    """
    if isinstance(made, pa.ChunkedArray):
        return None
    if given.type.equals(made.type) or types.is_null(given.type):
        return None
    if types.is_struct(given.type) and types.is_struct(made.type):
        return _struct_loss(given, made, path)
    if _has_items(given.type) and _has_items(made.type):
        return _loss(given.flatten(), made.flatten(), f"{path}[]")
    if types.is_nested(given.type) or types.is_nested(made.type):
        return None
    told = f"column {path!r}: a value would be lost in {made.type}; the data has {given.type}"
    if types.is_floating(given.type) and types.is_floating(made.type):
        return told if _infinite(given) != _infinite(made) else None
    if types.is_temporal(made.type) and not types.is_temporal(given.type):
        return f"column {path!r}: {given.type} is no {made.type}; give datetime values"
    if types.is_timestamp(given.type) and types.is_timestamp(made.type):
        if (given.type.tz is None) != (made.type.tz is None):
            return (
                f"column {path!r}: the table has {made.type}, the data {given.type}; give both a time zone "
                "or neither"
            )
        made = made.cast(pa.timestamp(made.type.unit, given.type.tz))
    try:
        same = made.cast(given.type).equals(given)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        same = False
    return None if same else told


def _struct_loss(given: Any, made: Any, path: str) -> str | None:
    names = [each.name for each in made.type]
    for at in range(given.type.num_fields):
        name = given.type.field(at).name
        if name not in names:
            return f"column '{path}.{name}' is not in the table"
        found = _loss(given.field(at), made.field(names.index(name)), f"{path}.{name}")
        if found is not None:
            return found
    return None


def _has_items(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _infinite(array: Any) -> int:
    import numpy as np

    return int(np.isinf(array.to_numpy(zero_copy_only=False).astype(np.float64)).sum())
