"""What the official package does with a streamed table, as source text for its processes (`peer.py`)."""

from __future__ import annotations

from typing import Any

OPEN = """
kept["w"] = lance.dataset(p).mem_wal_writer(shard, max_wal_flush_interval_ms=5, **options)
result = kept["w"].lsm_scanner().to_table()
"""
TAKE = """
kept["w"] = lance.dataset(p).mem_wal_writer(shard, max_wal_flush_interval_ms=5, **options)
result = None
"""
PUT = "kept['w'].put(rows)"
DELETE = "kept['w'].delete(rows)"
CLOSE = "kept.pop('w').close()"
ABANDON = "kept.pop('w') and None"
SNAPSHOT = """
def snapshots(listed):
    from lance.mem_wal import ShardSnapshot
    found = []
    for shard, sstables in listed:
        snapshot = ShardSnapshot(shard)
        for generation, path in sstables:
            snapshot = snapshot.with_sstable(generation, path)
        found.append(snapshot)
    return found
"""
SCAN = (
    SNAPSHOT
    + """
dataset = lance.dataset(p, storage_options=globals().get("o"))
result = lance.mem_wal.LsmScanner.from_snapshots(dataset, snapshots(listed)).to_table()
"""
)
LOOKUP = (
    SNAPSHOT
    + """
planner = lance.mem_wal.LsmPointLookupPlanner(lance.dataset(p), snapshots(listed))
result = [planner.plan_lookup(key).to_table().to_pylist() for key in keys]
"""
)
BEGIN = """
ds = lance.write_dataset(rows, p, **options)
ds.initialize_mem_wal(**sharding)
result = None
"""


def listed(*manifests: Any) -> list[tuple[str, list[tuple[int, str]]]]:
    """The SSTables of some shards as `SCAN` and `LOOKUP` take them."""
    return [(m.shard_id, [(each.generation, each.path) for each in m.sstables]) for m in manifests]
