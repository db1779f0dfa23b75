"""The values of one leaf, taken out of Arrow: plain NumPy arrays with one value per visible entry.

Nulls are already in the levels, so null slots hold whatever makes the page small: the value before them for
fixed widths, nothing for strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.encoding.levels.ravel import NO_BYTES, Leaf, Levels, list_offsets, storage, validity
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

SHOWN_BYTES = 40
"""Of a value that messages show."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """`count` values of `bits` bits in `data` (uint8): a bitmap from bit 0 for 1 bit, whole bytes
    otherwise.
    """

    bits: int
    data: U8
    count: int

    @property
    def nbytes(self) -> int:
        return self.data.size

    def part(self, begin: int, end: int) -> Fixed:
        """Values [begin, end)."""
        if self.bits == 1:
            out = np.empty((end - begin + 7) // 8, np.uint8)
            kernels.copy_bits(self.data, begin, end - begin, out)
            return Fixed(1, out, end - begin)
        size = self.bits // 8
        return Fixed(self.bits, self.data[begin * size : end * size], end - begin)

    def all_equal(self) -> bool:
        """Whether there is one value only."""
        if self.bits == 1:
            ones = int(np.unpackbits(self.data, count=self.count, bitorder="little").sum())
            return ones in (0, self.count)
        size = self.bits // 8
        if self.count and self.data[-size:].tobytes() != self.data[:size].tobytes():
            return False
        return bool(np.array_equal(self.data[size:], self.data[:-size])) if self.count > 1 else True


@dataclass(frozen=True, slots=True)
class Text:
    """Strings or binaries: `offsets` int64 (one more than values) into `data`; `width` bytes of an offset on
    disk.
    """

    offsets: I64
    data: U8
    width: int
    is_text: bool
    nulls: U8

    @property
    def count(self) -> int:
        return self.offsets.size - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the values alone."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def longest(self) -> int:
        return int(np.diff(self.offsets).max()) if self.count else 0

    def part(self, begin: int, end: int) -> Text:
        """Values [begin, end)."""
        nulls = self.nulls[begin:end] if self.nulls.size else self.nulls
        return Text(self.offsets[begin : end + 1], self.data, self.width, self.is_text, nulls)

    def all_equal(self) -> bool:
        """Whether all values that are not null are the same."""
        offsets = self.offsets
        if not self.nulls.size and self.count > 1:  # the first and the last value tell mostly
            first, second, last, end = (int(offsets[at]) for at in (0, 1, -2, -1))
            if self.data[first:second].tobytes() != self.data[last:end].tobytes():
                return False
        lengths = np.diff(offsets)
        if self.nulls.size:
            lengths = lengths[self.nulls == 0]
        if not lengths.size or int(lengths.min()) != int(lengths.max()):
            return False
        body = self.data[int(offsets[0]) : int(offsets[-1])].reshape(lengths.size, -1)
        return bool((body == body[0]).all()) if body.size else True


@dataclass(frozen=True, slots=True)
class Vectors:
    """Fixed-size lists: `sizes` and `valid` (bitmap from bit 0, or None) per level, outermost first; flat
    items.
    """

    sizes: tuple[int, ...]
    valid: tuple[U8 | None, ...]
    items: Fixed
    count: int

    @property
    def nbytes(self) -> int:
        return self.items.nbytes

    @property
    def per_row(self) -> int:
        """Items of one row."""
        return int(np.prod(self.sizes))

    def part(self, begin: int, end: int) -> Vectors:
        """Rows [begin, end)."""
        valid: list[U8 | None] = []
        across = 1
        for size, bits in zip(self.sizes, self.valid, strict=True):
            across *= size
            valid.append(None if bits is None else Fixed(1, bits, 0).part(begin * across, end * across).data)
        items = self.items.part(begin * across, end * across)
        return Vectors(self.sizes, tuple(valid), items, end - begin)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of several fields stored together."""

    fields: tuple[Fixed | Text | Vectors, ...]
    count: int

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.fields)

    @property
    def is_fixed(self) -> bool:
        return all(isinstance(each, Fixed) for each in self.fields)

    def part(self, begin: int, end: int) -> Packed:
        """Rows [begin, end)."""
        return Packed(tuple(each.part(begin, end) for each in self.fields), end - begin)


