"""A file without a name for what does not fit into memory: gone when its owner is, or the process.

Not for anything that must last: nothing here is made durable.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiltyard import runtime
from tiltyard.errors import StoreError

ALIGNMENT = 64
"""Where a piece may begin (bytes), so that what was laid out for Arrow stays so."""


@contextmanager
def _told(verb: str) -> Iterator[None]:
    """What the system refuses, as a `StoreError` that says what to do."""
    try:
        yield
    except OSError as error:
        refused = StoreError(
            f"cannot {verb} a temporary file for what does not fit into memory: {error.strerror or error}; "
            "free some space where temporary files lie, or name another place in TMPDIR"
        )
        refused.errno = error.errno
        raise refused from error


class Scratch:
    """Append pieces, then map them. A forked child shares the file with its parent: write in one of them.

    Raises `StoreError` where the system has no room for it.
    """

    def __init__(self) -> None:
        port = runtime.current().port
        self._port = port
        with _told("make"):
            self._fd = port.open_scratch()
        self._close = weakref.finalize(self, port.release, self._fd)
        self.size = 0

    def append(self, buffers: Sequence[Any]) -> tuple[int, int]:
        """Write buffers one after another; where the piece begins and its size in bytes."""
        begin = self.size
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        padding = -size % ALIGNMENT
        with _told("write"):
            self._port.write(self._fd, [*buffers, bytes(padding)] if padding else buffers)
        self.size += size + padding
        return begin, size

    def extend(self, buffers: Sequence[Any]) -> None:
        """Write buffers directly behind what is there, as parts of one piece."""
        with _told("write"):
            self._port.write(self._fd, buffers)
        self.size += sum(memoryview(buffer).nbytes for buffer in buffers)

    def map(self) -> Any:
        """All that was written so far as a `pa.Buffer`, not copied."""
        with _told("read"):
            return self._port.map(self._fd, self.size)

    def close(self) -> None:
        """Give the file back; maps of it stay."""
        self._close()


PIECE_BYTES = 4 << 20
"""What is written to the file at once, or more."""


class Spool:
    """One whole that comes in pieces: in memory while it is small, then in a `Scratch`.

    `add` keeps a piece; when `is_full`, call `spill`, which may wait for the disk. `whole` gives all of it as
    bytes, or as a buffer over the file. Raises `StoreError` where the system has no room.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory = memory_bytes
        self._pieces: list[bytes] = []
        self._held = 0
        self._scratch: Scratch | None = None
        self.size = 0

    def add(self, piece: bytes) -> None:
        """One more piece."""
        self._pieces.append(piece)
        self._held += len(piece)
        self.size += len(piece)

    @property
    def is_full(self) -> bool:
        """Whether more is held in memory than should be."""
        return self._held > self._memory if self._scratch is None else self._held >= PIECE_BYTES

    def spill(self) -> None:
        """Write what is held to the file."""
        if self._scratch is None:
            self._scratch = Scratch()
        self._scratch.extend(self._pieces)
        self._pieces, self._held = [], 0

    def whole(self) -> Any:
        """All pieces as one, in their order."""
        if self._scratch is None:
            return b"".join(self._pieces)
        self.spill()
        return self._scratch.map()

    def close(self) -> None:
        """Give the file back, where there is one; maps of it stay."""
        self._pieces, self._held = [], 0
        if self._scratch is not None:
            self._scratch.close()
