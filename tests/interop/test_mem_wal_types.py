"""Keys of every type, tables of every kind: what ours publishes is what the official package publishes, byte
for byte or value for value, and each reads the other's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from mem_wal_peer import BEGIN, CLOSE, DELETE, LOOKUP, OPEN, PUT, SCAN, TAKE, listed
from peer import Peer
from streamed import KEY, SHARD, live, newest_manifest, shard_dir
from tiltyard.errors import UnsupportedFeature
from tiltyard.file import open_file
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.levels import SsTableLevel
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.writer import ShardWriter
from tiltyard.session import Session
from tiltyard.store import open_store

INTEGERS = [0, 1, 2, 5, 100, 127]
SIGNED = [*INTEGERS, -1, -128]
TEXTS = ["", "a", "b", "é", "a\0b", "日本語日本語", "x" * 40]
OCTETS = [b"", b"a", b"\0", b"\0\xff", b"\xff", b"x" * 33]
KEYS: dict[str, Any] = {
    **{f"int{bits}": pa.array(SIGNED, getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array(INTEGERS, getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)},
    "bool": pa.array([True, False]),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array(OCTETS),
    "large_binary": pa.array(OCTETS, pa.large_binary()),
}
REFUSED = [
    pa.date32(),
    pa.timestamp("us"),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.binary(4),
]


def table_of(columns: dict[str, Any], number: float) -> pa.Table:
    """Rows with these key columns and one value."""
    fields = [pa.field(name, column.type, False, KEY) for name, column in columns.items()]
    rows = len(next(iter(columns.values())))
    schema = pa.schema([*fields, pa.field("v", pa.float32())])
    return pa.Table.from_arrays([*columns.values(), pa.array([number] * rows, pa.float32())], schema=schema)


def both(tmp_path: Path, peer: Peer, base: pa.Table, **options: Any) -> tuple[Path, Path]:
    """The same table, made by ours and by the official package."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    lance.write_dataset(base, str(mine), **options).initialize_mem_wal()
    peer(BEGIN, p=str(other), rows=base, options=options, sharding={})
    return mine, other


def stream_alike(mine: Path, other: Path, peer: Peer, steps: list[tuple[str, pa.Table]]) -> None:
    """The same puts and deletes into both tables, each a log entry and a batch of its own, then published."""
    with ShardWriter.open(lance.dataset(str(mine)), SHARD) as writer:
        for what, data in steps:
            writer.put(data) if what == "put" else writer.delete(data)
    peer(TAKE, p=str(other), shard=SHARD, options={})
    for what, data in steps:
        peer(PUT if what == "put" else DELETE, rows=data)
    peer(CLOSE)


def sstable_dir(path: Path) -> Path:
    (only,) = newest_manifest(path).sstables
    return shard_dir(path) / only.path


READ_INDEX = """
from lance.file import LanceFileReader
result = []
for name in ("page_data", "page_lookup"):
    reader = LanceFileReader(f"{p}/_pk_index/{name}.lance")
    result.append((reader.read_all().to_table(), dict(reader.metadata().schema.metadata or {})))
"""


def check_alike(mine: Path, other: Path, peer: Peer) -> None:
    """Filter, key index and accounting of the one generation in each."""
    first, second = newest_manifest(mine).sstables[0], newest_manifest(other).sstables[0]
    for fact in ("generation", "in_memory_bytes", "physical_rows", "primary_key_bytes"):
        assert getattr(first, fact) == getattr(second, fact), fact
    ours, theirs = sstable_dir(mine), sstable_dir(other)
    assert (ours / layout.BLOOM_FILTER).read_bytes() == (theirs / layout.BLOOM_FILTER).read_bytes()
    if first.primary_key_bytes is not None:
        assert peer(READ_INDEX, p=str(ours)) == peer(READ_INDEX, p=str(theirs))
        assert index_entries(ours) == index_entries(theirs)
    else:
        assert not (ours / layout.PK_INDEX).exists()
        assert not (theirs / layout.PK_INDEX).exists()


