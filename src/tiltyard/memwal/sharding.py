"""Which shard a row belongs to: the value of a table's sharding spec for each row (MemWAL, section 5).

Hashes are those of the official implementation, bit for bit: rows of one key must meet in one shard whoever
writes them. All arithmetic is on 32-bit words that wrap, in NumPy over whole columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.errors import CorruptFile, FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.expr.arrays import bools_of, plain, valid_of, values_of
from tiltyard.format.mem_wal import ShardingField, ShardingSpec

FIELD_ID = "bucket"
"""The id that the official implementation gives to every automatic sharding field."""

MAX_BUCKETS = 1024
_COUNT = re.compile("-?[0-9]{1,10}")
NUM_BUCKETS = "num_buckets"
BUCKET, IDENTITY, UNSHARDED = "bucket", "identity", "unsharded"

U32 = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ADD, _M1, _M2 = np.uint32(0xE6546B64), np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_NAN32, _NAN64 = np.uint32(0x7FC00000), np.uint64(0x7FF8000000000000)


def evaluate(spec: ShardingSpec, batch: Any, name_of: Mapping[int, str]) -> Any:
    """The sharding values of a batch's rows: a `pa.RecordBatch` with a column for each field, by its id.

    `name_of`: the batch's column for each field id. bucket and unsharded give int32 without nulls, identity
    the column itself. Raises `UnsupportedFeature`, `InvalidInput`, `FieldNotFound`.
    """
    names, columns, nullable = [], [], []
    for each in spec.fields:
        column = _evaluated(each, batch, name_of)
        names.append(each.field_id)
        columns.append(column)
        nullable.append(each.transform == IDENTITY and column.null_count > 0)
    fields = [pa.field(n, c.type, may) for n, c, may in zip(names, columns, nullable, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _evaluated(each: ShardingField, batch: Any, name_of: Mapping[int, str]) -> Any:
    if each.transform == UNSHARDED:
        return pa.array(np.zeros(batch.num_rows, np.int32))
    if each.transform not in (BUCKET, IDENTITY):
        told = "None" if each.transform is None else f'Some("{each.transform}")'
        raise UnsupportedFeature(f"Unsupported MemWAL sharding transform for field '{each.field_id}': {told}")
    column = batch.column(_source(each, batch, name_of))
    if each.transform == IDENTITY:
        return column
    return pa.array(buckets(column, num_buckets(each)))


def _source(each: ShardingField, batch: Any, name_of: Mapping[int, str]) -> int:
    if len(each.source_ids) != 1 or each.source_ids[0] not in name_of:
        raise FieldNotFound(
            f"sharding field {each.field_id!r} is made from the columns of ids {list(each.source_ids)}, "
            "which the table does not have"
        )
    at: int = batch.schema.get_field_index(name_of[each.source_ids[0]])
    if at < 0:
        raise FieldNotFound(
            f"the rows have no column {name_of[each.source_ids[0]]!r}, which says their shard"
        )
    return at


def num_buckets(each: ShardingField) -> int:
    """How many buckets a bucket field has. Raises `InvalidInput`."""
    text = each.parameters.get(NUM_BUCKETS)
    if text is None:
        raise InvalidInput(f"Bucket sharding field '{each.field_id}' missing 'num_buckets' parameter")
    if _COUNT.fullmatch(text) is None:
        raise InvalidInput(
            f"Bucket sharding field '{each.field_id}' has invalid num_buckets '{text:.60}': a whole number "
            "below 2147483648 is expected, in the digits 0 to 9"
        )
    if not 0 < int(text) < 2**31:
        raise InvalidInput(f"Bucket sharding requires positive num_buckets, got {text}")
    return int(text)


# -- the hash -----------------------------------------------------------------------------------


def buckets(column: Any, count: int) -> npt.NDArray[np.int32]:
    """The bucket of each row, 0 to count - 1; rows with a null are in bucket 0."""
    hashed = hashes(plain(column))
    found = ((hashed & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    valid = valid_of(column)
    if valid is not None:
        found[~valid] = 0
    return found


def can_be_bucketed(kind: Any) -> bool:
    """Whether rows can be shared out by a column of this Arrow type."""
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.date32())
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def can_be_identity(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a shard's value itself."""
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def hashes(column: Any) -> U32:
    """The 32-bit hash of each row of a plain array; of rows with a null anything."""
    kind = column.type
    if types.is_boolean(kind):
        return _hash32(bools_of(column).astype(np.uint32))
    if types.is_string(kind) or types.is_large_string(kind):
        return _hash_texts(column)
    if not can_be_bucketed(kind):
        raise UnsupportedFeature(f"Unsupported bucket sharding column type: {kind}")
    values = values_of(column)
    if values.dtype.kind == "f":
        return _hash_floats(values)
    if values.dtype.itemsize == 8:
        return _hash64(np.ascontiguousarray(values).view(np.uint64))
    wide = np.int32 if values.dtype.kind == "i" else np.uint32
    return _hash32(values.astype(wide).view(np.uint32))


