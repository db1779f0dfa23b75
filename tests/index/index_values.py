"""Shared by the tests of indices: every type that can be indexed, values that are close to each other, and
the plain meaning of a question."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa

from expr_rows import holds
from tiltyard.expr.index_query import ColumnQuery, Range

NAN = float("nan")
_FLOATS: list[Any] = [-math.inf, -1.5, -0.0, 0.0, 0.5, 1.5, math.inf, NAN, None]
_WHOLE: list[Any] = [-3, -1, 0, 1, 2, 7, None]
_BYTES: list[Any] = [b"", b"a", b"ab", b"b", b"\xff", b"a\x00", None]


def _decimals(scale: int) -> list[Any]:
    numbers = [-(10**9), -3, -1, 0, 1, 2, 10**9]
    return [decimal.Decimal(n).scaleb(-scale) for n in numbers] + [None]


VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True, None],
    **{kind(): [-128, *_WHOLE, 127] for kind in (pa.int8, pa.int16, pa.int32)},
    pa.int64(): [-(2**63), *_WHOLE, 2**63 - 1],
    **{kind(): [0, 1, 2, 7, 200, None] for kind in (pa.uint8, pa.uint16, pa.uint32)},
    pa.uint64(): [0, 1, 2, 2**63, 2**64 - 1, None],
    pa.float32(): _FLOATS,
    pa.float64(): _FLOATS,
    pa.float16(): [None if x is None else np.float16(x) for x in _FLOATS],
    pa.decimal128(20, 2): _decimals(2),
    pa.decimal256(50, 3): _decimals(3),
    pa.string(): ["", "a", "ab", "b", "é", "\U0001f600", None],
    pa.large_string(): ["", "a", "ab", "b", None],
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.binary(2): [b"\x00\x00", b"a\x00", b"ab", b"b\xff", b"\xff\xff", None],
    pa.date32(): _WHOLE,
    pa.date64(): [None if x is None else x * 86_400_000 for x in _WHOLE],
    pa.time32("s"): [0, 1, 2, 86_399, None],
    pa.time64("ns"): [0, 1, 2, 86_399, None],
    pa.timestamp("us"): _WHOLE,
    pa.timestamp("s", "UTC"): _WHOLE,
    pa.duration("ms"): _WHOLE,
}
"""Type to values, temporal ones in physical units; -NaN is put in by `array_of`."""


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """An array of values in physical units; every other NaN has its sign bit set."""
    if pa.types.is_temporal(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, storage).view(kind)
    array = pa.array(values, kind)
    if not pa.types.is_floating(kind):
        return array
    width = kind.bit_width // 8
    bits = np.frombuffer(array.buffers()[1], f"u{width}", len(array)).copy()
    floats = bits.view(f"f{width}")
    nans = np.flatnonzero(np.isnan(floats))
    bits[nans[::2]] |= np.array(1 << (kind.bit_width - 1), bits.dtype)
    return pa.Array.from_buffers(kind, len(array), [array.buffers()[0], pa.py_buffer(bits)])


def plain(value: Any) -> Any:
    """A value as questions write it."""
    return float(value) if isinstance(value, np.floating) else value


def answers(query: ColumnQuery, value: Any) -> bool:
    """Whether a value answers a question."""
    if value is None:
        return query.nulls
    value = plain(value)
    return any(holds("=", value, each) for each in query.values) or any(
        _inside(span, value) for span in query.ranges
    )


def _inside(span: Range, value: Any) -> bool:
    above = span.low is None or holds(">=" if span.has_low else ">", value, span.low)
    below = span.high is None or holds("<=" if span.has_high else "<", value, span.high)
    return bool(above and below)