@dataclass(frozen=True, slots=True)
class Coded:
    """Indices into `items`: an Arrow dictionary."""

    indices: Fixed
    items: Fixed | Text

    @property
    def count(self) -> int:
        return self.indices.count

    @property
    def nbytes(self) -> int:
        return self.indices.nbytes

    def part(self, begin: int, end: int) -> Coded:
        """Values [begin, end)."""
        return Coded(self.indices.part(begin, end), self.items)


@dataclass(frozen=True, slots=True)
class Nothing:
    """Values that need no bytes: the null type and structs without fields."""

    count: int
    nbytes: int = 0

    def part(self, begin: int, end: int) -> Nothing:
        """Values [begin, end)."""
        return Nothing(end - begin)


Values = Fixed | Text | Vectors | Packed | Coded | Nothing


def null_flags(levels: Levels, values: int) -> U8:
    """One byte per value, 1 where it is null; empty when none is."""
    if levels.def_ is None or not values:
        return NO_BYTES
    flags = np.empty(values, np.uint8)
    return flags if kernels.visible_nulls(levels.def_, levels.max_visible, flags) else NO_BYTES


def take_values(leaf: Leaf, nulls: U8) -> Values:
    """The values of a leaf. `nulls` from `null_flags`. Raises `UnsupportedFeature` naming the column."""
    array, path = storage(leaf.array), leaf.path
    if leaf.field.is_packed and leaf.field.children:
        return _packed(array, leaf, nulls)
    if types.is_null(array.type) or types.is_struct(array.type):
        return Nothing(len(array))
    if types.is_dictionary(array.type):
        raise AssertionError("dictionaries are taken by `take_coded`")
    return _plain(array, nulls, path)


def _plain(array: Any, nulls: U8, path: str) -> Fixed | Text | Vectors:
    arrow = array.type
    if types.is_fixed_size_list(arrow):
        return _vectors(array, nulls, path)
    if types.is_string_view(arrow) or types.is_binary_view(arrow):
        array = array.cast(pa.string() if types.is_string_view(arrow) else pa.binary())
        arrow = array.type
    if types.is_string(arrow) or types.is_binary(arrow):
        return text(array, nulls, 4, path)
    if types.is_large_string(arrow) or types.is_large_binary(arrow):
        return text(array, nulls, 8, path)
    return fixed(array, nulls, path)


