"""Logs into MemTables: where a MemTable ends, and what was published already (MemWAL, section 3.5)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamed import KEY, SHARD, entry_bytes
from tiltyard.errors import CorruptFile, WriterFenced
from tiltyard.format.schema import Schema
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.replay import Replay
from tiltyard.store.memory import MemoryStore, Space

TABLE = Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.int32())]))
LOG = log_schema(TABLE)


def entry(ids: list[int], generation: int, epoch: int = 1) -> bytes:
    columns = [pa.array(ids), pa.array(ids, pa.int32()), pa.array([False] * len(ids))]
    batch = pa.RecordBatch.from_arrays(columns, schema=LOG.stored.arrow)
    return entry_bytes(batch, LOG.entry, epoch, generation)


def replayed(
    *entries: bytes, after: int = 0, current: int = 1, epoch: int = 5, rows: int = 100, batches: int = 100
) -> list[tuple[int, list[int], int]]:
    """Of each MemTable: its generation, its keys, the last position of it."""
    store = MemoryStore(Space(""))
    for position, data in enumerate(entries, 1):
        store.put(layout.entry_path(position), data)
    manifest = ShardManifest(SHARD, 1, epoch, after, after, current)
    replay = Replay(store, LOG, after, rows, batches)
    replay.read()
    return [
        (each.generation, [i for b in each.view().batches for i in b.to_pydict()["id"]], each.logged_to)
        for each in replay.memtables(manifest)
    ]


def test_an_empty_log_is_an_empty_memtable() -> None:
    assert replayed() == [(1, [], 0)]
    assert replayed(encode_sentinel(1), current=4) == [(4, [], 0)]


def test_a_memtable_ends_where_the_generation_rises() -> None:
    log = [entry([1], 1), entry([2], 1), encode_sentinel(2), entry([3], 2), entry([4], 4)]
    assert replayed(*log) == [(1, [1, 2], 2), (2, [3], 4), (3, [4], 5)]


def test_what_the_cursor_covers_is_not_read() -> None:
    log = [b"garbage", entry([2], 2), entry([3], 2)]
    assert replayed(*log, after=1, current=2) == [(2, [2, 3], 3)]


def test_the_last_entries_of_a_published_generation_may_stand_above_the_cursor() -> None:
    log = [entry([1], 1), entry([2], 1), entry([3], 2), entry([4], 2)]
    assert replayed(*log, after=1, current=2) == [(2, [3, 4], 4)]
    assert replayed(*log[:2], after=1, current=2) == [(2, [], 0)]


def test_entries_of_an_epoch_that_passed_ours_stop_the_replay() -> None:
    with pytest.raises(WriterFenced, match="writer_epoch 9"):
        replayed(entry([1], 1, epoch=9))


def test_generations_that_go_back_are_damage() -> None:
    with pytest.raises(CorruptFile, match="generation 1 below the generation 2"):
        replayed(entry([1], 2), entry([2], 1))


def test_columns_of_another_type_are_damage() -> None:
    other = log_schema(
        Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.string())]))
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array(["x"]), pa.array([False])], schema=other.stored.arrow
    )
    with pytest.raises(CorruptFile, match="`v` is stored as string and the schema declares int32"):
        replayed(entry_bytes(batch, other.entry, 1, 1))


@pytest.mark.parametrize("column", ["id", "_tombstone"])
def test_nulls_where_none_may_be_are_damage(column: str) -> None:
    loose = pa.schema([each.with_nullable(True) for each in LOG.entry], LOG.entry.metadata)
    values: dict[str, Any] = {"id": [1, 2], "v": [1, 2], "_tombstone": [False, False], column: [None, None]}
    arrays = [pa.array(values[each.name], each.type) for each in loose]
    batch = pa.RecordBatch.from_arrays(arrays, schema=loose)
    with pytest.raises(CorruptFile, match=f"nulls in column `{column}`"):
        replayed(entry_bytes(batch, loose, 1, 1))


def test_a_second_reading_takes_only_what_was_added() -> None:
    store = MemoryStore(Space(""))
    replay = Replay(store, LOG, 0, 10, 10)
    store.put(layout.entry_path(1), entry([1], 1))
    replay.read()
    store.put(layout.entry_path(1), b"changed since, and not looked at again")
    store.put(layout.entry_path(2), entry([2], 1))
    replay.read()
    assert replay.tip == 2
    store.put(layout.entry_path(4), entry([3], 1))
    with pytest.raises(CorruptFile, match="no entry at position 3"):
        replay.read()


STAMPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12)


@given(STAMPS, st.integers(1, 4))
@settings(max_examples=50)
def test_no_other_owner_takes_what_is_held_for_published(steps: list[tuple[int, int]], current: int) -> None:
    """Entries of a MemTable carry generations that are not below its number: once those before it are
    published, and the manifest has come to its number, they still count.
    """
    log, stamp, at, expected = [], current - 1 or 1, 0, []
    stamps: dict[int, int] = {}
    for rise, count in steps:
        stamp += rise
        ids = list(range(at, at + count))
        at += count
        log.append(entry(ids, stamp))
        stamps.update(dict.fromkeys(ids, stamp))
        expected += ids if stamp >= current else []
    tables = replayed(*log, current=current)
    assert [key for _, keys, _ in tables for key in keys] == expected
    assert [generation for generation, _, _ in tables] == list(range(current, current + len(tables)))
    for generation, keys, _ in tables:
        assert all(stamps[key] >= generation for key in keys)