def index_entries(directory: Path) -> list[Any]:
    """The key index as our reader has it; the official writer's files are of version 2.0."""
    store = open_store(str(directory))
    readers = [open_file(store, each, session=Session()) for each in (layout.PK_PAGES, layout.PK_LOOKUP)]
    return [
        [each.to_pylist() for each in reader.read(reader.schema.fields, None, slice(None))]
        for reader in readers
    ]


def key_rows(table: pa.Table, names: list[str]) -> dict[Any, Any]:
    return {tuple(row[name] for name in names): row["v"] for row in table.to_pylist()}


@pytest.mark.parametrize("kind", KEYS)
def test_one_key_column_of_every_type(tmp_path: Path, peer: Peer, kind: str) -> None:
    check_key(tmp_path, peer, {"k": KEYS[kind]})


@pytest.mark.parametrize(
    "kinds",
    [("int64", "string"), ("string", "int8"), ("binary", "uint64"), ("bool", "large_string", "int32")],
    ids="-".join,
)
def test_keys_of_several_columns(tmp_path: Path, peer: Peer, kinds: tuple[str, ...]) -> None:
    count = min(len(KEYS[kind]) for kind in kinds)
    check_key(tmp_path, peer, {f"k{at}": KEYS[kind].slice(0, count) for at, kind in enumerate(kinds)})


