"""A dataset shared among workers."""

from __future__ import annotations

from tiltyard.dataset.sharding import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
