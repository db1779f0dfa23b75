"""How far shards are ahead of the base, in numbers."""

from __future__ import annotations

import os
from pathlib import Path

from streamed import OTHER_SHARD, SHARD, rows, shard_dir, streamed
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.lag import ShardLag, lag


def test_lag_goes_up_with_what_is_published_and_down_with_what_is_compacted(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    store, session = dataset._store, dataset._session
    assert not lag(store, session).shards
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10, 11], 1.0))
        writer.flush()
        writer.put(rows([11], 1.0))
        writer.flush()
        writer.put(rows([12], 1.0))
        found = lag(store, session)
        shard = found.shards[SHARD]
        assert (shard.generations, shard.rows) == (found.generations, found.rows) == (2, 3)
        assert shard.nbytes > 0
        compact_streams(store, session)
        assert lag(store, session).shards == {SHARD: ShardLag(0, 0, 0)}
    assert lag(store, session).generations == 1


def test_a_shard_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for shard in (SHARD, OTHER_SHARD):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([10], 1.0))
    for each in (shard_dir(tmp_path / "t") / "manifest").glob("*.binpb"):
        os.truncate(each, 3)
    found = lag(dataset._store, dataset._session)
    assert list(found.shards) == [OTHER_SHARD]
    assert list(found.problems) == [SHARD]
