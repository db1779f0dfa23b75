"""Streams and live tables in plain words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Thread, active_count
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import InvalidInput, SchemaMismatch, WriterClosed, WriterFenced

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("delay", pa.int32()), pa.field("s", pa.string())]
)


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


def test_a_version_is_not_streamed_into(flights: Any) -> None:
    with pytest.raises(InvalidInput, match="streamed into"):
        flights.at(version=1).stream()
