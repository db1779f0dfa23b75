"""Batches for training: shuffled, shared among workers, resumable. Torch is not needed, and its `DataLoader`
takes a `Loader` as one of its iterable datasets.

What is read when is settled by `loader_plan`; a pool is read ahead while the one before is consumed.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.loader_plan import Order, Pools, Shard
from tiltyard.dataset.sampling import MAX_WORKERS, opened, torch_rank
from tiltyard.dataset.scanner import ScannerBuilder, build
from tiltyard.dataset.tensors import as_numpy, as_tensors
from tiltyard.errors import ForkedHandle, InvalidInput, WrongType
from tiltyard.table.dictionaries import united
from tiltyard.table.row_counts import live_rows
from tiltyard.table.streaming import joined

if TYPE_CHECKING:
    from typing import Self

    from tiltyard.table.scan import Scan

BATCH_ROWS = 1024
BLOCK_ROWS = 1024
BUFFER_ROWS = 1 << 16
TORCH = "torch.utils.data"
STATE = ("version", "epoch", "pool", "row", "plan")
MAX_ROWS = (1 << 31) - 1

_made: dict[tuple[type, type], type] = {}
"""Classes that are ours and Torch's."""

_KINDS = {"arrow": lambda batch: batch, "numpy": as_numpy, "dlpack": as_tensors}


