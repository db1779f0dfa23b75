"""Another sharding while the official package has writers open, reads, and comes late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import BEGIN, PUT, SCAN, TAKE, listed
from peer import Peer, PeerError
from streamed import BASE, OTHER_SHARD, SHARD, newest_manifest, rows, values
from tiltyard.memwal.capture import capture
from tiltyard.memwal.claim import claim
from tiltyard.memwal.identity import DRAINING_SPEC, identity_of
from tiltyard.memwal.identity import streamed as memwal_of
from tiltyard.memwal.resharding import abandon, compacted, revise, tidy
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.sealing import seal, unseal
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.store.local import LocalStore

SHARDINGS: dict[str, dict[str, Any]] = {
    "by hand": {},
    "buckets": {"bucket_column": "id", "num_buckets": 1},
    "one": {"unsharded": True},
}
EIGHT = {"bucket_column": "id", "num_buckets": 8}


def fresh(path: Path) -> Any:
    return lance.dataset(str(path), session=lance.Session())


def everything(path: Path) -> dict[int, float]:
    return values(LsmScan(capture(LocalStore(str(path)), lance.Session(), with_logs=True)).table())


def taken(peer: Peer, path: Path, shard: str = SHARD) -> None:
    peer(TAKE, p=str(path), shard=shard, options={})


def put(peer: Peer, ids: list[int], number: float) -> None:
    peer(PUT, rows=pa.Table.from_batches([rows(ids, number)]))


@pytest.fixture(params=SHARDINGS)
def path(request: pytest.FixtureRequest, tmp_path: Path, peer: Peer) -> Path:
    """A table that the official package made, with one of its writers open and rows in its log."""
    at = tmp_path / "t"
    made = pa.Table.from_batches([rows([1, 2, 3])])
    peer(BEGIN, p=str(at), rows=made, options={}, sharding=SHARDINGS[request.param])
    taken(peer, at)
    put(peer, [10, 11], 1.0)
    return at


def test_its_open_writer_is_fenced_and_its_rows_are_kept(path: Path, peer: Peer) -> None:
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    put(peer, [11, 2], 2.0)  # until its shard is taken over it goes on
    with pytest.raises(PeerError, match="at most one sharding spec, found 2"):
        taken(peer, path, OTHER_SHARD)
    with pytest.raises(PeerError, match="at most one sharding spec, found 2"):
        taken(peer, path)
    assert tidy(fresh(path), compacted).shards == (SHARD,)
    expected = {**BASE, 2: 2.0, 10: 1.0, 11: 2.0}
    assert everything(path) == expected
    assert values(peer(SCAN, p=str(path), listed=[])) == expected
    with pytest.raises(PeerError, match="sealed"):
        taken(peer, path)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([10], 3.0))
        (made,) = [each.shard_id for each in writer.writers]
    assert everything(path) == {**expected, 10: 3.0}
    assert values(peer(SCAN, p=str(path), listed=listed(newest_manifest(path, made)))) == {
        **expected,
        10: 3.0,
    }
    taken(peer, path, made)
    put(peer, [11], 4.0)
    assert everything(path) == {**expected, 10: 3.0, 11: 4.0}


def test_its_writer_that_was_open_throughout_can_put_no_more(path: Path, peer: Peer) -> None:
    revise(fresh(path), compacted, EIGHT)
    with pytest.raises(PeerError, match=r"fenced|sealed"):
        put(peer, [12], 2.0)
    with pytest.raises(PeerError):
        peer("kept.pop('w').close()")
    assert everything(path) == {**BASE, 10: 1.0, 11: 1.0}


def test_it_writes_again_when_a_change_was_called_off(path: Path, peer: Peer) -> None:
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    seal(fresh(path), SHARD, coming=2)
    with pytest.raises(PeerError, match=r"fenced|sealed"):
        put(peer, [12], 2.0)
    peer(
        "lance.write_dataset(rows, p, mode='append')",
        p=str(path),
        rows=pa.Table.from_batches([rows([50], 5.0)]),
    )
    assert abandon(fresh(path)).shards == (SHARD,)
    taken(peer, path)
    put(peer, [11, 2], 4.0)
    peer("kept.pop('w').close()")
    expected = {**BASE, 2: 4.0, 10: 1.0, 11: 4.0, 50: 5.0}
    assert everything(path) == expected
    assert values(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == expected
    assert revise(fresh(path), compacted, EIGHT).activated
    assert everything(path) == expected


def test_its_commits_keep_a_change_that_is_under_way(path: Path, peer: Peer) -> None:
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    peer(
        "lance.write_dataset(rows, p, mode='append'); ds = lance.dataset(p)\n"
        "ds.merge_insert('id').when_matched_update_all().when_not_matched_insert_all().execute(rows)\n"
        "ds.create_scalar_index('id', 'BTREE'); ds.optimize.compact_files(); result = None",
        p=str(path),
        rows=pa.Table.from_batches([rows([50], 5.0)]),
    )
    noted = memwal_of(fresh(path)._snapshot)
    assert noted.draining
    assert DRAINING_SPEC in noted.details.writer_defaults
    assert tidy(fresh(path), compacted).activated
    assert everything(path) == {**BASE, 10: 1.0, 11: 1.0, 50: 5.0}


def test_a_shard_that_it_begins_late_is_drained_when_it_is_met(path: Path, peer: Peer) -> None:
    """It has read the old spec before the change; here its claim is made by us, with its words."""
    old = memwal_of(fresh(path)._snapshot)
    spec_id = 0 if old.spec is None else old.spec.spec_id
    revise(fresh(path), compacted, EIGHT)
    late = LocalStore(str(path)).at(f"_mem_wal/{OTHER_SHARD}")
    claim(late, identity_of(old, OTHER_SHARD, spec_id), lambda _: None)
    taken(peer, path, OTHER_SHARD)  # it does not compare specs
    put(peer, [11, 60], 6.0)
    expected = {**BASE, 10: 1.0, 11: 6.0, 60: 6.0}
    assert everything(path) == expected
    assert tidy(fresh(path), compacted).shards == (OTHER_SHARD,)
    with pytest.raises(PeerError, match=r"fenced|sealed"):
        put(peer, [12], 7.0)
    assert is_closed(newest_manifest(path, OTHER_SHARD))
    assert everything(path) == expected
    assert values(peer(SCAN, p=str(path), listed=[])) == expected


def test_what_we_seal_it_does_not_open_until_it_is_unsealed(path: Path, peer: Peer) -> None:
    seal(fresh(path), SHARD)
    with pytest.raises(PeerError, match="sealed; refusing claim"):
        taken(peer, path)
    unseal(fresh(path), SHARD)
    taken(peer, path)
    put(peer, [12], 2.0)
    assert everything(path) == {**BASE, 10: 1.0, 11: 1.0, 12: 2.0}
    assert not is_closed(newest_manifest(path))
