"""What a reader sees at one moment, while rows move from memory to SSTables to the base (decision D20)."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from handles import HANDLES, open_files
from streamed import (
    BASE,
    OTHER_SHARD,
    SHARD,
    keys,
    live,
    newest_manifest,
    rows,
    shard_dir,
    streamed,
    values,
)
from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.format.shard_manifest import SsTable
from tiltyard.memwal import capture as module
from tiltyard.memwal import winners
from tiltyard.memwal.capture import capture, listed
from tiltyard.memwal.manifest import update
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore


def changed(path: Path, sstables: tuple[SsTable, ...]) -> None:
    update(
        LocalStore(str(shard_dir(path))), newest_manifest(path), lambda now: replace(now, sstables=sstables)
    )


def compacted(path: Path, generation: int, data: Any) -> None:
    """The base takes a generation's rows, and marks it."""
    (
        lance.dataset(str(path))
        .merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .mark_sstables_as_compacted([lance.mem_wal.CompactedSsTable(SHARD, generation)])
        .execute(pa.Table.from_batches([data]))
    )


def test_rows_are_seen_once_wherever_they_are(tmp_path: Path) -> None:
    """Case M07: also between freezing and publishing, and after it."""
    path = tmp_path / "t"
    dataset = streamed(path)
    writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=2)
    for key in range(10, 30):
        writer.put(rows([key], 1.0))
        assert values(live(path, writer)) == {**BASE, **dict.fromkeys(range(10, key + 1), 1.0)}
    writer.close()
    assert values(live(path)) == {**BASE, **dict.fromkeys(range(10, 30), 1.0)}


def test_a_frozen_generation_is_seen_while_it_cannot_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 6.6, reproduced on the official package."""
    from tiltyard.errors import StoreError
    from tiltyard.memwal import sstable

    def broken(*_: object, **__: object) -> None:
        raise StoreError("no space left")

    path = tmp_path / "t"
    writer = ShardWriter.open(streamed(path), SHARD, max_memtable_rows=2)
    with monkeypatch.context() as patched:
        patched.setattr(sstable, "write_sstable", broken)
        for key in range(10, 17):
            writer.put(rows([key], 1.0))
            assert values(live(path, writer)) == {**BASE, **dict.fromkeys(range(10, key + 1), 1.0)}
        assert writer.memtable_stats()["frozen_count"] == 3
    writer.close()
    assert values(live(path)) == {**BASE, **dict.fromkeys(range(10, 17), 1.0)}


def test_a_generation_that_the_base_has_is_left_out(tmp_path: Path) -> None:
    """Section 9.11: the base may have been changed since."""
    path = tmp_path / "t"
    dataset = streamed(path)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([2, 10], 1.0))
        writer.flush()
        compacted(path, 1, rows([2, 10], 1.0))
        lance.dataset(str(path)).update({"v": "cast(77 as float)"}, "id = 2")
        assert values(live(path, writer)) == {**BASE, 2: 77.0, 10: 1.0}
        writer.put(rows([3], 5.0))
    expected = {1: 0.0, 2: 77.0, 3: 5.0, 10: 1.0}
    assert values(live(path)) == expected
    snapshots = [lance.mem_wal.ShardSnapshot(SHARD)]
    for each in newest_manifest(path).sstables:
        snapshots[0].with_sstable(each.generation, each.path)
    of = lance.dataset(str(path))
    assert values(lance.mem_wal.LsmScanner.from_snapshots(of, snapshots).to_table()) == expected
    planner = lance.mem_wal.LsmPointLookupPlanner(of, snapshots)
    assert planner.plan_lookup(pa.array([2])).to_table()["v"].to_pylist() == [77.0]


def test_an_sstable_that_is_collected_meanwhile_is_looked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 1.0))
        writer.flush()
        writer.put(rows([11], 2.0))
    first, second = newest_manifest(path).sstables
    true, acts = module.open_latest, [1]

    def collecting(*given: Any) -> Any:
        if acts and acts.pop():  # between the manifests and the base
            compacted(path, 1, rows([10], 1.0))
            changed(path, (second,))
            shutil.rmtree(shard_dir(path) / first.path)
        return true(*given)

    monkeypatch.setattr(module, "open_latest", collecting)
    fresh = lance.dataset(str(path), session=lance.Session())
    assert values(LsmScan(capture(fresh._store, fresh._session)).table()) == {**BASE, 10: 1.0, 11: 2.0}


def test_an_sstable_that_is_named_and_gone_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with ShardWriter.open(streamed(path), SHARD) as writer:
        writer.put(rows([10], 1.0))
    shutil.rmtree(shard_dir(path) / newest_manifest(path).sstables[0].path)
    fresh = lance.dataset(str(path), session=lance.Session())
    with pytest.raises(CorruptFile, match="that its shard names is not there"):
        capture(fresh._store, fresh._session)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../data"])
def test_a_name_that_is_no_directory_of_the_shard_is_damage(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    ShardWriter.open(dataset, SHARD).close()
    changed(path, (SsTable(1, name),))
    with pytest.raises((CorruptFile, InvalidInput)):
        capture(dataset._store, dataset._session)


def test_directories_that_are_no_shards_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    for name in ("x", ".tmp", SHARD.upper(), SHARD.replace("-", "")):
        (path / "_mem_wal" / name / "manifest").mkdir(parents=True)
    (path / "_mem_wal" / OTHER_SHARD).mkdir()
    assert values(live(path)) == BASE
    assert capture(dataset._store, dataset._session).shards == ()


def test_listed_sstables_are_read_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10, 1], 1.0))
        writer.flush()
        writer.put(rows([11], 2.0))
        writer.delete(keys([10]))
    first, second = newest_manifest(path).sstables
    base = dataset._snapshot
    for chosen, expected in (
        ((), BASE),
        ((first,), {**BASE, 1: 1.0, 10: 1.0}),
        ((second,), {**BASE, 11: 2.0}),
        ((first, second), {**BASE, 1: 1.0, 11: 2.0}),
        ((second, first), {**BASE, 1: 1.0, 11: 2.0}),
    ):
        assert values(LsmScan(listed(base, [(SHARD, chosen)])).table()) == expected


def test_an_sstable_of_a_plain_writer_is_read(tmp_path: Path) -> None:
    """As the official package's own tests make them: without `_tombstone`, filter and key index."""
    path = tmp_path / "t"
    dataset = streamed(path)
    at = shard_dir(path) / "gen_1"
    lance.write_dataset(pa.Table.from_batches([rows([2, 10], 1.0)]), str(at))
    snapshot = lance.mem_wal.ShardSnapshot(SHARD).with_sstable(1, "gen_1").with_current_generation(2)
    scanner = lance.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot])
    assert values(scanner.to_table()) == {1: 0.0, 2: 1.0, 3: 0.0, 10: 1.0}
    assert scanner.limit(None, offset=1).to_table().num_rows == 3
    assert scanner.limit(None).count_rows() == 4
    planner = lance.mem_wal.LsmPointLookupPlanner(dataset, [snapshot])
    found = [planner.plan_lookup(pa.array([key])).to_table()["v"].to_pylist() for key in (1, 2, 10, 99)]
    assert found == [[0.0], [1.0], [1.0], []]
    assert "Take" in planner.plan_lookup(pa.array([1])).explain()


