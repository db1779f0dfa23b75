"""Whether the items of a dictionary column fit its index type: readers number those of a whole file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.errors import InvalidInput

COUNTED_BITS = 16
"""Wider indices are not counted: no file comes near what they can number."""


class IndexRoom:
    """The distinct items of one dictionary column in the pages of a file so far."""

    def __init__(self, path: str, index: Any) -> None:
        self._path = path
        self._index = index
        self._most = 1 << (index.bit_width - (1 if pa.types.is_signed_integer(index) else 0))
        self._found: Any = None
        self._last: Any = None

    def add(self, items: Any) -> None:
        """The items of another page, as binaries. Raises `InvalidInput` when there are too many."""
        if self._index.bit_width > COUNTED_BITS or (self._last is not None and items.equals(self._last)):
            return
        self._last = items
        parts = [items] if self._found is None else [self._found, items]
        if sum(map(len, parts)) <= self._most:
            self._found = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
            return
        self._found = pa.chunked_array(parts).unique()
        if len(self._found) > self._most:
            raise InvalidInput(
                f"column {self._path!r}: the rows of one data file use {len(self._found)} dictionary values, "
                f"more than {self._most}, which is what an index of type {self._index} can number; cast the "
                "column to a dictionary with a wider index, or write fewer rows to a file (max_rows_per_file)"
            )
