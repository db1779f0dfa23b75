"""The vectors of fragments as matrices: blocks of rows of bounded size, mapped where the file allows it, and
their squared lengths, which the session remembers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.table.deletions import load_deletions
from tiltyard.table.gather import Gather
from tiltyard.table.nearest.distance import Vectors, squared_norms
from tiltyard.table.projection import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiltyard.table.fragment_columns import Rows
    from tiltyard.table.nearest.query import VectorQuery
    from tiltyard.table.snapshot import Snapshot

BLOCK_BYTES = 16 << 20
"""Bytes of vectors that one product runs over."""

SPARSE_SHARE = 4
"""Of a block in which less than one row in so many may be returned, only those rows are read."""

NORMS_SHARE = 4
"""Squared lengths are remembered where those of all rows take at most this part of the session's cache."""

NORMS_ENTRY_BYTES = 256
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Physical rows `start` to `stop` of the fragment at `position` of the version's list, which is number
    `order` of those searched.
    """

    order: int
    position: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of a block. `offsets`: their physical offsets; None where they are those from `start`.
    `lengths`: squared lengths, NaN for a row that is never returned (null, or with a null or NaN in it, or
    deleted, or filtered away); empty for bits. `usable`: the rows that may be returned, None for all; said
    apart only for bits.
    """

    vectors: Vectors
    start: int
    offsets: Offsets | None
    lengths: npt.NDArray[np.floating]
    usable: npt.NDArray[np.bool_] | None

    def offsets_at(self, rows: npt.NDArray[np.intp]) -> Offsets:
        """Physical offsets of these rows of the matrix."""
        return rows + self.start if self.offsets is None else self.offsets[rows]


class VectorColumn:
    """One vector column of a snapshot. Safe among threads."""

    def __init__(
        self, snapshot: Snapshot, query: VectorQuery, allowed: Mapping[int, npt.NDArray[np.uint32]] | None
    ) -> None:
        """`allowed`: sorted physical offsets of live rows that may be returned, by fragment id; None: all."""
        self._snapshot = snapshot
        self._dtype = query.vectors.dtype
        self._dimension = query.dimension
        self._allowed = allowed
        projection = project(snapshot.schema, [query.column])
        self._steps = projection.outputs[0].steps
        self._key = (projection.fields[0].id, query.column)
        self._columns = Gather(snapshot, projection.fields)
        self._row_bytes = max(1, self._dimension * self._dtype.itemsize)
        limit = snapshot.session.limits.cache_bytes // NORMS_SHARE
        self._keeps = snapshot.fragments.num_rows * 4 <= limit

    def blocks(self, positions: list[int], rows: npt.NDArray[np.int64]) -> list[Block]:
        """Blocks of these fragments in order; `rows`: physical rows of every fragment of the version."""
        step = max(1, BLOCK_BYTES // self._row_bytes)
        ids = self._snapshot.fragments.ids
        return [
            Block(order, position, start, min(start + step, int(rows[position])))
            for order, position in enumerate(positions)
            if self._allowed is None or int(ids[position]) in self._allowed
            for start in range(0, int(rows[position]), step)
        ]

    def read(self, block: Block) -> Matrix | None:
        """The rows of a block that may be returned, perhaps among others; None where there are none."""
        chosen = self._chosen(block)
        if chosen is not None:
            if not len(chosen):
                return None
            if len(chosen) * SPARSE_SHARE < block.stop - block.start:
                return self._matrix(block, chosen, None)
        return self._matrix(block, slice(block.start, block.stop), chosen)

    def vectors_at(self, position: int, offsets: Offsets) -> Vectors:
        """The vectors at ascending physical offsets of a fragment, none of which is null."""
        return self._vectors(position, offsets)[0]

    def _chosen(self, block: Block) -> Offsets | None:
        """Physical offsets of the block's rows that may be returned; None for all of them."""
        fragment = self._snapshot.fragments[block.position]
        if self._allowed is not None:
            allowed = self._allowed[fragment.id]
            low, high = np.searchsorted(allowed, [block.start, block.stop])
            return allowed[low:high].astype(np.int64)
        deleted = load_deletions(self._snapshot, fragment)
        if deleted is None:
            return None
        low, high = np.searchsorted(deleted, [block.start, block.stop])
        if low == high:
            return None
        live = np.ones(block.stop - block.start, dtype=bool)
        live[deleted[low:high].astype(np.int64) - block.start] = False
        return np.flatnonzero(live) + block.start

    def _matrix(self, block: Block, rows: Rows, chosen: Offsets | None) -> Matrix:
        vectors, nulls = self._vectors(block.position, rows)
        offsets = None if isinstance(rows, slice) else rows
        usable = None
        if chosen is not None:
            usable = np.zeros(len(vectors), dtype=bool)
            usable[chosen - block.start] = True
        if self._dtype == np.uint8:
            if nulls is not None:
                usable = ~nulls if usable is None else usable & ~nulls
            return Matrix(vectors, block.start, offsets, np.empty(0, np.float32), usable)
        lengths = self._lengths(block, vectors, nulls, offsets is None)
        if usable is not None:
            lengths = np.where(usable, lengths, lengths.dtype.type(np.nan))
        return Matrix(vectors, block.start, offsets, lengths, None)

    def _lengths(
        self, block: Block, vectors: Vectors, nulls: npt.NDArray[np.bool_] | None, is_whole: bool
    ) -> npt.NDArray[np.floating]:
        def make() -> tuple[npt.NDArray[np.floating], int]:
            found = squared_norms(vectors)
            if nulls is not None:
                found[nulls] = np.nan
            return found, found.nbytes + NORMS_ENTRY_BYTES

        if not is_whole or not self._keeps:
            return make()[0]
        # Files are never changed in place, so a path says which vectors they are (D37).
        whole = self._columns.whole(self._snapshot.fragments[block.position])
        if whole is None:
            return make()[0]
        key = (self._snapshot.store.identity, whole[0].path, "lengths", *self._key, block.start, block.stop)
        found: npt.NDArray[np.floating] = self._snapshot.session.cache.get_or(key, make)
        return found

    def _vectors(self, position: int, rows: Rows) -> tuple[Vectors, npt.NDArray[np.bool_] | None]:
        """The matrix (rows, dimension), and which rows are null or hold a null, where there are any."""
        array = self._columns.read(self._snapshot.fragments[position], rows)[0]
        for step in self._steps:
            at = array.type.get_field_index(step)
            array = array.field(at) if array.null_count == 0 else array.flatten()[at]
        values = array.values
        count = len(array) * self._dimension
        start = (array.offset * self._dimension + values.offset) * self._dtype.itemsize
        if count:
            matrix = np.frombuffer(values.buffers()[1], self._dtype, count, start)
        else:
            matrix = np.empty(0, self._dtype)
        return matrix.reshape(len(array), self._dimension), _nulls(array, values, self._dimension)


def _nulls(array: Any, values: Any, dimension: int) -> npt.NDArray[np.bool_] | None:
    found = None
    if array.null_count:
        found = array.is_null().to_numpy(zero_copy_only=False)
    if values.null_count and dimension:
        inner = values.slice(array.offset * dimension, len(array) * dimension).is_null()
        holes = inner.to_numpy(zero_copy_only=False).reshape(len(array), dimension).any(axis=1)
        found = holes if found is None else found | holes
    return found
