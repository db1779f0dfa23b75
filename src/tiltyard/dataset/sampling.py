"""Samples of a table, and samplers: which batches one of several workers reads, and in which order.

Chance is a function of the seed and the epoch alone, so that every worker draws the same and a run can be
repeated.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.lance_dataset import LanceDataset, dataset
from tiltyard.dataset.loader_plan import chance
from tiltyard.errors import InvalidInput, MissingPackage
from tiltyard.table.projection import ROW_ID
from tiltyard.table.streaming import rechunked

if TYPE_CHECKING:
    from tiltyard.dataset.fragment import LanceFragment

SAMPLE_ROWS = 10240
"""Rows of a batch of a sample."""
MAX_TAKES = 2048
"""Places of the table that a sample reads from at most."""
SAMPLER_ROWS = 128
SHUFFLED_BATCHES = 256
"""Batches among which a stream is shuffled that cannot be cut up beforehand."""
MAX_WORKERS = 1 << 20

T = TypeVar("T")


def opened(data: Any) -> LanceDataset:
    """A dataset: given as one, as what holds one (`.dataset`), or as its path or URI."""
    if isinstance(data, (str, os.PathLike)):
        return dataset(data)
    held = getattr(data, "dataset", None)
    return arguments.instance("dataset", held if isinstance(held, LanceDataset) else data, LanceDataset)


# -- one sample ------------------------------------------------------------------------------------------


def maybe_sample(
    dataset: Any,
    n: int,
    columns: Any,
    batch_size: int = SAMPLE_ROWS,
    max_takes: int = MAX_TAKES,
    filt: str | None = None,
) -> Iterator[Any]:
    """`n` rows chosen at random, each at most once, as `pa.RecordBatch`es of `batch_size` rows; all rows, in
    order, where there are no more than that.

    Up to `max_takes` rows are chosen one by one; more come as runs of neighbours from that many parts of the
    table. With a filter each row that passes is as likely as any other.
    """
    ds = opened(dataset)
    wanted = arguments.whole("n", n)
    names = [columns] if isinstance(columns, str) else arguments.columns("columns", columns)
    rows = arguments.whole("batch_size", batch_size, 1, arguments.MAX_U32)
    places = arguments.whole("max_takes", max_takes, 1)
    total = ds.count_rows()
    if wanted >= total:
        yield from ds.to_batches(names, filt, batch_size=rows)
        return
    generator = chance(runtime.random().getrandbits(64))
    if filt is not None:
        ids = ds.to_table([], filt, with_row_id=True)[ROW_ID].to_numpy()
        if len(ids) > wanted:
            ids = generator.choice(ids, wanted, replace=False)
        for start in range(0, len(ids), rows):
            yield _one(ds._take_rows(ids[start : start + rows], names))
        return
    if wanted > places:
        numbers = runs(total, wanted, places, generator)
    else:
        numbers = generator.choice(total, wanted, replace=False)
    for start in range(0, wanted, rows):
        yield _one(ds.take(numbers[start : start + rows], names))


def runs(total: int, wanted: int, places: int, generator: Any) -> Any:
    """`wanted` of `total` row numbers (int64, ascending) in `places` runs, one somewhere in each of as many
    parts of the table of like size.
    """
    firsts = np.arange(places + 1) * total // places
    lengths = np.diff(np.arange(places + 1) * wanted // places)
    lengths = np.minimum(lengths, np.diff(firsts))
    room = np.diff(firsts) - lengths
    starts = firsts[:-1] + generator.integers(0, room + 1)
    numbers = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    short = wanted - len(numbers)
    if short:  # parts of unequal size: the rest comes from what is left
        left = np.setdiff1d(np.arange(total), numbers, assume_unique=True)
        numbers = np.sort(np.concatenate([numbers, generator.choice(left, short, replace=False)]))
    return numbers


def _one(table: Any) -> Any:
    """A table as one batch."""
    found = list(rechunked(iter(table.to_batches()), max(1, table.num_rows), table.schema))
    return found[0] if found else pa.RecordBatch.from_pylist([], table.schema)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """`k` of the values of a stream, each as likely as any other; all of them where there are fewer."""
    size = arguments.whole("k", k)
    generator = chance(runtime.random().getrandbits(64))
    held: list[T] = []
    for at, value in enumerate(stream):
        if at < size:
            held.append(value)
        elif (slot := int(generator.integers(0, at + 1))) < size:
            held[slot] = value
    return held


# -- samplers ----------------------------------------------------------------------------------------------


class Sampler(ABC):
    """Gives the `pa.RecordBatch`es of a dataset that a worker is to read, in its order."""

    @abstractmethod
    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = SAMPLER_ROWS,
        columns: Any = None,
        filter: Any = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """The batches."""


class FragmentSampler(Sampler):
    """Reads whole fragments: those that `iter_fragments` gives."""

    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = SAMPLER_ROWS,
        columns: Any = None,
        filter: Any = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """The batches of the fragments; other arguments go to `iter_fragments`."""
        chosen = list(self.iter_fragments(dataset, *args, **kwargs))
        if chosen:
            yield from dataset.to_batches(
                columns, filter, batch_size=batch_size, with_row_id=bool(with_row_id), fragments=chosen
            )

    @abstractmethod
    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """The fragments, in the order in which they are read."""


class FullScanSampler(FragmentSampler):
    """Reads everything, in table order."""

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """All fragments."""
        yield from dataset.get_fragments()


class _Sharded:
    """What is shared by the samplers of one of several workers."""

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        self._world_size = arguments.whole("world_size", world_size, 1, MAX_WORKERS)
        self._rank = arguments.whole("rank", rank)
        if self._rank >= self._world_size:
            raise InvalidInput(f"rank must be below world_size, found {self._rank} of {self._world_size}")
        self._randomize = arguments.flag("randomize", randomize)
        self._seed = arguments.whole("seed", seed)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which pass over the data this is; each has an order of its own where the sampler randomizes."""
        self._epoch = arguments.whole("epoch", epoch)

    def _shuffled(self, values: list[T]) -> list[T]:
        if not self._randomize:
            return values
        return [values[at] for at in chance(self._seed, self._epoch).permutation(len(values))]