def fixed(array: Any, nulls: U8, path: str) -> Fixed:
    """Fixed-width values, null slots filled."""
    try:
        bits = array.type.bit_width
    except ValueError:
        raise UnsupportedFeature(
            f"column {path!r}: type {array.type} has no place in the Lance format"
        ) from None
    count, buffer = len(array), array.buffers()[1]
    if count == 0 or buffer is None:
        return Fixed(bits, NO_BYTES, 0)
    raw = np.frombuffer(buffer, np.uint8)
    if bits == 1:
        out = np.empty((count + 7) // 8, np.uint8)
        kernels.copy_bits(raw, array.offset, count, out)
        return Fixed(1, _filled_bits(out, count, nulls), count)
    size = bits // 8
    data = raw[array.offset * size : (array.offset + count) * size]
    if nulls.size:
        data = data.copy()
        kernels.fill_nulls(data, size, nulls)
    return Fixed(bits, data, count)


def _filled_bits(bits: U8, count: int, nulls: U8) -> U8:
    """Null slots take the value that every valid one has, where there is one only; else they stay."""
    if not nulls.size:
        return bits
    ones = np.unpackbits(bits, count=count, bitorder="little")
    valid = ones[nulls == 0]
    if valid.size and (int(valid.min()) == int(valid.max())):
        return np.full(bits.size, 255 if valid[0] else 0, np.uint8)
    return np.packbits(ones & (1 - nulls), bitorder="little")


def text(array: Any, nulls: U8, width: int, path: str) -> Text:
    """Strings or binaries, null slots without bytes. Raises `InvalidInput` for strings that are not UTF-8."""
    offsets = list_offsets(array)
    buffer = array.buffers()[2]
    data = NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)
    is_text = types.is_string(array.type) or types.is_large_string(array.type)
    if nulls.size:
        lengths = np.diff(offsets)
        if lengths[nulls != 0].any():
            lengths[nulls != 0] = 0
            offsets, data = gathered(data, offsets[:-1], lengths)
    bad = kernels.invalid_text(data, offsets) if is_text else -1
    if bad >= 0:
        value = data[int(offsets[bad]) : int(offsets[bad + 1])].tobytes()
        raise InvalidInput(
            f"column {path!r}: value {bad} of {len(array)} values written together is not UTF-8: "
            f"{value[:SHOWN_BYTES]!r}; write bytes as binary"
        )
    return Text(offsets, data, width, is_text, nulls)


def gathered(data: U8, starts: I64, lengths: I64) -> tuple[I64, U8]:
    """Offsets and bytes of values copied together."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels.copy_variable(data, np.ascontiguousarray(starts), offsets, out)
    return offsets, out


def _vectors(array: Any, nulls: U8, path: str) -> Vectors:
    sizes: list[int] = []
    valid: list[U8 | None] = []
    count, across = len(array), 1
    hidden = nulls
    while types.is_fixed_size_list(array.type):
        size = array.type.list_size
        array = storage(array.values.slice(array.offset * size, len(array) * size))
        across *= size
        hidden = np.repeat(hidden, size) if hidden.size else hidden
        bits, start = validity(array)
        if bits.size:
            own = np.unpackbits(bits, bitorder="little")[start : start + len(array)]
            if hidden.size:
                # What lies under a null vector need not be null again, unless nothing else is valid.
                own = own | hidden if bool((own & (1 - hidden)).any()) else np.zeros_like(own)
                hidden = hidden | (1 - own)
            else:
                hidden = 1 - own
            valid.append(np.packbits(own, bitorder="little") if not own.all() else None)
        else:
            valid.append(None)
        sizes.append(size)
    items = fixed(array, NO_BYTES, path)
    return Vectors(tuple(sizes), tuple(valid), items, count)


def _packed(array: Any, leaf: Leaf, nulls: U8) -> Packed:
    fields = []
    for index, child in enumerate(leaf.field.children):
        values = storage(array.field(index))
        path = f"{leaf.path}.{child.name}"
        bits, start = validity(values)
        if bits.size:
            own = np.unpackbits(bits, bitorder="little")[start : start + len(values)] == 0
            if nulls.size:
                own = own & (nulls == 0)
            if own.any():
                raise InvalidInput(f"column {path!r}: a field of a packed struct must not be null")
        if types.is_boolean(values.type) or (
            types.is_nested(values.type) and not types.is_fixed_size_list(values.type)
        ):
            raise UnsupportedFeature(f"column {path!r}: type {values.type} cannot be part of a packed struct")
        if types.is_dictionary(values.type) or types.is_null(values.type):
            raise UnsupportedFeature(f"column {path!r}: type {values.type} cannot be part of a packed struct")
        taken = _plain(values, nulls, path)
        if isinstance(taken, Vectors) and (
            taken.items.bits == 1 or any(each is not None for each in taken.valid)
        ):
            raise UnsupportedFeature(
                f"column {path!r}: booleans or nulls in a vector cannot be part of a packed struct"
            )
        fields.append(taken)
    return Packed(tuple(fields), len(array))
