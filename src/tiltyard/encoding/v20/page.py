"""What is read of one page of a file of version 2.0: its buffers, and which of its entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.encoding import general
from tiltyard.errors import BatchTooLarge, CorruptFile
from tiltyard.session import ByteCache

#: Entries that an encoding without a bit for each of them may have in one read.
MAX_EMPTY_ENTRIES = 1 << 27

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def check_empty(entries: int) -> None:
    """Raise `BatchTooLarge` for more entries than a read may have where no buffer bounds their number."""
    if entries > MAX_EMPTY_ENTRIES:
        raise BatchTooLarge(
            f"{entries} entries without a bit of their own, more than {MAX_EMPTY_ENTRIES}: read fewer rows"
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Entries of a page: those from `start` to `stop`, or the numbers in `rows`."""

    start: int
    stop: int
    rows: I64 | None = None

    @classmethod
    def of(cls, rows: I64) -> Selection:
        """Some entries in any order, duplicates allowed."""
        return cls(0, 0, rows)

    @property
    def count(self) -> int:
        """How many entries."""
        return self.stop - self.start if self.rows is None else len(self.rows)

    def scaled(self, factor: int) -> Selection:
        """The same entries where each stands for `factor` consecutive ones."""
        if self.rows is None:
            return Selection(self.start * factor, self.stop * factor)
        return Selection.of((self.rows[:, None] * factor + np.arange(factor)).reshape(-1))


class Page:
    """One page. `owner` tells the file and column apart in the cache, which keeps what is decompressed."""

    __slots__ = ("_buffers", "_cache", "_number", "_owner", "_source")

    def __init__(
        self, source: Bytes, buffers: list[tuple[int, int]], number: int, owner: object, cache: ByteCache
    ) -> None:
        self._source = source
        self._buffers = buffers
        self._number = number
        self._owner = owner
        self._cache = cache

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        return len(self._source)

    def buffer(self, number: int, scheme: str, most: int | None = None) -> Bytes:
        """The bytes of a buffer, decompressed; a view of the file where nothing compresses it. `most`: bytes
        that it may hold then.
        """
        if number >= len(self._buffers):
            raise CorruptFile(f"an encoding names buffer {number} of a page that has {len(self._buffers)}")
        position, size = self._buffers[number]
        stored = self._source[position : position + size]
        if not scheme:
            return stored

        def decompressed() -> tuple[Bytes, int]:
            limit = general.MAX_OUTPUT_BYTES if most is None else most
            found = np.frombuffer(general.decompress((scheme,), stored, limit), np.uint8)
            return found, len(found)

        return self.kept(("buffer", number), decompressed)

    def kept(self, what: object, make: Callable[[], tuple[Any, int]]) -> Any:
        """What `make` gives (a value, its bytes), kept for the next read of the page."""
        return self._cache.get_or((self._owner, self._number, what), make)
