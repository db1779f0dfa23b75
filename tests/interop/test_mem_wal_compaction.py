"""Compaction and collection of streams beside the official package: either merges the other's SSTables, each
goes on where the other stops, and its writers and readers go on under both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import ABANDON, BEGIN, CLOSE, DELETE, OPEN, PUT, SCAN, listed
from peer import Peer, PeerError
from streamed import (
    BASE,
    SHARD,
    keys,
    live,
    newest_manifest,
    rows,
    shard_dir,
    streamed,
    values,
)
from tiltyard.errors import IncompatibleTransaction, WriterFenced
from tiltyard.memwal import layout
from tiltyard.memwal.collection import Collected, Grace, collect_streams
from tiltyard.memwal.compaction import Compaction, compact_streams
from tiltyard.memwal.marks import marks_of
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.snapshot import open_latest

MERGE = """
from lance.mem_wal import CompactedSsTable
import pyarrow.compute as pc
for generation, directory in sstables:
    ds = lance.dataset(p)
    found = lance.dataset(f"{p}/_mem_wal/{shard}/{directory}").to_table()
    gone = found.filter(found["_tombstone"]).select(["id"])
    kept = found.filter(pc.invert(found["_tombstone"])).select(ds.schema.names)
    if gone.num_rows:
        ds.merge_insert("id").when_matched_delete().execute(gone)
        ds = lance.dataset(p)
    merge = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(shard, generation)]).execute(kept)
