"""Batches as NumPy arrays: for NumPy, and for whoever takes arrays by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import InvalidInput


def as_numpy(batch: Any) -> dict[str, Any]:
    """A NumPy array for each column of a `pa.RecordBatch`, not copied where Arrow holds it alike, and then
    read-only.

    Vectors are matrices; texts, binaries and lists are arrays of objects. Null floats are NaN; a column of
    another plain type with nulls is refused.
    """
    return {
        name: _array(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def as_tensors(batch: Any) -> dict[str, Any]:
    """The same as arrays that can be exchanged by DLPack (`torch.from_dlpack(array)`): of numbers and
    booleans, writable, each the only one of its memory. Raises `InvalidInput` for a column of anything else.
    """
    found = {}
    for name, array in as_numpy(batch).items():
        if array.dtype.kind not in "biufc":
            raise InvalidInput(
                f"column {name!r} ({batch.schema.field(name).type}) is not one of numbers, which DLPack "
                "knows alone: leave it out of the columns, or give a function that makes numbers of it"
            )
        found[name] = array if array.flags.writeable else array.copy()
    return found


def _array(name: str, column: Any) -> Any:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if hasattr(column, "to_numpy_ndarray"):
            return column.to_numpy_ndarray()
        column, kind = column.storage, kind.storage_type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    is_vector = pa.types.is_fixed_size_list(kind)
    if column.null_count and (is_vector or (pa.types.is_primitive(kind) and not pa.types.is_floating(kind))):
        raise InvalidInput(
            f"column {name!r} ({kind}) has nulls, for which NumPy has no value of its type: leave them out "
            "by the filter, give a value by a computed column such as coalesce(...), or read Arrow"
        )
    if is_vector:
        values = _array(name, column.flatten())
        return values.reshape(len(column), kind.list_size, *values.shape[1:])
    if pa.types.is_floating(kind) and column.null_count:
        found = np.array(column.fill_null(0).to_numpy(zero_copy_only=False))
        found[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return found
    return column.to_numpy(zero_copy_only=False)
