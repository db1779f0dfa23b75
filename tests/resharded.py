"""Streamed tables whose sharding is changed, for tests: one with rows everywhere, and how to look at it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tiltyard.lance as lance
from streamed import BASE, keys, rows, streamed, values
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.identity import streamed as memwal_of
from tiltyard.memwal.life import manifests
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import FaultyStore, Plan, Rule

EIGHT = {"bucket_column": "id", "num_buckets": 8}
FOUR = {"bucket_column": "id", "num_buckets": 4}


def fresh(path: Path) -> Any:
    """The table as another process sees it."""
    return lance.dataset(str(path), session=lance.Session())


def details(path: Path) -> MemWalDetails:
    return memwal_of(fresh(path)._snapshot).details


def shards(path: Path) -> dict[str, Any]:
    return manifests(LocalStore(str(path / layout.ROOT)))


def everything(path: Path) -> dict[int, float]:
    """What readers of another process see, in two ways that must agree."""
    captured = capture(LocalStore(str(path)), lance.Session(), with_logs=True)
    found = values(LsmScan(captured).table())
    looked = values(Lookup(captured).find([list(range(60))]))
    assert looked == found
    return found


#: What `begun` makes.
EXPECTED = {**BASE, **dict.fromkeys(range(10, 40), 1.0), **dict.fromkeys(range(20, 30), 2.0), 2: 2.0}
del EXPECTED[3], EXPECTED[39]


def begun(path: Path, sharding: dict[str, Any] = FOUR) -> Any:
    dataset = streamed(path, **sharding)
    writer = ShardedWriter(dataset)
    writer.put(rows(list(range(10, 40)), 1.0))
    writer.flush()
    writer.put(rows([2, *range(20, 30)], 2.0))
    writer.delete(keys([3, 39]))
    writer.abort()
    return dataset


def faulty(path: Path, *rules: Rule) -> Any:
    return SimpleNamespace(_store=FaultyStore(LocalStore(str(path)), Plan(*rules)), _session=lance.Session())
