"""Marks: only over generations that a shard's manifest names, and each once (case M11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import OTHER_SHARD, SHARD, digest, newest_manifest, rows, streamed
from tiltyard.errors import IncompatibleTransaction, InvalidInput, ShardError
from tiltyard.format.operations import CompactedSsTable, UpdateMemWalState
from tiltyard.format.shard_manifest import ShardManifest, SsTable
from tiltyard.lance.mem_wal import CompactedSsTable as Mark
from tiltyard.memwal.compaction import compact_streams, trim
from tiltyard.memwal.marks import marks_of, uncompacted
from tiltyard.store.local import LocalStore
from tiltyard.table.snapshot import open_latest


def manifest(current: int, *generations: int) -> ShardManifest:
    named = tuple(SsTable(each, f"{each:08x}_gen_{each}") for each in generations)
    return ShardManifest(SHARD, current_generation=current, sstables=named)


@pytest.mark.parametrize(
    ("named", "mark", "expected"),
    [
        ((), 0, ()),
        ((1, 2, 3), 0, (1, 2, 3)),
        ((1, 2, 3), 1, (2, 3)),
        ((1, 2, 3), 3, ()),
        ((2, 3), 1, (2, 3)),
        ((1, 3), 0, (1,)),
        ((3, 1, 2), 0, (1, 2, 3)),
    ],
)
def test_what_follows_a_mark_without_a_gap(
    named: tuple[int, ...], mark: int, expected: tuple[int, ...]
) -> None:
    assert tuple(each.generation for each in uncompacted(manifest(4, *named), mark)) == expected


@pytest.mark.parametrize(("named", "mark"), [((2, 3), 0), ((), 4), ((1, 2, 3), 9), ((3,), 1)])
def test_a_gap_and_a_mark_from_the_future_are_refused(named: tuple[int, ...], mark: int) -> None:
    with pytest.raises(ShardError, match=SHARD):
        uncompacted(manifest(4, *named), mark)


@pytest.fixture
def three(tmp_path: Path) -> Any:
    """A table whose shard has published generations 1 to 3."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        for key in (10, 11, 12):
            writer.put(pa.Table.from_batches([rows([key], 1.0)]))
            writer.flush()
    return dataset


def merge(dataset: Any, *marks: tuple[str, int]) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.mark_sstables_as_compacted([Mark(*each) for each in marks])
    builder.execute(pa.Table.from_batches([rows([10, 11, 12], 1.0)]))


WRONG = {
    "a shard that there is not": [(OTHER_SHARD, 1)],
    "a generation that there is not": [(SHARD, 4)],
    "one shard twice": [(SHARD, 1), (SHARD, 2)],
    "no generation": [(SHARD, 0)],
}


@pytest.mark.parametrize("marks", WRONG.values(), ids=WRONG)
def test_foreign_marks_are_refused_and_nothing_is_written(
    three: Any, tmp_path: Path, marks: list[tuple[str, int]]
) -> None:
    before = digest(tmp_path / "t")
    with pytest.raises((InvalidInput, IncompatibleTransaction)):
        merge(three, *marks)
    assert digest(tmp_path / "t") == before


def test_a_mark_that_does_not_advance_is_refused_as_a_whole(three: Any, tmp_path: Path) -> None:
    """M11: generation 3 is marked, then a late job comes with generation 2."""
    merge(three, (SHARD, 3))
    before = digest(tmp_path / "t")
    for generation in (2, 3):
        with pytest.raises(IncompatibleTransaction, match="Stale SSTable compaction"):
            merge(three, (SHARD, generation))
    assert digest(tmp_path / "t") == before


def test_a_mark_over_a_generation_that_somebody_took_away_is_refused(three: Any, tmp_path: Path) -> None:
    trim(LocalStore(f"{three.uri}/_mem_wal/{SHARD}"), 1)
    assert [each.generation for each in newest_manifest(tmp_path / "t").sstables] == [2, 3]
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="over generation 1"):
        merge(three, (SHARD, 2))
    assert digest(tmp_path / "t") == before
    done = compact_streams(three._store, three._session)
    assert list(done.problems) == [SHARD]
    assert done.commits == 0


def test_progress_on_a_table_without_mem_wal_is_refused(tmp_path: Path) -> None:
    """M11, second part."""
    dataset = lance.write_dataset(pa.Table.from_batches([rows([1])]), str(tmp_path / "t"))
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="does not exist on this table"):
        merge(dataset, (SHARD, 1))
    with pytest.raises(InvalidInput, match="MemWAL is not initialized"):
        compact_streams(dataset._store, dataset._session)
    assert digest(tmp_path / "t") == before


def test_marks_alone_are_held_against_the_manifest_too(three: Any, tmp_path: Path) -> None:
    def commit(generation: int) -> Any:
        fact = UpdateMemWalState((CompactedSsTable(SHARD, generation),))
        operation = lance.LanceOperation.Other("UpdateMemWalState", fact)
        return lance.LanceDataset.commit(three.uri, operation, read_version=three.version)

    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="over generation 4"):
        commit(4)
    assert digest(tmp_path / "t") == before
    commit(2)
    assert marks_of(open_latest(three._store, three._session)) == {SHARD: 2}
