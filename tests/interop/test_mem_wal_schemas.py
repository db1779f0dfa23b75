"""Columns that are renamed, dropped or added between a log entry and its replay, or an SSTable and its
reading: they are found by field id, also inside structs and lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import ABANDON, BEGIN, CLOSE, OPEN, PUT, SCAN, TAKE, listed
from peer import Peer
from streamed import KEY, SHARD, digest, live, newest_manifest, shard_dir
from tiltyard.errors import SchemaMismatch
from tiltyard.memwal import layout
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.entry import decode_entry
from tiltyard.memwal.repair import plan_repair
from tiltyard.memwal.sealing import seal
from tiltyard.memwal.writer import ShardWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        pa.field("v", pa.float32()),
        pa.field("s", pa.string()),
        pa.field("st", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
        pa.field("fv", pa.list_(pa.float32(), 2)),
        pa.field("ll", pa.large_list(pa.list_(pa.int8()))),
        pa.field("l", pa.list_(pa.struct([pa.field("x", pa.int64())]))),
    ]
)


def rows(ids: list[int], v: float) -> pa.Table:
    made = [
        {"id": i, "v": v, "s": f"s{i}", "st": {"a": i, "b": f"b{i}"}, "l": [{"x": i}] * (i % 3)}
        | {"fv": [v, 1.0], "ll": [[i], []]}
        for i in ids
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


CHANGES = {
    "rename": 'ds.alter_columns({"path": "v", "name": "number"})',
    "rename inside": 'ds.alter_columns({"path": "st.b", "name": "bb"})',
    "rename inside a list": 'ds.alter_columns({"path": "l.item.x", "name": "xx"})',
    "drop inside": 'ds.drop_columns(["st.a"])',
    "drop": 'ds.drop_columns(["s"])',
    "add": "ds.add_columns(pa.field('n', pa.int32()))",
    "add for dropped": "ds.drop_columns(['s'])\nds.add_columns(pa.field('s', pa.string()))",
    "add the last for dropped": "ds.drop_columns(['l'])\nds.add_columns(pa.field('l', pa.int32()))",
    "swap": """