def test_an_sstable_of_several_fragments_with_living_duplicates_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    at = str(shard_dir(path) / "gen_1")
    for number in (1.0, 2.0):
        lance.write_dataset(pa.Table.from_batches([rows([2, 10], number)]), at, mode="append")
    snapshot = lance.mem_wal.ShardSnapshot(SHARD).with_sstable(1, "gen_1")
    expected = {1: 0.0, 2: 2.0, 3: 0.0, 10: 2.0}
    assert values(lance.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot]).to_table()) == expected
    planner = lance.mem_wal.LsmPointLookupPlanner(dataset, [snapshot])
    assert planner.plan_lookup(pa.array([10])).to_table()["v"].to_pylist() == [2.0]


def test_an_sstable_without_the_key_is_damage(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    other = pa.table({"_tombstone": [True]})
    lance.write_dataset(other, str(shard_dir(tmp_path / "t") / "gen_1"))
    snapshot = lance.mem_wal.ShardSnapshot(SHARD).with_sstable(1, "gen_1")
    with pytest.raises(CorruptFile, match="lacks id"):
        lance.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot]).to_table()


@pytest.mark.skipif(not HANDLES.is_dir(), reason="no list of open files here")
def test_sstables_keep_no_files_open(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [])
    with ShardWriter.open(dataset, SHARD) as writer:
        opened = []
        for key in range(12):
            writer.put(rows([key], 1.0))
            writer.flush()
            now = capture(dataset._store, dataset._session, [writer])
            assert LsmScan(now).table().num_rows == key + 1
            opened.append(open_files())
        assert opened[-1] < opened[0] + 6  # some are open for a moment


def test_readers_at_once_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the readers' work ends only when both are at it."""
    dataset = streamed(tmp_path / "t")
    both = threading.Barrier(2, timeout=20)
    true = winners.winners

    def meeting(captured: Any) -> Any:
        both.wait()
        return true(captured)

    monkeypatch.setattr(winners, "winners", meeting)
    now = [capture(dataset._store, dataset._session) for _ in range(2)]
    with ThreadPoolExecutor(2) as readers:
        found = list(readers.map(lambda each: values(LsmScan(each).table()), now))
    assert found == [BASE, BASE]
