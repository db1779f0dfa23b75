"""Sets of 32-bit numbers in the portable Roaring form, to and from sorted arrays (table format, sections 4
and 7.6).

The library that decodes it is loaded when the first bitmap is met: tables without deletions and indices never
need it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile

_COOKIE_NO_RUNS = 0x303A
_COOKIE_RUNS = 0x303B


def encode_roaring(values: npt.ArrayLike) -> bytes:
    """The portable bytes of a set of numbers below 2^32 (any order), runs compressed."""
    from array import array

    from pyroaring import BitMap

    numbers = array("I")  # what the library takes without making an object of every number
    numbers.frombytes(np.ascontiguousarray(values, np.uint32).tobytes())
    bitmap = BitMap(numbers)
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def decode_roaring(data: Any, what: str, path: str | None = None) -> npt.NDArray[np.uint32]:
    """The numbers of a portable bitmap, ascending. Raises `CorruptFile` naming `what` (and `path`)."""
    from pyroaring import BitMap

    raw = bytes(memoryview(data))
    cookie = int.from_bytes(raw[:2], "little")
    if len(raw) < 8 or cookie not in (_COOKIE_NO_RUNS, _COOKIE_RUNS):
        raise CorruptFile(f"{what} is not a Roaring bitmap (its first bytes are {raw[:4].hex()!r})", path)
    try:
        bitmap = BitMap.deserialize(raw)
    except (ValueError, MemoryError, OverflowError) as error:
        raise CorruptFile(f"{what} is a damaged Roaring bitmap ({error})", path) from error
    values = np.frombuffer(bitmap.to_array(), np.uint32)
    if len(values) > 1 and not (values[1:] > values[:-1]).all():
        raise CorruptFile(f"{what} is a damaged Roaring bitmap: its numbers do not ascend", path)
    return values
