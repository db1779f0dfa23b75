"""The spec that a writer claims with, resolved from the table before a shard is looked at (MemWAL, 2.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamed import SHARD, digest, rows, streamed
from tiltyard.errors import InvalidInput, ShardError, ShardingChanging, ShardSpecMismatch
from tiltyard.format.mem_wal import MemWalDetails, ShardingField, ShardingSpec
from tiltyard.memwal.identity import Streamed, resolved_spec
from tiltyard.memwal.writer import ShardWriter


def described(*spec_ids: int) -> Streamed:
    field = ShardingField("bucket", (), "unsharded", None, "int32")
    return Streamed("x", MemWalDetails.new([ShardingSpec(each, (field,)) for each in spec_ids]))


@pytest.mark.parametrize(
    ("specs", "asked", "found"), [((), None, 0), ((), 0, 0), ((3,), None, 3), ((3,), 3, 3)]
)
def test_the_spec_is_the_tables(specs: tuple[int, ...], asked: int | None, found: int) -> None:
    assert resolved_spec(described(*specs), asked, SHARD) == found


@pytest.mark.parametrize(
    ("specs", "asked", "told"),
    [
        ((), 1, "shard_spec_id 1 is invalid for manual sharding; expected 0"),
        ((3,), 0, "shard_spec_id 0 does not match the MemWAL index sharding spec id 3"),
        ((3,), 2, "shard_spec_id 2 does not match the MemWAL index sharding spec id 3"),
    ],
)
def test_another_spec_is_refused(specs: tuple[int, ...], asked: int, told: str) -> None:
    with pytest.raises(ShardSpecMismatch, match=told) as error:
        resolved_spec(described(*specs), asked, SHARD)
    assert (error.value.shard_id, error.value.requested) == (SHARD, asked)
    assert error.value.stored == (specs[0] if specs else 0)


@pytest.mark.parametrize("asked", [None, 0, 1, 2])
def test_a_table_whose_sharding_is_revised_takes_no_writer(asked: int | None) -> None:
    with pytest.raises(ShardingChanging, match="at most one sharding spec, found 2"):
        resolved_spec(described(1, 2), asked, SHARD)


def test_a_table_without_a_memwal_is_told(tmp_path: Path) -> None:
    import pyarrow as pa

    import tiltyard.lance as lance

    dataset = lance.write_dataset(pa.Table.from_batches([rows([1])]), str(tmp_path / "t"))
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match=r"MemWAL is not initialized .* Call initialize_mem_wal\(\) first"):
        ShardWriter.open(dataset, SHARD)
    assert digest(tmp_path / "t") == before


def test_a_shard_of_an_earlier_table_at_the_place_is_refused(tmp_path: Path) -> None:
    """Section 9.20."""
    import shutil

    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 1.0))
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "t" / "_mem_wal", kept)
    shutil.rmtree(tmp_path / "t")
    again = streamed(tmp_path / "t")
    shutil.copytree(kept, tmp_path / "t" / "_mem_wal")
    before = digest(tmp_path / "t")
    with pytest.raises(ShardError, match="left by another table at this place"):
        ShardWriter.open(again, SHARD)
    assert digest(tmp_path / "t") == before
