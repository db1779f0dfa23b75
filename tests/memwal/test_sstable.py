"""SSTables: what is written, in which order, and that nothing incomplete is named (MemWAL, 4.3-4.7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamed import KEY, SHARD, rows, shard_dir, streamed, values
from tiltyard.errors import ShardError, StoreError
from tiltyard.format.schema import Schema
from tiltyard.format.shard_manifest import ShardManifest, SsTable
from tiltyard.format.version import FileVersion
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.memtable import Rows
from tiltyard.memwal.publishing import named
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.sstable import write_sstable
from tiltyard.memwal.writer import ShardWriter
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

LOG = log_schema(
    Schema.from_arrow(
        pa.schema(
            [pa.field("k", pa.string(), False, KEY), pa.field("n", pa.int8(), False, KEY), ("v", pa.int64())]
        )
    )
)


def generation(*batches: list[tuple[str, int, int | None]]) -> Rows:
    """Batches of (part of the key, part of the key, value); None deletes."""
    made = []
    for batch in batches:
        columns = [
            pa.array([k for k, _, _ in batch]),
            pa.array([n for _, n, _ in batch], pa.int8()),
            pa.array([v for _, _, v in batch], pa.int64()),
            pa.array([v is None for _, _, v in batch]),
        ]
        made.append(pa.RecordBatch.from_arrays(columns, schema=LOG.stored.arrow))
    return Rows(made, LOG)


def written(store: Store, content: Rows, name: str = "00000000_gen_1") -> SsTable:
    return write_sstable(store, name, 1, content, FileVersion.V2_1, Session())


def living(store: Store, name: str = "00000000_gen_1") -> list[dict[str, Any]]:
    snapshot = open_latest(store.at(name), Session())
    return Scan(snapshot, ScanRequest()).table().to_pylist()


KEYS = st.tuples(st.sampled_from(["", "a", "b", "a\0"]), st.sampled_from([-1, 0, 1]))
BATCHES = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9)), min_size=1, max_size=6), min_size=1, max_size=4
)


@given(BATCHES)
@settings(max_examples=40)
def test_of_each_key_the_last_row_lives(batches: list[list[tuple[tuple[str, int], int | None]]]) -> None:
    model: dict[tuple[str, int], int | None] = {}
    for batch in batches:
        model.update(batch)
    store = MemoryStore(Space(""))
    made = written(store, generation(*([(*key, value) for key, value in batch] for batch in batches)))
    assert made.physical_rows == sum(map(len, batches))
    found = living(store)
    assert {(row["k"], row["n"]): row["v"] for row in found} == model
    assert len(found) == len(model)
    assert all(row["_tombstone"] == (row["v"] is None) for row in found)


def test_accounting_is_that_of_the_pack() -> None:
    """Section 4.6's example: 75 + 58 + 59 bytes."""
    log = log_schema(
        Schema.from_arrow(
            pa.schema([pa.field("id", pa.int64(), False, KEY), ("v", pa.float32()), ("s", pa.string())])
        )
    )

    def batch(ids: list[int], s: list[str | None], deletes: bool) -> Any:
        number = pa.array([None if deletes else 1.0] * len(ids), pa.float32())
        return pa.RecordBatch.from_arrays(
            [pa.array(ids), number, pa.array(s, pa.string()), pa.array([deletes] * len(ids))],
            schema=log.stored.arrow,
        )

    content = Rows(
        [batch([1, 2], ["a", "b"], False), batch([3], ["c"], False), batch([1], [None], True)], log
    )
    made = write_sstable(MemoryStore(Space("")), "x_gen_1", 1, content, FileVersion.V2_1, Session())
    assert (made.in_memory_bytes, made.physical_rows, made.primary_key_bytes) == (192, 4, 32)


ROWS = generation([("a", 1, 1), ("a", 1, 2), ("b", 1, 3)])


def test_the_manifest_comes_last() -> None:
    plan = Plan()
    written(FaultyStore(MemoryStore(Space("")), plan), ROWS)
    made = [each[1] for each in plan.trace if each[0] in ("create", "put", "writer.commit", "writer")]
    assert "_versions/" in made[-1]
    assert not any("_versions/" in path for path in made[:-1])
    assert any(layout.BLOOM_FILTER in path for path in made)


@pytest.mark.parametrize("call", ["create", "put", "writer", "writer.write", "writer.commit", "exists"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_write_that_fails_is_told(call: str, at: int) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, call, at=at))
    store = MemoryStore(Space(""))
    try:
        made = written(FaultyStore(store, plan), ROWS)
    except (StoreError, ShardError):
        return
    assert made.physical_rows == 3
    assert len(living(store)) == 2


@pytest.mark.parametrize(
    "lost", [layout.BLOOM_FILTER, layout.PK_PAGES, layout.PK_LOOKUP, "data/*", "_deletions/*"]
)
def test_a_file_that_is_not_there_afterwards_prevents_publishing(lost: str) -> None:
    """Section 9.7."""
    from fnmatch import fnmatch

    class Forgetful(MemoryStore):
        def exists(self, path: str) -> bool:
            return not fnmatch(path, lost) and super().exists(path)

        def at(self, directory: str) -> Any:
            return Forgetful(Space(""))

    with pytest.raises(ShardError, match=r"lacks .* it is not published"):
        written(Forgetful(Space("")), ROWS)


def test_generations_are_named_in_order_and_the_cursor_only_rises() -> None:
    """Section 9.8: within the update of the manifest itself."""
    now = ShardManifest(SHARD, 5, 2, 10, 12, 3, (SsTable(2, "a_gen_2"),))
    third = SsTable(3, "b_gen_3", 1, 1, 1)
    made = named(now, third, 14)
    assert (made.current_generation, made.replay_after, made.last_seen) == (4, 14, 14)
    assert made.sstables == (*now.sstables, third)
    assert named(made, third, 14) is made
    assert named(replace(now, last_seen=99), third, 14).last_seen == 99
    with pytest.raises(ShardError, match="generation 4 cannot flush before generation 3"):
        named(now, replace(third, generation=4), 14)
    with pytest.raises(ShardError, match="generation 2 cannot flush before generation 3"):
        named(now, replace(third, generation=2), 14)
    with pytest.raises(ShardError, match="which the cursor 10 has passed"):
        named(now, third, 10)


def test_a_generation_that_cannot_be_written_is_tried_again_under_another_name(tmp_path: Path) -> None:
    """Its rows stay visible meanwhile, and later generations wait (section 4.3)."""
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([10], 1.0))
    import tiltyard.memwal.sstable as module

    true, calls, broken = module.write_sstable, [], [True]

    def failing(shard: Store, name: str, *rest: Any, **how: Any) -> SsTable:
        calls.append(name)
        if broken:
            raise StoreError("no space")
        return true(shard, name, *rest, **how)

    module.write_sstable = failing
    try:
        with pytest.raises(StoreError, match="no space"):
            writer.flush()
        now = capture(dataset._store, dataset._session, [writer])
        assert values(LsmScan(now).table())[10] == 1.0
        broken.clear()
        writer.put(rows([11], 2.0))
        writer.close()
    finally:
        module.write_sstable = true
    assert len(set(calls)) == len(calls)
    assert writer.stats()["memtable_flush_failures"] == len(calls) - 2
    assert [each.generation for each in writer.manifest.sstables] == [1, 2]
    assert not (shard_dir(tmp_path / "t") / calls[0]).exists()
    assert values(LsmScan(capture(dataset._store, dataset._session)).table()) == {
        1: 0.0,
        2: 0.0,
        3: 0.0,
        10: 1.0,
        11: 2.0,
    }
