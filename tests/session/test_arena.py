"""The arena: recycled memory that comes back when nothing uses it any more."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa

from tiltyard.session.arena import SLAB_THRESHOLD_BYTES, SLAB_UNIT_BYTES, Arena

BIG = 4 * SLAB_UNIT_BYTES


def test_array_and_buffer_are_the_same_memory() -> None:
    for nbytes in (0, 1, 1000, SLAB_THRESHOLD_BYTES, BIG + 5):
        array, buffer = Arena(BIG).alloc(nbytes)
        array[:] = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
        assert buffer.size == nbytes
        assert np.array_equal(np.frombuffer(buffer, np.uint8), array)


def test_a_slab_comes_back_when_buffer_and_array_have_died() -> None:
    arena = Arena(1 << 30)
    array, buffer = arena.alloc(BIG)
    address = buffer.address
    column = pa.Array.from_buffers(pa.uint8(), BIG, [None, buffer])
    del array, buffer
    assert arena.free_bytes == 0
    part = column.slice(5, 10)
    del column
    assert arena.free_bytes == 0
    del part
    gc.collect()
    assert arena.free_bytes == BIG
    assert arena.alloc(BIG)[1].address == address


def test_memory_that_only_the_array_uses_is_not_given_away() -> None:
    arena = Arena(1 << 30)
    array, _ = arena.alloc(BIG)
    view = array.view(np.uint16)
    del array, _
    view[:] = 7
    other, _ = arena.alloc(BIG)
    other[:] = 0
    assert (view == 7).all()


def test_a_slab_much_too_large_does_not_serve_a_small_request() -> None:
    arena = Arena(1 << 30)
    held = arena.alloc(16 * BIG)
    del held
    gc.collect()
    arena.alloc(SLAB_THRESHOLD_BYTES)
    assert arena.free_bytes >= 16 * BIG


def test_free_memory_is_bounded() -> None:
    arena = Arena(BIG)
    held = [arena.alloc(BIG) for _ in range(4)]
    del held
    gc.collect()
    assert arena.free_bytes <= BIG
