"""The order in which a B-tree index keeps values, and where the ends of a question lie in it (indices, 2.1).

Stored order: nulls, then values ascending; floating-point numbers in IEEE total order, so that -NaN stands
before -inf and -0.0 before 0.0. Questions have another order: zeros are one value and every NaN is the
greatest. A question therefore becomes pairs of *cuts* in the stored order, for floats up to three of them.

Keys are what values are compared by: NumPy integers that ascend as the values do, byte strings of one width
(`S`), or, for text and binary, `Texts`, which looks at the bytes where they lie.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import UnsupportedFeature
from tiltyard.expr.arrays import DECIMAL_BYTES, bools_of, dtype_of, values_of
from tiltyard.expr.index_query import Range
from tiltyard.kernels.distinct import distinct

_SIGNED: dict[int, np.dtype[Any]] = {2: np.dtype("i2"), 4: np.dtype("i4"), 8: np.dtype("i8")}


class Texts:
    """The values of a text or binary array without nulls, as keys: byte strings that stay in Arrow's
    buffers."""

    __slots__ = ("_array", "_data", "_offsets", "nbytes")

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        kind = array.type
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        dtype = np.dtype("i8" if wide else "i4")
        _, offsets, data = array.buffers()
        rows = len(array)
        self._offsets = (
            np.zeros(1, dtype)
            if offsets is None
            else np.frombuffer(offsets, dtype, rows + 1, array.offset * dtype.itemsize)
        )
        self._data = memoryview(b"" if data is None else data)
        self.nbytes = self._offsets.nbytes + int(self._offsets[-1] - self._offsets[0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def at(self, row: int) -> bytes:
        """The bytes of one value."""
        offsets = self._offsets
        return bytes(self._data[offsets[row] : offsets[row + 1]])

    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each value."""
        return np.diff(self._offsets).astype(np.int64)

    def words(self, begin: int, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Eight bytes of each value from its byte `begin` on, as one number; zeros past its end."""
        first, last = int(self._offsets[0]), int(self._offsets[-1])
        data = np.zeros(last - first + 8, np.uint8)
        data[: last - first] = np.frombuffer(self._data, np.uint8)[first:last]
        windows = np.ndarray((last - first + 1,), ">u8", data, strides=(1,))
        starts = np.minimum(self._offsets[:-1].astype(np.int64) - first + begin, last - first)
        beyond = np.clip(8 - (lengths - begin), 0, 8).astype(np.uint64) * np.uint64(8)
        found = windows[starts].astype(np.uint64)
        return np.where(beyond < 64, found >> beyond << beyond, np.uint64(0))

    def ascends(self) -> bool:
        """Whether no value is less than the one before it."""
        import pyarrow.compute as pc

        array = self._array
        if len(array) < 2:
            return True
        found = pc.call_function("less_equal", [array.slice(0, len(array) - 1), array.slice(1)])
        return bool(bools_of(found).all())

    def searchsorted(self, key: bytes, side: str) -> int:
        """Where `key` belongs, before (`left`) or after (`right`) its equals."""
        find = bisect_left if side == "left" else bisect_right
        return find(range(len(self)), key, key=self.at)


Keys: TypeAlias = "npt.NDArray[Any] | Texts"


class Cut(NamedTuple):
    """A place between stored values: before every value equal to `key`, or after them. A key of None is the
    place before all values (`after` False) or after all of them."""

    key: Any
    after: bool


BOTTOM = Cut(None, False)
TOP = Cut(None, True)
Interval: TypeAlias = tuple[Cut, Cut]


class Order:
    """The order of one type of values. Base class: a type whose physical values are whole numbers."""

    is_text = False

    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self.dtype: np.dtype[Any] = dtype_of(arrow)
        info = np.iinfo(self.dtype)
        self._least, self._most = int(info.min), int(info.max)

    def keys(self, array: pa.Array) -> Keys:
        """The keys of an array of this type without nulls."""
        return values_of(array)

    def argsort(self, array: pa.Array) -> npt.NDArray[np.int64]:
        """Positions that put an array without nulls in order; equals stay in the order they came in."""
        return np.argsort(np.asarray(self.keys(array)), kind="stable")

    def sorted(self, array: pa.Array, ids: npt.NDArray[np.uint64]) -> tuple[pa.Array, npt.NDArray[np.uint64]]:
        """An array without nulls in order, and its row ids along with it; equals stay in the order they came
        in."""
        from tiltyard.index.radix import along

        if self.dtype.kind not in "iu" or pa.types.is_boolean(self.type):
            at = self.argsort(array)
            return array.take(pa.array(at)), ids[at]
        keys, moved = along(np.asarray(self.keys(array)), ids)
        return self._restored(keys), moved

    def _restored(self, keys: npt.NDArray[Any]) -> pa.Array:
        """The array that has these keys."""
        return pa.Array.from_buffers(self.type, len(keys), [None, pa.py_buffer(keys)])

    def intervals(self, span: Range) -> list[Interval]:
        """Where the values of a range of a question stand."""
        low = BOTTOM if span.low is None else self.cut(span.low, not span.has_low)
        high = TOP if span.high is None else self.cut(span.high, span.has_high)
        return [(low, high)]

    def point(self, value: Any) -> list[Interval]:
        """Where the values stand that equal one value of a question."""
        return [(self.cut(value, False), self.cut(value, True))]

    def cut(self, value: Any, after: bool) -> Cut:
        """The place before or after what equals `value`, in the units of a question."""
        number = self._whole(value)
        if number is None:
            return TOP if math.isnan(value) or value > 0 else BOTTOM
        if number < self._least:
            return BOTTOM
        if number > self._most:
            return TOP
        return Cut(self._key_of(number), after)

    def _key_of(self, number: int) -> Any:
        """The key of a number within the bounds of the type."""
        return self.dtype.type(number)

    def many(self, values: Sequence[Any]) -> npt.NDArray[Any] | None:
        """Keys of many values of a question, ascending, where each stands for itself alone; else None."""
        if not all(type(value) is int for value in values):
            return None
        held = [value for value in values if self._least <= value <= self._most]
        return distinct(np.array(held, self.dtype))

    def _whole(self, value: Any) -> int | None:
        if isinstance(value, float):
            return int(value) if math.isfinite(value) else None
        return int(value)


class _Booleans(Order):
    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self.dtype = np.dtype("u1")
        self._least, self._most = 0, 1

    def keys(self, array: pa.Array) -> Keys:
        return bools_of(array).view(np.uint8)


class _Floats(Order):
    """Total order as signed integers: the bits of a negative number are turned round, but for the sign."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self.float = dtype_of(arrow)
        self.dtype: np.dtype[Any] = _SIGNED[self.float.itemsize]
        self._flip = np.iinfo(self.dtype).max
        self._first = Cut(self._key(-math.inf), False)
        self._last = Cut(self._key(math.inf), True)

    def keys(self, array: pa.Array) -> Keys:
        return self._ordered(values_of(array))

    def _ordered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        bits = np.ascontiguousarray(values).view(self.dtype)
        return np.where(bits < 0, bits ^ self._flip, bits)

    def _restored(self, keys: npt.NDArray[Any]) -> pa.Array:
        return super()._restored(np.where(keys < 0, keys ^ self._flip, keys))

    def _key(self, value: float) -> Any:
        with np.errstate(over="ignore"):
            return self._ordered(np.array([value], self.float))[0]

    def cut(self, value: Any, after: bool) -> Cut:
        """Among the numbers; NaN is none."""
        if value == 0:
            return Cut(self._key(0.0 if after else -0.0), after)
        return Cut(self._key(value), after)

    def intervals(self, span: Range) -> list[Interval]:
        low: Any = span.low
        high: Any = span.high
        nan_low = low is not None and math.isnan(low)
        nan_high = high is not None and math.isnan(high)
        with_nan = (high is None or (nan_high and span.has_high)) and not (nan_low and not span.has_low)
        found = list(self._nans()) if with_nan else []
        if not nan_low:
            start = self._first if low is None else self.cut(low, not span.has_low)
            stop = self._last if high is None or nan_high else self.cut(high, span.has_high)
            found.append((start, stop))
        return found

    def point(self, value: Any) -> list[Interval]:
        if math.isnan(value):
            return list(self._nans())
        return super().point(value)

    def many(self, values: Sequence[Any]) -> npt.NDArray[Any] | None:
        numbers = np.array(values, self.float)
        if np.isnan(numbers).any():
            return None
        zeros = numbers == 0
        keys = self._ordered(numbers)
        if zeros.any():
            both = np.array([self._key(-0.0), self._key(0.0)], self.dtype)
            keys = np.concatenate([keys[~zeros], both])
        return np.unique(keys)

    def _nans(self) -> tuple[Interval, Interval]:
        return (BOTTOM, self._first), (self._last, TOP)


class _Decimals(Order):
    """Unscaled numbers: machine integers up to 64 bits, else big-endian bytes with the sign bit turned."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self._width = DECIMAL_BYTES[arrow.id]
        self._wide = self._width > 8
        self.dtype = np.dtype(f"S{self._width}" if self._wide else f"i{self._width}")
        self._least, self._most = -(1 << (8 * self._width - 1)), (1 << (8 * self._width - 1)) - 1
        self._scale = 10 ** abs(arrow.scale)

    def keys(self, array: pa.Array) -> Keys:
        buffer = array.buffers()[1]
        nbytes = len(array) * self._width
        raw = (
            np.zeros(nbytes, np.uint8)
            if buffer is None
            else np.frombuffer(buffer, np.uint8, nbytes, array.offset * self._width)
        )
        if not self._wide:
            return raw.view(self.dtype)
        turned = raw.reshape(-1, self._width)[:, ::-1].copy()
        turned[:, 0] ^= 0x80
        return turned.reshape(-1).view(self.dtype)

    def argsort(self, array: pa.Array) -> npt.NDArray[np.int64]:
        from tiltyard.index.radix import by_columns

        if not self._wide:
            return super().argsort(array)
        return by_columns(np.asarray(self.keys(array)).view(">u8").reshape(-1, self._width // 8))

    def _key_of(self, number: int) -> Any:
        if not self._wide:
            return super()._key_of(number)
        return np.bytes_((number - self._least).to_bytes(self._width, "big"))

    def _whole(self, value: Any) -> int | None:
        if not math.isfinite(value):
            return None
        exact = Fraction(value)
        exact = exact * self._scale if self.type.scale >= 0 else exact / self._scale
        return math.floor(exact)

    def many(self, values: Sequence[Any]) -> npt.NDArray[Any] | None:
        if not all(isinstance(value, Decimal) and value.is_finite() for value in values):
            return None
        numbers = [self._whole(value) for value in values]
        held = [self._key_of(n) for n in numbers if n is not None and self._least <= n <= self._most]
        return np.unique(np.array(held, self.dtype))


class _FixedBytes(Order):
    """Byte strings of one width. A shorter one of a question stands before all that begin with it, a longer
    one after what it begins with."""

    def __init__(self, arrow: pa.DataType) -> None:
        if not arrow.byte_width:
            raise UnsupportedFeature("a B-tree index cannot be on byte strings of width 0")
        self.type = arrow
        self._width = arrow.byte_width
        self.dtype = np.dtype(f"S{self._width}")

    def keys(self, array: pa.Array) -> Keys:
        buffer = array.buffers()[1]
        if buffer is None:
            return np.zeros(len(array), self.dtype)
        return np.frombuffer(buffer, self.dtype, len(array), array.offset * self._width)

    def argsort(self, array: pa.Array) -> npt.NDArray[np.int64]:
        from tiltyard.index.radix import RADIX_BYTES, by_columns

        if self._width > RADIX_BYTES:
            return super().argsort(array)
        keys = np.asarray(self.keys(array)).view(np.uint8).reshape(-1, self._width)
        padded = np.zeros((len(keys), -(-self._width // 8) * 8), np.uint8)
        padded[:, : self._width] = keys
        return by_columns(padded.view(">u8"))

    def cut(self, value: Any, after: bool) -> Cut:
        if len(value) < self._width:
            return Cut(np.bytes_(value.ljust(self._width, b"\0")), False)
        if len(value) > self._width:
            return Cut(np.bytes_(value[: self._width]), True)
        return Cut(np.bytes_(value), after)

    def many(self, values: Sequence[Any]) -> npt.NDArray[Any] | None:
        held = [value for value in values if len(value) == self._width]
        return np.unique(np.array(held, self.dtype))


class _Text(Order):
    is_text = True

    def __init__(self, arrow: pa.DataType) -> None:
        self.type = arrow
        self.dtype = np.dtype(object)

    def keys(self, array: pa.Array) -> Keys:
        return Texts(array)

    def argsort(self, array: pa.Array) -> npt.NDArray[np.int64]:
        import pyarrow.compute as pc

        from tiltyard.index.radix import RADIX_BYTES, RADIX_ROWS, by_words

        texts = Texts(array)
        lengths = texts.lengths()
        if len(array) >= RADIX_ROWS and int(lengths.max()) <= RADIX_BYTES:
            return by_words(texts, lengths)
        found = pc.call_function("array_sort_indices", [array], pc.ArraySortOptions())
        return values_of(found).astype(np.int64)

    def cut(self, value: Any, after: bool) -> Cut:
        return Cut(value.encode() if isinstance(value, str) else bytes(value), after)

    def many(self, values: Sequence[Any]) -> npt.NDArray[Any] | None:
        return None


def order_of(arrow: pa.DataType) -> Order:
    """The order of a type. Raises `UnsupportedFeature` for types that no B-tree index holds."""
    types = pa.types
    if types.is_boolean(arrow):
        return _Booleans(arrow)
    if types.is_floating(arrow):
        return _Floats(arrow)
    if types.is_integer(arrow) or (types.is_temporal(arrow) and not types.is_interval(arrow)):
        return Order(arrow)
    if types.is_decimal(arrow):
        return _Decimals(arrow)
    if types.is_fixed_size_binary(arrow):
        return _FixedBytes(arrow)
    if (
        types.is_string(arrow)
        or types.is_large_string(arrow)
        or types.is_binary(arrow)
        or types.is_large_binary(arrow)
    ):
        return _Text(arrow)
    raise UnsupportedFeature(
        f"a B-tree index cannot be on values of type {arrow}: numbers, booleans, decimals, dates, times, "
        "timestamps, durations, text and binary can be indexed"
    )
