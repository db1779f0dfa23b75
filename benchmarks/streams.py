"""Streaming side by side: puts, lookups, scans, replay, publishing and compaction of one shard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.float64()), pa.field("s", pa.string())]
)
GENERATIONS = 5
IN_MEMORY = 1000
"""Rows that lookups find in memory: the first keys of the base, put again."""

FLUSH_MS = 1
"""The official package puts a log entry down when a timer says so: every so many milliseconds."""

Made = dict[str, Any]


def rows_of(first: int, count: int, seed: int = 0) -> pa.Table:
    """Rows with the keys `first`, `first + 1`, ..."""
    ids = np.arange(first, first + count)
    texts = pa.array([f"row/{each:010d}" for each in ids.tolist()])
    return pa.table({"id": ids, "v": np.sqrt(ids) + seed, "s": texts}, SCHEMA)


class Shard:
    """A streamed table of one side, with the shard that is written."""

    def __init__(self, package: Any, path: str, rows: int, btree: bool = False) -> None:
        self.package, self.path, self.id = package, path, str(uuid4())
        dataset = package.write_dataset(rows_of(0, rows), path, schema=SCHEMA)
        if btree:
            dataset.create_scalar_index("id", "BTREE")
        package.dataset(path).initialize_mem_wal(unsharded=True)

    def writer(self) -> Any:
        """A writer of the shard; whoever owned it is fenced."""
        dataset = self.package.dataset(self.path)
        return dataset.mem_wal_writer(self.id, max_wal_flush_interval_ms=FLUSH_MS)

    def publish(self, table: pa.Table) -> None:
        """One more generation."""
        writer = self.writer()
        writer.put(table)
        writer.close()


def rows(bench: Any) -> Iterator[Made]:
    """What each comparison is made of: see `run.Row`."""
    yield from _puts(bench)
    yield from _reads(bench, "a base", btree=False)
    yield from _reads(bench, "a base with a B-tree", btree=True)
    yield from _memory(bench)
    yield from _replays(bench)
    yield from _published(bench)
    yield from _compacted(bench)


def _each(bench: Any, name: str, make: Callable[[Any, str], Any]) -> dict[str, Any]:
    return {side: make(package, bench.path(side, name)) for side, package in bench.packages.items()}


def _puts(bench: Any) -> Iterator[Made]:
    for count in (1, 100, 10_000):
        shards = _each(bench, f"puts{count}", lambda package, path: Shard(package, path, 1000))
        writers = {side: shard.writer() for side, shard in shards.items()}
        parts = [rows_of(at * count, count) for at in range(16)]
        turn = dict.fromkeys(writers, 0)

        def put(side: str, writers: Any = writers, parts: Any = parts, turn: Any = turn) -> None:
            turn[side] += 1
            writers[side].put(parts[turn[side] % len(parts)])

        yield {
            "name": f"stream: put {count:,} rows, durable",
            "run": put,
            "rounds": 60 if count < 1000 else 7,
        }


def _reads(bench: Any, told: str, *, btree: bool) -> Iterator[Made]:
    base, per = bench.rows_of(1_000_000), bench.rows_of(20_000)

    def made(package: Any, path: str) -> tuple[Any, Any]:
        shard = Shard(package, path, base, btree)
        for generation in range(GENERATIONS):
            shard.publish(rows_of(base - per // 2 + generation * per, per, generation))
        writer = shard.writer()
        writer.put(rows_of(0, IN_MEMORY, 30))
        return shard, writer

    writers = {side: each[1] for side, each in _each(bench, f"lsm{btree}", made).items()}
    end = base - per // 2 + GENERATIONS * per
    draw = np.random.default_rng(1)
    places = {
        "in memory": (0, IN_MEMORY),
        "in the newest SSTable": (end - per, end),
        "in the oldest SSTable": (base - per // 2, base + per // 2),
        "in the base": (2 * IN_MEMORY, base - per),
        "absent": (end + 10, end + 10**6),
    }
    for place, (low, high) in places.items():
        if btree and place not in ("in the base", "absent"):
            continue
        asked = draw.integers(low, high, 256).tolist()
        turn = dict.fromkeys(writers, 0)

        def look(side: str, asked: Any = asked, turn: Any = turn) -> Any:
            turn[side] += 1
            return writers[side].lsm_scanner().filter(f"id = {asked[turn[side] % 256]}").to_table()

        name = f"stream: one key {place}, {told}"
        yield {"name": name, "run": look, "rounds": 60, "answer": lambda found: found.num_rows}
    if not btree:

        def scan(side: str) -> Any:
            return writers[side].lsm_scanner().to_table()

        yield {"name": f"stream: scan {end:,} rows in all", "run": scan, "rounds": 3, "answer": _summed}


def _memory(bench: Any) -> Iterator[Made]:
    def made(package: Any, path: str) -> Any:
        writer = Shard(package, path, IN_MEMORY).writer()
        writer.put(rows_of(0, IN_MEMORY, 30))
        return writer

    writers = _each(bench, "memory", made)

    def scan(side: str) -> Any:
        return writers[side].lsm_scanner().to_table()

    yield {"name": "stream: scan what is in memory", "run": scan, "rounds": 40, "answer": _summed}


def _summed(found: Any) -> tuple[int, int, float]:
    return found.num_rows, pc.sum(found["id"]).as_py(), round(pc.sum(found["v"]).as_py(), 3)


def _replays(bench: Any) -> Iterator[Made]:
    entries = max(100, int(1000 * bench.scale))
    shards = _each(bench, "replayed", lambda package, path: Shard(package, path, 1000))
    for shard in shards.values():
        writer = shard.writer()
        for at in range(entries):
            writer.put(rows_of(at * 10, 10))
    opened: dict[str, Any] = {}

    def reopen(side: str) -> Any:
        opened[side] = shards[side].writer()

    yield {"name": f"stream: take over, {entries:,} log entries", "run": reopen, "rounds": 3}

    def first(side: str) -> Any:
        return opened[side].lsm_scanner().to_table()

    name = f"stream: take over, {entries:,} log entries, first scan"
    yield {"name": name, "run": first, "prepare": reopen, "rounds": 3, "answer": _summed}


def _published(bench: Any) -> Iterator[Made]:
    count = bench.rows_of(90_000)
    held: dict[str, Any] = {}
    table = rows_of(0, count)

    def prepare(side: str) -> None:
        held[side] = Shard(bench.packages[side], bench.scratch(side), 1000).writer()
        held[side].put(table)

    name = f"stream: publish {count:,} rows (close)"
    yield {"name": name, "run": lambda side: held[side].close(), "prepare": prepare, "rounds": 3}


def _compacted(bench: Any) -> Iterator[Made]:
    base, per = bench.rows_of(1_000_000), bench.rows_of(20_000)

    def made(package: Any, path: str) -> Shard:
        shard = Shard(package, path, base)
        for generation in range(GENERATIONS):
            shard.publish(rows_of(base - per // 2 + generation * per, per, generation))
        return shard

    shards = _each(bench, "compacted", made)
    held: dict[str, str] = {}

    def prepare(side: str) -> None:
        held[side] = bench.scratch(side)
        shutil.copytree(shards[side].path, held[side])

    def compact(side: str) -> Any:
        merge = _merge_one_by_one if side == "pylance" else _compact
        return merge(bench.packages[side], held[side], shards[side].id)

    name = f"stream: compact {GENERATIONS} SSTables of {per:,} into {base:,}"
    yield {"name": name, "run": compact, "prepare": prepare, "rounds": 3, "answer": lambda found: found}


def _merge_one_by_one(package: Any, path: str, shard: str) -> int:
    """The official package has no compactor: this is what its parts make."""
    from lance.mem_wal import CompactedSsTable

    found = Path(path, "_mem_wal", shard).glob("*_gen_*")
    for each in sorted(found, key=lambda each: int(each.name.rpartition("_")[2])):
        dataset = package.dataset(path)
        table = package.dataset(str(each)).to_table(columns=dataset.schema.names)
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        generation = int(each.name.rpartition("_")[2])
        merge.mark_sstables_as_compacted([CompactedSsTable(shard, generation)]).execute(table)
    return int(package.dataset(path).count_rows())


def _compact(package: Any, path: str, shard: str) -> int:
    from tiltyard.memwal.compaction import compact_streams

    dataset = package.dataset(path)
    compact_streams(dataset._store, dataset._session, shards=[shard])
    return int(package.dataset(path).count_rows())
