"""Join keys: which columns they are, and the form in which their values are compared.

Equality is that of SQL, as our filters have it: a key with a null in any part equals no key; zeros are equal
whatever their sign, and so are NaNs (the official join compares their bits; see docs/support.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature, nearest
from tiltyard.expr.arrays import bools_of, plain, valid_of, values_of, words_of

if TYPE_CHECKING:
    from tiltyard.format.schema import Field, Schema

MAX_KEY_COLUMNS = 64
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Key:
    """The columns that rows are matched on, in the order given. A path leads through structs to a plain
    value.
    """

    fields: tuple[Field, ...]
    paths: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(".".join(path) for path in self.paths)

    @property
    def field_ids(self) -> tuple[int, ...]:
        return tuple(field.id for field in self.fields)


def resolve_key(schema: Schema, on: Sequence[str] | None) -> Key:
    """The key of a merge: `on`, names or dotted paths in any case, or the table's primary key where that is
    None.

    Raises `InvalidInput` where there is neither, `FieldNotFound`, and `UnsupportedFeature` for columns that
    have no equality (lists, maps, structs as a whole).
    """
    if not on:
        fields = schema.primary_key
        if not fields:
            raise InvalidInput(
                "A merge requires join keys, and the table declares none: name its columns with on=, or "
                "declare a primary or unique key"
            )
    else:
        fields = tuple({field.id: field for field in (_named(schema, name) for name in on)}.values())
    if len(fields) > MAX_KEY_COLUMNS:
        raise InvalidInput(f"a key has at most {MAX_KEY_COLUMNS} columns, found {len(fields)}")
    paths = tuple(tuple(each.name for each in (*schema.ancestors(f.id), f)) for f in fields)
    for field, path in zip(fields, paths, strict=True):
        _check_comparable(schema, field, ".".join(path))
    return Key(fields, paths)


def _named(schema: Schema, name: str) -> Field:
    """The field of a name or dotted path, exact or else the only one that differs in case alone."""
    try:
        return schema.field(name)
    except FieldNotFound:
        found = in_any_case(name.split("."), schema.fields)
    if found is None:
        raise FieldNotFound(
            f"the table has no column {name!r} to be the key or a part of it; {nearest(name, schema.names)}"
        )
    return found


def in_any_case(steps: Sequence[str], fields: Iterable[Field]) -> Field | None:
    """The field that the steps lead to when case does not count; None where none or several do."""
    fitting = [field for field in fields if field.name.lower() == steps[0].lower()]
    if len(fitting) != 1:
        return None
    return fitting[0] if len(steps) == 1 else in_any_case(steps[1:], fitting[0].children)


def _check_comparable(schema: Schema, field: Field, name: str) -> None:
    for above in schema.ancestors(field.id):
        if above.logical_type != "struct" or above.is_packed:
            raise UnsupportedFeature(
                f"key column {name!r} lies inside the {above.logical_type} column {above.name!r}, whose "
                "values have no key; match on a plain column"
            )
    if field.children or field.logical_type in ("json", "struct") or field.is_blob:
        hint = "match on another"
        if field.logical_type == "struct" and field.children:
            hint = f"name its fields, as in {name}.{field.children[0].name}"
        raise UnsupportedFeature(f"key column {name!r} is a {field.logical_type} column: {hint}")


# -- values ---------------------------------------------------------------------------------------


def column_at(batch: Any, path: Sequence[str]) -> Any:
    """The `pa.Array` at a path of a batch, null where a struct around it is, without dictionary or
    extension.
    """
    array = batch.column(path[0])
    for step in path[1:]:
        at = array.type.get_field_index(step)
        array = array.field(at) if array.null_count == 0 else array.flatten()[at]
    return plain(array)


def is_word(kind: Any) -> bool:
    """Whether values of an Arrow type are compared as 64-bit words."""
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or types.is_duration(kind)
        or (hasattr(pa, "decimal32") and (types.is_decimal32(kind) or types.is_decimal64(kind)))
    )


def words_of_key(array: Any) -> tuple[Words, Bools | None]:
    """The values of a plain array of an `is_word` type as words that are equal where the values are, and
    bool[rows] of those that are not null (None: all).
    """
    kind = array.type
    if types.is_boolean(kind):
        words = bools_of(array).astype(np.uint64)
    elif types.is_floating(kind):
        values = values_of(array).astype(np.float64)
        values[values == 0] = 0.0
        values[np.isnan(values)] = np.nan
        words = values.view(np.uint64)
    elif hasattr(pa, "decimal32") and types.is_decimal(kind):
        words = words_of(array).astype(np.int64).view(np.uint64)
    else:
        values = values_of(array)
        wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        words = wide.view(np.uint64)
    return words, valid_of(array)


def shown_key(names: Sequence[str], values: Sequence[Any]) -> str:
    """A key as messages show it: `id = 2`, or `a = 1, b = 'x'`."""
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
