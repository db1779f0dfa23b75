"""Loaders: every row once a pass, in an order that can be repeated, shared and gone on with."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard
import tiltyard.lance as lance
from tiltyard import Loader
from tiltyard.dataset.loader_plan import Order, Pools, Shard
from tiltyard.errors import FieldNotFound, ForkedHandle, InvalidInput

ROWS = 2000
LIVE = [n for n in range(ROWS) if n % 9]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Numbers in fragments of 300, those divisible by 9 deleted, with vectors and texts of the number."""
    where = str(tmp_path_factory.mktemp("loader") / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(np.repeat(np.arange(ROWS, dtype=np.float32), 4), 4)
    words = pa.array([f"w{n % 5}" for n in range(ROWS)]).dictionary_encode()
    table = pa.table({"n": range(ROWS), "v": vectors, "s": [str(n) for n in range(ROWS)], "w": words})
    lance.write_dataset(table, where, max_rows_per_file=300).delete("n % 9 = 0")
    return where


def numbers(batches: Any) -> list[int]:
    return [value for batch in batches for value in batch["n"].to_pylist()]


SMALL: dict[str, Any] = {"batch_size": 64, "block_rows": 40, "buffer_rows": 200, "columns": ["n"]}

# -- the plan ------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 50), max_size=6),
    st.one_of(st.none(), st.integers(0, 3)),
    st.integers(1, 20),
    st.integers(1, 60),
    st.integers(1, 7),
    st.booleans(),
)
def test_the_parts_of_a_pass_hold_every_row_once(
    fragments: list[int], seed: int | None, block: int, pool: int, shards: int, is_even: bool
) -> None:
    live = np.array(fragments, np.int64)
    found: list[tuple[int, int]] = []
    sizes = []
    for number in range(shards):
        pools = Pools(live, Order(seed, block, pool), Shard(number, shards, is_even), 1)
        rows = []
        for at in range(len(pools)):
            units = pools.units(at)
            assert sum(unit.rows for unit in units) < pool + block
            rows += [(unit.fragment, row) for unit in units for row in range(unit.start, unit.stop)]
            assert [unit.first for unit in units] == [
                int(live[: unit.fragment].sum()) + unit.start for unit in units
            ]
        assert len(rows) == pools.rows
        sizes.append(len(rows))
        found += rows
    every = [(fragment, row) for fragment, count in enumerate(fragments) for row in range(count)]
    assert len(set(found)) == len(found)
    assert max(sizes) - min(sizes) <= (0 if is_even else 1)
    if not is_even:
        assert sorted(found) == every
    assert len(every) - len(found) < shards
    if seed is None:
        assert found == every[: len(found)]


# -- passes --------------------------------------------------------------------------------------------------


def test_without_shuffling_a_pass_is_the_table(place: str) -> None:
    ds = lance.dataset(place)
    choices: Any = ({}, {"filter": "n % 2 = 0"}, {"columns": ["s", "w"], "with_row_id": True})
    for options in choices:
        loader = Loader(ds, batch_size=100, buffer_rows=250, **options)
        batches = list(loader)
        whole = ds.to_table(**options)
        assert pa.Table.from_batches(batches, whole.schema) == whole
        assert [batch.num_rows for batch in batches[:-1]] == [100] * (len(batches) - 1)
    assert len(Loader(ds, batch_size=100)) == len(list(Loader(ds, batch_size=100))) == 18
    assert len(Loader(ds, batch_size=100, drop_last=True)) == 17
    assert [each.num_rows for each in Loader(ds, columns=[], batch_size=1000)] == [1000, 777]


def test_epochs_have_orders_of_their_own_that_can_be_repeated(place: str) -> None:
    loader = Loader(place, shuffle=True, seed=5, **SMALL)
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) == sorted(second) == LIVE
    assert first != second
    assert np.abs(np.diff(first)).mean() > 300  # blocks come from all over the table
    assert loader.epoch == 2
    loader.set_epoch(0)
    assert numbers(loader) == first
    assert numbers(Loader(place, shuffle=True, seed=5, **SMALL)) == first
    assert numbers(Loader(place, shuffle=True, seed=6, **SMALL)) != first


@pytest.mark.parametrize("filter", [None, "n > 500"])
def test_ranks_and_workers_share_the_rows(filter: str | None, place: str) -> None:
    found: list[int] = []
    for rank in range(3):
        for worker in range(2):
            loader = Loader(
                place, shuffle=True, rank=rank, world_size=3, worker=worker, workers=2, filter=filter, **SMALL
            )
            found += numbers(loader)
    assert sorted(found) == [n for n in LIVE if filter is None or n > 500]