ds.alter_columns({"path": "v", "name": "old"})
ds.add_columns(pa.field("v", pa.float32()))
""",
}


def changed(row: dict[str, Any], change: str) -> dict[str, Any]:
    """A row of the old schema in the new one."""
    row = dict(row)
    if change == "rename":
        row["number"] = row.pop("v")
    elif change == "rename inside":
        row["st"] = {"a": row["st"]["a"], "bb": row["st"]["b"]}
    elif change == "rename inside a list":
        row["l"] = [{"xx": each["x"]} for each in row["l"]]
    elif change == "drop inside":
        row["st"] = {"b": row["st"]["b"]}
    elif change == "drop":
        del row["s"]
    elif change == "add":
        row["n"] = None
    elif change == "add for dropped":
        row["s"] = None
    elif change == "add the last for dropped":
        row["l"] = None
    elif change == "swap":
        row["old"], row["v"] = row["v"], None
    return row


def begun(path: Path, peer: Peer) -> None:
    peer(BEGIN, p=str(path), rows=rows([1, 2], 0.0), options={}, sharding={})


def change_schema(path: Path, peer: Peer, change: str) -> None:
    peer(f"ds = lance.dataset(p)\n{CHANGES[change]}\nresult = None", p=str(path))


@pytest.mark.parametrize("writes", ["ours", "theirs"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_log_is_replayed_into_the_schema_of_now(
    tmp_path: Path, peer: Peer, change: str, writes: str
) -> None:
    path = tmp_path / "t"
    begun(path, peer)
    put = rows([2, 3], 1.0)
    if writes == "ours":
        writer = ShardWriter.open(lance.dataset(str(path)), SHARD)
        writer.put(put)
        writer.abort()
    else:
        peer(TAKE, p=str(path), shard=SHARD, options={})
        peer(PUT, rows=put)
        peer(ABANDON)
    change_schema(path, peer, change)
    expected = [changed(each, change) for each in plain(rows([1], 0.0)) + plain(put)]
    if writes == "ours":  # the other takes it over
        found = peer(OPEN, p=str(path), shard=SHARD, options={})
        peer(CLOSE)
        assert plain(found) == expected
    else:
        with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
            assert plain(live(path, writer)) == expected
    assert plain(live(path)) == expected
    assert plain(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == expected


@pytest.mark.parametrize("writes", ["ours", "theirs"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_sstable_is_read_in_the_schema_of_now(
    tmp_path: Path, peer: Peer, change: str, writes: str
) -> None:
    path = tmp_path / "t"
    begun(path, peer)
    put = rows([2, 3], 1.0)
    if writes == "ours":
        with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
            writer.put(put)
    else:
        peer(TAKE, p=str(path), shard=SHARD, options={})
        peer(PUT, rows=put)
        peer(CLOSE)
    change_schema(path, peer, change)
    expected = [changed(each, change) for each in plain(rows([1], 0.0)) + plain(put)]
    found = live(path)
    assert plain(found) == expected
    assert found.schema.names == lance.dataset(str(path)).schema.names
    assert plain(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == expected
    dataset = lance.dataset(str(path))
    assert not compact_streams(dataset._store, dataset._session).problems
    assert plain(lance.dataset(str(path)).to_table()) == plain(live(path)) == expected
    assert plain(peer("lance.dataset(p).to_table()", p=str(path))) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_memory_of_a_writer_that_stays_open_is_read_in_the_schema_of_now(
    tmp_path: Path, peer: Peer, change: str
) -> None:
    """The writer goes on with the columns that it was opened with."""
    path = tmp_path / "t"
    begun(path, peer)
    first, second = rows([2, 3], 1.0), rows([3, 4], 2.0)
    with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
        writer.put(first)
        change_schema(path, peer, change)
        writer.put(second)
        expected = [changed(e, change) for e in plain(rows([1], 0.0)) + plain(first)[:1] + plain(second)]
        assert plain(live(path, writer)) == expected
    assert plain(live(path)) == expected
    assert plain(peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))) == expected


def test_entries_number_their_fields_alike(tmp_path: Path, peer: Peer) -> None:
    """Field ids in the metadata of log entries, also of fields inside structs and lists."""
    path = tmp_path / "t"
    begun(path, peer)
    peer(TAKE, p=str(path), shard=SHARD, options={})
    peer(PUT, rows=rows([2, 3], 1.0))
    peer(ABANDON)
    theirs = schema_of_entry(path, 1)
    writer = ShardWriter.open(lance.dataset(str(path)), SHARD)
    writer.put(rows([2, 3], 1.0))
    writer.abort()
    assert described(schema_of_entry(path, 3)) == described(theirs)


def schema_of_entry(path: Path, position: int) -> pa.Schema:
    data = (shard_dir(path) / layout.entry_path(position)).read_bytes()
    assert decode_entry(pa.py_buffer(data), position, "").rows == 2
    with pa.ipc.open_stream(data) as stream:
        return stream.schema


def described(schema: pa.Schema) -> Any:
    def of(field: Any) -> Any:
        kind = field.type
        inner = [of(kind.field(at)) for at in range(kind.num_fields)] if kind.num_fields else str(kind)
        return field.name, field.nullable, field.metadata, inner

    return [of(each) for each in schema]


@pytest.mark.parametrize("writer", ["ours", "peer"])
@pytest.mark.parametrize("published", [True, False], ids=["sstable", "log"])
@pytest.mark.parametrize("key", [("id",), ("id", "part")], ids=["whole key", "half key"])
def test_rows_of_a_key_that_the_table_has_not_any_more_are_no_rows_of_another(
    tmp_path: Path, peer: Peer, writer: str, published: bool, key: tuple[str, ...]
) -> None:
    """The official package drops a column of the key while streamed rows wait. By what is left of it rows of
    different keys would replace each other, and deletes would come out as rows.
    """
    path = tmp_path / "t"
    fields = [pa.field("id", pa.int64(), False, KEY), pa.field("part", pa.int64(), False, KEY)]
    schema = pa.schema([*fields[: len(key)], pa.field("v", pa.int64())])

    def held(ids: list[int]) -> pa.Table:
        return pa.Table.from_pylist([{"id": i, "part": 0, "v": i} for i in ids], schema)

    peer(BEGIN, p=str(path), rows=held([1, 2, 3]), options={}, sharding={})
    gone = held([3]).select(key)
    if writer == "peer":
        peer(TAKE, p=str(path), shard=SHARD, options={})
        peer(PUT, rows=held([4, 5]))
        peer("kept['w'].delete(rows)", rows=gone)
        peer(CLOSE if published else ABANDON)
    else:
        ours = ShardWriter.open(lance.dataset(str(path)), SHARD)
        ours.put(held([4, 5]).to_batches()[0])
        ours.delete(gone.to_batches()[0])
        if published:
            ours.flush()
        ours.abort()
    before = sorted(each["v"] for each in live(path).to_pylist())
    assert before == ([1, 2, 4, 5] if published else [1, 2, 3])
    version = lance.dataset(str(path)).version
    peer("lance.dataset(p).drop_columns(['id'])\nresult = None", p=str(path))

    dataset = lance.dataset(str(path))
    entries = digest(path)
    if published:
        with pytest.raises(SchemaMismatch, match="streamed under a primary key"):
            live(path)
        done = compact_streams(dataset._store, dataset._session)
        assert [type(each) for each in done.problems.values()] == [SchemaMismatch]
        assert not done.commits
    else:
        for call in (
            lambda: ShardWriter.open(dataset, SHARD),
            lambda: plan_repair(dataset._snapshot, SHARD),
            lambda: seal(dataset, SHARD),
        ):
            with pytest.raises(SchemaMismatch, match="streamed under a primary key"):
                call()
    assert digest(path) == entries
    (found, *_) = [each for each in check_shards(dataset._snapshot) if each.is_damage]
    assert "streamed under a primary key" in found.problem
    assert "repair" not in found.problem
    assert lance.dataset(str(path)).count_rows() == 3

    lance.dataset(str(path), version=version).restore()
    if not published:
        ShardWriter.open(lance.dataset(str(path)), SHARD).close()
    dataset = lance.dataset(str(path))
    compact_streams(dataset._store, dataset._session)
    assert sorted(lance.dataset(str(path)).to_table()["v"].to_pylist()) == [1, 2, 4, 5]
