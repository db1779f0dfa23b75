"""Logs that no writer of ours makes: what ours and the official package say to each (MemWAL, section 3.5).

Where the two differ, the difference is stated here: ours refuses before the claim, so that an opening that
fails changes nothing; and a hole is an error, where the official writer silently loses what stands above it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mem_wal_peer import ABANDON, OPEN
from peer import Peer, PeerError
from streamed import BASE, SCHEMA, SHARD, digest, live, newest_manifest, rows, shard_dir, streamed, values
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.memwal import layout
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.writer import ShardWriter

TARGETS = {
    "mem_wal_target_generation": "1",
    "mem_wal_target_generation_dir": "0123abcd_gen_1",
    "mem_wal_target_data_file": "x.lance",
    "mem_wal_target_creator_epoch": "1",
    "mem_wal_target_batch_capacity": "8",
}


def entry_schema(metadata: dict[str, str], *, ids: bool = True) -> Any:
    fields = [
        each.with_metadata({**(each.metadata or {}), **({b"lance:field_id": b"%d" % at} if ids else {})})
        for at, each in enumerate(SCHEMA)
    ]
    return pa.schema([*fields, pa.field("_tombstone", pa.bool_(), False)], metadata)


def entry(
    *batches: Any, epoch: str | None = "1", generation: str | None = "1", ids: bool = True, **more: Any
) -> bytes:
    """The bytes of a log entry; `epoch` and `generation` None: without."""
    metadata = {"writer_epoch": epoch, "generation": generation, **more.pop("metadata", {})}
    schema = entry_schema({k: v for k, v in metadata.items() if v is not None}, ids=ids)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, **more) as stream:
        for batch in batches:
            tombstones = pa.array([False] * batch.num_rows)
            stream.write_batch(pa.RecordBatch.from_arrays([*batch.columns, tombstones], schema=schema))
    return sink.getvalue().to_pybytes()


def prepared(path: Path, *entries: bytes | None) -> Any:
    """A table with a shard of epoch 1 whose log is this, from position 1; None: a hole."""
    dataset = streamed(path)
    ShardWriter.open(dataset, SHARD).abort()
    (shard_dir(path) / "wal").mkdir(exist_ok=True)
    for position, data in enumerate(entries, 1):
        if data is not None:
            (shard_dir(path) / layout.entry_path(position)).write_bytes(data)
    return dataset


def theirs(peer: Peer, path: Path, **options: Any) -> dict[int, float]:
    found = values(peer(OPEN, p=str(path), shard=SHARD, options=options))
    peer(ABANDON)
    return found


ONE, TWO = rows([10], 1.0), rows([11, 10], 2.0)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(ONE), entry(TWO)], {10: 2.0, 11: 2.0}),
        ([entry(ONE, TWO)], {10: 2.0, 11: 2.0}),
        ([entry(ONE, generation=None), entry(TWO, generation=None)], {10: 2.0, 11: 2.0}),
        ([entry(ONE), entry(TWO, generation=None)], {10: 2.0, 11: 2.0}),
        ([entry(TWO), entry(ONE, generation="2")], {10: 1.0, 11: 2.0}),
        ([entry(ONE, ids=False)], {10: 1.0}),
        ([entry(ONE, options=pa.ipc.IpcWriteOptions(compression="lz4"))], {10: 1.0}),
        ([entry(ONE, options=pa.ipc.IpcWriteOptions(compression="zstd"))], {10: 1.0}),
        ([entry(ONE)[:-8]], {10: 1.0}),
        ([entry(ONE), encode_sentinel(1), entry(TWO)], {10: 2.0, 11: 2.0}),
        ([entry(), entry(ONE)], {10: 1.0}),
        ([entry(generation=None), entry(ONE)], {10: 1.0}),
    ],
    ids=[
        "two entries",
        "two batches",
        "no generation",
        "generation, then none",
        "next generation",
        "no ids",
        "lz4",
        "zstd",
        "no end mark",
        "sentinel between",
        "no batches",
        "neither generation nor batches",
    ],
)
def test_logs_that_both_replay(
    tmp_path: Path, peer: Peer, entries: list[bytes], expected: dict[int, float]
) -> None:
    dataset = prepared(tmp_path / "t", *entries)
    with ShardWriter.open(dataset, SHARD) as writer:
        assert values(live(tmp_path / "t", writer)) == {**BASE, **expected}
    assert values(live(tmp_path / "t")) == {**BASE, **expected}
    prepared(tmp_path / "o", *entries)
    assert theirs(peer, tmp_path / "o", durable_write=True) == {**BASE, **expected}


@pytest.mark.parametrize(
    ("entries", "told", "they_tell"),
    [
        ([entry(ONE), b""], "position 2 .* cannot be read", "found empty stream"),
        ([entry(ONE)[:200]], "position 1 .* cannot be read", "WAL IPC stream"),
        ([entry(ONE)[: -8 - 64]], "position 1 .* cannot be read", "WAL IPC stream"),
        ([b"garbage" * 20], "position 1 .* cannot be read", "WAL IPC stream"),
        ([entry(ONE, epoch=None)], "missing writer_epoch", "missing writer_epoch"),
        ([entry(ONE, epoch="x")], "malformed writer_epoch", "malformed writer_epoch"),
        ([entry(ONE, generation="-1")], "malformed generation", "malformed generation"),
        ([entry(ONE, metadata={"fence_sentinel": "true"})], "calls itself a sentinel", "schema"),
        (
            [entry(ONE, metadata=dict(list(TARGETS.items())[:3]))],
            "incomplete MemTable target",
            "incomplete MemTable target",
        ),
        (
            [entry(ONE, generation="2"), entry(TWO, generation="1")],
            "generation 1 below the generation 2",
            "generation 1 below the generation",
        ),
    ],
    ids=[
        "empty",
        "cut in the schema",
        "cut in a batch",
        "garbage",
        "no epoch",
        "bad epoch",
        "bad generation",
        "sentinel with rows",
        "half a target",
        "generation goes back",
    ],
)
def test_logs_that_both_refuse_and_ours_before_the_claim(
    tmp_path: Path, peer: Peer, entries: list[bytes], told: str, they_tell: str
) -> None:
    dataset = prepared(tmp_path / "t", *entries)
    before = digest(tmp_path / "t")
    with pytest.raises(CorruptFile, match=told):
        ShardWriter.open(dataset, SHARD)
    assert digest(tmp_path / "t") == before
    with pytest.raises(PeerError, match=they_tell):
        theirs(peer, tmp_path / "t")
    assert newest_manifest(tmp_path / "t").writer_epoch == 2  # the official writer had claimed it


def test_targets_of_blobs_are_refused_by_name(tmp_path: Path) -> None:
    dataset = prepared(tmp_path / "t", entry(ONE, metadata=TARGETS))
    before = digest(tmp_path / "t")
    with pytest.raises(UnsupportedFeature, match="table with blobs"):
        ShardWriter.open(dataset, SHARD)
    assert digest(tmp_path / "t") == before


def test_an_entry_of_a_later_epoch_than_the_manifests(tmp_path: Path, peer: Peer) -> None:
    """The owner's own next epoch is as good as an earlier one; a later one is another owner's."""
    dataset = prepared(tmp_path / "t", entry(ONE, epoch="2"))
    with ShardWriter.open(dataset, SHARD) as writer:
        assert writer.epoch == 2
        assert values(live(tmp_path / "t", writer)) == {**BASE, 10: 1.0}
    prepared(tmp_path / "o", entry(ONE, epoch="2"))
    assert theirs(peer, tmp_path / "o") == {**BASE, 10: 1.0}
    late = prepared(tmp_path / "late", entry(ONE, epoch="9"))
    before = digest(tmp_path / "late")
    with pytest.raises(CorruptFile, match="writer_epoch 9"):
        ShardWriter.open(late, SHARD)
    assert digest(tmp_path / "late") == before
    with pytest.raises(PeerError, match="writer_epoch 9"):
        theirs(peer, tmp_path / "late")


def test_a_hole_is_an_error_and_not_the_end(tmp_path: Path, peer: Peer) -> None:
    """The official writer opens, without what stands above the hole (section 9.15)."""
    dataset = prepared(tmp_path / "t", entry(ONE), None, entry(TWO))
    before = digest(tmp_path / "t")
    with pytest.raises(CorruptFile, match="no entry at position 2"):
        ShardWriter.open(dataset, SHARD)
    assert digest(tmp_path / "t") == before
    assert theirs(peer, tmp_path / "t") == {**BASE, 10: 1.0}


def publish_one(dataset: Any, last: int) -> None:
    """Generation 1, of one row, is published; the log stands at position `last`."""
    with ShardWriter.open(dataset, SHARD) as writer:
        while writer.owned.log.next_position <= last:
            writer.put(rows([20], 5.0))


def test_entries_of_a_published_generation_are_not_replayed(tmp_path: Path, peer: Peer) -> None:
    """The official writer may publish a generation with a cursor below its last entry."""
    dataset = streamed(tmp_path / "t")
    publish_one(dataset, 2)
    assert newest_manifest(tmp_path / "t").current_generation == 2
    (shard_dir(tmp_path / "t") / layout.entry_path(3)).write_bytes(entry(ONE, generation="1"))
    (shard_dir(tmp_path / "t") / layout.entry_path(4)).write_bytes(entry(TWO, generation="2"))
    with ShardWriter.open(dataset, SHARD) as writer:
        assert [(each.generation, each.rows) for each in writer.owned.memtables] == [(2, 2)]
        assert values(live(tmp_path / "t", writer)) == {**BASE, 20: 5.0, 10: 2.0, 11: 2.0}
        writer.put(rows([12], 3.0))
        writer.abort()
    expected = {**BASE, 20: 5.0, 10: 2.0, 11: 2.0, 12: 3.0}
    assert theirs(peer, tmp_path / "t") == expected


def test_generations_that_skip_are_numbered_anew(tmp_path: Path) -> None:
    """The official writer replays such a log and can never publish it."""
    dataset = prepared(tmp_path / "t", entry(ONE, generation="5"), entry(TWO, generation="8"))
    with ShardWriter.open(dataset, SHARD) as writer:
        assert [each.generation for each in writer.owned.memtables] == [1, 2]
        writer.put(rows([12], 3.0))
    assert [each.generation for each in newest_manifest(tmp_path / "t").sstables] == [1, 2]
    assert values(live(tmp_path / "t")) == {**BASE, 10: 2.0, 11: 2.0, 12: 3.0}


@pytest.mark.parametrize("cap", [{"max_memtable_rows": 2}, {"max_memtable_batches": 1}], ids=str)
def test_a_generation_larger_than_the_caps_is_replayed(
    tmp_path: Path, peer: Peer, cap: dict[str, int]
) -> None:
    """The official writer refuses it, after its claim (section 9.16)."""
    dataset = prepared(tmp_path / "t", entry(ONE), entry(TWO), entry(rows([12], 3.0)))
    expected = {**BASE, 10: 2.0, 11: 2.0, 12: 3.0}
    writer = ShardWriter.open(dataset, SHARD, **cap)
    assert values(live(tmp_path / "t", writer)) == expected
    writer.put(rows([13], 4.0))
    writer.close()
    assert values(live(tmp_path / "t")) == {**expected, 13: 4.0}
    prepared(tmp_path / "o", entry(ONE), entry(TWO), entry(rows([12], 3.0)))
    with pytest.raises(PeerError, match="continues generation 1 past"):
        theirs(peer, tmp_path / "o", **cap)


def test_entries_without_a_generation_are_split_at_the_caps(tmp_path: Path) -> None:
    parts = [entry(rows([key], float(key)), generation=None) for key in range(10, 16)]
    dataset = prepared(tmp_path / "t", *parts)
    writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=2)
    assert [(each.generation, each.rows) for each in writer.owned.memtables] == [(1, 2), (2, 2), (3, 2)]
    writer.close()
    assert [each.generation for each in newest_manifest(tmp_path / "t").sstables] == [1, 2, 3]
    assert values(live(tmp_path / "t")) == {**BASE, **{key: float(key) for key in range(10, 16)}}


def wrong(change: Callable[[Any], Any]) -> bytes:
    """An entry with columns of its own."""
    batch = change(pa.RecordBatch.from_arrays([*ONE.columns, pa.array([False])], schema=entry_schema({})))
    schema = batch.schema.with_metadata({"writer_epoch": "1", "generation": "1"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return sink.getvalue().to_pybytes()


def without(name: str) -> Callable[[Any], Any]:
    return lambda batch: batch.select([each for each in batch.schema.names if each != name])


def retyped(batch: Any) -> Any:
    at = batch.schema.get_field_index("v")
    return batch.set_column(at, batch.schema.field(at).with_type(pa.float64()), pa.array([1.0]))


def with_more(batch: Any) -> Any:
    return batch.append_column(
        pa.field("x", pa.int8(), True, {b"lance:field_id": b"77"}), pa.array([1], "i1")
    )


def test_columns_that_an_entry_lacks_or_has_too_many(tmp_path: Path, peer: Peer) -> None:
    for name, change, found in (
        ("missing", without("v"), None),
        ("no tombstones", without("_tombstone"), 1.0),
        ("more", with_more, 1.0),
    ):
        dataset = prepared(tmp_path / name, wrong(change))
        with ShardWriter.open(dataset, SHARD) as writer:
            assert values(live(tmp_path / name, writer)) == {**BASE, 10: found}, name
        other = tmp_path / f"{name} o"
        prepared(other, wrong(change))
        assert theirs(peer, other) == {**BASE, 10: found}, name
    for name, change, told in (
        ("no key", without("id"), "missing primary key column `id`"),
        ("retyped", retyped, "a column's type cannot change"),
    ):
        dataset = prepared(tmp_path / name, wrong(change))
        before = digest(tmp_path / name)
        with pytest.raises(CorruptFile, match=told):
            ShardWriter.open(dataset, SHARD)
        assert digest(tmp_path / name) == before
        with pytest.raises(PeerError, match=told):
            theirs(peer, tmp_path / name)
