"""How far shards are ahead of the base, in numbers."""

from __future__ import annotations

import os
from pathlib import Path

from streamed import OTHER_SHARD, SHARD, rows, shard_dir, streamed
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.lag import lag


def test_lag_goes_up_with_what_is_published_and_down_with_what_is_compacted(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    store, session = dataset._store, dataset._session
    assert lag(store, session).shards == ()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10, 11], 1.0))
        writer.flush()
        writer.put(rows([11], 1.0))
        writer.flush()
        writer.put(rows([12], 1.0))
        found = lag(store, session)
        (shard,) = found.shards
        assert (shard.mark, shard.published, shard.generations, shard.rows) == (0, 2, 2, 3)
        assert (shard.log_entries, shard.unpublished_entries, shard.tip, shard.epoch) == (3, 1, 3, 1)
        assert shard.nbytes == found.nbytes > 0
        compact_streams(store, session)
        (shard,) = lag(store, session).shards
        assert (shard.mark, shard.generations, shard.rows, shard.nbytes) == (2, 0, 0, 0)
        collect_streams(store, session, grace=Grace(0, 0, 0))
        assert lag(store, session).log_entries == 2
    (shard,) = lag(store, session, shards=[SHARD]).shards
    assert (shard.published, shard.generations, shard.unpublished_entries, shard.tip) == (3, 1, 0, 3)


def test_a_shard_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for shard in (SHARD, OTHER_SHARD):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([10], 1.0))
    for each in (shard_dir(tmp_path / "t") / "manifest").glob("*.binpb"):
        os.truncate(each, 3)
    found = lag(dataset._store, dataset._session)
    assert [each.shard_id for each in found.shards] == [OTHER_SHARD]
    assert list(found.problems) == [SHARD]
