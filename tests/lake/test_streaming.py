"""Streams and live tables in plain words."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from threading import Thread, active_count
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard import runtime
from tiltyard.errors import (
    ForkedHandle,
    InvalidInput,
    SchemaMismatch,
    TiltyardError,
    UndrainedRows,
    WriterClosed,
    WriterFenced,
    WrongType,
)

KILLED = """
import os, sys
import tiltyard as ty
stream = ty.open_table(sys.argv[1]).stream()
stream.put({"id": 52, "delay": 3, "s": ""})
os.kill(os.getpid(), 9)
"""
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("delay", pa.int32()), pa.field("s", pa.string())]
)


KEYED = pa.field("id", pa.int64(), False, {b"lance-schema:unenforced-primary-key": b"true"})


@pytest.fixture
def flights(tmp_path: Path) -> Any:
    table = ty.connect(tmp_path).create_table("ops.flights", SCHEMA, key="id")
    table.append({"id": [1, 2, 3], "delay": [5, 6, 7], "s": ["a", "b", "c"]})
    return table


def row(key: int, delay: int = 0) -> dict[str, list[Any]]:
    return {"id": [key], "delay": [delay], "s": ["x"]}


def delays(table: Any) -> dict[int, int]:
    found = table.to_pydict()
    return dict(zip(found["id"], found["delay"], strict=True))


@pytest.mark.parametrize("shards", [None, 3])
def test_what_is_streamed_is_seen_live_at_once(flights: Any, shards: int | None) -> None:
    with flights.stream(shards=shards) as stream:
        stream.put(row(2, 60))
        stream.put({"id": [10, 11], "delay": [1, 2], "s": ["u", "v"]})
        stream.delete([1])
        live = flights.live()
        assert delays(live.to_arrow()) == {2: 60, 3: 7, 10: 1, 11: 2}
        assert delays(live.lookup([1, 2, 3, 99])) == {2: 60, 3: 7}
        assert live.count("delay > 5") == 2
        assert delays(live.scan(["id", "delay"], "id = 10").to_arrow()) == {10: 1}
        assert len(flights) == 3
    assert delays(flights.live().to_arrow()) == {2: 60, 3: 7, 10: 1, 11: 2}


def test_streams_of_many_threads_and_coroutines_lose_nothing(flights: Any) -> None:
    with flights.stream(shards=2) as stream:

        def putting(first: int) -> None:
            for key in range(first, first + 20):
                stream.put(row(key, key))

        threads = [Thread(target=putting, args=(first,)) for first in (100, 200, 300)]
        for thread in threads:
            thread.start()

        async def awaiting() -> None:
            await asyncio.gather(*(stream.aput(row(key, key)) for key in range(400, 430)))
            await stream.adelete([400])
            assert await stream.live().acount("id >= 400") == 29

        asyncio.run(awaiting())
        for thread in threads:
            thread.join()
        found = delays(stream.live().to_arrow())
    wanted = [*range(100, 120), *range(200, 220), *range(300, 320), *range(401, 430)]
    assert {key: delay for key, delay in found.items() if key >= 100} == {key: key for key in wanted}
    assert delays(flights.live().to_arrow()) == found


def test_hundreds_of_awaited_puts_share_log_entries_and_need_no_thread_each(flights: Any) -> None:
    with flights.stream() as stream:
        stream.put(row(1000))  # the shard is open
        most = 0

        async def putting(key: int) -> None:
            nonlocal most
            await stream.aput(row(key, key))
            most = max(most, active_count())

        async def awaiting() -> None:
            before = active_count()
            await asyncio.gather(*(putting(key) for key in range(400)))
            assert most <= before + 2  # one that leads, and one that ends
            with pytest.raises(SchemaMismatch):
                await stream.aput({"id": [1]})

        asyncio.run(awaiting())
        assert stream.live().count("id < 400") == 400
        (writer,) = stream._writer.writers
        assert writer.stats()["put_count"] == 401
        assert writer.stats()["wal_flush_count"] < 300


def test_rows_that_nobody_waits_for_reach_the_log_by_themselves(flights: Any, monkeypatch: Any) -> None:
    begun: list[str] = []
    real = runtime.spawn
    monkeypatch.setattr(runtime, "spawn", lambda *a, **n: (begun.append(n["name"]), real(*a, **n))[1])
    with flights.stream() as stream:
        stream.put(row(10))
        for key in range(11, 61):
            stream.put(row(key), durable=False)
        reached = 0
        for change in flights.tail(follow=True, timeout=60):
            reached += change.rows.num_rows
            if reached == 51:
                break
        assert reached == 51
        assert len(begun) < 25  # a task for a while of rows, not for each


def test_awaited_puts_wait_for_room(flights: Any) -> None:
    limit = 40_000
    with flights.stream(max_memtable_size=2000, max_unflushed_memtable_bytes=limit) as stream:
        most = 0

        async def putting(key: int) -> None:
            nonlocal most
            await stream.aput({"id": key, "delay": 0, "s": "x" * 1000})
            most = max(most, stream.stats().bytes_in_memory)

        async def awaiting() -> None:
            await asyncio.gather(*(putting(key) for key in range(200)))

        asyncio.run(asyncio.wait_for(awaiting(), 120))
        assert stream.live().count("s != 'a'") >= 200
        assert most < 2 * limit
        assert stream.stats().generations_published >= 2


def test_an_awaited_put_tells_that_the_shard_was_taken_over(flights: Any) -> None:
    first, second = flights.stream(), flights.stream()
    first.put(row(1))
    second.put(row(2))

    async def awaiting() -> None:
        with pytest.raises(WriterFenced):
            await first.aput(row(3))
        await second.aclose()
        with pytest.raises(WriterClosed):
            await second.aput(row(3))

    asyncio.run(awaiting())
    with pytest.raises(WriterFenced):
        first.close()


def test_a_cancelled_put_is_in_whole_or_not_at_all(flights: Any) -> None:
    with flights.stream() as stream:
        stream.put(row(1))

        async def awaiting() -> None:
            tasks = [
                asyncio.create_task(stream.aput({"id": [k, k + 1], "delay": [1, 1], "s": ["", ""]}))
                for k in range(100, 160, 2)
            ]
            await asyncio.sleep(0)
            for task in tasks[1:]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert done[0] is None

        asyncio.run(awaiting())
        stream.put(row(2))
        there = set(delays(stream.live().scan(where="id >= 100").to_arrow()))
        assert {100, 101} <= there
        assert {key ^ 1 for key in there} == there


def test_a_second_stream_takes_the_shard_over(flights: Any) -> None:
    first = flights.stream()
    first.put(row(50, 1))
    with flights.stream() as second:
        second.put(row(51, 2))
        with pytest.raises(WriterFenced):
            first.put(row(52, 3))
        assert {50, 51} <= set(delays(flights.live().to_arrow()))
    with pytest.raises(WriterFenced):
        first.close()


def test_bad_rows_are_refused_whole(flights: Any) -> None:
    with flights.stream(shards=4) as stream:
        for data in ({"id": [1], "delay": [1]}, {"id": [1], "delay": [1], "s": ["a"], "x": [1]}):
            with pytest.raises(SchemaMismatch):
                stream.put(data)
        with pytest.raises((InvalidInput, SchemaMismatch)):
            stream.put({"id": [None], "delay": [1], "s": ["a"]})
        twice = pa.Table.from_arrays(
            [pa.array([1])] * 3 + [pa.array(["a"])], names=["id", "delay", "delay", "s"]
        )
        with pytest.raises(SchemaMismatch, match="several columns of the name 'delay'"):
            stream.put(twice)
        assert len(flights.live()) == 3
    with pytest.raises(WriterClosed):
        stream.put(row(1))


def test_tables_without_a_key_are_appended_to(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", pa.table({"a": [1, 1]}))
    with table.stream() as stream:
        stream.put({"a": [1, 2]})
        with pytest.raises(InvalidInput, match="no key"):
            stream.delete([1])
        assert sorted(table.live().to_arrow()["a"].to_pylist()) == [1, 1, 1, 2]
    assert table.live().count() == 4


def test_a_version_is_neither_streamed_into_nor_read_live(flights: Any) -> None:
    with pytest.raises(InvalidInput, match="stream is refused"):
        flights.at(version=1).stream()
    with pytest.raises(InvalidInput, match=r"live is refused: .* scan\(\)"):
        flights.at(version=1).live()


def test_what_a_stream_cannot_be_set_to_changes_nothing(flights: Any) -> None:
    before = flights.version
    for options, told in (
        ({"max_memtable_row": 3}, "nearest: max_memtable_rows"),
        ({"max_memtable_rows": 0}, "greater than zero"),
        ({"shards": 0}, "shards"),
        ({"shards": "3"}, "whole number"),
        ({"shards": 5000}, "shards"),
        ({"shard": 4}, "a stream has no setting 'shard'; nearest: shards"),
        ({"drain_evry": 4}, "nearest: drain_every"),
        ({"only": [1]}, "the shards 0 to 0, found 1"),
        ({"shards": 4, "only": [3, 4]}, "the shards 0 to 3, found 4"),
        ({"shards": 4, "only": [True]}, "the shards 0 to 3, found True"),
    ):
        with pytest.raises(InvalidInput, match=told):
            flights.stream(**options)
    assert flights.version == before
    assert flights.sharding is None
    flights.stream(shards=4).close()
    flights.stream(shards=4).close()
    with pytest.raises(InvalidInput, match=r"is shared out among 4 shards, .* leave it out"):
        flights.stream(shards=8)


def test_one_row_and_frames_are_taken_as_rows(flights: Any) -> None:
    with flights.stream(shards=2) as stream:
        stream.put({"id": 7, "delay": 1, "s": "x"})
        stream.put(pa.table(row(8)).to_pandas(), schema=SCHEMA)
        stream.delete(1)
        stream.delete({"id": 2})
        live = stream.live()
        assert delays(live.lookup([7, 8, 1])) == {7: 1, 8: 0}
        assert delays(live.lookup(7)) == {7: 1}
        assert live.lookup([{"id": 3}, {"id": 7}], ["s"]).num_rows == 2
        with pytest.raises(SchemaMismatch, match="a stream replaces whole rows"):
            stream.put({"id": 9, "delay": 1})


def test_a_live_table_is_read_like_a_table(flights: Any) -> None:
    with flights.stream() as stream:
        stream.put(row(2, 60))
        live = flights.live()
        assert live.schema == flights.schema
        scan = live.scan(["id", "delay"], "delay > 5", 1, 1)
        assert repr(scan).endswith("where='delay > 5', limit=1, offset=1)")
        assert (scan.count(), scan.to_arrow().num_rows, pa.table(scan).num_rows) == (1, 1, 1)
        assert sum(batch.num_rows for batch in live) == pa.table(live).num_rows == len(live) == 3
        assert sorted(live.to_pandas()["id"]) == sorted(live.to_polars()["id"]) == [1, 2, 3]
        assert live.head(2).num_rows == 2
        stream.delete([3])
        kept = live.scan()
        stream.put(row(9))
        assert sorted(kept.to_arrow()["id"].to_pylist()) == [1, 2]  # it stays at its moment
        for bad in ({"columns": ["no"]}, {"where": "no > 1"}, {"limit": -1}, {"offset": "x"}):
            with pytest.raises(TiltyardError):
                live.scan(**bad)
        for name, told in (("order_by", "sort what to_arrow"), ("blob_bytes", "itself"), ("no", "no option")):
            with pytest.raises(TypeError, match=told):
                live.scan(**{name: "id"})
        assert "base: version" in live.scan().explain()
        assert "generations 1" in live.scan().explain()
        reopened = pickle.loads(pickle.dumps(live))
        assert reopened.count() == 3

        async def awaiting() -> list[int]:
            scan = await live.ascan(["id"])
            return [key async for batch in scan for key in batch["id"].to_pylist()]

        assert sorted(asyncio.run(awaiting())) == [1, 2, 9]


def test_a_table_that_nobody_streams_into_is_read_live_as_it_is(flights: Any) -> None:
    live = flights.live()
    assert delays(live.to_arrow()) == {1: 5, 2: 6, 3: 7}
    assert (len(live), live.lookup([2]).num_rows, list(flights.tail())) == (3, 1, [])
    assert flights.dataset.mem_wal_index_details() is None


def test_live_searches_see_streamed_vectors(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.list_(pa.float32(), 2))])
    table = ty.connect(tmp_path).create_table("t", schema, key="id")
    table.append({"id": [1, 2], "v": [[0.0, 0.0], [1.0, 1.0]]})
    with table.stream() as stream:
        stream.put({"id": 1, "v": [9.0, 9.0]})
        lazy = table.live().search([0.0, 0.0], k=2)
        found = lazy.to_arrow().to_pydict()
        assert (lazy.count(), lazy.schema, next(iter(lazy)).num_rows) == (2, lazy.to_arrow().schema, 2)
        assert lazy.to_pandas()["id"].tolist() == [2, 1]
        assert "nearest=2 in 'v'" in repr(lazy)
        assert (found["id"], found["_distance"]) == ([2, 1], [2.0, 162.0])
        near = table.live().search([0.0, 0.0], distance_range=(None, 100.0), columns=["id"])
        assert near.to_arrow()["id"].to_pylist() == [2]
        for bad in ({"columns": ["nope"]}, {"where": "nope > 1"}, {"metric": "hamming"}, {"prefilter": True}):
            with pytest.raises(TiltyardError):
                table.live().search([0.0, 0.0], **bad)
        with pytest.raises(TiltyardError, match="one vector at a time"):
            table.live().search([[0.0, 0.0], [1.0, 1.0]])
        with pytest.raises(TiltyardError, match="no column"):
            table.live().search([0.0, 0.0], columns=["nope"])
        keys = [key * 7919 % 1000 for key in range(3, 103)]
        stream.put({"id": keys, "v": [[float(key), 0.0] for key in keys]})
        found = table.live().search([0.0, 0.0], k=30).to_arrow().to_pydict()
        assert asyncio.run(table.live().asearch([0.0, 0.0], k=3)).count() == 3
        assert found["_distance"] == sorted(x * x + y * y for x, y in found["v"])
        nearest = sorted([(2.0, 2), (162.0, 1), *((float(key * key), key) for key in keys)])
        assert found["id"] == [key for _, key in nearest[:30]]


def test_a_stream_tells_what_it_did_and_holds(flights: Any) -> None:
    with flights.stream(shards=2) as stream:
        assert repr(stream).endswith("0 shards open)")
        assert (stream.shards, stream.stats().shards) == ((), 0)
        for key in range(10, 20):
            stream.put(row(key))
        stats = stream.stats()
        assert (stats.shards, stats.puts, stats.log_entries, stats.rows_in_memory) == (2, 10, 10, 10)
        stream.flush()
        stats = stream.stats()
        assert (stats.rows_published, stats.rows_in_memory, stats.generations_published) == (10, 0, 2)
        assert [each.error for each in stream.shards] == [None, None]
        with flights.stream() as other:
            other.put({"id": list(range(10, 20)), "delay": [1] * 10, "s": ["y"] * 10})
            for key in range(10, 20):
                with pytest.raises(WriterFenced):
                    stream.put(row(key))
            assert {type(each.error) for each in stream.shards} == {WriterFenced}
        with pytest.raises(WriterFenced):
            stream.close()
    assert repr(stream).endswith("closed)")


def test_a_stream_belongs_to_its_process(flights: Any) -> None:
    with flights.stream() as stream:
        stream.put(row(10))
        for refused in (pickle.dumps, copy.copy):
            with pytest.raises(WrongType, match=r"table\.stream\(\)"):
                refused(stream)
            with pytest.raises(WrongType, match=r"table\.live\(\)"):
                refused(flights.live().scan())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for call in (lambda: stream.put(row(11)), stream.flush, stream.close):
                    with pytest.raises(ForkedHandle):
                        call()
                assert flights.live().count() == 4  # the parent's log is there to be read
                with flights.stream() as own:
                    own.put(row(12))
                    assert flights.live().count() == 5
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(WriterFenced):
            stream.put(row(13))
        with pytest.raises(WriterFenced):
            stream.close()
    assert {10, 12} <= set(delays(flights.live().to_arrow()))


def test_a_stream_that_was_taken_over_does_not_hide_what_its_successor_published(flights: Any) -> None:
    first = flights.stream()
    first.put(row(50, 1))
    with flights.stream() as second:
        second.put({"id": [50, 51], "delay": [2, 2], "s": ["", ""]})
    # `first` does not know yet; it shares the process with readers.
    third = subprocess.run(
        [sys.executable, "-c", KILLED, flights.uri], capture_output=True, text=True, check=False
    )
    assert third.returncode == -9, third.stderr
    assert delays(flights.live().lookup([52])) == {52: 3}  # nor of who died before it published
    found = delays(flights.live().to_arrow())
    assert (found[50], found[51]) == (2, 2)
    assert delays(flights.live().lookup([50, 51])) == {50: 2, 51: 2}
    with pytest.raises(WriterFenced):
        first.close()


def test_rows_of_a_writer_that_died_are_seen_before_anybody_takes_its_shards(flights: Any) -> None:
    """A stream that is given up without publishing is what a killed process leaves."""
    stream = flights.stream(shards=3)
    stream.put({"id": [2, *range(20, 40)], "delay": [9] * 21, "s": ["x"] * 21})
    stream.delete([1])
    for writer in stream._writer.writers:
        writer.abort()
    found = delays(flights.live().to_arrow())
    assert found == {2: 9, 3: 7, **dict.fromkeys(range(20, 40), 9)}
    assert delays(flights.live().lookup([1, 2, 25])) == {2: 9, 25: 9}
    assert flights.live().count() == len(found)
    with flights.stream() as again:
        again.put(row(25, 1))
        assert delays(flights.live().to_arrow()) == {**found, 25: 1}
    assert delays(flights.live().to_arrow()) == {**found, 25: 1}


def test_changes_of_rows_under_streamed_ones_are_refused(flights: Any) -> None:
    with flights.stream() as stream:
        stream.put(row(2, 60))
    for change in (
        lambda: flights.upsert(row(2, 1)),
        lambda: flights.delete("id = 2"),
        lambda: flights.update({"delay": "1"}, where="id = 2"),
        flights.dedupe,
        flights.merge,
    ):
        with pytest.raises(UndrainedRows, match="1 row in 1 shard were streamed"):
            change()
    assert delays(flights.live().lookup([2])) == {2: 60}
    flights.append(row(90, 3))
    assert delays(flights.live().lookup([90])) == {90: 3}


def test_whoever_begins_to_stream_second_finds_what_the_first_has_settled(flights: Any) -> None:
    other = ty.open_table(flights.uri)
    assert other.dataset.mem_wal_index_details() is None
    flights.stream(shards=2).close()
    with other.stream(shards=2) as stream:
        stream.put(row(5))
    failed: list[BaseException] = []

    def begin() -> None:
        try:
            table.stream(shards=2).close()
        except Exception as error:
            failed.append(error)

    table = ty.create_table(f"{flights.uri}-again", SCHEMA.set(0, KEYED))
    threads = [Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [each for each in failed if not isinstance(each, WriterFenced)]


def test_a_unique_key_alone_is_no_key_of_a_stream(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t", SCHEMA)
    table.set_unique_key("id")
    with pytest.raises(InvalidInput, match="declares none"):
        table.stream()
