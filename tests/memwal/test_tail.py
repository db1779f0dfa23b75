"""A shard's log as a feed: every durable row in order, once; what cannot be read on is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamed import SHARD, keys, newest_manifest, rows, shard_dir, streamed
from tiltyard import runtime
from tiltyard.errors import CorruptFile, LogTruncated, ShardError
from tiltyard.memwal import layout
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.tail import tail
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore


@pytest.fixture
def fed(tmp_path: Path) -> Any:
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10, 11], 1.0))
        writer.delete(keys([10]))
        writer.flush()
    ShardWriter.open(dataset, SHARD).abort()  # a sentinel at 3
    with ShardWriter.open(dataset, SHARD) as writer:  # at 4
        writer.put(rows([12], 2.0))
    return dataset


def feed(dataset: Any, **options: Any) -> list[tuple[int, int, list[int], list[bool]]]:
    shard = LocalStore(dataset._store.uri + f"/_mem_wal/{SHARD}")
    found = tail(shard, log_schema(dataset._snapshot.schema), **options)
    return [
        (each.position, each.epoch, each.rows.to_pydict()["id"], each.deletes.to_pylist()) for each in found
    ]


ALL = [(1, 1, [10, 11], [False, False]), (2, 1, [10], [True]), (5, 3, [12], [False])]


def test_every_entry_with_rows_in_order(fed: Any) -> None:
    assert feed(fed) == ALL
    for after in range(6):
        assert feed(fed, after=after) == [each for each in ALL if each[0] > after]


def test_a_feed_follows_what_comes(fed: Any) -> None:
    shard = LocalStore(fed._store.uri + f"/_mem_wal/{SHARD}")
    following = tail(shard, log_schema(fed._snapshot.schema), 5, follow=True)
    with ShardWriter.open(fed, SHARD) as writer:
        for key in (20, 21, 22):
            writer.put(rows([key], 3.0))
            assert next(following).rows.to_pydict()["id"] == [key]


def test_a_feed_with_a_deadline_ends(fed: Any) -> None:
    assert feed(fed, follow=True, deadline=runtime.monotonic() - 1) == ALL


def test_entries_that_were_collected_are_told_and_not_skipped(fed: Any, tmp_path: Path) -> None:
    assert newest_manifest(tmp_path / "t").replay_after == 5
    for position in (1, 2):
        (shard_dir(tmp_path / "t") / layout.entry_path(position)).unlink()
    with pytest.raises(LogTruncated, match="entries 1 to 2"):
        feed(fed)
    with pytest.raises(LogTruncated, match="entries 2 to 2"):
        feed(fed, after=1)
    assert feed(fed, after=2) == ALL[2:]


def test_sentinels_among_what_was_collected_are_no_place_to_go_on_from(fed: Any, tmp_path: Path) -> None:
    """Collectors keep every sentinel (decision D30)."""
    for position in (1, 2, 4):
        (shard_dir(tmp_path / "t") / layout.entry_path(position)).unlink()
    for after in range(4):
        with pytest.raises(LogTruncated, match="to 4 of the log") as told:
            feed(fed, after=after)
        assert told.value.args
    assert feed(fed, after=4) == ALL[2:]


def test_a_feed_ends_below_a_hole_that_the_owner_appends_into(fed: Any, tmp_path: Path) -> None:
    (shard_dir(tmp_path / "t") / layout.entry_path(7)).write_bytes(encode_sentinel(3))
    assert feed(fed) == ALL


def test_a_hole_above_the_cursor_is_damage(fed: Any, tmp_path: Path) -> None:
    writer = ShardWriter.open(fed, SHARD)
    writer.put(rows([30], 1.0))
    writer.put(rows([31], 1.0))
    writer.abort()
    (shard_dir(tmp_path / "t") / layout.entry_path(7)).unlink()
    with pytest.raises(CorruptFile, match="no entry at position 7"):
        feed(fed)


def test_a_damaged_entry_is_told_after_those_before_it(fed: Any, tmp_path: Path) -> None:
    (shard_dir(tmp_path / "t") / layout.entry_path(2)).write_bytes(b"garbage")
    shard = LocalStore(fed._store.uri + f"/_mem_wal/{SHARD}")
    following = tail(shard, log_schema(fed._snapshot.schema))
    assert next(following).position == 1
    with pytest.raises(CorruptFile, match="position 2"):
        next(following)


def test_no_shard_is_told(fed: Any, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="no shard"):
        list(tail(LocalStore(str(tmp_path / "nothing")), log_schema(fed._snapshot.schema)))
