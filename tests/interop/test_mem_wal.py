"""A shard that passes between our writers and the official package's: logs, SSTables, sentinels, removals."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import ABANDON, BEGIN, CLOSE, DELETE, LOOKUP, OPEN, PUT, SCAN, listed
from peer import Peer, PeerError
from streamed import (
    BASE,
    OTHER_SHARD,
    SHARD,
    keys,
    live,
    log_names,
    newest_manifest,
    rows,
    shard_dir,
    streamed,
    values,
)
from tiltyard.errors import WriterFenced, WriterPoisoned
from tiltyard.memwal import layout
from tiltyard.memwal.manifest import update
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore


def opened(peer: Peer, path: Path, shard: str = SHARD, **options: Any) -> Any:
    """The official package takes the shard over; what it sees."""
    return peer(OPEN, p=str(path), shard=shard, options=options)


def ours(path: Path, shard: str = SHARD, **options: Any) -> ShardWriter:
    return ShardWriter.open(lance.dataset(str(path)), shard, **options)


@pytest.fixture(params=["ours", "theirs"])
def path(request: pytest.FixtureRequest, tmp_path: Path, peer: Peer) -> Path:
    """A table with a MemWAL that either made."""
    at = tmp_path / "t"
    if request.param == "ours":
        streamed(at)
    else:
        peer(BEGIN, p=str(at), rows=pa.Table.from_batches([rows([1, 2, 3])]), options={}, sharding={})
    return at


def test_our_log_is_taken_over_by_the_official_writer_and_its_sstable_is_read(path: Path, peer: Peer) -> None:
    writer = ours(path)
    writer.put(rows([10, 11], 1.0))
    writer.put(rows([2], 2.0))
    writer.delete(keys([3]))
    writer.put(rows([11], 3.0), durable=False)
    writer.put(rows([12], 4.0))
    expected = {1: 0.0, 2: 2.0, 10: 1.0, 11: 3.0, 12: 4.0}
    writer.abort()
    assert values(opened(peer, path)) == expected
    peer(PUT, rows=pa.Table.from_batches([rows([1], 9.0)]))
    peer(CLOSE)
    manifest = newest_manifest(path)
    assert [each.generation for each in manifest.sstables] == [1]
    assert values(live(path)) == {**expected, 1: 9.0}
    with ours(path) as again:
        assert values(live(path, again)) == {**expected, 1: 9.0}


def test_the_official_log_is_taken_over_by_ours_and_our_sstable_is_read(path: Path, peer: Peer) -> None:
    opened(peer, path)
    peer(PUT, rows=pa.Table.from_batches([rows([10, 11], 1.0)]))
    peer(PUT, rows=pa.Table.from_batches([rows([11, 2], 2.0)]))
    peer(DELETE, rows=pa.Table.from_batches([keys([3, 10])]))
    peer(ABANDON)
    expected = {1: 0.0, 2: 2.0, 11: 2.0}
    with ours(path) as writer:
        assert values(live(path, writer)) == expected
        writer.put(rows([1], 5.0))
    expected[1] = 5.0
    assert values(live(path)) == expected
    manifest = newest_manifest(path)
    assert [each.generation for each in manifest.sstables] == [1]
    assert values(peer(SCAN, p=str(path), listed=listed(manifest))) == expected
    found = peer(
        LOOKUP, p=str(path), listed=listed(manifest), keys=[pa.array([k]) for k in (1, 2, 3, 10, 11, 99)]
    )
    assert [[row["v"] for row in each] for each in found] == [[5.0], [2.0], [], [], [2.0], []]
    assert values(opened(peer, path)) == expected
    peer(CLOSE)


def test_ten_owners_in_turn_keep_what_was_acknowledged(tmp_path: Path, peer: Peer) -> None:
    path, draw = tmp_path / "t", random.Random(7)
    streamed(path, list(range(20)))
    model = dict.fromkeys(range(20), 0.0)
    for turn in range(10):
        is_ours = turn % 2 == 0
        writer = ours(path, max_memtable_rows=25) if is_ours else None
        seen = live(path, writer) if writer else opened(peer, path, max_memtable_rows=25)
        assert values(seen) == model, turn
        for step in range(6):
            put = [draw.randrange(40) for _ in range(draw.randint(1, 6))]
            number = float(10 * turn + step)
            gone = draw.sample(range(40), 2)
            if writer is not None:
                writer.put(rows(put, number))
                writer.delete(keys(gone))
            else:
                peer(PUT, rows=pa.Table.from_batches([rows(put, number)]))
                peer(DELETE, rows=pa.Table.from_batches([keys(gone)]))
            model.update(dict.fromkeys(put, number))
            for key in gone:
                model.pop(key, None)
        crashes = draw.random() < 0.6
        if writer is not None:
            writer.abort() if crashes else writer.close()
        else:
            peer(ABANDON if crashes else CLOSE)
    with ours(path):
        pass
    assert values(live(path)) == model
    assert values(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == model


def test_a_sentinel_of_ours_fences_the_official_writer(path: Path, peer: Peer) -> None:
    opened(peer, path)
    peer(PUT, rows=pa.Table.from_batches([rows([10], 1.0)]))
    writer = ours(path)
    with pytest.raises(PeerError, match="fenced"):
        peer(PUT, rows=pa.Table.from_batches([rows([11], 1.0)]))
    writer.put(rows([12], 2.0))
    assert values(live(path, writer)) == {**BASE, 10: 1.0, 12: 2.0}
    with pytest.raises(PeerError, match="fenced"):
        peer(CLOSE)
    writer.close()
    assert values(live(path)) == {**BASE, 10: 1.0, 12: 2.0}


def test_a_sentinel_of_the_official_writer_fences_ours(path: Path, peer: Peer) -> None:
    """Case M01, with the official package as the one who takes over."""
    writer = ours(path)
    writer.put(rows([10], 1.0))
    assert values(opened(peer, path)) == {**BASE, 10: 1.0}
    before = log_names(path)
    with pytest.raises(WriterFenced, match="Writer fenced"):
        writer.put(rows([11], 1.0))
    assert log_names(path) == before
    for call in (writer.view, lambda: writer.put(rows([11])), writer.close):
        with pytest.raises(WriterFenced):
            call()
    peer(PUT, rows=pa.Table.from_batches([rows([12], 2.0)]))
    peer(CLOSE)
    assert values(live(path)) == {**BASE, 10: 1.0, 12: 2.0}


def drained(path: Path, gone: int) -> None:
    """Somebody removes a generation from the manifest, within the epoch (section 2.8)."""
    known = newest_manifest(path)
    left = tuple(each for each in known.sstables if each.generation != gone)
    update(LocalStore(str(shard_dir(path))), known, lambda now: replace(now, sstables=left))


def test_a_removal_of_ours_stands_under_the_official_writer(path: Path, peer: Peer) -> None:
    opened(peer, path, max_memtable_rows=2)
    for key in (10, 11, 12, 13):
        peer(PUT, rows=pa.Table.from_batches([rows([key, key + 100], 1.0)]))
    peer(CLOSE)
    assert [each.generation for each in newest_manifest(path).sstables] == [1, 2, 3, 4]
    opened(peer, path)
    drained(path, 2)
    peer(PUT, rows=pa.Table.from_batches([rows([20], 2.0)]))
    peer(CLOSE)
    assert [each.generation for each in newest_manifest(path).sstables] == [1, 3, 4, 5]
    assert values(live(path)) == {**BASE, **dict.fromkeys((10, 110, 12, 112, 13, 113), 1.0), 20: 2.0}


def test_a_removal_by_others_stands_under_our_writer(path: Path) -> None:
    writer = ours(path)
    for key in (10, 11):
        writer.put(rows([key], 1.0))
        writer.flush()
    drained(path, 1)
    writer.put(rows([12], 2.0))
    writer.flush()
    assert [each.generation for each in newest_manifest(path).sstables] == [2, 3]
    assert values(live(path, writer)) == {**BASE, 11: 1.0, 12: 2.0}
    drained(path, 3)
    writer.put(rows([13], 3.0))
    writer.close()
    assert [each.generation for each in newest_manifest(path).sstables] == [2, 4]


def test_a_shard_of_either_is_read_beside_one_of_the_other(path: Path, peer: Peer) -> None:
    with ours(path) as writer:
        writer.put(rows([10], 1.0))
        writer.delete(keys([1]))
    opened(peer, path, OTHER_SHARD)
    peer(PUT, rows=pa.Table.from_batches([rows([11], 2.0)]))
    peer(DELETE, rows=pa.Table.from_batches([keys([2])]))
    peer(CLOSE)
    expected = {3: 0.0, 10: 1.0, 11: 2.0}
    assert values(live(path)) == expected
    both = listed(newest_manifest(path), newest_manifest(path, OTHER_SHARD))
    assert values(peer(SCAN, p=str(path), listed=both)) == expected


def test_spec_ids_of_new_shards_are_those_of_the_table(tmp_path: Path, peer: Peer) -> None:
    for name, sharding, spec in (
        ("manual", {}, 0),
        ("unsharded", {"unsharded": True}, 1),
        ("bucket", {"bucket_column": "id", "num_buckets": 4}, 1),
        ("identity", {"identity_column": "id"}, 1),
    ):
        path = tmp_path / name
        streamed(path, **sharding)
        opened(peer, path)
        peer(PUT, rows=pa.Table.from_batches([rows([10], 1.0)]))
        peer(ABANDON)
        assert newest_manifest(path).shard_spec_id == spec
        with ours(path) as writer:
            assert writer.manifest.shard_spec_id == spec
        opened(peer, path)
        peer(CLOSE)
        assert newest_manifest(path).shard_spec_id == spec
        assert values(live(path)) == {**BASE, 10: 1.0}


def test_the_details_of_the_index_are_the_same(tmp_path: Path, peer: Peer) -> None:
    table = pa.Table.from_batches([rows([1, 2, 3])])
    for number, sharding in enumerate(
        (
            {},
            {"unsharded": True},
            {"bucket_column": "s", "num_buckets": 7},
            {"identity_column": "s"},
            {"maintained_indexes": []},
            {"durable_write": False, "max_memtable_rows": 50},
        )
    ):
        mine, other = tmp_path / f"{number}m", tmp_path / f"{number}t"
        streamed(mine, **sharding)
        peer(BEGIN, p=str(other), rows=table, options={}, sharding=sharding)
        told = "result = lance.dataset(p).mem_wal_index_details()"
        theirs = peer(told, p=str(other))
        assert lance.dataset(str(mine)).mem_wal_index_details() == theirs, sharding
        assert lance.dataset(str(other)).mem_wal_index_details() == theirs, sharding
        seen = peer(told, p=str(mine))
        defaults = seen["writer_config_defaults"]
        seen["writer_config_defaults"] = {k: v for k, v in defaults.items() if not k.startswith("tiltyard.")}
        assert seen == theirs, sharding


def test_the_hint_of_either_may_be_wrong(path: Path, peer: Peer) -> None:
    hint = shard_dir(path) / "manifest" / layout.HINT
    with ours(path) as writer:
        writer.put(rows([10], 1.0))
    told = json.loads(hint.read_text())
    assert hint.read_bytes() == b'{"version":%d}' % newest_manifest(path).version, told
    for text in (b"", b"{", b'{"version":1}', b'{"version":999}'):
        hint.write_bytes(text)
        opened(peer, path)
        peer(CLOSE)
        hint.write_bytes(text)
        with ours(path) as writer:
            assert values(live(path, writer)) == {**BASE, 10: 1.0}
    hint.unlink()
    opened(peer, path)
    peer(CLOSE)
    assert values(live(path)) == {**BASE, 10: 1.0}


def test_what_ours_holds_in_one_generation_the_official_default_writer_replays(
    tmp_path: Path, peer: Peer
) -> None:
    """More rows and more entries than its MemTable takes: ours end generations before that."""
    path = tmp_path / "t"
    streamed(path, [])
    writer = ours(path, max_memtable_rows=10**9, max_memtable_batches=10**9)
    for start in (0, 60_000, 120_000):
        writer.put(rows(list(range(start, start + 60_000)), 1.0))
    writer.abort()
    found = opened(peer, path)
    assert found.num_rows == 180_000
    peer(CLOSE)
    assert live(path).num_rows == 180_000


def test_nothing_is_taken_for_an_entry_that_is_none(path: Path, peer: Peer) -> None:
    """A temporary file of the official writer at the tip does not move ours (section 9.14)."""
    writer = ours(path)
    writer.put(rows([10], 1.0))
    stray = shard_dir(path) / "wal" / f"{layout.digits(2)}.arrow.tmp.{'0123456789abcdef' * 2}"
    stray.write_bytes(b"half an entry")
    writer.abort()
    with ours(path) as again:
        assert f"{layout.digits(2)}.arrow" in log_names(path)
        again.put(rows([11], 2.0))
    opened(peer, path)
    peer(CLOSE)
    assert values(live(path)) == {**BASE, 10: 1.0, 11: 2.0}


def test_a_hole_that_the_official_writer_leaves_keeps_nobody_out(path: Path, peer: Peer) -> None:
    """Its sentinel stands one too high, above a dead writer's temporary file; it died before it appended."""
    writer = ours(path)
    writer.put(rows([10], 1.0))
    writer.abort()
    stray = shard_dir(path) / "wal" / f"{layout.digits(2)}.arrow.tmp.{'0123456789abcdef' * 2}"
    stray.write_bytes(b"half an entry")
    opened(peer, path)
    assert f"{layout.digits(2)}.arrow" not in log_names(path)
    assert f"{layout.digits(3)}.arrow" in log_names(path)
    with ours(path) as writer:
        with pytest.raises(PeerError, match="fenced"):
            peer(PUT, rows=pa.Table.from_batches([rows([11], 2.0)]))
        assert values(live(path, writer)) == {**BASE, 10: 1.0}
        writer.put(rows([12], 3.0))
    assert values(live(path)) == {**BASE, 10: 1.0, 12: 3.0}


def test_an_entry_at_our_tip_that_is_not_ours_ends_the_writer(path: Path) -> None:
    writer = ours(path)
    writer.put(rows([10], 1.0))
    entry = shard_dir(path) / layout.entry_path(1)
    (shard_dir(path) / layout.entry_path(2)).write_bytes(entry.read_bytes())
    with pytest.raises(WriterPoisoned, match="position 2"):
        writer.put(rows([11], 1.0))
    with pytest.raises(WriterPoisoned):
        writer.view()
