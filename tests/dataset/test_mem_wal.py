"""Streams under the official package's names: signatures, what is returned, and which errors."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from streamed import OTHER_SHARD, SCHEMA, SHARD, digest, keys, rows, streamed, values
from tiltyard.errors import WrongType
from tiltyard.lance.mem_wal import (
    LsmPointLookupPlanner,
    LsmScanner,
    LsmVectorSearchPlanner,
    ShardingField,
    ShardingSpec,
    ShardSnapshot,
    ShardWriter,
    evaluate_sharding_spec,
)

SIGNATURES = """
import inspect
import lance.mem_wal as m
def names(f):
    found = inspect.signature(f).parameters.values()
    return [(each.name, each.kind.name) for each in found if not each.name.startswith("_")]
result = {}
for holder in (m.ShardWriter, m.LsmScanner, m.ShardSnapshot, m.LsmPointLookupPlanner,
               m.LsmVectorSearchPlanner, m.ExecutionPlan, m.ShardingField, m.ShardingSpec):
    for name, found in vars(holder).items():
        if callable(getattr(holder, name)) and (not name.startswith("_")):
            result[holder.__name__ + "." + name] = names(getattr(holder, name))
    if holder.__name__ not in ("ShardWriter", "LsmScanner", "ExecutionPlan"):
        result[holder.__name__] = names(holder)
for name in ("initialize_mem_wal", "mem_wal_writer", "mem_wal_index_details"):
    result["LanceDataset." + name] = names(getattr(lance.LanceDataset, name))