def check_key(tmp_path: Path, peer: Peer, columns: dict[str, Any]) -> None:
    names = list(columns)
    count = len(columns[names[0]])
    half = {name: each.slice(0, count // 2) for name, each in columns.items()}
    last = {name: each.slice(count - 1) for name, each in columns.items()}
    mine, other = both(tmp_path, peer, table_of(columns, 0.0))
    steps = [
        ("put", table_of(columns, 1.0)),
        ("put", table_of(half, 2.0)),
        ("delete", table_of(last, 0.0).select(names)),
    ]
    stream_alike(mine, other, peer, steps)
    check_alike(mine, other, peer)
    expected = key_rows(table_of(columns, 1.0), names) | key_rows(table_of(half, 2.0), names)
    for key in key_rows(table_of(last, 0.0), names):
        del expected[key]
    for path in (mine, other):
        assert key_rows(live(path), names) == expected
        of = listed(newest_manifest(path))
        assert key_rows(peer(SCAN, p=str(path), listed=of), names) == expected
        whole = columns[names[0]]
        if len(names) > 1:
            whole = pa.StructArray.from_arrays(list(columns.values()), names)
        asked = [whole.slice(at, 1) for at in range(count)]
        theirs = peer(LOOKUP, p=str(path), listed=of, keys=asked)
        planner = lance.mem_wal.LsmPointLookupPlanner(
            lance.dataset(str(path)),
            [lance.mem_wal.ShardSnapshot(SHARD).with_sstable(*of[0][1][0])],
        )
        assert [planner.plan_lookup(each).to_table().to_pylist() for each in asked] == theirs
        assert sum(map(len, theirs)) == len(expected)


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_keys_that_could_never_be_published_are_refused_at_once(tmp_path: Path, kind: Any) -> None:
    """The official package takes their rows and cannot publish them (section 9.18)."""
    for number, kinds in enumerate(([kind], [pa.int64(), kind])):
        fields = [pa.field(f"k{at}", each, False, KEY) for at, each in enumerate(kinds)]
        schema = pa.schema([*fields, pa.field("v", pa.float32())])
        dataset = lance.write_dataset(schema.empty_table(), str(tmp_path / str(number)), schema=schema)
        with pytest.raises(UnsupportedFeature, match="unsupported type"):
            dataset.initialize_mem_wal()
        assert dataset.version == 1


def test_tables_without_a_key_are_published_alike(tmp_path: Path, peer: Peer) -> None:
    base = pa.table({"a": pa.array([1, 1]), "v": pa.array([0.5, None], pa.float32())})
    mine, other = both(tmp_path, peer, base)
    stream_alike(mine, other, peer, [("put", base), ("put", base.slice(0, 1))])
    check_alike(mine, other, peer)
    for path in (mine, other):
        assert sorted(live(path)["a"].to_pylist()) == [1] * 5


def test_many_rows_are_published_alike(tmp_path: Path, peer: Peer) -> None:
    """More than a page of the key index, and more than the filter is sized for."""
    columns = {"k": pa.array([7 * i % 20_011 for i in range(20_000)])}
    mine, other = both(tmp_path, peer, table_of({"k": pa.array([1])}, 0.0))
    steps = [("put", table_of(columns, 1.0)), ("put", table_of({"k": columns["k"].slice(5000, 9000)}, 2.0))]
    stream_alike(mine, other, peer, steps)
    check_alike(mine, other, peer)
    expected = key_rows(table_of(columns, 1.0), ["k"]) | key_rows(steps[1][1], ["k"])
    assert key_rows(live(other), ["k"]) == expected
    assert key_rows(peer(SCAN, p=str(mine), listed=listed(newest_manifest(mine))), ["k"]) == expected


WIDE = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        pa.field("b", pa.bool_()),
        pa.field("s", pa.string()),
        pa.field("ls", pa.large_string()),
        pa.field("x", pa.binary()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("m", pa.decimal128(10, 2)),
        pa.field("fb", pa.binary(3)),
        pa.field("vec", pa.list_(pa.float32(), 3)),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("st", pa.struct([pa.field("p", pa.int32()), pa.field("q", pa.string())])),
        pa.field("ns", pa.list_(pa.struct([pa.field("u", pa.int64())]))),
    ]
)


def wide_rows(ids: list[int], nulls: bool) -> pa.Table:
    def row(i: int) -> dict[str, Any]:
        full = {
            "b": i % 2 == 0,
            "s": f"s{i}",
            "ls": "é" * (i % 4),
            "x": bytes([i % 256]),
            "f": i / 4,
            "d": i,
            "t": i * 1000,
            "m": None,
            "fb": b"abc",
            "vec": [float(i), 0.0, 1.0],
            "l": list(range(i % 3)),
            "st": {"p": i, "q": "z"},
            "ns": [{"u": i}],
        }
        return {"id": i, **(dict.fromkeys(full) if nulls and i % 3 == 0 else full)}

    return pa.Table.from_pylist([row(i) for i in ids], WIDE)


def test_columns_of_every_type_pass_both_ways(tmp_path: Path, peer: Peer) -> None:
    mine, other = both(tmp_path, peer, wide_rows([1, 2], False))
    steps = [
        ("put", wide_rows([2, 3, 4, 5], False)),
        ("put", wide_rows([5, 6, 9], True)),
        ("delete", wide_rows([1, 4], False).select(["id"])),
    ]
    stream_alike(mine, other, peer, steps)
    expected = sorted(
        [*wide_rows([2, 3], False).to_pylist(), *wide_rows([5, 6, 9], True).to_pylist()],
        key=lambda row: row["id"],
    )
    check_alike(mine, other, peer)
    for path in (mine, other):
        assert sorted(live(path).to_pylist(), key=lambda row: row["id"]) == expected
        theirs = peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))
        assert sorted(theirs.to_pylist(), key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_tables_of_every_storage_version(tmp_path: Path, peer: Peer, version: str) -> None:
    path = shared_table(tmp_path, peer, version)
    expected = {(1,): 0.0, (2,): 1.0, (3,): 2.0, (4,): 2.0}
    assert key_rows(live(path), ["k"]) == expected
    assert key_rows(peer(SCAN, p=str(path), listed=listed(newest_manifest(path))), ["k"]) == expected
    assert storage_versions(path) == [version, version]


def test_tables_of_version_2_0_are_streamed_into_in_2_2(tmp_path: Path, peer: Peer) -> None:
    """Ours writes no data file of version 2.0; both packages read both together."""
    path = shared_table(tmp_path, peer, "2.0")
    assert storage_versions(path) == ["2.2", "2.0"]
    expected = {(1,): 0.0, (2,): 1.0, (3,): 2.0, (4,): 2.0}
    assert key_rows(peer(SCAN, p=str(path), listed=listed(newest_manifest(path))), ["k"]) == expected
    assert key_rows(live(path), ["k"]) == expected
    opened = lance.dataset(str(path))
    assert compact_streams(opened._store, opened._session).upserted == 3
    theirs = peer("lance.dataset(p).to_table()", p=str(path))
    assert key_rows(theirs, ["k"]) == key_rows(lance.dataset(str(path)).to_table(), ["k"]) == expected


def test_rows_without_a_key_are_appended_to_tables_of_version_2_0(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t")
    peer(
        "lance.write_dataset(rows, p, data_storage_version='2.0') and None", p=path, rows=pa.table({"a": [1]})
    )
    dataset = lance.dataset(path)
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"a": [2, 3]}))
    assert compact_streams(dataset._store, dataset._session).upserted == 2
    assert sorted(peer("lance.dataset(p).to_table()", p=path)["a"].to_pylist()) == [1, 2, 3]