def test_even_parts_give_the_same_number_of_batches(place: str) -> None:
    parts = [Loader(place, rank=rank, world_size=7, even=True, shuffle=True, **SMALL) for rank in range(7)]
    batches = [list(each) for each in parts]
    assert {len(each) for each in batches} == {len(parts[0])}
    assert {sum(batch.num_rows for batch in each) for each in batches} == {len(LIVE) // 7}


def test_every_column_of_a_row_stays_with_it(place: str) -> None:
    for batch in Loader(place, shuffle=True, batch_size=100, block_rows=7, buffer_rows=90):
        n = batch["n"].to_pylist()
        assert batch["s"].to_pylist() == [str(value) for value in n]
        assert batch["w"].to_pylist() == [f"w{value % 5}" for value in n]
        assert batch["v"].to_pylist() == [[float(value)] * 4 for value in n]


def test_a_loader_stays_at_its_version_and_takes_a_table_of_a_lake(tmp_path: Path) -> None:
    table = tiltyard.create_table(tmp_path / "t.lance", {"n": [1, 2, 3]})
    loader = Loader(table)
    table.append({"n": [4]})
    assert numbers(loader) == [1, 2, 3]
    assert numbers(Loader(table)) == [1, 2, 3, 4]
    empty = lance.write_dataset([], tmp_path / "e", schema=pa.schema({"n": pa.int64()}))
    assert list(Loader(empty, shuffle=True)) == []
    assert len(Loader(empty)) == 0


# -- going on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "filter": "n % 3 = 0"},
        {"shuffle": True, "rank": 1, "world_size": 2, "drop_last": True},
    ],
    ids=str,
)
def test_a_pass_goes_on_with_the_very_batch_that_would_have_come(options: dict[str, Any], place: str) -> None:
    made = {**SMALL, **options}
    whole = [numbers([batch]) for batch in Loader(place, **made)]
    for so_far in range(len(whole) + 1):
        loader = Loader(place, **made)
        stream = iter(loader)
        assert [numbers([next(stream)]) for _ in range(so_far)] == whole[:so_far]
        state = json.loads(json.dumps(loader.state_dict()))
        again = Loader(place, **made)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert [numbers([batch]) for batch in again] == whole[so_far:]
        assert again.epoch == 1


def test_a_pass_that_is_over_goes_on_with_the_next_epoch(place: str) -> None:
    loader = Loader(place, shuffle=True, **SMALL)
    numbers(loader)
    again = Loader(place, shuffle=True, **SMALL)
    again.load_state_dict(loader.state_dict())
    assert again.epoch == 1
    assert numbers(again) == numbers(loader)


def test_a_state_of_another_loader_is_refused(place: str, tmp_path: Path) -> None:
    state = Loader(place, shuffle=True, **SMALL).state_dict()
    for options in ({"seed": 1}, {"rank": 0, "world_size": 2}, {"filter": "n > 1"}):
        with pytest.raises(InvalidInput, match="make it alike"):
            Loader(place, shuffle=True, **{**SMALL, **options}).load_state_dict(state)
    with pytest.raises(InvalidInput, match="open the dataset at that version"):
        Loader(lance.dataset(place, version=1), shuffle=True, **SMALL).load_state_dict(state)
    with pytest.raises(InvalidInput, match="a state of a loader has"):
        Loader(place).load_state_dict({"epoch": 1})
    with pytest.raises(InvalidInput, match="the state's row"):
        Loader(place, shuffle=True, **SMALL).load_state_dict({**state, "row": -1})


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_behind_the_end_is_refused(shuffle: bool, place: str) -> None:
    loader = Loader(place, shuffle=shuffle, **SMALL)
    begun = iter(loader)
    for _ in range(2):
        next(begun)
    state = loader.state_dict()
    for part in ("pool", "row"):
        with pytest.raises(InvalidInput, match=f"the state's {part} must be .*found {1 << 40}"):
            loader.load_state_dict({**state, part: 1 << 40})
    loader.load_state_dict(state)
    assert numbers(loader) == [each for batch in begun for each in batch["n"].to_pylist()]


def test_a_pass_that_was_broken_off_comes_again_until_the_epoch_is_set(place: str) -> None:
    loader = Loader(place, shuffle=True, **SMALL)
    first = next(iter(loader))["n"].to_pylist()
    assert next(iter(loader))["n"].to_pylist() == first
    loader.set_epoch(loader.epoch + 1)
    assert next(iter(loader))["n"].to_pylist() != first


def test_a_loader_shows_what_it_reads(place: str) -> None:
    assert repr(Loader(place)) == f"Loader({place!r}, version={Loader(place).version}, epoch=0)"
    shown = repr(Loader(place, columns=["n"], filter=pc.field("n") > 1, shuffle=True, to=len))
    assert "columns=['n'], filter=" in shown
    assert "shuffle=True, to=<built-in function len>" in shown


