"""Sorting more values than memory should hold: runs are sorted and put aside in files, then merged.

A merge looks at a block of every run at a time. Whatever is not greater than the least of the blocks' last
values can be followed by nothing smaller: that much of every block is sorted together and handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import StoreError
from tiltyard.expr.arrays import valid_of
from tiltyard.file import FileReader, FileWriter
from tiltyard.format.names import TEMPORARY
from tiltyard.format.schema import Schema
from tiltyard.index.btree.layout import pages_schema
from tiltyard.index.order import Order, Texts
from tiltyard.session import Session
from tiltyard.store.protocol import Store

MIN_BLOCK_ROWS = 1024
MAX_BLOCK_ROWS = 1 << 18
"""Rows of a run that a merge holds at a time, at least and at most."""

ID_BYTES = 8

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
    """Takes entries in any order; `sorted` gives them in stored order. Holds about `run_bytes` bytes: what is
    more goes to files `directory/.tmp-run-*`, which `discard` removes."""

    def __init__(
        self, store: Store, directory: str, session: Session, order: Order, *, run_bytes: int
    ) -> None:
        self._store = store
        self._directory = directory
        self._session = session
        self._order = order
        self._run_bytes = run_bytes
        self._held = _Held([], [])
        self._runs: list[str] = []
        self._rows = 0
        self._nbytes = 0

    def add(self, values: pa.Array, ids: RowIds) -> None:
        """Take some entries."""
        if not len(values):
            return
        nbytes = values.nbytes + ids.nbytes
        self._held.values.append(values)
        self._held.ids.append(ids)
        self._held.nbytes += nbytes
        self._rows += len(ids)
        self._nbytes += nbytes
        if self._held.nbytes >= self._run_bytes:
            self._put_aside()

    def sorted(self, others: Sequence[Iterable[Entries]] = ()) -> Iterator[Entries]:
        """Everything, and what other sorted sources give, in stored order."""
        sources: list[Iterable[Entries]] = list(others)
        rows = MAX_BLOCK_ROWS
        if self._runs:
            width = max(self._nbytes // max(self._rows, 1), 1)
            rows = self._run_bytes // (2 * width * (len(self._runs) + len(others) + 1))
            rows = min(max(rows, MIN_BLOCK_ROWS), MAX_BLOCK_ROWS)
        sources += [self._run(path, rows) for path in self._runs]
        if self._held.values:
            sources.append(iter([_joined(self._taken(), self._order)]))
        yield from merged(sources, self._order)

    def discard(self) -> None:
        """Remove the files; what cannot be removed is collected by age."""
        self._held = _Held([], [])
        for path in self._runs:
            with suppress(StoreError):
                self._store.delete(path)
        self._runs = []

    def _taken(self) -> _Held:
        held, self._held = self._held, _Held([], [])
        return held

    def _put_aside(self) -> None:
        values, ids = _joined(self._taken(), self._order)
        path = f"{self._directory}/{TEMPORARY}-run-{len(self._runs)}.lance"
        schema = pages_schema(self._order.type)
        with FileWriter(self._store, path, Schema.from_arrow(schema)) as file:
            self._runs.append(path)
            file.write(pa.RecordBatch.from_arrays([values, pa.array(ids)], schema=schema))
            file.close()

    def _run(self, path: str, rows: int) -> Iterator[Entries]:
        # Not through the session: its map would keep the space of a file that is soon removed.
        file = FileReader(self._store.map(path), path, self._session)
        for start in range(0, file.num_rows, rows):
            wanted = slice(start, min(start + rows, file.num_rows))
            values, ids = file.read(file.schema.fields, None, wanted)
            yield values, ids.to_numpy()


def _joined(held: _Held, order: Order) -> Entries:
    """Entries as one array in stored order; equals stay in the order they came in."""
    values = held.values[0] if len(held.values) == 1 else pa.concat_arrays(held.values)
    ids = held.ids[0] if len(held.ids) == 1 else np.concatenate(held.ids)
    held.values, held.ids = [], []
    valid = valid_of(values)
    if valid is None:
        at = order.argsort(values)
        return values.take(pa.array(at)), ids[at]
    present = np.flatnonzero(valid)
    inner = order.argsort(values.take(pa.array(present)))
    at = np.concatenate([np.flatnonzero(~valid), present[inner]])
    return values.take(pa.array(at)), ids[at]


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
        self._keys = self._order.keys(self.values)
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
