"""Columns of blobs of version 1: pages of descriptors, in which nulls stand as well (file format 7.6).

Where nothing is, size is 0 and position holds the levels of the row; the bytes of a value that is there begin
at `position` of the same file. Blobs of version 2 are packed structs, which are read as such.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.encoding.levels import unravel
from tiltyard.encoding.levels.unravel import NO_LEVELS, U16, Layers
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.file.column import ColumnTable, Rows, expanded
from tiltyard.file.values import Leaf, LeafReader
from tiltyard.format.container import ColumnPages
from tiltyard.format.layouts import BlobPage
from tiltyard.session import Session

DEFINITION_BITS = 16
"""A null descriptor's position is its definition level, shifted by so many bits, and its repetition level."""

_FLAT = Layers.of((False,))


class BlobReader(LeafReader):
    """Reads one column of descriptors: struct<position, size>."""

    def __init__(
        self,
        name: str,
        arrow: Any,
        source: npt.NDArray[np.uint8],
        pages: ColumnPages,
        layers: Layers,
        buffer: Any,
    ) -> None:
        if layers.max_rep:
            raise UnsupportedFeature(
                "blobs of version 1 inside lists are not supported; leave the column out"
            )
        for page in pages.layouts:
            if not isinstance(page, BlobPage):
                raise CorruptFile(f"a {type(page).__name__} page in a column of blobs")
        inner = replace(pages, layouts=tuple([page.inner for page in pages.layouts]))
        self._inner = LeafReader(name, arrow, ColumnTable(source, inner, _FLAT, 0), buffer)
        self._numbers = [layers.map_page(page.layers)[0] for page in pages.layouts]
        self._layout_index = pages.layout_index
        table = copy(self._inner.table)  # what is below it takes its structure from these layers
        table.layers = layers
        table.levels_used = frozenset[int]().union(*[each.tolist() for each in self._numbers])
        super().__init__(name, arrow, table, buffer)

    def read(self, session: Session, rows: Rows) -> Leaf:
        """Decode rows. Raises `CorruptFile`, `UnsupportedFeature`."""
        found = self._inner.read(session, rows)
        children = [found.array.field(at) for at in range(2)]
        position, size = (np.asarray(child) for child in children)
        absent = np.flatnonzero((size == 0) & (position != 0))
        if not len(absent):
            return Leaf(NO_LEVELS, None, found.slots, found.array)
        levels = np.zeros(found.slots, np.uint16)
        levels[absent] = self._levels(position[absent], rows, absent)
        validity, nulls = unravel.validity(session, self.table.layers, 0, NO_LEVELS, levels, found.slots)
        array = pa.Array.from_buffers(self.type, found.slots, [validity], nulls, children=children)
        return Leaf(NO_LEVELS, levels, found.slots, array)

    def _levels(self, position: npt.NDArray[np.uint64], rows: Rows, which: npt.NDArray[np.int64]) -> U16:
        """The column's levels of the rows at these places of a read, from the positions in their
        descriptors.
        """
        stored = position >> np.uint64(DEFINITION_BITS)
        layout = np.zeros(len(which), np.int64)
        if len(self._numbers) > 1:
            every = expanded(rows)[which]
            pages = np.searchsorted(self.table.page_rows, every, "right") - 1
            layout = self._layout_index[pages]
        known = np.array([len(each) for each in self._numbers], np.uint64)
        bad = (stored >= known[layout]) | (stored << np.uint64(DEFINITION_BITS) != position)
        if bad.any():
            raise CorruptFile(
                f"the descriptor of a null blob holds {int(position[bad][0])}, which is no level of its page"
            )
        numbers = np.zeros((len(self._numbers), int(known.max())), np.uint16)
        for at, each in enumerate(self._numbers):
            numbers[at, : len(each)] = each
        found: U16 = numbers[layout, stored.astype(np.int64)]
        return found