class ShardedFragmentSampler(_Sharded, FragmentSampler):
    """Reads every `world_size`-th fragment, from number `rank` on, of all of them or of all of them shuffled.

    It reads whole fragments, which is the fastest; the workers' shares are as even as the fragments.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedFragmentSampler:
        """With rank and world size of `torch.distributed`."""
        return ShardedFragmentSampler(*torch_rank(), randomize=randomize, seed=seed)

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """The worker's fragments."""
        yield from self._shuffled(dataset.get_fragments())[self._rank :: self._world_size]


class ShardedBatchSampler(_Sharded, Sampler):
    """Reads every `world_size`-th run of `batch_size` rows, from number `rank` on, in order or shuffled.

    With a filter the runs are not known beforehand: then each worker looks at all rows that pass, keeps every
    `world_size`-th of them, and shuffles its batches as they come, among so many as fit its memory.
    """

    _len = 0

    def __len__(self) -> int:
        return self._len

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedBatchSampler:
        """With rank and world size of `torch.distributed`."""
        return ShardedBatchSampler(*torch_rank(), randomize=randomize, seed=seed)

    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = SAMPLER_ROWS,
        columns: Any = None,
        filter: Any = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """The worker's batches."""
        rows = arguments.whole("batch_size", batch_size, 1, arguments.MAX_U32)
        row_id = bool(arguments.maybe_flag("with_row_id", with_row_id))
        if filter is None:
            return self._runs(dataset, columns, rows, row_id)
        return self._filtered(dataset, columns, filter, rows, row_id)

    def _runs(self, ds: LanceDataset, columns: Any, rows: int, row_id: bool) -> Iterator[Any]:
        starts = range(self._rank * rows, ds.count_rows(), self._world_size * rows)
        for start in self._shuffled(list(starts)):
            yield from ds.to_batches(
                columns, offset=start, limit=rows, batch_size=rows, strict_batch_size=True, with_row_id=row_id
            )

    def _filtered(
        self, ds: LanceDataset, columns: Any, filter: Any, rows: int, row_id: bool
    ) -> Iterator[Any]:
        scanner = ds.scanner(columns, filter, with_row_id=row_id)
        stream = rechunked(self._every_nth(scanner.to_batches()), rows, scanner.projected_schema)
        if not self._randomize:
            yield from stream
            return
        generator = chance(self._seed, self._epoch)
        held: list[Any] = []
        for batch in stream:
            if len(held) < SHUFFLED_BATCHES:
                held.append(batch)
                continue
            slot = int(generator.integers(0, len(held)))
            yield held[slot]
            held[slot] = batch
        for at in generator.permutation(len(held)):
            yield held[at]

    def _every_nth(self, stream: Iterator[Any]) -> Iterator[Any]:
        skip = self._rank
        for batch in stream:
            picked = np.arange(skip, batch.num_rows, self._world_size)
            skip = (skip - batch.num_rows) % self._world_size
            if len(picked):
                yield batch.take(pa.array(picked))


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """Gives batches of row numbers, for who takes the rows himself: the table's `total_num_rows` rows are cut
    into one run of neighbours a worker, and that into batches of `batch_size`.

    Called with a dataset it reads as `ShardedBatchSampler` does.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        randomize: bool = False,
        seed: int = 0,
        batch_size: int = 0,
        total_num_rows: int = 0,
    ) -> None:
        super().__init__(rank, world_size, randomize, seed)
        self._rows = arguments.whole("batch_size", batch_size)
        self._total = arguments.whole("total_num_rows", total_num_rows)
        if self._total and not self._rows:
            raise InvalidInput("batch_size must be positive where total_num_rows is given")
        share = -(-self._total // self._world_size)
        start = min(self._rank * share, self._total)
        self._share = range(start, min(start + share, self._total))
        self._len = -(-len(self._share) // self._rows) if self._rows else 0

    def __iter__(self) -> Iterator[list[int]]:
        share = self._share
        starts = range(share.start, share.stop, self._rows or 1)
        for start in self._shuffled(list(starts)):
            yield list(range(start, min(start + self._rows, share.stop)))

    @staticmethod
    def from_torch(  # type: ignore[override]
        batch_size: int, total_num_rows: int, randomize: bool = False, seed: int = 0
    ) -> ShardedFixedBatchSampler:
        """With rank and world size of `torch.distributed`."""
        return ShardedFixedBatchSampler(*torch_rank(), randomize, seed, batch_size, total_num_rows)


def torch_rank() -> tuple[int, int]:
    """Rank and world size of this process in `torch.distributed`. Raises `MissingPackage` without Torch."""
    try:
        distributed = import_module("torch.distributed")
    except ImportError as error:
        raise MissingPackage(
            "from_torch asks torch.distributed for rank and world size, and Torch is not installed here: pip "
            "install torch, or give rank and world_size"
        ) from error
    return int(distributed.get_rank()), int(distributed.get_world_size())
