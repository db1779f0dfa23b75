"""A table's streams as a feed of changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from handles import HANDLES, open_files
from tiltyard.errors import InvalidInput, LogTruncated
from tiltyard.memwal import layout

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return ty.connect(tmp_path).create_table("t", SCHEMA, key="id")


def applied(changes: Any, model: dict[int, int] | None = None) -> dict[int, int]:
    """What the changes make of a table."""
    rows = {} if model is None else model
    for change in changes:
        for key in change.deletes["id"].to_pylist():
            rows.pop(key, None)
        rows.update(zip(*change.upserts.to_pydict().values(), strict=True))
    return rows


def live(table: Any) -> dict[int, int]:
    found = table.live().to_arrow().to_pydict()
    return dict(zip(found["id"], found["v"], strict=True))


def test_the_changes_of_all_shards_make_the_table(table: Any) -> None:
    with table.stream(shards=3) as stream:
        for key in range(20):
            stream.put({"id": key, "v": key})
        stream.delete([1, 2])
        stream.put({"id": [2, 5, 5], "v": [20, 50, 51]})
        feed = stream.tail()
        assert applied(feed) == live(table)
        assert list(feed) == []
        assert len(feed.cursor) == 3


def test_a_cursor_goes_on_where_it_stood_also_after_a_flush_and_a_take_over(table: Any) -> None:
    model: dict[int, int] = {}
    cursor: Any = None
    for step in range(6):
        with table.stream(shards=2) as stream:
            for key in range(step, step + 5):
                stream.put({"id": key, "v": step})
            stream.delete([step])
            feed = table.tail(after=cursor)
            for number, change in enumerate(feed):
                applied([change], model)
                cursor = json.loads(json.dumps(feed.cursor))
                if number == 1:  # the reader ends, and another goes on from there
                    break
            applied((feed := table.tail(after=cursor)), model)
            cursor = feed.cursor
            assert model == live(table)
    assert list(table.tail(after=cursor)) == []


def test_within_a_change_the_last_row_of_a_key_counts(table: Any) -> None:
    with table.stream() as stream:
        stream.put({"id": [1, 2], "v": [1, 2]}, durable=False)
        stream.delete([1], durable=False)
        stream.put({"id": [1, 3], "v": [10, 3]}, durable=False)
        stream.delete([3])
        (change,) = table.tail()
    assert change.rows.num_rows == 6
    assert change.upserts.to_pydict() == {"id": [2, 1], "v": [2, 10]}
    assert change.deletes.to_pydict() == {"id": [3]}
    assert repr(change).startswith("Change(shard_id=")


def test_a_feed_follows_until_it_is_stopped(table: Any) -> None:
    with table.stream() as stream:
        stream.put({"id": 0, "v": 0})
        feed = table.tail(after="end", follow=True)
        got: list[int] = []

        def reading() -> None:
            for change in feed:
                got.extend(change.upserts["id"].to_pylist())
                if 9 in got:
                    feed.stop()

        reader = Thread(target=reading)
        reader.start()
        for key in range(1, 10):
            stream.put({"id": key, "v": key})
        reader.join(30)
        assert got == list(range(1, 10))
    assert list(table.tail(after=feed.cursor, follow=True, timeout=0)) == []


def test_a_feed_may_be_awaited(table: Any) -> None:
    async def scenario() -> list[int]:
        got: list[int] = []
        async with table.stream(shards=2) as stream:
            feed = stream.tail(follow=True)

            async def reading() -> None:
                async for change in feed:
                    got.extend(change.upserts["id"].to_pylist())
                    if len(got) == 50:
                        feed.stop()

            reader = asyncio.create_task(reading())
            await asyncio.gather(*(stream.aput({"id": key, "v": key}) for key in range(50)))
            await asyncio.wait_for(reader, 30)
        return got

    assert sorted(asyncio.run(scenario())) == list(range(50))


def test_what_is_not_published_begins_at_published(table: Any) -> None:
    """The table, then the feed from `published`: together everything, whoever streams."""
    with table.stream() as stream:
        stream.put({"id": 1, "v": 1})
        stream.flush()
        stream.put({"id": 2, "v": 2})
        assert [each.upserts["id"].to_pylist() for each in table.tail(after="published")] == [[2]]
        assert list(table.tail(after="end")) == []


def test_entries_that_were_collected_are_told(table: Any, tmp_path: Path) -> None:
    with table.stream() as stream:
        for key in range(3):
            stream.put({"id": key, "v": key})
    (shard,) = (tmp_path / "t.lance" / layout.ROOT).iterdir()
    (shard / layout.entry_path(1)).unlink()
    feed = table.tail()
    with pytest.raises(LogTruncated, match="were collected") as told:
        list(feed)
    assert (told.value.shard_id, told.value.position) == (shard.name, 1)
    rest = table.tail(after={**feed.cursor, told.value.shard_id: told.value.position})
    assert applied(rest) == {1: 1, 2: 2}


@pytest.mark.skipif(not HANDLES.is_dir(), reason="no list of open files here")
def test_a_feed_of_many_shards_keeps_no_files_open(table: Any) -> None:
    with table.stream(shards=24) as stream:
        stream.put({"id": list(range(200)), "v": list(range(200))})
        before = open_files()
        feed = table.tail()
        assert len(applied(feed)) == 200
        assert len(feed.cursor) == 24
        assert open_files() < before + 6  # some are open for a moment


def test_what_a_tail_cannot_be_asked(table: Any) -> None:
    assert list(table.tail()) == []
    for options in ({"after": "start"}, {"after": {"x": 1}}, {"after": 3}, {"timeout": 1}, {"follow": 1}):
        with pytest.raises(InvalidInput):
            table.tail(**options)
    with pytest.raises(InvalidInput, match=r"tail is refused: .* history\(\)"):
        table.at(version=1).tail()
