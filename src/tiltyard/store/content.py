"""The bytes that go into an object, given as one buffer or as a sequence of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes


def buffers_of(data: Bytes | Sequence[Bytes]) -> Sequence[Bytes]:
    """One object's content as a sequence of buffers; a list or tuple is one already."""
    return data if isinstance(data, (list, tuple)) else [data]


def flat(buffer: Bytes) -> memoryview:
    """A contiguous buffer of any item type as bytes."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    return view.cast("B") if view.nbytes else memoryview(b"")  # an empty one cannot be cast
