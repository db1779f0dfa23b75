"""Loaders in the worker processes of Torch's `DataLoader`: the real one where Torch is installed, else one
that does with its workers what that does.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard import Loader
from tiltyard.errors import InvalidInput

ROWS = 1003
HAS_TORCH = importlib.util.find_spec("torch") is not None
OPTIONS: dict[str, Any] = {
    "columns": ["n"],
    "batch_size": 64,
    "shuffle": True,
    "seed": 3,
    "block_rows": 40,
    "buffer_rows": 200,
    "to": "dlpack",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Numbers in fragments of 200."""
    where = str(tmp_path_factory.mktemp("torch") / "t.lance")
    lance.write_dataset(pa.table({"n": range(ROWS)}), where, max_rows_per_file=200)
    return where


class StandIn:
    """A `DataLoader` without batches of its own: in each worker it iterates a copy of the dataset, and takes
    batches of the workers in turn.
    """

    def __init__(self, dataset: Any, workers: int, context: str | None, persistent: bool) -> None:
        self._dataset, self._workers = dataset, workers
        self._context: Any = multiprocessing.get_context(context)
        self._persistent = persistent
        self._crew: list[tuple[Any, Any]] = []

    def __iter__(self) -> Iterator[Any]:
        if not self._workers:
            yield from self._dataset
            return
        crew = self._crew or [self._hired(number) for number in range(self._workers)]
        self._crew = crew if self._persistent else []
        try:
            yield from self._pass(crew)
        finally:
            if not self._persistent:
                self.close(crew)

    @staticmethod
    def _pass(crew: list[tuple[Any, Any]]) -> Iterator[Any]:
        for _, line in crew:
            line.send("pass")
        going = list(crew)
        while going:
            for process, line in list(going):
                kind, value = line.recv()
                if kind == "batch":
                    yield value
                else:
                    going.remove((process, line))
                if kind == "error":
                    raise value

    def _hired(self, number: int) -> tuple[Any, Any]:
        ours, theirs = self._context.Pipe()
        given = (self._dataset, number, self._workers, theirs)
        process = self._context.Process(target=_work, args=given, daemon=True)
        process.start()
        return process, ours

    def close(self, crew: Any = None) -> None:
        """Send the workers home."""
        for process, line in self._crew if crew is None else crew:
            line.send("end")
            process.join()


def _work(dataset: Any, number: int, workers: int, line: Any) -> None:
    data: Any = ModuleType("torch.utils.data")
    data.IterableDataset = type("IterableDataset", (), {})
    data.get_worker_info = lambda: SimpleNamespace(id=number, num_workers=workers, seed=number)
    sys.modules["torch.utils.data"] = data
    while line.recv() == "pass":
        try:
            for batch in dataset:
                line.send(("batch", batch))
            line.send(("over", None))
        except Exception as error:  # as Torch does, whatever it is
            line.send(("error", error))


def feeding(loader: Loader, workers: int, context: str | None = None, persistent: bool = False) -> Any:
    """A `DataLoader` of the loader."""
    if not HAS_TORCH:
        return StandIn(loader, workers, context, persistent)
    from torch.utils.data import DataLoader

    options = {"multiprocessing_context": context, "persistent_workers": persistent} if workers else {}
    return DataLoader(loader, batch_size=None, num_workers=workers, **options)


def numbers(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in np.asarray(batch["n"])]


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_workers_that_stay_share_each_pass_and_go_on_by_themselves(context: str, place: str) -> None:
    fed = feeding(Loader(place, **OPTIONS), 2, context, persistent=True)
    first, second = numbers(fed), numbers(fed)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    if isinstance(fed, StandIn):
        fed.close()


def test_workers_that_are_made_anew_begin_with_the_epoch_that_was_set(place: str) -> None:
    loader = Loader(place, **OPTIONS)
    fed = feeding(loader, 2, "fork")
    first, again = numbers(fed), numbers(fed)
    assert first == again
    loader.set_epoch(1)
    other = numbers(fed)
    assert sorted(other) == list(range(ROWS))
    assert other != first


def test_ranks_and_workers_share_the_rows(place: str) -> None:
    found = []
    for rank in range(2):
        loader = Loader(place, rank=rank, world_size=2, even=True, **OPTIONS)
        found.append(numbers(feeding(loader, 2, "fork")))
        assert len(found[-1]) == ROWS // 4 * 2
    assert len({*found[0], *found[1]}) == ROWS // 4 * 4


def test_a_pass_goes_on_where_it_was(place: str) -> None:
    loader = Loader(place, **OPTIONS)
    whole = numbers(feeding(Loader(place, **OPTIONS), 0))
    batches = iter(feeding(loader, 0))
    begun = numbers(next(batches) for _ in range(5))
    again = Loader(place, **OPTIONS)
    again.load_state_dict(loader.state_dict())
    assert begun + numbers(feeding(again, 0)) == whole
    assert len(whole) == ROWS


def test_workers_refuse_the_place_of_another_share(place: str) -> None:
    loader = Loader(place, **OPTIONS)
    next(iter(loader))
    again = Loader(place, **OPTIONS)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(InvalidInput, match="shards = 1"):
        numbers(feeding(again, 2, "fork"))


def test_the_reader_of_torch_takes_what_loaders_give(place: str) -> None:
    batch = next(iter(feeding(Loader(place, **OPTIONS), 0)))
    if HAS_TORCH:
        import torch

        assert isinstance(batch["n"], torch.Tensor)
        assert isinstance(Loader(place), torch.utils.data.IterableDataset)
    else:
        assert batch["n"].flags.writeable
        assert len(np.from_dlpack(batch["n"])) == 64
