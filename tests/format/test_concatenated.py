"""Arrays put together without the interpreter's lock are what Arrow makes of them with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tiltyard.format.concatenated import concatenated

ARRAYS = [
    pa.array([1, None, 3], pa.int64()),
    pa.array(["a", None, "ccc"], pa.string()),
    pa.array([True, None, False]),
    pa.array([None, None, None], pa.null()),
    pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
    pa.array([{"a": 1}, None, {"a": 2}]),
    pa.array(["x", None, "y"], pa.dictionary(pa.int8(), pa.string())),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None, "[]"])),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda each: str(each.type))
@pytest.mark.parametrize("cuts", [(0, 3), (0, 1, 3), (0, 0, 2, 2, 3)])
def test_pieces_make_the_whole(array: pa.Array, cuts: tuple[int, ...]) -> None:
    pieces = [array[start:end] for start, end in pairwise(cuts)]
    whole = concatenated(pieces)
    whole.validate(full=True)
    assert whole.type == array.type
    assert whole.to_pylist() == array.to_pylist()


def test_dictionaries_become_one() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    whole = concatenated([pa.array(["x", "y"], kind), pa.array(["z", "x"], kind)])
    assert whole.to_pylist() == ["x", "y", "z", "x"]
    assert len(whole.dictionary) == 3


def test_offsets_that_overflow_are_refused_as_arrow_does() -> None:
    most = (1 << 31) - 1
    untouched = pa.py_buffer(np.zeros(most, np.uint8))  # takes addresses, no memory
    wide = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, most], "<i4")), untouched])
    for join in (pa.concat_arrays, concatenated):
        with pytest.raises(pa.ArrowInvalid, match="overflow"):
            join([wide, wide])