def test_lookups_use_the_key_index_of_the_official_writer(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are of version 2.0; without it all keys of the generation would be read."""
    path = tmp_path / "t"
    peer(BEGIN, p=str(path), rows=table_of({"k": pa.array([1, 2])}, 0.0), options={}, sharding={})
    peer(OPEN, p=str(path), shard=SHARD, options={})
    peer(PUT, rows=table_of({"k": pa.array(range(2, 3000))}, 1.0))
    peer(CLOSE)
    assert (sstable_dir(path) / layout.PK_PAGES).read_bytes()[-8:-4] == bytes([0, 0, 3, 0])
    monkeypatch.setattr(SsTableLevel, "keys", lambda self: pytest.fail("all keys were read"))
    opened = lance.dataset(str(path))
    found = Lookup(capture(opened._store, opened._session)).find(pa.array([1, 2, 2999, 5000]))
    assert key_rows(found, ["k"]) == {(1,): 0.0, (2,): 1.0, (2999,): 1.0}


def shared_table(tmp_path: Path, peer: Peer, version: str) -> Path:
    """A table of the official package's, into whose shard ours and the official writer stream in turn."""
    path = tmp_path / "t"
    base = table_of({"k": pa.array([1, 2])}, 0.0)
    peer(BEGIN, p=str(path), rows=base, options={"data_storage_version": version}, sharding={})
    with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
        writer.put(table_of({"k": pa.array([2, 3])}, 1.0))
    peer(OPEN, p=str(path), shard=SHARD, options={})
    peer(PUT, rows=table_of({"k": pa.array([3, 4])}, 2.0))
    peer(CLOSE)
    return path


def storage_versions(path: Path) -> list[str]:
    datasets = [lance.dataset(str(shard_dir(path) / each.path)) for each in newest_manifest(path).sstables]
    return [each.data_storage_version for each in datasets]


def test_columns_that_may_not_be_null_may_be_in_the_log(tmp_path: Path, peer: Peer) -> None:
    """A row that deletes has nothing in them; the table's own rule holds for rows that are put."""
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), False, KEY),
            pa.field("v", pa.float32(), False),
            pa.field("s", pa.string()),
        ]
    )
    base = pa.Table.from_pylist([{"k": i, "v": 0.0, "s": "a"} for i in (1, 2, 3)], schema)
    mine, other = both(tmp_path, peer, base)
    put = pa.Table.from_pylist([{"k": 4, "v": 1.0, "s": None}], schema)
    stream_alike(mine, other, peer, [("put", put), ("delete", base.slice(0, 1).select(["k"]))])
    check_alike(mine, other, peer)
    for path in (mine, other):
        found = live(path)
        assert key_rows(found, ["k"]) == {(2,): 0.0, (3,): 0.0, (4,): 1.0}
        assert found.schema.field("v").nullable is False
        theirs = peer(SCAN, p=str(path), listed=listed(newest_manifest(path)))
        assert theirs.schema.field("v").nullable is False