result["evaluate_sharding_spec"] = names(m.evaluate_sharding_spec)
"""


def test_every_call_takes_what_the_official_one_takes(peer: Peer) -> None:
    from tiltyard.lance import mem_wal

    for path, wanted in peer(SIGNATURES).items():
        found: Any = lance if path.startswith("LanceDataset") else mem_wal
        for part in path.split("."):
            found = getattr(found, part)
        ours = [(each.name, each.kind.name) for each in inspect.signature(found).parameters.values()]
        assert ours[: len(wanted)] == wanted or set(wanted) <= set(ours), path


def test_a_writer_takes_data_of_every_kind_and_reads_what_it_wrote(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        assert isinstance(writer, ShardWriter)
        writer.put({"id": [10], "v": [1.0], "s": ["x"]})
        writer.put([{"id": 11, "v": 2.0, "s": "y"}])
        writer.put(iter([rows([12], 3.0)]), schema=SCHEMA)
        writer.put(pa.table({"id": [13], "v": [4.0], "s": ["z"]}), schema=SCHEMA)
        writer.delete({"id": [1]})
        asyncio.run(writer.aput({"id": [14], "v": [5.0], "s": ["x"]}))
        asyncio.run(writer.adelete({"id": [2]}))
        scanner = writer.lsm_scanner()
        assert values(scanner.to_table()) == {3: 0.0, 10: 1.0, 11: 2.0, 12: 3.0, 13: 4.0, 14: 5.0}
        assert scanner.project(["v"]).filter("v > 2").limit(2).to_table().num_rows == 2
        assert writer.stats()["put_count"] == 7
        assert writer.memtable_stats()["row_count"] == 7
    with pytest.raises(RuntimeError, match="ShardWriter is already closed"):
        writer.put({"id": [1], "v": [1.0], "s": ["x"]})
    with pytest.raises(RuntimeError, match="already closed"):
        writer.lsm_scanner().to_table()
    writer.close()


def snapshots(dataset: Any) -> list[ShardSnapshot]:
    from streamed import newest_manifest

    manifest = newest_manifest(Path(dataset.uri))
    found = ShardSnapshot(SHARD).with_current_generation(manifest.current_generation).with_spec_id(0)
    for each in manifest.sstables:
        found = found.with_sstable(each.generation, each.path)
    return [found]


def test_scanners_and_plans_answer_in_every_form(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([2, 10], 7.0))
        writer.delete(keys([3]))
    shards = snapshots(dataset)
    assert repr(shards[0]).startswith("ShardSnapshot(shard_id=")
    scanner = LsmScanner.from_snapshots(dataset, shards)
    assert scanner.count_rows() == 3
    assert scanner.to_batch().num_rows == sum(each.num_rows for each in scanner.to_batches()) == 3
    with_all = scanner.with_memtable_gen().with_row_address().project(["v"]).to_table()
    assert set(with_all.schema.names) == {"v", "id", "_memtable_gen", "_rowaddr"}
    generations = dict(zip(with_all["id"].to_pylist(), with_all["_memtable_gen"].to_pylist(), strict=True))
    assert generations == {1: 0, 2: 1, 10: 1}

    plan = LsmPointLookupPlanner(dataset, shards).plan_lookup(pa.array([2]), columns=["id", "v"])
    assert plan.to_table().to_pylist() == plan.to_reader().read_all().to_pylist() == [{"id": 2, "v": 7.0}]
    assert [each.num_rows for each in plan.to_batches()] == [1]
    assert (plan.schema.names, plan.dataset_schema.names) == (["id", "v"], ["id", "v", "s"])
    assert "PointLookup" in plan.explain()
    deleted = LsmPointLookupPlanner(dataset, shards, ["id"]).plan_lookup(pa.array([3]))
    assert (deleted.to_table().num_rows, list(deleted.to_batches())) == (0, [])
    for bad in (pa.array([1, 2]), pa.array([], pa.int64())):
        with pytest.raises(ValueError, match="exactly one row"):
            LsmPointLookupPlanner(dataset, shards).plan_lookup(bad)
    with pytest.raises(ValueError, match="pk_columns"):
        LsmPointLookupPlanner(dataset, shards, ["v"])


def test_vector_plans_are_exact(tmp_path: Path) -> None:
    from streamed import KEY

    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("e", pa.list_(pa.float32(), 2))])
    table = pa.table({"id": [1, 2], "e": [[0.0, 0.0], [5.0, 5.0]]}, schema=schema)
    dataset = lance.write_dataset(table, str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put({"id": [1], "e": [[9.0, 9.0]]})
    planner = LsmVectorSearchPlanner(dataset, snapshots(dataset), "e", distance_type="l2")
    plan = planner.plan_search(pa.array([0.0, 0.0], pa.float32()), k=1, columns=["id"])
    assert plan.to_table().to_pylist() == [{"id": 2, "_distance": 50.0}]
    assert plan.schema.names == plan.to_table().schema.names


@pytest.mark.parametrize("form", ["objects", "dicts"])
def test_sharding_specs_are_evaluated_from_objects_and_dicts(tmp_path: Path, form: str) -> None:
    dataset = lance.write_dataset(pa.table({"a": pa.array([1, 2, 3], pa.int32())}), str(tmp_path / "t"))
    spec: Any = ShardingSpec(1, [ShardingField("bucket", [0], "bucket", None, "int32", {"num_buckets": "8"})])
    if form == "dicts":
        spec = {
            "spec_id": 1,
            "fields": [
                {
                    "field_id": "bucket",
                    "source_ids": [0],
                    "transform": "bucket",
                    "parameters": {"num_buckets": "8"},
                }
            ],
        }
    (batch,) = dataset.to_table().to_batches()
    found = evaluate_sharding_spec(batch, spec, dataset.lance_schema)
    assert found.to_pydict() == {"bucket": [2, 7, 1]}  # the pack's vectors
    with pytest.raises(TypeError):
        evaluate_sharding_spec(dataset.to_table(), spec, dataset.lance_schema)
    with pytest.raises(TypeError, match="schema must be a LanceSchema"):
        evaluate_sharding_spec(batch, spec, dataset.schema)


def test_what_is_no_dataset_is_refused_and_no_limit_is_too_large(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [1, 2])
    for wrong in (str(tmp_path / "t"), None, 1):
        for call in (
            lambda given: LsmScanner.from_snapshots(given, []),
            lambda given: LsmPointLookupPlanner(given, []),
            lambda given: LsmVectorSearchPlanner(given, [], "v"),
            lambda given: ShardWriter.open(given, SHARD),
        ):
            with pytest.raises(WrongType, match="dataset"):
                call(wrong)
    before = digest(tmp_path)
    for spec_id in (True, 0.0, np.array([0, 1]), "0"):
        with pytest.raises(WrongType, match="shard_spec_id must be a whole number"):
            ShardWriter.open(dataset, SHARD, shard_spec_id=spec_id)
    assert digest(tmp_path) == before
    scanner = LsmScanner.from_snapshots(dataset, [])
    for limit in (2**63 - 1, 2**64 - 1):
        assert scanner.limit(limit, 1).to_table().num_rows == 1
    assert scanner.limit(1, 2**64 - 1).to_table().num_rows == 0


def test_what_a_table_says_of_its_streams(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.Table.from_batches([rows([1])]), str(tmp_path / "t"))
    assert dataset.mem_wal_index_details() is None
    with pytest.raises(ValueError, match=r"not initialized .* initialize_mem_wal"):
        dataset.mem_wal_writer(SHARD)
    with pytest.raises(ValueError, match="at most one of"):
        dataset.initialize_mem_wal(unsharded=True, identity_column="id")
    with pytest.raises(ValueError, match="requires both"):
        dataset.initialize_mem_wal(bucket_column="id")
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=4, max_memtable_rows=50)
    details = dataset.mem_wal_index_details()
    assert set(details) == {
        "num_shards",
        "maintained_indexes",
        "maintain_all_indexes",
        "writer_config_defaults",
        "sharding_specs",
    }
    assert (details["num_shards"], details["writer_config_defaults"]["max_memtable_rows"]) == (4, "50")
    assert (
        evaluate_sharding_spec(rows([1, 2]), details["sharding_specs"][0], dataset.lance_schema).num_rows == 2
    )
    with pytest.raises(ValueError, match="already initialized"):
        dataset.initialize_mem_wal()
    with pytest.raises(ValueError, match="Invalid shard_id UUID"):
        dataset.mem_wal_writer("one")
    with dataset.mem_wal_writer(OTHER_SHARD) as writer:
        assert writer.config.max_memtable_rows == 50  # the table's own settings are honoured
