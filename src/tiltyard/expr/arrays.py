"""NumPy views of Arrow arrays, and back: no copy where the layouts agree, and without `pyarrow.compute`.

Values at null rows are whatever the buffer holds; whoever uses them combines them with `valid_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import BatchTooLarge, FieldNotFound
from tiltyard.expr.types import Truth

_PHYSICAL: dict[int, np.dtype[Any]] = {
    pa.int8().id: np.dtype("i1"),
    pa.int16().id: np.dtype("i2"),
    pa.int32().id: np.dtype("i4"),
    pa.int64().id: np.dtype("i8"),
    pa.uint8().id: np.dtype("u1"),
    pa.uint16().id: np.dtype("u2"),
    pa.uint32().id: np.dtype("u4"),
    pa.uint64().id: np.dtype("u8"),
    pa.float16().id: np.dtype("f2"),
    pa.float32().id: np.dtype("f4"),
    pa.float64().id: np.dtype("f8"),
    pa.date32().id: np.dtype("i4"),
    pa.date64().id: np.dtype("i8"),
    pa.time32("s").id: np.dtype("i4"),
    pa.time64("us").id: np.dtype("i8"),
    pa.timestamp("us").id: np.dtype("i8"),
    pa.duration("us").id: np.dtype("i8"),
}

DECIMAL_BYTES: dict[int, int] = {pa.decimal128(1).id: 16, pa.decimal256(1).id: 32}
if hasattr(pa, "decimal32"):  # Arrow 18 and newer
    DECIMAL_BYTES |= {pa.decimal32(1).id: 4, pa.decimal64(1).id: 8}


def dtype_of(arrow: pa.DataType) -> np.dtype[Any]:
    """The NumPy type of the values of a fixed-width Arrow type that `values_of` serves."""
    return _PHYSICAL[arrow.id]


def _bits(buffer: pa.Buffer, offset: int, rows: int) -> np.ndarray:
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8, (offset + rows + 7) // 8 - first, first)
    return np.unpackbits(packed, bitorder="little")[offset - first * 8 :][:rows].view(np.bool_)


def bools_of(array: pa.BooleanArray) -> np.ndarray:
    """bool[rows] values of a boolean array."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), np.bool_)
    return _bits(buffer, array.offset, len(array))


def valid_of(array: pa.Array) -> np.ndarray | None:
    """bool[rows] of rows that are not null, None where none is; a dictionary's null value counts as null."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    valid = None
    if array.null_count:
        valid = _bits(array.buffers()[0], array.offset, len(array))
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        known = valid_of(array.dictionary)
        assert known is not None
        found = known.take(_indices(array), mode="clip")
        valid = found if valid is None else valid & found
    return valid


def values_of(array: pa.Array) -> np.ndarray:
    """The physical values of a fixed-width array, zero-copy, in the dtype of `dtype_of`."""
    dtype = _PHYSICAL[array.type.id]
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def words_of(array: pa.Array) -> np.ndarray:
    """The unscaled values of a decimal array: int[rows], or uint64[rows, words] (least significant first)."""
    width = DECIMAL_BYTES[array.type.id]
    buffer = array.buffers()[1]
    words = max(1, width // 8)
    dtype = np.dtype(f"i{width}" if width <= 8 else "u8")
    if buffer is None:
        flat = np.zeros(len(array) * words, dtype)
    else:
        flat = np.frombuffer(buffer, dtype, len(array) * words, array.offset * width)
    return flat if width <= 8 else flat.reshape(-1, words)


def _indices(array: pa.DictionaryArray) -> np.ndarray:
    return values_of(array.indices)


def through_dictionary(array: pa.DictionaryArray, found: np.ndarray) -> np.ndarray:
    """Spread what was found per dictionary value, bool[values], to the rows that name the values."""
    if not len(found):
        return np.zeros(len(array), np.bool_)
    return found.take(_indices(array), mode="clip")


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type of what `plain` gives for an array of type `arrow`."""
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if pa.types.is_string_view(arrow):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(arrow) else arrow


def plain(array: pa.Array) -> pa.Array:
    """The array without dictionary or extension wrapping, and no view: Arrow has few kernels for those."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    target = plain_type(array.type)
    return array if target is array.type or target == array.type else array.cast(target)


def column_of(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """The array at a nested path of a batch, null where a struct around it is; structs may be pruned."""
    index = batch.schema.get_field_index(path[0])
    if index < 0:
        raise FieldNotFound(
            f"column {path[0]!r} is not in the batch (or twice); it has {batch.schema.names}: read it too"
        )
    array = batch.column(index)
    for step in path[1:]:
        child = array.type.get_field_index(step)
        if child < 0:
            raise FieldNotFound(f"field {'.'.join(path)!r} is not in the batch: read it too")
        array = array.flatten()[child] if array.null_count else array.field(child)
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _packed(bits: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def boolean_array(truth: Truth) -> pa.BooleanArray:
    """A three-valued column as an Arrow array; unknown is null."""
    known = truth.known
    validity = None if known is None else _packed(known)
    return pa.Array.from_buffers(pa.bool_(), len(truth.true), [validity, _packed(truth.true)])


def bytes_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Texts or byte strings (none null) as an array of a variable-width type (`pa.array` would import
    pandas)."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    is_large = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    if not is_large and offsets[-1] > np.iinfo(np.int32).max:
        raise BatchTooLarge("a list of constants of more than 2 GiB")
    buffers = [
        None,
        pa.py_buffer(offsets if is_large else offsets.astype(np.int32)),
        pa.py_buffer(b"".join(encoded)),
    ]
    return pa.Array.from_buffers(arrow, len(encoded), buffers)


def truth_of(array: pa.BooleanArray) -> Truth:
    """An Arrow boolean (or null-typed) array as a three-valued column."""
    array = plain(array)
    valid = valid_of(array)
    if pa.types.is_null(array.type):
        nothing = np.zeros(len(array), np.bool_)
        return Truth(nothing, nothing)
    return truth(bools_of(array), valid)


def truth(found: np.ndarray, valid: np.ndarray | None) -> Truth:
    """Values with a validity as a three-valued column."""
    if valid is None:
        return Truth(found, None)
    return Truth(found & valid, valid & ~found)
