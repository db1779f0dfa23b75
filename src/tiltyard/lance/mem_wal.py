"""Streaming writes and their readers, under the official package's names."""

from tiltyard.dataset.mem_wal import (
    CompactedSsTable,
    ExecutionPlan,
    LsmPointLookupPlanner,
    LsmScanner,
    LsmVectorSearchPlanner,
    ShardingField,
    ShardingSpec,
    ShardSnapshot,
    ShardWriter,
    evaluate_sharding_spec,
)

__all__ = [
    "CompactedSsTable",
    "ExecutionPlan",
    "LsmPointLookupPlanner",
    "LsmScanner",
    "LsmVectorSearchPlanner",
    "ShardSnapshot",
    "ShardWriter",
    "ShardingField",
    "ShardingSpec",
    "evaluate_sharding_spec",
]
