"""The key of a streamed table: which columns, which types, and the form in which `_pk_index` sorts keys of
several columns (MemWAL, section 4.7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiltyard.errors import UnsupportedFeature
from tiltyard.expr.arrays import bools_of, plain, valid_of, values_of
from tiltyard.format.schema import Schema

SUPPORTED = "Int8/16/32/64, UInt8/16/32/64, Boolean, Utf8/LargeUtf8, Binary/LargeBinary"


def check_key_types(schema: Schema) -> None:
    """Raise `UnsupportedFeature` where rows of the table could be logged and never published."""
    for field in schema.primary_key:
        kind = field.arrow_type
        if not (types.is_integer(kind) or types.is_boolean(kind) or _is_text(kind)):
            raise UnsupportedFeature(
                f"Primary key column '{field.name}' has unsupported type {kind} for hashing; supported "
                f"types: {SUPPORTED}"
            )


def _is_text(kind: Any) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def sortable(columns: Sequence[Any]) -> Any:
    """One plain `pa.Array` that sorts as the key does: the column of a key of one; of several, their bytes as
    binary.
    """
    if len(columns) == 1:
        return columns[0]
    import pyarrow.compute as pc  # only keys of several columns need it

    nothing = pa.scalar(b"", pa.large_binary())
    joined = pc.binary_join_element_wise(*(_bytes(each) for each in columns), nothing)
    return joined.cast(pa.binary())


def _bytes(column: Any) -> Any:
    """Per row the bytes of one part: 00 for null, else 01 and the value so that bytes sort as values do."""
    import pyarrow.compute as pc

    kind = column.type
    if _is_text(kind):
        escaped = pc.replace_substring(column.cast(pa.large_binary()), b"\0", b"\0\xff")
        one, end = pa.scalar(b"\1", pa.large_binary()), pa.scalar(b"\0\0", pa.large_binary())
        value = pc.binary_join_element_wise(one, escaped, end, pa.scalar(b"", pa.large_binary()))
    else:
        value = _fixed(column)
    if column.null_count:
        return pc.if_else(column.is_valid(), value, pa.scalar(b"\0", pa.large_binary()))
    return value


def _fixed(column: Any) -> Any:
    rows = len(column)
    if types.is_boolean(column.type):
        body = bools_of(column).astype(np.uint8).reshape(rows, 1)
    else:
        values = values_of(column)
        if values.dtype.kind == "i":
            words = values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
        else:
            words = values.astype(np.uint64)
        body = words.astype(">u8").view(np.uint8).reshape(rows, 8)
    data = np.ones((rows, 1 + body.shape[1]), np.uint8)
    data[:, 1:] = body
    offsets = np.arange(rows + 1, dtype=np.int64) * data.shape[1]
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# -- sizes as the official writer counts them ---------------------------------------------------

BATCH_BYTES = 40
"""What each batch is counted as beside its columns."""


def counted_bytes(column: Any) -> int:
    """The bytes of a column as accounting has them (MemWAL, section 4.6): an estimate."""
    if not types.is_dictionary(column.type):
        column = plain(column)
    rows, kind = len(column), column.type
    bits = -(-rows // 8)
    held = bits if column.buffers()[0] is not None and valid_of(column) is not None else 0
    if types.is_boolean(kind):
        return bits + held
    if types.is_struct(kind):
        return held + sum(counted_bytes(column.field(at)) for at in range(kind.num_fields))
    if types.is_dictionary(kind):
        return counted_bytes(column.indices) + counted_bytes(column.dictionary)
    if _is_text(kind):
        wide = types.is_large_string(kind) or types.is_large_binary(kind)
        _, offsets, _ = column.buffers()
        if offsets is None or not rows:
            return held
        width = 8 if wide else 4
        ends = np.frombuffer(offsets, f"<i{width}", rows + 1, column.offset * width)
        return width * rows + int(ends[-1] - ends[0]) + held
    try:
        return kind.bit_width // 8 * rows + held
    except ValueError:
        return int(column.nbytes)