result = None
"""
BASE_ROWS = "result = lance.dataset(p).to_table()"


def compacted(path: Path) -> Compaction:
    dataset = lance.dataset(str(path))
    done = compact_streams(dataset._store, dataset._session)
    assert not done.problems
    return done


def collected(path: Path) -> Collected:
    dataset = lance.dataset(str(path))
    done = collect_streams(dataset._store, dataset._session, grace=Grace(0, 0, 3600))
    assert not done.problems
    return done


def ours(path: Path) -> ShardWriter:
    return ShardWriter.open(lance.dataset(str(path)), SHARD)


def theirs(peer: Peer, path: Path, **options: Any) -> Any:
    return peer(OPEN, p=str(path), shard=SHARD, options=options)


def merged_by_peer(peer: Peer, path: Path, *generations: int) -> None:
    named = {each.generation: each.path for each in newest_manifest(path).sstables}
    peer(MERGE, p=str(path), shard=SHARD, sstables=[(each, named[each]) for each in generations])


def marks(path: Path) -> dict[str, int]:
    dataset = lance.dataset(str(path))
    return dict(marks_of(open_latest(dataset._store, dataset._session)))


def base(path: Path) -> dict[int, float]:
    return values(lance.dataset(str(path)).to_table())


@pytest.fixture(params=["ours", "theirs"])
def path(request: pytest.FixtureRequest, tmp_path: Path, peer: Peer) -> Path:
    """A table with a MemWAL that either made."""
    at = tmp_path / "t"
    if request.param == "ours":
        streamed(at)
    else:
        peer(BEGIN, p=str(at), rows=pa.Table.from_batches([rows([1, 2, 3])]), options={}, sharding={})
    return at


def put(peer: Peer, *batches: Any) -> None:
    for each in batches:
        deletes = each.schema.names == ["id"]
        peer(DELETE if deletes else PUT, rows=pa.Table.from_batches([each]))


def test_we_compact_what_the_official_writer_published(path: Path, peer: Peer) -> None:
    for batches in (
        [rows([2, 10, 10], 1.0), keys([3])],
        [rows([3, 11], 2.0), keys([10, 99])],
        [rows([2, 12], 3.0)],
    ):
        theirs(peer, path)
        put(peer, *batches)
        peer(CLOSE)
    expected = {1: 0.0, 2: 3.0, 3: 2.0, 11: 2.0, 12: 3.0}
    assert (compacted(path).generations, marks(path)) == (3, {SHARD: 3})
    assert base(path) == expected
    assert values(peer(BASE_ROWS, p=str(path))) == expected
    assert values(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == expected
    assert collected(path).directories == 3
    assert values(theirs(peer, path)) == expected
    put(peer, rows([13], 4.0))
    peer(CLOSE)
    assert values(live(path)) == {**expected, 13: 4.0}


def test_the_official_package_compacts_what_we_published(path: Path, peer: Peer) -> None:
    with ours(path) as writer:
        writer.put(rows([2, 10, 10], 1.0))
        writer.delete(keys([3]))
        writer.flush()
        writer.put(rows([3, 11], 2.0))
        writer.delete(keys([10, 99]))
        writer.flush()
        writer.put(rows([12], 3.0))
        merged_by_peer(peer, path, 1, 2)
        expected = {1: 0.0, 2: 1.0, 3: 2.0, 11: 2.0}
        assert marks(path) == {SHARD: 2}
        assert base(path) == expected
        assert values(live(path, writer)) == {**expected, 12: 3.0}
        assert compacted(path).commits == 0
        assert newest_manifest(path).sstables == ()
        writer.put(rows([13], 3.0))
    assert compacted(path).generations == 1
    assert base(path) == {**expected, 12: 3.0, 13: 3.0}


def test_each_goes_on_where_the_other_stopped_and_refuses_what_is_stale(path: Path, peer: Peer) -> None:
    expected = dict(BASE)
    for generation in range(1, 7):
        if generation % 3:
            with ours(path) as writer:
                writer.put(rows([generation, 20 + generation], float(generation)))
        else:
            theirs(peer, path)
            put(peer, rows([generation, 20 + generation], float(generation)))
            peer(CLOSE)
        expected |= dict.fromkeys((generation, 20 + generation), float(generation))
        sstables = [(each.generation, each.path) for each in newest_manifest(path).sstables]
        if generation % 2:
            merged_by_peer(peer, path, generation)
            merge = lance.dataset(str(path)).merge_insert("id").when_matched_update_all()
            merge.mark_sstables_as_compacted([lance.mem_wal.CompactedSsTable(SHARD, generation)])
            with pytest.raises(IncompatibleTransaction, match="Stale SSTable compaction"):
                merge.execute(pa.Table.from_batches([rows([1], 99.0)]))
        else:
            compacted(path)
            with pytest.raises(PeerError, match="Stale SSTable compaction"):
                peer(MERGE, p=str(path), shard=SHARD, sstables=sstables[-1:])
        assert marks(path) == {SHARD: generation}
        assert base(path) == values(peer(BASE_ROWS, p=str(path))) == values(live(path)) == expected
    compacted(path)
    assert collected(path).directories == 6
    assert newest_manifest(path).sstables == ()
    assert values(theirs(peer, path)) == expected
    peer(CLOSE)


def test_an_official_writer_goes_on_while_we_compact_and_collect(path: Path, peer: Peer) -> None:
    """Its manifest changes under it, by versions of its own epoch; old ones, and the log, are deleted."""
    theirs(peer, path, max_memtable_rows=4)
    expected = dict(BASE)
    for step in range(12):
        put(peer, rows([step, 30 + step], float(step)), keys([40 + step]))
        expected |= dict.fromkeys((step, 30 + step), float(step))
        if step % 3 == 2:
            compacted(path)
            collected(path)
    peer(CLOSE)
    manifest = newest_manifest(path)
    assert manifest.writer_epoch == 1
    assert values(live(path)) == expected
    compacted(path)
    collected(path)
    assert base(path) == expected
    assert values(theirs(peer, path)) == expected
    put(peer, rows([77], 1.0))
    peer(ABANDON)
    with ours(path) as writer:
        assert values(live(path, writer)) == {**expected, 77: 1.0}
    standing = layout.entry_positions([each.name for each in (shard_dir(path) / "wal").iterdir()])
    assert newest_manifest(path).replay_after in standing


def test_an_official_writer_that_was_passed_is_fenced_after_a_collection(path: Path, peer: Peer) -> None:
    """The hole of section 9.3: a stalled writer's next position is where a sentinel stands for ever."""
    theirs(peer, path)
    put(peer, rows([10], 1.0))
    for key in (11, 12, 13):
        with ours(path) as writer:
            writer.put(rows([key], 1.0))
        compacted(path)
        collected(path)
    with pytest.raises(PeerError, match="fenced"):
        put(peer, rows([99], 9.0))
    peer(ABANDON)
    expected = {**BASE, **dict.fromkeys((10, 11, 12, 13), 1.0)}
    assert values(theirs(peer, path)) == expected
    peer(CLOSE)
    assert values(live(path)) == expected


