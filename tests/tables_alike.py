"""Comparison of two tables value for value, as interop needs it: floats by their bits, extension types by
their storage, dictionaries by their values, chunks ignored.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal column names, types and values; floats by bits, so that NaN and the sign of zero count."""
    return not difference(left, right)


def difference(left: pa.Table, right: pa.Table) -> str:
    """What differs first between two tables, or an empty string."""
    if left.schema.names != right.schema.names:
        return f"columns {left.schema.names} against {right.schema.names}"
    if left.num_rows != right.num_rows:
        return f"{left.num_rows} rows against {right.num_rows}"
    for name in left.schema.names:
        a, b = left[name], right[name]
        if _plain(a.type) != _plain(b.type):
            return f"{name}: type {a.type} against {b.type}"
        x, y = _whole(a), _whole(b)
        x.validate(full=True)
        y.validate(full=True)
        if x.equals(y):
            if not _has_floats(x.type) or _float_bits(x) == _float_bits(y):
                continue
        elif not _has_floats(x.type):
            return f"{name}: {_first_difference(x, y)}"
        elif _float_bits(x) == _float_bits(y):
            continue
        return f"{name}: {_first_difference(x, y)}"
    return ""


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array: extension types as their storage, dictionaries as their values (chunks may differ)."""
    chunks = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in column.chunks]
    if pa.types.is_dictionary(column.type):
        chunks = [c.dictionary_decode() for c in chunks]
    kind = _plain(column.type)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], type=kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_floats(kind.value_type)
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def _float_bits(array: pa.Array) -> list[Any]:
    """Bits of every float in it, NaN payloads and the sign of zero included; not what nulls hide."""
    kind = array.type
    if pa.types.is_floating(kind):
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]
        return array.view(bits).to_pylist()
    if pa.types.is_struct(kind):
        return [_float_bits(c) if _has_floats(c.type) else c.to_pylist() for c in array.flatten()]
    if pa.types.is_map(kind):
        keep = array.drop_null()
        bounds = keep.offsets.to_pylist()  # `items` are those of the whole array, also of a slice
        items = keep.items.slice(bounds[0], bounds[-1] - bounds[0])
        return [array.is_valid().to_pylist(), _float_bits(items)]
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = array.value_lengths().to_pylist()
        return [lengths, _float_bits(array.flatten())]
    return array.to_pylist()


def _first_difference(left: pa.Array, right: pa.Array) -> str:
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a.is_valid != b.is_valid or repr(a.as_py()) != repr(b.as_py()):
            return f"row {i}: {str(a)[:200]} against {str(b)[:200]}"
    return "values"