def test_gaps_among_field_ids(tmp_path: Path, peer: Peer) -> None:
    path = tmp_path / "t"
    schema = pa.schema(
        [pa.field("k", pa.int64(), False, KEY), pa.field("gone", pa.string()), pa.field("v", pa.float32())]
    )
    base = pa.Table.from_pylist([{"k": 1, "gone": "g", "v": 0.0}], schema)
    peer(
        """
ds = lance.write_dataset(rows, p)
ds.drop_columns(["gone"])
ds.initialize_mem_wal()
result = None
""",
        p=str(path),
        rows=base,
    )
    with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
        writer.put(table_of({"k": pa.array([2])}, 1.0))
    peer(OPEN, p=str(path), shard=SHARD, options={})
    peer(PUT, rows=table_of({"k": pa.array([3])}, 2.0))
    peer(CLOSE)
    expected = {(1,): 0.0, (2,): 1.0, (3,): 2.0}
    assert key_rows(live(path), ["k"]) == expected
    assert key_rows(peer(SCAN, p=str(path), listed=listed(newest_manifest(path))), ["k"]) == expected
    ids = [
        [f.id for f in lance.dataset(str(shard_dir(path) / each.path))._snapshot.schema.fields]
        for each in newest_manifest(path).sstables
    ]
    assert ids == [[0, 2, 3], [0, 2, 3]]


def test_a_btree_that_is_maintained_is_used_by_the_official_package(tmp_path: Path, peer: Peer) -> None:
    base = table_of({"k": pa.array(range(100))}, 0.0)
    path = tmp_path / "t"
    dataset = lance.write_dataset(base, str(path))
    dataset.create_scalar_index("v", "BTREE", name="by_v")
    dataset.initialize_mem_wal(maintained_indexes=["by_v"])
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(table_of({"k": pa.array(range(50, 150))}, 1.0))
        writer.put(table_of({"k": pa.array(range(140, 160))}, 2.0))
    directory = str(sstable_dir(path))
    explained, rows, names, kinds = peer(
        """
ds = lance.dataset(p)
scan = ds.scanner(filter="v = 2.0")
result = scan.explain_plan(), scan.to_table().num_rows, [i["name"] for i in ds.list_indices()], [
    i["type"] for i in ds.list_indices()]
""",
        p=directory,
    )
    assert (rows, names, kinds) == (20, ["by_v"], ["BTree"])
    assert "ScalarIndexQuery" in explained
    peer(OPEN, p=str(path), shard=SHARD, options={})
    peer(PUT, rows=table_of({"k": pa.array([160])}, 2.0))
    peer(CLOSE)
    theirs = shard_dir(path) / newest_manifest(path).sstables[-1].path
    assert [each.name for each in lance.dataset(str(theirs)).describe_indices()] == ["by_v"]
    assert lance.dataset(str(theirs)).to_table(filter="v = 2.0").num_rows == 1


def test_tables_with_blobs_are_refused_by_name(tmp_path: Path, peer: Peer) -> None:
    path = tmp_path / "t"
    peer(
        """
from lance.blob import blob_field, blob_array
schema = pa.schema([pa.field("k", pa.int64(), False, metadata=key), blob_field("photo")])
rows = pa.Table.from_arrays([pa.array([1]), blob_array([b"x"])], schema=schema)
ds = lance.write_dataset(rows, p, data_storage_version="2.2")
ds.initialize_mem_wal()
result = None
""",
        p=str(path),
        key={k.decode(): v.decode() for k, v in KEY.items()},
    )
    dataset = lance.dataset(str(path))
    with pytest.raises(UnsupportedFeature, match="'photo' holds blobs"):
        ShardWriter.open(dataset, SHARD)
    assert not shard_dir(path).exists()