def test_our_writer_that_was_passed_by_the_official_one_is_fenced_after_a_collection(
    path: Path, peer: Peer
) -> None:
    sleeper = ours(path)
    sleeper.put(rows([10], 1.0))
    for key in (11, 12):
        theirs(peer, path)
        put(peer, rows([key], 1.0))
        peer(CLOSE)
        compacted(path)
        collected(path)
    with pytest.raises(WriterFenced):
        sleeper.put(rows([99], 9.0))
    expected = {**BASE, 10: 1.0, 11: 1.0, 12: 1.0}
    assert values(live(path)) == values(theirs(peer, path)) == expected
    peer(CLOSE)


def test_a_stale_hint_below_collected_manifests_does_not_mislead_the_official_package(
    path: Path, peer: Peer
) -> None:
    with ours(path) as writer:
        for key in range(10, 20):
            writer.put(rows([key], 1.0))
            writer.flush()
    compacted(path)
    hint = shard_dir(path) / "manifest" / layout.HINT
    assert collected(path).manifests > 5
    for text in ('{"version":2}', "", '{"version":900}', None):
        hint.unlink(missing_ok=True)
        if text is not None:
            hint.write_text(text)
        assert len(theirs(peer, path)) == 13
        peer(CLOSE)


def test_index_catch_up_is_derived_by_our_compaction_as_by_theirs(tmp_path: Path, peer: Peer) -> None:
    """MemWAL, section 7.5: the same history, compacted by either."""
    histories = []
    for who in ("ours", "theirs"):
        at = tmp_path / who
        dataset = streamed(at)
        dataset.create_scalar_index("id", "BTREE", name="by_id")
        seen = []
        for generation in (1, 2, 3):
            with ours(at) as writer:
                writer.put(rows([generation, 20 + generation], 1.0))
            if who == "ours":
                compacted(at)
            else:
                merged_by_peer(peer, at, generation)
            seen.append(caught_up(at))
            if generation != 2:
                lance.dataset(str(at)).optimize.optimize_indices()
                seen.append(caught_up(at))
        lance.dataset(str(at)).optimize.compact_files()
        seen.append(caught_up(at))
        lance.dataset(str(at)).insert(pa.Table.from_batches([rows([50])]))
        seen.append(caught_up(at))
        histories.append(seen)
    assert histories[0] == histories[1]
    assert histories[0][:4] == [{}, {"by_id": {SHARD: 1}}, {"by_id": {SHARD: 1}}, {"by_id": {SHARD: 1}}]


def caught_up(path: Path) -> dict[str, dict[str, int]]:
    from tiltyard.format.mem_wal import MemWalDetails
    from tiltyard.table.apply.mem_wal import entry_of

    dataset = lance.dataset(str(path))
    entry = entry_of(open_latest(dataset._store, dataset._session).manifest)
    assert entry is not None
    return {name: dict(each) for name, each in MemWalDetails.of(entry).catch_up.items()}


def test_a_version_that_the_official_package_restores_is_compacted_into(tmp_path: Path, peer: Peer) -> None:
    """Its restore takes the marks back, and what was compacted since with them."""
    path = tmp_path / "t"
    streamed(path)
    writer = ours(path)
    for key in (10, 11, 12):
        writer.put(rows([key], 1.0))
        writer.flush()
        if key == 10:
            compacted(path)
            version = lance.dataset(str(path)).version
        if key == 11:
            compacted(path)
    peer("result = lance.dataset(p, version=v).restore()", p=str(path), v=version)
    assert marks_of(lance.dataset(str(path))._snapshot) == {SHARD: 1}
    expected = {**BASE, 10: 1.0, 12: 1.0}
    assert values(live(path, writer)) == expected
    assert compacted(path).generations == 1
    assert values(peer(BASE_ROWS, p=str(path))) == expected
    writer.put(rows([13], 1.0))
    writer.close()
    compacted(path)
    assert values(peer(BASE_ROWS, p=str(path))) == {**expected, 13: 1.0}