# -- what a batch is given as ----------------------------------------------------------------------------


def test_batches_as_arrays_of_numpy(place: str) -> None:
    batch = next(iter(Loader(place, to="numpy", batch_size=10)))
    assert batch["n"].tolist() == LIVE[:10]
    assert batch["v"].shape == (10, 4)
    assert batch["v"][3].tolist() == [float(LIVE[3])] * 4
    assert batch["w"].tolist() == [f"w{n % 5}" for n in LIVE[:10]]
    assert not batch["n"].flags.owndata  # Arrow's memory, not copied
    for batch in Loader(place, to="dlpack", columns=["n", "v"], shuffle=True):
        for name in ("n", "v"):
            taken = np.from_dlpack(batch[name])
            taken[0] = 0
            assert not batch[name][0].any()
    with pytest.raises(InvalidInput, match="column 's'"):
        next(iter(Loader(place, to="dlpack")))
    sums = list(Loader(place, to=lambda batch: sum(batch["n"].to_pylist()), columns=["n"]))
    assert sum(sums) == sum(LIVE)


def test_nulls_and_odd_types_as_arrays() -> None:
    ds = lance.write_dataset(
        {"f": [1.0, None], "i": [1, None], "b": [True, False], "l": [[1], None]}, "memory://tensors"
    )
    found = next(iter(Loader(ds, columns=["f", "b", "l"], to="numpy")))
    assert np.isnan(found["f"][1])
    assert found["b"].dtype == bool
    assert found["l"][1] is None
    with pytest.raises(InvalidInput, match=r"column 'i' .* has nulls"):
        next(iter(Loader(ds, columns=["i"], to="numpy")))
    filled = Loader(ds, columns={"i": "coalesce(i, 0)"}, to="dlpack")
    assert next(iter(filled))["i"].tolist() == [1, 0]


# -- processes -------------------------------------------------------------------------------------------


def _child(loader: Loader, stream: Iterator[Any], answers: Any) -> None:
    try:
        next(stream)
    except ForkedHandle as error:
        answers.put(str(error))
    answers.put(numbers(loader))


def test_a_forked_child_iterates_anew_and_is_told_so(place: str) -> None:
    loader = Loader(place, shuffle=True, **SMALL)
    stream = iter(loader)
    next(stream)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_child, args=(loader, stream, answers))
    child.start()
    assert "begun in the parent" in answers.get(timeout=60)
    assert sorted(answers.get(timeout=60)) == LIVE
    child.join()


def test_a_loader_is_pickled_with_its_place(place: str) -> None:
    loader = Loader(place, shuffle=True, **SMALL)
    stream = iter(loader)
    next(stream)
    again = pickle.loads(pickle.dumps(loader))
    assert numbers(again) == numbers(stream)


class Worker:
    """What Torch tells of a worker process."""

    def __init__(self, id: int, num_workers: int) -> None:
        self.id, self.num_workers = id, num_workers


def test_torch_takes_a_loader_as_iterable_and_its_workers_share_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(place, **SMALL)

    class IterableDataset:
        """Stands for Torch's class, which its `DataLoader` asks for by `isinstance`."""

    data, info = ModuleType("torch.utils.data"), None
    data.__dict__.update(IterableDataset=IterableDataset, get_worker_info=lambda: info)
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    assert isinstance(loader, IterableDataset)
    assert isinstance(loader, Loader)
    assert numbers(loader) == LIVE
    stream = iter(loader)
    next(stream)
    begun, found = pickle.dumps(loader), []
    for id in range(3):
        info = Worker(id, 3)
        worker = pickle.loads(pickle.dumps(Loader(place, **SMALL)))
        found += numbers(worker)
        with pytest.raises(InvalidInput, match="shards"):  # a place in the whole is none in a part
            iter(pickle.loads(begun))
    assert found == LIVE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"rank": 2, "world_size": 2}, "rank must be below world_size"),
        ({"worker": 0}, "both worker and workers"),
        ({"to": "tensor"}, "to must be 'arrow'"),
        ({"to": "torch"}, "to='dlpack' gives .* torch.from_dlpack"),
        ({"even": True, "filter": "n > 1"}, "even cannot be combined"),
        ({"seed": -1, "shuffle": True}, "seed must be"),
        ({"buffer_rows": 0}, "buffer_rows must be"),
    ],
)
def test_what_a_loader_cannot_serve_is_refused_when_it_is_made(
    options: dict[str, Any], words: str, place: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        Loader(place, **options)


def test_wrong_columns_are_refused_and_a_filtered_pass_has_no_length(place: str) -> None:
    with pytest.raises(FieldNotFound):
        Loader(place, columns=["nothing"])
    with pytest.raises(TypeError, match="no length"):
        len(Loader(place, filter="n > 1"))
