"""Tables with merge functions and the official package: it writes no streams into them, and what it cannot
merge it refuses to read; the base it reads.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import LOOKUP, OPEN, SCAN, listed
from peer import Peer, PeerError
from streamed import KEY, SHARD, digest, live
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.store.local import LocalStore

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False, KEY), pa.field("n", pa.int64()), pa.field("s", pa.string())]
)
FUNCTIONS = {"n": "sum", "s": "keep_non_null"}


def rows(*given: tuple[int, int | None, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in given], SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with two rows, on which rows of one key were put before and after a flush."""
    at = tmp_path / "t"
    dataset = lance.write_dataset(pa.Table.from_batches([rows((1, 10, "a"), (2, 20, "b"))]), str(at))
    dataset.initialize_mem_wal(unsharded=True, merge_functions=FUNCTIONS)
    with ShardedWriter(dataset) as writer:
        writer.put(rows((1, 5, None), (3, 1, "c")))
        writer.flush()
        writer.put(rows((1, 7, "z")))
    return at


def shards(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "_mem_wal").iterdir())


def test_it_opens_no_writer_neither_of_a_shard_nor_of_a_new_one(path: Path, peer: Peer) -> None:
    before = digest(path)
    for shard in (*shards(path), SHARD):
        with pytest.raises(PeerError, match="at most one sharding spec"):
            peer(OPEN, p=str(path), shard=shard, options={})
    assert digest(path) == before


def test_it_keeps_what_closes_the_table_through_its_own_commits(path: Path, peer: Peer) -> None:
    peer(
        "lance.write_dataset(rows, p, mode='append'); ds = lance.dataset(p); ds.update_config({'a': 'b'});"
        "ds.create_scalar_index('n', 'BTREE'); ds.optimize.compact_files(); result = None",
        p=str(path),
        rows=pa.Table.from_batches([rows((9, 9, "i"))]),
    )
    details = lance.dataset(str(path)).mem_wal_index_details()
    assert details["merge_functions"] == FUNCTIONS
    assert len(details["sharding_specs"]) == 2
    with pytest.raises(PeerError, match="at most one sharding spec"):
        peer(OPEN, p=str(path), shard=shards(path)[0], options={})
    with ShardedWriter(lance.dataset(str(path))) as writer:
        writer.put(rows((9, 1, None)))


def test_it_refuses_to_read_what_it_cannot_merge(path: Path, peer: Peer) -> None:
    manifests = [newest(LocalStore(str(path / "_mem_wal" / each))) for each in shards(path)]
    for look in (SCAN, LOOKUP):
        with pytest.raises(PeerError, match="cannot be read by this version"):
            peer(look, p=str(path), listed=listed(*manifests), keys=[pa.array([1])])


def test_columns_that_it_renames_keep_their_function_and_those_that_it_adds_go_by_last(
    path: Path, peer: Peer
) -> None:
    peer(
        "ds = lance.dataset(p); ds.alter_columns({'path': 'n', 'name': 'm'});"
        "ds.add_columns(pa.field('x', pa.int32())); result = None",
        p=str(path),
    )
    dataset = lance.dataset(str(path))
    told = dataset.mem_wal_index_details()["merge_functions"]
    assert told == {"m": "sum", "s": "keep_non_null", "x": "last"}
    with ShardedWriter(dataset) as writer:
        writer.put(pa.RecordBatch.from_pylist([{"id": 1, "m": 100, "s": None, "x": 4}], dataset.schema))
        assert by_key(live(path, *writer.writers)) == {
            1: {"id": 1, "m": 122, "s": "z", "x": 4},
            2: {"id": 2, "m": 20, "s": "b", "x": None},
            3: {"id": 3, "m": 1, "s": "c", "x": None},
        }


def by_key(table: pa.Table) -> dict[int, object]:
    return {row["id"]: row for row in table.to_pylist()}


def test_it_reads_the_base(path: Path, peer: Peer) -> None:
    assert peer("result = lance.dataset(p).to_table()", p=str(path)).to_pylist() == [
        {"id": 1, "n": 10, "s": "a"},
        {"id": 2, "n": 20, "s": "b"},
    ]


def test_what_is_compacted_it_reads_and_changes_and_we_go_on_from_there(path: Path, peer: Peer) -> None:
    dataset = lance.dataset(str(path))
    compact_streams(dataset._store, dataset._session)
    merged = {
        1: {"id": 1, "n": 22, "s": "z"},
        2: {"id": 2, "n": 20, "s": "b"},
        3: {"id": 3, "n": 1, "s": "c"},
    }
    assert by_key(peer("result = lance.dataset(p).to_table()", p=str(path))) == merged
    peer("lance.dataset(p).update({'n': 'n + 100'}, where='id = 1'); result = None", p=str(path))
    with ShardedWriter(lance.dataset(str(path))) as writer:
        writer.put(rows((1, 1, None)))
    compact_streams(dataset._store, dataset._session)
    merged[1]["n"] = 123
    assert by_key(peer("result = lance.dataset(p).to_table()", p=str(path))) == merged
