"""A writer's limits, and rows that nobody waits for: what is held back, shared, or logged a little later."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import tiltyard.lance as lance
from streamed import BASE, SHARD, digest, keys, live, log_names, rows, shard_dir, streamed, values
from tiltyard import runtime
from tiltyard.errors import (
    CompactionBehind,
    ForkedHandle,
    InvalidInput,
    StoreError,
    WriterClosed,
    WriterFenced,
)
from tiltyard.memwal import sstable
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.writer import ShardWriter

LONG_SECONDS = 60.0


def until(true: Any) -> None:
    deadline = runtime.monotonic() + LONG_SECONDS
    while not true():
        assert runtime.monotonic() < deadline
        runtime.sleep(0.005)


def test_rows_that_nobody_waits_for_reach_the_log_by_themselves(tmp_path: Path) -> None:
    writer = ShardWriter.open(streamed(tmp_path / "t"), SHARD, max_wal_flush_interval_ms=1)
    writer.put(rows([10], 1.0), durable=False)
    assert values(live(tmp_path / "t", writer)) == {**BASE, 10: 1.0}
    until(lambda: not writer.memtable_stats()["pending_wal_row_count"])
    writer.abort()
    with ShardWriter.open(streamed_again(tmp_path), SHARD) as again:
        assert values(live(tmp_path / "t", again)) == {**BASE, 10: 1.0}


def streamed_again(tmp_path: Path) -> Any:
    import tiltyard.lance as lance

    return lance.dataset(str(tmp_path / "t"))


def test_without_an_interval_they_wait_for_the_next_durable_put_or_sync(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", max_wal_flush_interval_ms=60_000)
    with ShardWriter.open(dataset, SHARD) as writer:
        for key in (10, 11, 12):
            writer.put(rows([key], 1.0), durable=False)
        assert not (shard_dir(tmp_path / "t") / "wal").exists()
        writer.sync()
        assert len(log_names(tmp_path / "t")) == 1
        writer.put(rows([13], 1.0), durable=False)
        writer.put(rows([14], 1.0))
        assert len(log_names(tmp_path / "t")) == 2
        writer.delete(keys([10]), durable=False)
    assert values(live(tmp_path / "t")) == {**BASE, **dict.fromkeys(range(11, 15), 1.0)}


def test_many_bytes_of_them_are_logged_at_once(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", max_wal_flush_interval_ms=60_000, max_wal_buffer_size=2000)
    with ShardWriter.open(dataset, SHARD) as writer:
        for start in range(0, 500, 50):
            writer.put(rows(list(range(start, start + 50)), 1.0), durable=False)
            assert writer.memtable_stats()["pending_wal_estimated_bytes"] < 4000
        assert len(log_names(tmp_path / "t")) > 1


def test_a_generation_ends_at_each_of_its_limits(tmp_path: Path) -> None:
    for number, (limit, expected) in enumerate(
        (
            ({"max_memtable_rows": 4}, [4, 4, 2]),
            ({"max_memtable_batches": 2}, [4, 4, 2]),
            ({"max_memtable_size": 30}, [2] * 5),
        )
    ):
        dataset = streamed(tmp_path / str(number))
        with ShardWriter.open(dataset, SHARD, **limit) as writer:
            for key in range(10, 20, 2):
                writer.put(rows([key, key + 1], 1.0))
        assert [each.physical_rows for each in writer.manifest.sstables] == expected, limit
        assert values(live(tmp_path / str(number))) == {**BASE, **dict.fromkeys(range(10, 20), 1.0)}


def test_puts_wait_while_too_much_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = streamed(tmp_path / "t")
    limits = {"max_memtable_size": 2000, "max_unflushed_memtable_bytes": 2000 + 32768}
    writer = ShardWriter.open(dataset, SHARD, **limits)
    done: list[int] = []
    waiting = Event()

    def putting() -> None:
        for start in range(0, 6000, 50):
            writer.put(rows(list(range(start, start + 50)), 1.0))
            done.append(start)
        waiting.set()

    def broken(*_: object, **__: object) -> None:
        raise StoreError("held back by a test")

    with monkeypatch.context() as patched:
        patched.setattr(sstable, "write_sstable", broken)
        thread = Thread(target=putting)
        thread.start()
        until(lambda: writer.unpublished_bytes() >= limits["max_unflushed_memtable_bytes"])
        until(lambda: writer.stats()["memtable_flush_failures"] > 2)
        assert not waiting.is_set()
        held = len(done)
        assert writer.unpublished_bytes() < limits["max_unflushed_memtable_bytes"] + 4000
    thread.join(LONG_SECONDS)
    assert waiting.is_set()
    assert len(done) == 120 > held
    writer.close()
    assert live(tmp_path / "t").num_rows == 6000


def test_threads_that_put_at_once_share_log_entries_and_lose_nothing(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [])
    writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=50)

    def putting(first: int) -> None:
        for key in range(first, first + 20):
            writer.put(rows([key], float(key)))

    threads = [Thread(target=putting, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {100 * number + at: float(100 * number + at) for number in range(8) for at in range(20)}
    assert values(live(tmp_path / "t", writer)) == expected
    assert writer.stats()["wal_flush_count"] <= 160
    writer.close()
    assert values(live(tmp_path / "t")) == expected
    assert sum(each.physical_rows or 0 for each in writer.manifest.sstables) == 160


def test_numbers_of_a_writer(tmp_path: Path) -> None:
    writer = ShardWriter.open(streamed(tmp_path / "t", max_wal_flush_interval_ms=60_000), SHARD)
    writer.put(rows([10, 11], 1.0))
    writer.put(rows([12], 1.0), durable=False)
    now = writer.memtable_stats()
    assert (now["row_count"], now["generation"], now["pending_wal_row_count"]) == (3, 1, 1)
    writer.close()
    told, now = writer.stats(), writer.memtable_stats()
    assert (told["put_count"], told["wal_flush_count"], told["memtable_flush_rows"]) == (2, 2, 3)
    assert (now["row_count"], now["frozen_count"], now["frozen_bytes"], now["generation"]) == (0, 0, 0, 2)


def test_an_aborted_writer_takes_nothing_more_and_its_durable_rows_are_there(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([10], 1.0))
    writer.abort()
    before = digest(tmp_path / "t")
    for call in (lambda: writer.put(rows([11])), writer.flush, writer.sync, writer.view):
        with pytest.raises(WriterClosed):
            call()
    writer.close()
    assert digest(tmp_path / "t") == before
    with ShardWriter.open(dataset, SHARD) as again:
        assert values(live(tmp_path / "t", again)) == {**BASE, 10: 1.0}


def test_a_writer_does_not_work_in_a_forked_child(tmp_path: Path) -> None:
    writer = ShardWriter.open(streamed(tmp_path / "t"), SHARD)
    writer.put(rows([10], 1.0))
    before = digest(tmp_path / "t")
    child = os.fork()
    if not child:  # no pytest in here: the answer is the status
        try:
            writer.put(rows([11]))
        except ForkedHandle:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert digest(tmp_path / "t") == before
    writer.put(rows([12], 1.0))
    writer.close()
    assert values(live(tmp_path / "t")) == {**BASE, 10: 1.0, 12: 1.0}


def test_a_put_larger_than_a_generation_is_refused(tmp_path: Path) -> None:
    with ShardWriter.open(streamed(tmp_path / "t"), SHARD, max_memtable_rows=3) as writer:
        before = digest(tmp_path / "t")
        with pytest.raises(InvalidInput, match="write of 4 rows exceeds max_memtable_rows=3"):
            writer.put(rows([10, 11, 12, 13]))
        with pytest.raises(InvalidInput):
            writer.delete(keys([10, 11, 12, 13]))
        assert digest(tmp_path / "t") == before
        writer.put(rows([10, 11, 12]))


# -- compaction that does not keep up ----------------------------------------------------------------


def test_puts_wait_for_compaction_where_the_writer_was_told_a_limit(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    limits = {"max_uncompacted_generations": 2, "max_compaction_wait_ms": 0}
    with dataset.mem_wal_writer(SHARD, **limits) as writer:
        for key in (10, 11):
            writer.put(rows([key], 1.0))
            writer.flush()
        for _ in range(2):
            with pytest.raises(CompactionBehind, match=r"2 generations .*`tiltyard maintain`"):
                writer.put(rows([12], 1.0))
        with pytest.raises(CompactionBehind):
            asyncio.run(writer.aput(rows([12], 1.0)))
        compact_streams(dataset._store, dataset._session)
        writer.put(rows([13], 1.0))
        asyncio.run(writer.aput(rows([14], 1.0)))
    assert set(values(live(tmp_path / "t"))) == {1, 2, 3, 10, 11, 13, 14}


def test_a_put_that_waits_for_compaction_goes_on_when_there_was_one(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD, max_uncompacted_generations=1) as writer:
        writer.put(rows([10], 1.0))
        writer.flush()
        task = runtime.spawn(writer.put, rows([11], 1.0))
        compact_streams(dataset._store, dataset._session)
        task.join()
    assert set(values(live(tmp_path / "t"))) == {1, 2, 3, 10, 11}


def test_who_waits_for_compaction_learns_that_the_shard_was_taken_over(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = dataset.mem_wal_writer(SHARD, max_uncompacted_generations=1)
    writer.put(rows([10], 1.0))
    writer.flush()
    with lance.dataset(dataset.uri).mem_wal_writer(SHARD):
        for _ in range(2):
            with pytest.raises(WriterFenced):
                writer.put(rows([11], 1.0))


@pytest.mark.parametrize("limit", [0, -1, "2", True])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: Any) -> None:
    dataset = streamed(tmp_path / "t")
    with pytest.raises(InvalidInput, match="max_uncompacted_generations"):
        dataset.mem_wal_writer(SHARD, max_uncompacted_generations=limit)


def test_what_nobody_waits_for_leaves_a_processor_to_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, awaited = sstable.write_sstable, []

    def watched(*facts: Any, **how: Any) -> Any:
        awaited.append(how["awaited"])
        return real(*facts, **how)

    monkeypatch.setattr(sstable, "write_sstable", watched)
    with ShardWriter.open(streamed(tmp_path / "t"), SHARD, max_memtable_rows=4) as writer:
        writer.put(rows([1, 2, 3, 4]))
        writer.put(rows([5]))
        until(lambda: writer.oldest_frozen is None)
        assert awaited == [False]
        writer.flush()
        assert awaited == [False, True]
