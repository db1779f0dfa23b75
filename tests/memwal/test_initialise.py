"""Making a table one that can be streamed into: what is checked, and what is written (MemWAL, 1.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from streamed import KEY, SHARD, digest, live, rows, streamed, values
from tiltyard.errors import IndexNotFound, InvalidInput, UnsupportedFeature, WrongType
from tiltyard.memwal.identity import LAST_SPEC
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.apply.mem_wal import entry_of


def table(path: Path) -> Any:
    return lance.write_dataset(pa.Table.from_batches([rows([1, 2, 3])]), str(path))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"bucket_column": "id", "num_buckets": 4, "unsharded": True}, "at most one"),
        ({"bucket_column": "id", "num_buckets": 4, "identity_column": "s"}, "at most one"),
        ({"identity_column": "s", "unsharded": True}, "at most one"),
        ({"bucket_column": "id"}, "requires both `bucket_column` and `num_buckets`"),
        ({"num_buckets": 4}, "requires both `bucket_column` and `num_buckets`"),
        ({"bucket_column": "id", "num_buckets": 0}, r"num_buckets must be in \[1, 1024\], got 0"),
        ({"bucket_column": "id", "num_buckets": 1025}, r"num_buckets must be in \[1, 1024\], got 1025"),
        ({"bucket_column": "id", "num_buckets": True}, "num_buckets must be in"),
        ({"bucket_column": "nope", "num_buckets": 4}, "bucket_sharding: column 'nope' not found"),
        ({"identity_column": "nope"}, "identity_sharding: column 'nope' not found"),
        ({"identity_column": "v"}, "column 'v' has type float, which cannot be used as a shard key"),
        ({"max_memtable_rows": 0}, "max_memtable_rows must be greater than zero"),
        ({"max_memtable_size": 1 << 40}, "is below that"),
    ],
    ids=str,
)
def test_bad_arguments_change_nothing(tmp_path: Path, arguments: dict[str, Any], told: str) -> None:
    dataset = table(tmp_path / "t")
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match=told):
        dataset.initialize_mem_wal(**arguments)
    assert digest(tmp_path / "t") == before
    assert dataset.mem_wal_index_details() is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"unsharded": 1},
        {"maintained_indexes": "by_v"},
        {"maintained_indexes": [1]},
        {"bucket_column": 3, "num_buckets": 4},
        {"hnsw_params": {"i": {"nope": 1}}},
        {"hnsw_params": {"i": {"num_edges": "x"}}},
        {"set_shards_aside": "yes"},
        {"durable_write": 1},
        {"max_memtable_rows": 2.5},
    ],
    ids=str,
)
def test_arguments_of_a_wrong_kind_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    dataset = table(tmp_path / "t")
    before = digest(tmp_path / "t")
    with pytest.raises((InvalidInput, WrongType)):
        dataset.initialize_mem_wal(**arguments)
    assert digest(tmp_path / "t") == before


def test_once_is_enough(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    stale = lance.dataset(str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    for handle in (dataset, stale):
        with pytest.raises(InvalidInput, match="MemWAL is already initialized on this dataset"):
            handle.initialize_mem_wal()
    assert lance.dataset(str(tmp_path / "t")).version == 2


def test_what_is_noted(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    dataset.initialize_mem_wal(
        unsharded=True, hnsw_params={"by_e": {"num_edges": 9}}, max_memtable_rows=50, durable_write=False
    )
    entry = entry_of(dataset._snapshot.manifest)
    assert entry is not None
    assert (entry.name, entry.fields, entry.dataset_version, entry.index_version, entry.files) == (
        "__lance_mem_wal",
        (),
        1,
        0,
        (),
    )
    details = dataset.mem_wal_index_details()
    assert details["num_shards"] == 1
    assert details["writer_config_defaults"]["max_memtable_rows"] == "50"
    assert details["writer_config_defaults"]["hnsw.by_e.num_edges"] == "9"
    assert [each["spec_id"] for each in details["sharding_specs"]] == [1]
    from tiltyard.format.mem_wal import MemWalDetails

    noted = MemWalDetails.of(entry).writer_defaults
    assert noted[LAST_SPEC] == "1"
    assert len(noted["tiltyard.incarnation"]) == 32


def test_the_settings_of_the_table_are_those_of_its_writers(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", max_memtable_rows=2, durable_write=False)
    with ShardWriter.open(dataset, SHARD) as writer:
        assert (writer.config.rows, writer.config.durable_write) == (2, False)
        for key in (10, 11, 12):
            writer.put(rows([key], 1.0))
    assert [each.physical_rows for each in writer.manifest.sstables] == [2, 1]
    with ShardWriter.open(dataset, SHARD, max_memtable_rows=5) as writer:
        assert writer.config.rows == 5


def test_a_key_inside_a_struct_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("s", pa.struct([pa.field("k", pa.int64(), False, KEY)]), False)])
    try:
        dataset = lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), schema=schema)
    except (InvalidInput, UnsupportedFeature):
        return
    with pytest.raises(UnsupportedFeature, match="lies inside another column"):
        dataset.initialize_mem_wal()


def test_a_table_without_a_key_is_appended_to_only(tmp_path: Path) -> None:
    """Case M17: documented as append-only; rows are never replaced, and deleting is refused."""
    dataset = lance.write_dataset(pa.table({"a": [1, 1]}), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with ShardWriter.open(dataset, SHARD) as writer:
        row = pa.RecordBatch.from_pydict({"a": [1]})
        writer.put(row)
        writer.put(row)
        before = digest(tmp_path / "t")
        with pytest.raises(InvalidInput, match="delete requires a primary key"):
            writer.delete(row)
        assert digest(tmp_path / "t") == before
        assert live(tmp_path / "t", writer)["a"].to_pylist() == [1, 1, 1, 1]
    assert live(tmp_path / "t").num_rows == 4


def test_shards_of_an_earlier_table_are_refused_or_set_aside(tmp_path: Path, peer: Peer) -> None:
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 1.0))
    other = "lance.write_dataset(rows, p, mode='overwrite') and None"
    peer(other, p=str(tmp_path / "t"), rows=pa.Table.from_batches([rows([5])]))
    again = lance.dataset(str(tmp_path / "t"))
    assert again.mem_wal_index_details() is None
    with pytest.raises(InvalidInput, match="1 shards of an earlier table"):
        again.initialize_mem_wal()
    again.initialize_mem_wal(set_shards_aside=True)
    assert values(live(tmp_path / "t")) == {5: 0.0}
    (aside,) = (tmp_path / "t" / "_tiltyard" / "shards").iterdir()
    assert aside.name.startswith(SHARD)


def test_an_index_that_is_not_there_is_named(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t")
    with pytest.raises(IndexNotFound):
        dataset.initialize_mem_wal(maintained_indexes=["nope"])
    assert dataset.version == 1
