"""Streamed tables for tests: a key, a number and a text, and how to look at them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa

import tiltyard.lance as lance
from tiltyard.memwal.capture import capture
from tiltyard.memwal.entry import EntryHead
from tiltyard.memwal.manifest import newest
from tiltyard.memwal.scan import LsmScan
from tiltyard.store import open_store

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.float32()), pa.field("s", pa.string())]
)
SHARD = "6f1f3a52-9d0e-4f7c-8a57-0c6a5d1e2b3c"
OTHER_SHARD = "0b8b6f6e-59a4-4f0c-9a3c-93c1d3a4f5e6"
#: Numbers by key of the table that `streamed` makes unless told otherwise.
BASE = {1: 0.0, 2: 0.0, 3: 0.0}


def rows(ids: list[int], v: float = 0.0, s: str = "a") -> Any:
    """A batch with these keys, all of one number and text."""
    columns = [pa.array(ids, pa.int64()), pa.array([v] * len(ids), pa.float32()), pa.array([s] * len(ids))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def keys(ids: list[int]) -> Any:
    """A batch of keys alone."""
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], names=["id"])


def streamed(path: Path, ids: list[int] | None = None, **sharding: Any) -> Any:
    """A table with these rows and a MemWAL."""
    table = pa.Table.from_batches([rows(list(BASE) if ids is None else ids)])
    dataset = lance.write_dataset(table, str(path))
    dataset.initialize_mem_wal(**sharding)
    return dataset


def values(table: Any) -> dict[int, float]:
    """Numbers by key; every key once."""
    found = table.to_pydict()
    assert len(found["id"]) == len(set(found["id"]))
    return dict(zip(found["id"], found["v"], strict=True))


def digest(directory: Path) -> dict[str, str]:
    """What every file below a directory holds."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def shard_dir(path: Path, shard: str = SHARD) -> Path:
    """Where a shard's files are."""
    return path / "_mem_wal" / shard


def newest_manifest(path: Path | str, shard: str = SHARD, options: dict[str, str] | None = None) -> Any:
    """The shard's newest manifest."""
    found = newest(open_store(f"{path}/_mem_wal/{shard}", options))
    assert found is not None
    return found


def log_names(path: Path, shard: str = SHARD) -> list[str]:
    """What is in a shard's log, by position."""
    return sorted((each.name for each in (shard_dir(path, shard) / "wal").iterdir()), key=_backwards)


def _backwards(name: str) -> str:
    return name.partition(".")[0][::-1]


def live(path: Path | str, *writers: Any, options: dict[str, str] | None = None) -> Any:
    """The whole table as it is now, with these writers' memory, as a `pa.Table`."""
    dataset = lance.dataset(str(path), storage_options=options)
    return LsmScan(capture(dataset._store, dataset._session, writers)).table()


def entry_bytes(batch: pa.RecordBatch, schema: pa.Schema, epoch: int, generation: int) -> bytes:
    """A log entry as writers put it."""
    return b"".join(map(memoryview, EntryHead(schema, epoch, generation).encoded(batch)))
