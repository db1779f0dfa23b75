"""Samples and samplers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiltyard.lance as lance
from tiltyard.dataset.sampling import chance, runs
from tiltyard.errors import InvalidInput, MissingPackage
from tiltyard.lance.sampler import (
    FullScanSampler,
    ShardedBatchSampler,
    ShardedFixedBatchSampler,
    ShardedFragmentSampler,
    maybe_sample,
    reservoir_sampling,
)


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """Rows 0 to 1,199 in 12 fragments, those divisible by 7 deleted."""
    place = tmp_path_factory.mktemp("sampler") / "t.lance"
    found = lance.write_dataset(pa.table({"a": range(1200), "b": range(1200)}), place, max_rows_per_file=100)
    found.delete("a % 7 = 0")
    return found


LIVE = [value for value in range(1200) if value % 7]


def values(batches: Any) -> list[int]:
    return [value for batch in batches for value in batch["a"].to_pylist()]


@pytest.mark.parametrize("n", [0, 1, 100, 500, 1028, 1029, 5000])
@pytest.mark.parametrize("places", [7, 2048])
@pytest.mark.parametrize("filt", [None, "a % 2 = 1"])
def test_a_sample_has_the_rows_that_are_asked_for_once_each(
    n: int, places: int, filt: str | None, ds: lance.LanceDataset
) -> None:
    batches = list(maybe_sample(ds, n, ["a"], batch_size=64, max_takes=places, filt=filt))
    found = values(batches)
    can = [value for value in LIVE if filt is None or value % 2]
    assert len(set(found)) == len(found) == min(n, len(can))
    assert set(found) <= set(can)
    assert all(batch.num_rows <= 64 and batch.schema.names == ["a"] for batch in batches)


@pytest.mark.parametrize("n", [0, 1, 500, len(LIVE)])
def test_a_dataset_gives_a_sample_of_itself(n: int, ds: lance.LanceDataset) -> None:
    found = ds.sample(n, ["a"], randomize_order=False)["a"].to_pylist()
    assert found == sorted(set(found))
    assert len(found) == n
    mixed = ds.sample(n, ["a"])["a"].to_pylist()
    assert len(set(mixed)) == n
    assert set(mixed) <= set(LIVE)
    with pytest.raises(InvalidInput, match="cannot sample 1029 of 1028 rows"):
        ds.sample(1029)


def test_a_sample_takes_a_place_and_one_column_by_name(ds: lance.LanceDataset) -> None:
    assert len(values(maybe_sample(Path(ds.uri), 5, "a"))) == 5
    with pytest.raises(InvalidInput, match="n must be"):
        list(maybe_sample(ds, -1, "a"))
    with pytest.raises(InvalidInput, match="dataset must be a LanceDataset"):
        list(maybe_sample(5, 1, "a"))


@given(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
def test_runs_are_so_many_different_rows_of_the_table(
    total: int, share: float, part: float, seed: int
) -> None:
    wanted = int(total * share)
    places = 1 + int(part * max(0, wanted - 1))
    found = runs(total, wanted, places, chance(seed))
    assert len(found) == wanted
    assert len(np.unique(found)) == wanted
    assert not wanted or 0 <= found.min() <= found.max() < total


def test_a_reservoir_keeps_all_or_so_many() -> None:
    assert reservoir_sampling(range(3), 5) == [0, 1, 2]
    assert len(set(reservoir_sampling(range(100), 5))) == 5


@pytest.mark.parametrize("kind", [ShardedFragmentSampler, ShardedBatchSampler])
@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("filter", [None, "a > 100"])
def test_workers_share_every_row_once(
    kind: Any, randomize: bool, filter: Any, ds: lance.LanceDataset
) -> None:
    found: list[int] = []
    for rank in range(5):
        sampler = kind(rank, 5, randomize=randomize, seed=3)
        once = values(sampler(ds, batch_size=30, columns=["a"], filter=filter))
        assert once == values(sampler(ds, batch_size=30, columns=["a"], filter=filter))
        if randomize:
            sampler.set_epoch(1)
            assert once != values(sampler(ds, batch_size=30, columns=["a"], filter=filter))
        else:
            assert once == sorted(once)
        found += once
    assert sorted(found) == [value for value in LIVE if filter is None or value > 100]


def test_more_workers_than_fragments_and_whole_scans(ds: lance.LanceDataset) -> None:
    assert values(FullScanSampler()(ds, columns=["a"])) == LIVE
    assert list(ShardedFragmentSampler(12, 13)(ds)) == []
    batches = list(ShardedBatchSampler(0, 1)(ds, batch_size=150, columns=["a"], with_row_id=True))
    assert [batch.num_rows for batch in batches] == [150] * 6 + [128]
    assert batches[0].schema.names == ["a", "_rowid"]
    with pytest.raises(InvalidInput, match="rank must be below world_size"):
        ShardedBatchSampler(2, 2)


def test_batches_of_row_numbers_cover_a_share_of_neighbours() -> None:
    samplers = [ShardedFixedBatchSampler(rank, 3, batch_size=4, total_num_rows=10) for rank in range(3)]
    assert [list(each) for each in samplers] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8, 9]]]
    assert [len(each) for each in samplers] == [1, 1, 1]
    with pytest.raises(InvalidInput, match="batch_size must be positive"):
        ShardedFixedBatchSampler(0, 1, total_num_rows=10)


def test_rank_and_world_size_come_from_torch_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(MissingPackage, match="pip install torch"):
        ShardedBatchSampler.from_torch()
    torch = ModuleType("torch.distributed")
    torch.__dict__.update(get_rank=lambda: 1, get_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    assert list(ShardedFixedBatchSampler.from_torch(5, 10)) == [[5, 6, 7, 8, 9]]
    assert ShardedFragmentSampler.from_torch()._rank == ShardedBatchSampler.from_torch(True)._rank == 1
