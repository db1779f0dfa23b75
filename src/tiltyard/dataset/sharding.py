"""One table shared among workers: each reads every n-th fragment, or every n-th run of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.lance_dataset import LanceDataset, dataset
from tiltyard.errors import InvalidInput

if TYPE_CHECKING:
    from tiltyard.dataset.fragment import LanceFragment

DEFAULT_BATCH_ROWS = 10240
MAX_WORKERS = 1 << 20


class ShardedBatchIterator:
    """The part of a table that worker `rank` of `world_size` reads, as `pa.RecordBatch`es.

    With granularity `fragment` the worker reads the fragments whose place in the version's list is `rank`
    modulo `world_size`; with `batch` the runs of `batch_size` rows, counted over the whole table, whose
    number is. Iterate it as often as you like: the version is settled when it is made.
    """

    def __init__(
        self,
        data: Any,
        rank: int,
        world_size: int,
        *,
        columns: Any = None,
        batch_size: int = DEFAULT_BATCH_ROWS,
        granularity: str = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        """`data`: a dataset, or the path or URI of one. `batch_readahead` has no effect."""
        self._workers = arguments.whole("world_size", world_size, 1, MAX_WORKERS)
        self._rank = arguments.whole("rank", rank)
        if self._rank >= self._workers:
            raise InvalidInput(f"rank must be below world_size, found {self._rank} of {self._workers}")
        self._rows = arguments.whole("batch_size", batch_size, 1, arguments.MAX_U32)
        self._by_fragment = arguments.one_of("granularity", granularity, "fragment", "batch") == "fragment"
        arguments.maybe_whole("batch_readahead", batch_readahead)
        self._columns = arguments.columns("columns", columns)
        self._row_id = arguments.flag("with_row_id", with_row_id)
        if isinstance(data, (str, os.PathLike)):
            data = dataset(data)
        found = arguments.instance("data", data, LanceDataset)
        self._data: LanceDataset = found._pinned(found._snapshot)

    def __iter__(self) -> Iterator[Any]:
        return self._fragments() if self._by_fragment else self._runs()

    def _fragments(self) -> Iterator[Any]:
        chosen = self._data.get_fragments()[self._rank :: self._workers]
        if chosen:
            yield from self._scan(fragments=chosen)

    def _runs(self) -> Iterator[Any]:
        fragments: list[LanceFragment] = self._data.get_fragments()
        step = self._rows * self._workers
        for start in range(self._rank * self._rows, sum(each.count_rows() for each in fragments), step):
            yield from self._scan(offset=start, limit=self._rows)

    def _scan(self, **choice: Any) -> Iterator[Any]:
        return self._data.to_batches(self._columns, batch_size=self._rows, with_row_id=self._row_id, **choice)
