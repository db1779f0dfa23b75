"""Sorting more values than memory should hold: runs are sorted and put aside in files, then merged.

A merge looks at a block of every run at a time. Whatever is not greater than the least of the blocks' last
values can be followed by nothing smaller: that much of every block is sorted together and handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.expr.arrays import valid_of
from tiltyard.format.concatenated import concatenated
from tiltyard.index.btree.layout import pages_schema
from tiltyard.index.order import Order, Texts
from tiltyard.runtime.scratch import Scratch

RUN_BLOCK_ROWS = 1 << 14
"""Rows of a run that a merge looks at at a time."""

RowIds = npt.NDArray[np.uint64]
Entries = tuple[pa.Array, RowIds]
"""Values, and beside each the id of its row."""


@dataclass(slots=True)
class _Held:
    """What came in and is not sorted yet."""

    values: list[pa.Array]
    ids: list[RowIds]
    nbytes: int = 0


class Sorter:
    """Takes entries in any order; `sorted` gives them in stored order. Sorts `run_bytes` bytes at a time and
    keeps `held_bytes` of what is sorted: the rest goes to a file without a name, until `discard`."""

    def __init__(self, order: Order, *, run_bytes: int, held_bytes: int) -> None:
        self._order = order
        self._run_bytes = run_bytes
        self._room = held_bytes
        self._kept: list[Entries] = []
        self._held = _Held([], [])
        self._scratch: Scratch | None = None
        self._runs: list[list[tuple[int, int]]] = []
        self._schema = pages_schema(order.type)

    def add(self, values: pa.Array, ids: RowIds) -> None:
        """Take some entries."""
        if not len(values):
            return
        self._held.values.append(values)
        self._held.ids.append(ids)
        self._held.nbytes += values.nbytes + ids.nbytes
        if self._held.nbytes >= self._run_bytes:
            self._put_aside()

    def sorted(self, others: Sequence[Iterable[Entries]] = ()) -> Iterator[Entries]:
        """Everything, and what other sorted sources give, in stored order."""
        sources = [*others, *map(_cut, self._kept)]
        if self._scratch is not None:
            mapped = self._scratch.map()
            sources += [self._run(mapped, pieces) for pieces in self._runs]
        if self._held.values:
            sources.append(_cut(_joined(self._taken(), self._order)))
        yield from merged(sources, self._order)

    def discard(self) -> None:
        """Give back memory and file."""
        self._held = _Held([], [])
        self._kept = []
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _taken(self) -> _Held:
        held, self._held = self._held, _Held([], [])
        return held

    def _put_aside(self) -> None:
        nbytes = self._held.nbytes
        values, ids = _joined(self._taken(), self._order)
        if nbytes <= self._room:
            self._room -= nbytes
            self._kept.append((values, ids))
            return
        if self._scratch is None:
            self._scratch = Scratch()
        batch = pa.RecordBatch.from_arrays([values, id_array(ids)], schema=self._schema)
        pieces = [
            self._scratch.append([batch.slice(start, RUN_BLOCK_ROWS).serialize()])
            for start in range(0, batch.num_rows, RUN_BLOCK_ROWS)
        ]
        self._runs.append(pieces)

    def _run(self, mapped: Any, pieces: list[tuple[int, int]]) -> Iterator[Entries]:
        for begin, size in pieces:
            batch = pa.ipc.read_record_batch(mapped.slice(begin, size), self._schema)
            yield batch.column(0), batch.column(1).to_numpy()


def _cut(run: Entries) -> Iterator[Entries]:
    values, ids = run
    for start in range(0, len(ids), RUN_BLOCK_ROWS):
        yield values.slice(start, RUN_BLOCK_ROWS), ids[start : start + RUN_BLOCK_ROWS]


def id_array(ids: RowIds) -> pa.Array:
    """Row ids as an array, not copied (`pa.array` would import pandas)."""
    return pa.Array.from_buffers(pa.uint64(), len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))])


def _joined(held: _Held, order: Order) -> Entries:
    """Entries as one array in stored order; equals stay in the order they came in."""
    values = concatenated(held.values)
    ids = held.ids[0] if len(held.ids) == 1 else np.concatenate(held.ids)
    held.values, held.ids = [], []
    valid = valid_of(values)
    if valid is None:
        return order.sorted(values, ids)
    rest, along = order.sorted(values.drop_null(), ids[valid])
    return concatenated([pa.nulls(values.null_count, values.type), rest]), np.concatenate(
        [ids[~valid], along]
    )


class _Source:
    """A sorted source and the part of its present block that was not handed on."""

    def __init__(self, blocks: Iterable[Entries], order: Order) -> None:
        self._blocks = iter(blocks)
        self._order = order
        self.values: pa.Array = pa.nulls(0, order.type)
        self.ids: RowIds = np.empty(0, np.uint64)
        self._keys: Any = order.keys(self.values)

    def nulls(self) -> Iterator[Entries]:
        """The leading nulls, block by block; after them the present block begins with another value."""
        while self._more():
            nulls = self.values.null_count
            if nulls:
                yield self.values.slice(0, nulls), self.ids[:nulls]
                self.values, self.ids = self.values.slice(nulls), self.ids[nulls:]
            if len(self.ids):
                self._keys = self._order.keys(self.values)
                return

    def fill(self) -> bool:
        """Have a block that is not empty; False at the end."""
        if len(self.ids):
            return True
        if not self._more():
            return False
        self._keys = self._order.keys(self.values)
        return True

    def _more(self) -> bool:
        for values, ids in self._blocks:
            if len(ids):
                self.values, self.ids = values, ids
                return True
        self.values, self.ids = self.values.slice(0, 0), self.ids[:0]
        return False

    @property
    def last(self) -> Any:
        """The key of the last value of the present block."""
        keys = self._keys
        return keys.at(len(keys) - 1) if isinstance(keys, Texts) else keys[-1]

    def up_to(self, key: Any) -> Entries | None:
        """Take what is not greater than `key`."""
        count = int(self._keys.searchsorted(key, "right"))
        if not count:
            return None
        taken = self.values.slice(0, count), self.ids[:count]
        self.values, self.ids = self.values.slice(count), self.ids[count:]
        self._keys = self._order.keys(self.values) if self._order.is_text else self._keys[count:]
        return taken

    def rest(self) -> Iterator[Entries]:
        """All that is left, for a source that is the only one."""
        while self.fill():
            yield self.values, self.ids
            self.values, self.ids = self.values.slice(0, 0), self.ids[:0]


def merged(blocks: Sequence[Iterable[Entries]], order: Order) -> Iterator[Entries]:
    """Sorted sources of entries as one; a source gives its entries in stored order, in blocks of any size."""
    sources = [_Source(each, order) for each in blocks]
    for source in sources:
        yield from source.nulls()
    while True:
        live = [source for source in sources if source.fill()]
        if not live:
            return
        if len(live) == 1:
            yield from live[0].rest()
            return
        cut = min(source.last for source in live)
        parts = [part for source in live if (part := source.up_to(cut)) is not None]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield _joined(_Held([part[0] for part in parts], [part[1] for part in parts]), order)