def _hash_floats(values: npt.NDArray[Any]) -> U32:
    if values.dtype.itemsize == 4:
        words = np.ascontiguousarray(values).view(np.uint32).copy()
        words[values == 0] = 0
        words[np.isnan(values)] = _NAN32
        return _hash32(words)
    wide = np.ascontiguousarray(values).view(np.uint64).copy()
    wide[values == 0] = 0
    wide[np.isnan(values)] = _NAN64
    return _hash64(wide)


def _rotated(words: U32, by: int) -> U32:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _mixed(state: U32, word: U32) -> U32:
    mixed = _rotated(word * _C1, 15) * _C2
    return _rotated(state ^ mixed, 13) * np.uint32(5) + _ADD


def _finished(state: U32, length: Any) -> U32:
    state = state ^ np.asarray(length, np.uint32)
    state = (state ^ (state >> np.uint32(16))) * _M1
    state = (state ^ (state >> np.uint32(13))) * _M2
    return state ^ (state >> np.uint32(16))


def _hash32(words: U32) -> U32:
    return _finished(_mixed(np.zeros(len(words), np.uint32), words), 4)


def _hash64(words: npt.NDArray[np.uint64]) -> U32:
    low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    return _finished(_mixed(_mixed(np.zeros(len(words), np.uint32), low), high), 8)


def _hash_texts(column: Any) -> U32:
    """Whole words first, then each byte that is left, with its sign; all rows of a step at once."""
    starts, ends, data = _extents(column)
    lengths = ends - starts
    state = np.zeros(len(lengths), np.uint32)
    words = lengths // 4
    for step in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > step)
        at = starts[rows] + 4 * step
        word = np.zeros(len(rows), np.uint32)
        for byte in range(4):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        state[rows] = _mixed(state[rows], word)
    left = lengths % 4
    for step in range(3):
        rows = np.flatnonzero(left > step)
        at = starts[rows] + 4 * words[rows] + step
        state[rows] = _mixed(state[rows], data[at].view(np.int8).astype(np.int32).view(np.uint32))
    return _finished(state, lengths.astype(np.uint32))


def _extents(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where the bytes of each row begin and end, and the bytes."""
    wide = types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    kind = np.int64 if wide else np.int32
    found = np.zeros(1, np.int64)
    if offsets is not None and offsets.size:
        found = np.frombuffer(offsets, kind, len(column) + 1, column.offset * np.dtype(kind).itemsize)
    ends = found.astype(np.int64)
    octets = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends[:-1], ends[1:], octets


# -- a shard's own value ------------------------------------------------------------------------


def encode_value(value: Any) -> bytes | None:
    """A sharding value as a shard's manifest holds it: a one-row `pa.Array`; None for null, which has none.

    Whole numbers and floats little-endian in their width, text as UTF-8, a boolean as one byte.
    """
    if len(value) != 1:
        raise InvalidInput(f"one value is expected, found {len(value)}")
    if value.null_count:
        return None
    if types.is_boolean(value.type):
        return b"\1" if value[0].as_py() else b"\0"
    if types.is_string(value.type) or types.is_large_string(value.type):
        return str(value[0].as_py()).encode()
    numbers = values_of(plain(value))
    return numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()


def decode_value(data: bytes, kind: Any) -> Any:
    """The one-row `pa.Array` of a stored sharding value. Raises `CorruptFile` where it is not of the type."""
    try:
        if types.is_boolean(kind):
            return pa.array([{b"\0": False, b"\1": True}[data]], kind)
        if types.is_string(kind) or types.is_large_string(kind):
            return pa.array([data.decode()], kind)
        numbers = np.frombuffer(data, np.dtype(kind.to_pandas_dtype()).newbyteorder("<"))
        return pa.array(numbers, kind) if len(numbers) == 1 else pa.array([data[len(data)]], kind)
    except (KeyError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CorruptFile(f"a shard's value {data.hex()} is not one of type {kind}") from error
