"""Nested Arrow types taken apart and put together again: a struct of its fields, a list of its item, a map of
its key and its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types


def parts(kind: Any) -> list[Any]:
    """The fields that a type is made of; none of a plain type, nor of an extension type."""
    if types.is_struct(kind):
        return list(kind)
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [kind.value_field]
    return []


def rebuilt(kind: Any, fields: Sequence[Any]) -> Any:
    """The type that is made of other fields as `kind` is of `parts(kind)`."""
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return pa.large_list(fields[0]) if types.is_large_list(kind) else pa.list_(fields[0])


def mapped(array: Any, kind: Any, change: Callable[[Any, int], Any]) -> Any:
    """A nested array as type `kind`, with each part changed: `change` is given the part's values and its
    place in `parts`, and gives as many values of the type that it has in `kind`. Of a slice only what it
    shows is changed.
    """
    mask = array.is_null() if array.null_count else None
    if types.is_struct(kind):
        # Nulls go down first: what stands under a null struct is nobody's value.
        held = array.flatten() if mask is not None else [array.field(at) for at in range(kind.num_fields)]
        found = [change(part, at) for at, part in enumerate(held)]
        return pa.StructArray.from_arrays(found, fields=list(kind), mask=mask)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        return pa.FixedSizeListArray.from_arrays(change(values, 0), type=kind, mask=mask)
    offsets = array.offsets.to_numpy()
    first, count = offsets[0], offsets[-1] - offsets[0]
    if types.is_map(kind):
        places = pa.array(offsets - first, pa.int32())
        keys, items = (each.slice(first, count) for each in (array.keys, array.items))
        return pa.MapArray.from_arrays(places, change(keys, 0), change(items, 1), type=kind, mask=mask)
    lengths = np.diff(offsets)
    if mask is not None:
        lengths[mask.to_numpy(zero_copy_only=False)] = 0
    places = pa.array(np.concatenate(([0], np.cumsum(lengths))), array.offsets.type)
    return type(array).from_arrays(places, change(array.flatten(), 0), type=kind, mask=mask)