class Loader:
    """Iterate it for one pass over the rows of a table, as seen at one version; each pass is an epoch.

    `data`: a dataset, a `Table`, or the path or URI of one. `columns` and `filter` as for a scan.

    `shuffle`: rows come in an order that `seed` and the epoch settle: blocks of `block_rows` neighbours are
    shuffled over the whole table, and rows within a buffer of `buffer_rows`. `set_epoch` chooses the epoch;
    after a whole pass the next one follows by itself, after one that was broken off the same again.

    `rank` of `world_size`: this process reads its part of the rows; parts differ by one row at most, before
    the filter. `worker` of `workers` cuts that part once more; in a worker process of Torch's `DataLoader`
    they are known. `even`: all parts have the same number of rows (a few are left out), so that no process
    waits for others; not with a filter. `drop_last` leaves out the last batch of a part if it is short.

    `to`: `arrow` (`pa.RecordBatch`), `numpy` (a dict of arrays), `dlpack` (a dict of writable arrays for
    `torch.from_dlpack` and the like), or a function of a `pa.RecordBatch`.

    `state_dict()` tells where the pass is that was begun last; after `load_state_dict(state)` in a loader
    made alike, the next pass goes on there, with the very batch that would have come.
    """

    def __init__(
        self,
        data: Any,
        *,
        columns: Any = None,
        filter: Any = None,
        batch_size: int = BATCH_ROWS,
        shuffle: bool = False,
        seed: int = 0,
        buffer_rows: int = BUFFER_ROWS,
        block_rows: int = BLOCK_ROWS,
        rank: int = 0,
        world_size: int = 1,
        worker: int | None = None,
        workers: int | None = None,
        even: bool = False,
        drop_last: bool = False,
        with_row_id: bool = False,
        to: Any = "arrow",
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        found = opened(data)
        self._ds: Any = found._pinned(found._snapshot)
        self._given = {**given, "data": self._ds}
        self._rows = arguments.whole("batch_size", batch_size, 1, MAX_ROWS)
        shuffles = arguments.flag("shuffle", shuffle)
        self._order = Order(
            arguments.whole("seed", seed) if shuffles else None,
            arguments.whole("block_rows", block_rows, 1, MAX_ROWS),
            arguments.whole("buffer_rows", buffer_rows, 1, MAX_ROWS),
        )
        self._rank = _part("rank", rank, "world_size", world_size)
        if (worker is None) != (workers is None):
            raise InvalidInput("give both worker and workers, or neither")
        self._worker = None if worker is None else _part("worker", worker, "workers", workers)
        self._even = arguments.flag("even", even)
        if self._even and filter is not None:
            raise InvalidInput(
                "even cannot be combined with a filter: how many rows of each part pass is not known before "
                "they are read"
            )
        self._drop_last = arguments.flag("drop_last", drop_last)
        self._options = {"columns": columns, "filter": filter, "with_row_id": with_row_id}
        if not callable(to):
            _check_kind(to)
        self._convert = to if callable(to) else _KINDS[to]
        self._scan()  # raises what is wrong with the columns and the filter
        self._epoch = 0
        self._begin = (0, 0)
        self._loaded: dict[str, Any] | None = None
        """What settles the meaning of `_begin`, where it came from elsewhere."""
        self._pass: _Pass | None = None

    def __repr__(self) -> str:
        defaults = {each.name: each.default for each in signature(Loader).parameters.values()}
        told = [
            f"{name}={value!r}"
            for name, value in self._given.items()
            if name != "data" and not (type(value) is type(defaults[name]) and value == defaults[name])
        ]
        place = [f"version={self.version}", f"epoch={self._epoch}"]
        return f"Loader({', '.join([repr(self._ds.uri), *place, *told])})"

    @classmethod
    def from_torch(cls, data: Any, **options: Any) -> Self:
        """With rank and world size of `torch.distributed`. Raises `MissingPackage` without Torch."""
        rank, world_size = torch_rank()
        return cls(data, rank=rank, world_size=world_size, **options)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Torch's `DataLoader` asks `isinstance` whether a dataset is iterable."""
        torch = sys.modules.get(TORCH)
        base = getattr(torch, "IterableDataset", None)
        return type(self) if base is None else _iterable(type(self), base)

    def __reduce__(self) -> Any:
        return _remade, (type(self), self._given, self.state_dict())

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        found: int = self._ds.version
        return found

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin the next pass with this epoch; where the epoch is another one, at its beginning."""
        chosen = arguments.whole("epoch", epoch)
        if chosen != self._epoch:
            self._epoch, self._begin, self._loaded, self._pass = chosen, (0, 0), None, None

    def __len__(self) -> int:
        """Batches of a pass: of the part of this process, or of this worker of it. Raises with a filter."""
        if self._options["filter"] is not None:
            raise WrongType(
                "a loader with a filter has no length: how many rows pass is known after the pass"
            )
        low, high = self._shard().bounds(int(live_rows(self._ds._held).sum()))
        rows = high - low
        return rows // self._rows if self._drop_last else -(-rows // self._rows)

    def __iter__(self) -> Iterator[Any]:
        if self._loaded is not None:
            self._check_plan(self._loaded)
        self._pass = _Pass(self, self._epoch, self._begin)
        self._begin, self._loaded = (0, 0), None
        return self._pass

    # -- resuming --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the pass begun last is, behind the batches that it gave: plain values, fit for JSON."""
        epoch, (pool, row) = self._epoch, self._begin
        if self._pass is not None and not self._pass.is_over:
            epoch, (pool, row) = self._pass.epoch, self._pass.place
        return {"version": self.version, "epoch": epoch, "pool": pool, "row": row, "plan": self._plan()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another loader was. Raises `InvalidInput` where it read another version, or in another
        order or share: then the place means other rows.
        """
        state = arguments.mapping("state_dict", state_dict)
        if set(state) != set(STATE):
            raise InvalidInput(
                f"a state of a loader has {', '.join(STATE)}; found {', '.join(sorted(state))}"
            )
        version = arguments.whole("the state's version", state["version"])
        if version != self.version:
            raise InvalidInput(
                f"the state is of version {version} of the table, and this loader reads version "
                f"{self.version}: open the dataset at that version"
            )
        plan = arguments.mapping("the state's plan", state["plan"])
        self._check_plan(plan)
        place = [arguments.whole(f"the state's {name}", state[name]) for name in ("epoch", "pool", "row")]
        epoch, pool, row = place
        self._check_place(epoch, pool, row)
        self._epoch, self._begin, self._loaded = epoch, (pool, row), plan
        self._pass = None

    def _check_place(self, epoch: int, pool: int, row: int) -> None:
        pools = Pools(live_rows(self._ds._held), self._order, self._shard(), epoch)
        if pool >= max(1, len(pools)):
            raise InvalidInput(
                f"the state's pool must be below {len(pools)}, the pools of this pass, found {pool}: give "
                "the state as state_dict() gave it"
            )
        rows = pools.rows_of(pool)
        if row > rows:
            raise InvalidInput(
                f"the state's row must be at most {rows}, the rows of pool {pool}, found {row}: give the "
                "state as state_dict() gave it"
            )

    def _check_plan(self, plan: Mapping[str, Any]) -> None:
        for name, value in self._plan().items():
            if plan.get(name) != value:
                raise InvalidInput(
                    f"the state is of a loader with {name} = {plan.get(name)!r}, and this one has {value!r}: "
                    "make it alike, or begin anew (each worker of a DataLoader has a state of its own)"
                )

    def _plan(self) -> dict[str, Any]:
        """What settles the meaning of a place."""
        shard, order = self._shard(), self._order
        condition = self._options["filter"]
        return {
            "shards": shard.count,
            "shard": shard.number,
            "seed": order.seed,
            "block_rows": order.block_rows,
            "buffer_rows": order.pool_rows,
            "even": shard.is_even,
            "filter": None if condition is None else str(condition),
        }

    # -- reading ---------------------------------------------------------------------------------

    def _shard(self) -> Shard:
        rank, world_size = self._rank
        worker, workers = self._worker or _torch_worker()
        return Shard(rank * workers + worker, world_size * workers, self._even)

    def _scan(self) -> Scan:
        found: Any = build(ScannerBuilder(None, self._ds._held), self._options)._scan
        return found


class _Pass:
    """One pass: an iterator of batches that knows its place."""

    def __init__(self, loader: Loader, epoch: int, place: tuple[int, int]) -> None:
        self.epoch = epoch
        self.place = place
        self.is_over = False
        self._loader = loader
        self._scan = loader._scan()
        self._pools = Pools(live_rows(loader._ds._held), loader._order, loader._shard(), epoch)
        self._process = runtime.process_id()
        self._next, self._skip = place
        self._held: deque[tuple[int, int, Any]] = deque()
        """Batches that were read: (pool, number of the first row in it, rows)."""
        self._count = 0
        self._ahead: Any = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        wanted = self._loader._rows
        if self._process != runtime.process_id():
            raise ForkedHandle("this pass was begun in the parent process; iterate the loader in the child")
        while self._count < wanted and self._fill():
            pass
        if not self._count or (self._loader._drop_last and self._count < wanted):
            self._end()
            raise StopIteration
        return self._loader._convert(self._taken(min(wanted, self._count)))

    def state_dict(self) -> dict[str, Any]:
        """See `Loader.state_dict`."""
        return self._loader.state_dict()

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._held.clear()
            self._count = 0
            if self._loader._pass is self:
                self._loader._epoch, self._loader._begin = self.epoch + 1, (0, 0)

    def _fill(self) -> bool:
        """Read the next pool; False where there is none."""
        pool = self._next
        if self.is_over or pool >= len(self._pools):
            return False
        batches = self._read(pool) if self._ahead is None else self._ahead.join()
        self._next += 1
        self._ahead = runtime.spawn(self._read, self._next) if self._next < len(self._pools) else None
        row = 0
        for batch in batches:
            rest = batch.slice(max(0, self._skip - row)) if self._skip > row else batch
            first = row + batch.num_rows - rest.num_rows
            if rest.num_rows:
                self._held.append((pool, first, rest))
                self._count += rest.num_rows
            row += batch.num_rows
        self._skip = 0
        return True

    def _read(self, pool: int) -> list[Any]:
        """The rows of a pool, in their order."""
        found = self._scan.read(self._pools.units(pool))
        rows = sum(batch.num_rows for batch in found)
        order = self._pools.shuffled(pool, rows)
        if order is None or not rows or not len(self._scan.schema):
            return list(found)
        table = united(pa.Table.from_batches(found, self._scan.schema)).combine_chunks()
        taken: list[Any] = table.take(pa.array(order)).to_batches()
        return taken

    def _taken(self, rows: int) -> Any:
        parts = []
        while rows:
            pool, first, batch = self._held.popleft()
            part = batch.slice(0, rows)
            parts.append(part)
            rows -= part.num_rows
            self._count -= part.num_rows
            self.place = pool, first + part.num_rows
            if part.num_rows < batch.num_rows:
                self._held.appendleft((pool, first + part.num_rows, batch.slice(part.num_rows)))
        return joined(parts, self._scan.schema)


def _check_kind(to: Any) -> None:
    """Raise for what batches are not made into; some name the package that is to take them."""
    if isinstance(to, str) and to == "torch":
        raise InvalidInput(
            "to='torch' is not known, as Torch is not needed here: to='dlpack' gives a dict of arrays, each "
            "of which torch.from_dlpack(batch[name]) takes without a copy"
        )
    arguments.one_of("to", to, *_KINDS)


def _part(name: str, number: Any, of: str, count: Any) -> tuple[int, int]:
    total = arguments.whole(of, count, 1, MAX_WORKERS)
    found = arguments.whole(name, number)
    if found >= total:
        raise InvalidInput(f"{name} must be below {of}, found {found} of {total}")
    return found, total


def _torch_worker() -> tuple[int, int]:
    """The worker of Torch's `DataLoader` that this process is: its number, and how many there are."""
    torch = sys.modules.get(TORCH)
    info = None if torch is None else torch.get_worker_info()
    return (0, 1) if info is None else (int(info.id), int(info.num_workers))


def _iterable(ours: Any, base: Any) -> type:
    found = _made.get((ours, base))
    if found is None:
        found = types.new_class(ours.__name__, (ours, base))
        _made[ours, base] = found
    return found


def _remade(kind: Any, given: dict[str, Any], state: dict[str, Any]) -> Any:
    """A loader from its pickled form: made alike, at the same place."""
    made = kind(**given)
    made._epoch, made._begin = state["epoch"], (state["pool"], state["row"])
    made._loaded = state["plan"] if made._begin != (0, 0) else None
    return made
