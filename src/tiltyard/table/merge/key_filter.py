"""The filter of inserted keys that a merge's transaction carries (transactions pack, section 9).

A split-block Bloom filter of fixed size, byte for byte as the official writer makes it for keys of text,
binary and 32- and 64-bit integers. Keys of other types are not hashed by it; then our filter has every bit
set, which meets every other filter that is not empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.expr.arrays import valid_of, values_of
from tiltyard.format.operations import BloomKeys, KeyExistenceFilter
from tiltyard.kernels.encode import bloom_insert
from tiltyard.table.conflict.keys import DEFAULT_ITEMS, DEFAULT_PROBABILITY, WORDS_PER_BLOCK
from tiltyard.table.merge.keys import is_word, words_of_key
from tiltyard.table.merge.xxh64 import Words, xxh64_strings, xxh64_words

if TYPE_CHECKING:
    from tiltyard.table.merge.keys import Key

BITMAP_BYTES = 32768
NUM_BITS = 8 * BITMAP_BYTES
BLOCKS = BITMAP_BYTES // (4 * WORDS_PER_BLOCK)
STEP_ROWS = 1 << 16
"""Keys hashed at a time; a full filter ends it."""

SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    dtype=np.uint64,
)
SALTS = SALT.tolist()
_LOW = np.uint64(0xFFFFFFFF)


def is_hashed(kind: Any) -> bool:
    """Whether the official writer puts keys of an Arrow type into its filters."""
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or (types.is_integer(kind) and kind.bit_width >= 32)
    )


def has_unhashed(key: Key) -> bool:
    """Whether any part of the key is of a type that the official writer leaves out."""
    return not all(is_hashed(field.arrow_type) for field in key.fields)


def key_filter(key: Key, columns: Sequence[Any]) -> KeyExistenceFilter:
    """The filter of the keys of inserted rows, one plain `pa.Array` per key column. Keys with a null are not
    in it.
    """
    if has_unhashed(key):
        bitmap = b"\xff" * BITMAP_BYTES if _keyed(columns).any() else bytes(BITMAP_BYTES)
    else:
        bitmap = bloom_bitmap(columns)
    bloom = BloomKeys(bitmap, NUM_BITS, DEFAULT_ITEMS, DEFAULT_PROBABILITY)
    return KeyExistenceFilter(key.field_ids, bloom=bloom)


def saturated(key: Key) -> KeyExistenceFilter:
    """A filter that every filter of inserted keys meets."""
    bloom = BloomKeys(b"\xff" * BITMAP_BYTES, NUM_BITS, DEFAULT_ITEMS, DEFAULT_PROBABILITY)
    return KeyExistenceFilter(key.field_ids, bloom=bloom)


def bloom_bitmap(columns: Sequence[Any]) -> bytes:
    """The filter's bits for these keys."""
    rows = len(columns[0])
    parts = ([column.slice(at, STEP_ROWS) for column in columns] for at in range(0, max(rows, 1), STEP_ROWS))
    return bitmap_of(hashes(_without_nulls(part)) for part in parts)


def bitmap_of(hashed: Iterable[Words]) -> bytes:
    """The filter's bits for the hashes of keys, given in parts; a full filter ends it."""
    bitmap = np.zeros(BITMAP_BYTES, np.uint8)
    for part in hashed:
        bloom_insert(part, bitmap)
        if (bitmap == 0xFF).all():
            break
    return bitmap.tobytes()


def holds(bitmap: npt.NDArray[np.uint32], hashed: Words) -> npt.NDArray[np.bool_]:
    """Whether each key may be in a filter: False is certain. `bitmap`: its bits as 32-bit words."""
    found = np.ones(len(hashed), np.bool_)
    for bits in _bits(hashed):
        found &= (bitmap[bits >> 5] >> (bits & 31).astype(np.uint32)) & np.uint32(1) != 0
    return found


def holds_one(bitmap: npt.NDArray[np.uint32], hashed: int) -> bool:
    """The same for one key."""
    block = (((hashed >> 32) * BLOCKS) >> 32) * WORDS_PER_BLOCK
    low = hashed & 0xFFFFFFFF
    return all(
        int(word) >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(bitmap[block : block + WORDS_PER_BLOCK].tolist(), SALTS, strict=True)
    )


def _bits(hashed: Words) -> Iterator[npt.NDArray[np.int64]]:
    """For each of the eight words of a block the bit of each key in it (int64[rows])."""
    block = ((hashed >> np.uint64(32)) * np.uint64(BLOCKS)) >> np.uint64(32)
    first, low = block * np.uint64(32 * WORDS_PER_BLOCK), hashed & _LOW
    for word in range(WORDS_PER_BLOCK):
        within = ((low * SALT[word]) & _LOW) >> np.uint64(27)
        yield (first + np.uint64(32 * word) + within).view(np.int64)


def _keyed(columns: Sequence[Any]) -> npt.NDArray[np.bool_]:
    """Rows without a null in the key."""
    keyed = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        valid = valid_of(column)
        if valid is not None:
            keyed &= valid
    return keyed


def _without_nulls(columns: Sequence[Any]) -> Sequence[Any]:
    keyed = _keyed(columns)
    if keyed.all():
        return columns
    kept = pa.array(np.flatnonzero(keyed))
    return [column.take(kept) for column in columns]


def hashes(columns: Sequence[Any]) -> Words:
    """A hash of each key, none of which has a null in it (uint64): of hashed types the official one, of
    others one of our own.
    """
    if len(columns) > 1:
        return xxh64_strings(_composite(columns))
    column = columns[0]
    if types.is_integer(column.type):
        return xxh64_words(_as_words(column))
    return xxh64_strings(_bytes(column))


def _as_words(column: Any) -> Words:
    """Integers as the 8 bytes that are hashed: signed ones as i64, unsigned ones as u64."""
    values = values_of(column)
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64, copy=False)
    return wide.view(np.uint64)


def _composite(columns: Sequence[Any]) -> Any:
    """For each row the bytes of its parts, each followed by one zero byte, as large binary."""
    import pyarrow.compute as pc

    parts = [_bytes(column) for column in columns]
    nothing, zero = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\0", pa.large_binary())
    return pc.binary_join_element_wise(*parts, nothing, zero)


def _bytes(column: Any) -> Any:
    kind = column.type
    if types.is_integer(kind):
        words = _as_words(column)
    elif is_word(kind):
        words = words_of_key(column)[0]
    elif types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.large_binary())
    else:
        return column.cast(pa.large_binary())
    words = np.ascontiguousarray(words).astype("<u8", copy=False)
    offsets = np.arange(len(words) + 1, dtype=np.int64) * 8
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.large_binary(), len(words), buffers)
