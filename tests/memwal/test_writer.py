"""A shard's writer against a dictionary: whatever is put, deleted, flushed, closed and opened again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from streamed import SCHEMA, SHARD, digest, keys, rows, streamed, values
from tiltyard.errors import (
    InvalidInput,
    SchemaMismatch,
    ShardSpecMismatch,
    UnsupportedFeature,
    WriterClosed,
    WriterFenced,
)
from tiltyard.memwal.capture import capture
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter

Model = dict[int, tuple[float, str]]


def check(dataset: Any, writers: list[ShardWriter], model: Model, draw: random.Random) -> None:
    """Scans, counts, filters and lookups give what the dictionary holds."""
    now = capture(dataset._store, dataset._session, writers)
    found = LsmScan(now).table().to_pydict()
    assert len(found["id"]) == len(model)
    assert {k: (v, s) for k, v, s in zip(found["id"], found["v"], found["s"], strict=True)} == model
    assert LsmScan(now).count() == len(model)
    border = draw.randrange(300)
    passed = LsmScan(now, ["id"], f"v > {border}").table().to_pydict()["id"]
    assert sorted(passed) == sorted(key for key, (v, _) in model.items() if v > border)
    asked = draw.sample(range(120), 30)
    looked_up = values(Lookup(now, ["id", "v"]).find(pa.array(asked)))
    assert looked_up == {key: model[key][0] for key in asked if key in model}


@pytest.mark.parametrize("seed", range(4))
def test_a_shard_is_a_dictionary(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    dataset = streamed(tmp_path / "t", list(range(50)))
    model: Model = dict.fromkeys(range(50), (0.0, "a"))
    writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=60)
    for step in range(250):
        choice = draw.random()
        if choice < 0.2:
            gone = draw.sample(range(100), draw.randint(1, 5))
            writer.delete(keys(gone), durable=draw.random() < 0.5)
            for key in gone:
                model.pop(key, None)
        elif choice < 0.93:
            put = [draw.randrange(100) for _ in range(draw.randint(1, 8))]
            writer.put(rows(put, float(step), str(step)), durable=draw.random() < 0.5)
            model.update(dict.fromkeys(put, (float(step), str(step))))
        elif choice < 0.96:
            writer.flush()
        else:
            writer.sync()
            writer.abort() if draw.random() < 0.5 else writer.close()
            writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=60)
        if step % 25 == 0:
            check(dataset, [writer], model, draw)
    writer.close()
    check(dataset, [], model, draw)


def test_the_last_row_of_a_key_within_one_put_counts(tmp_path: Path) -> None:
    """Case M14."""
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        batch = pa.RecordBatch.from_pydict({"id": [5, 5], "v": [1.0, 2.0], "s": ["first", "second"]}, SCHEMA)
        writer.put(batch)
        now = capture(dataset._store, dataset._session, [writer])
        assert LsmScan(now, where="id = 5").table().to_pydict()["s"] == ["second"]
    now = capture(dataset._store, dataset._session)
    assert LsmScan(now, where="id = 5").table().to_pydict()["s"] == ["second"]


def test_another_spec_id_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    manual = streamed(tmp_path / "manual")
    with ShardWriter.open(manual, SHARD) as writer:
        writer.put(rows([7], 7.0))
        before = digest(tmp_path / "manual")
        with pytest.raises(ShardSpecMismatch, match="shard_spec_id 1 is invalid for manual") as told:
            ShardWriter.open(manual, SHARD, shard_spec_id=1)
        assert (told.value.shard_id, told.value.requested, told.value.stored) == (SHARD, 1, 0)
        assert digest(tmp_path / "manual") == before
        writer.put(rows([8], 8.0))
    automatic = streamed(tmp_path / "automatic", unsharded=True)
    ShardWriter.open(automatic, SHARD).close()
    before = digest(tmp_path / "automatic")
    with pytest.raises(ShardSpecMismatch, match="does not match the MemWAL index sharding spec id 1"):
        ShardWriter.open(automatic, SHARD, shard_spec_id=0)
    assert digest(tmp_path / "automatic") == before


def test_who_was_passed_is_told_and_keeps_nothing(tmp_path: Path) -> None:
    """Case M01."""
    dataset = streamed(tmp_path / "t")
    first = ShardWriter.open(dataset, SHARD)
    first.put(rows([10], 1.0))
    second = ShardWriter.open(dataset, SHARD)
    second.put(rows([11], 2.0))
    for call in (lambda: first.put(rows([12])), first.view, first.close):
        with pytest.raises(WriterFenced, match="Writer fenced"):
            call()
    found = values(LsmScan(capture(dataset._store, dataset._session, [second])).table())
    assert found == {1: 0.0, 2: 0.0, 3: 0.0, 10: 1.0, 11: 2.0}
    second.close()
    assert values(LsmScan(capture(dataset._store, dataset._session)).table()) == found


NUMBER, TEXT = pa.array([1.0], pa.float32()), pa.array(["a"])


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"id": pa.array([1]), "v": NUMBER}, SchemaMismatch),
        ({"id": pa.array([1]), "v": NUMBER, "s": TEXT, "x": pa.array([1])}, SchemaMismatch),
        ({"id": pa.array([1], pa.int32()), "v": NUMBER, "s": TEXT}, SchemaMismatch),
        ({"id": pa.array([None], pa.int64()), "v": NUMBER, "s": TEXT}, InvalidInput),
    ],
    ids=["missing column", "extra column", "narrow integer", "null key"],
)
def test_bad_rows_are_refused_before_anything_is_logged(
    tmp_path: Path, columns: dict[str, Any], error: type[Exception]
) -> None:
    """Case M18."""
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        before = digest(tmp_path / "t")
        with pytest.raises(error):
            writer.put(pa.RecordBatch.from_pydict(columns))
        assert digest(tmp_path / "t") == before
        writer.put(rows([]))  # nothing
        writer.delete(keys([999]))  # nobody's


def test_bad_shard_ids_and_settings_are_refused_before_the_claim(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    before = digest(tmp_path / "t")
    for shard, options in (
        ("shard 1", {}),
        (SHARD, {"max_memtable_batches": 0}),
        (SHARD, {"max_memtable_size": 0}),
        (SHARD, {"max_unflushed_memtable_bytes": 1}),
        (SHARD, {"no_such_setting": 1}),
        (SHARD, {"durable_write": "yes"}),
    ):
        with pytest.raises(InvalidInput):
            ShardWriter.open(dataset, shard, **options)  # type: ignore[arg-type]
    assert digest(tmp_path / "t") == before


def test_key_types_that_could_not_be_published_are_refused(tmp_path: Path) -> None:
    import tiltyard.lance as lance
    from streamed import KEY

    schema = pa.schema([pa.field("d", pa.date32(), False, KEY)])
    dataset = lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), schema=schema)
    with pytest.raises(UnsupportedFeature, match="unsupported type date32"):
        dataset.initialize_mem_wal()


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    writer.close()
    writer.close()
    with pytest.raises(WriterClosed, match="already closed"):
        writer.put(rows([1]))


def test_who_waits_for_a_writer_that_is_given_up_is_told(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([5]))
    blocked = tmp_path / "t" / "_mem_wal" / SHARD
    blocked.chmod(0o555)  # no SSTable can be made, unless by the superuser
    try:
        waiting = Thread(target=lambda: told.append(_raised(writer.flush)))
        told: list[BaseException | None] = []
        waiting.start()
        writer.abort()
        waiting.join(30)
    finally:
        blocked.chmod(0o755)
    assert not waiting.is_alive()
    assert told[0] is None or isinstance(told[0], (WriterClosed, OSError))


def _raised(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def test_rows_that_nobody_waits_for_reach_the_log_by_themselves(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD, max_wal_flush_interval_ms=5)
    writer.put(rows([5]), durable=False)
    deadline = monotonic() + 30
    while writer.memtable_stats()["pending_wal_row_count"] and monotonic() < deadline:
        sleep(0.005)
    assert writer.memtable_stats()["pending_wal_row_count"] == 0
    writer.abort()
    with ShardWriter.open(dataset, SHARD) as again:
        assert 5 in values(LsmScan(capture(dataset._store, dataset._session, [again])).table())


@pytest.mark.parametrize("durable", [True, False])
def test_rows_that_come_while_the_writer_is_closed_are_in_or_refused(tmp_path: Path, durable: bool) -> None:
    """They came after its last entry: in memory only, though the caller was told that they are there."""
    dataset = streamed(tmp_path / "t", [])
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([1], 1.0))
    drained = writer._publisher.drain
    refused: list[Exception] = []

    def late(generation: int) -> None:
        drained(generation)
        with pytest.raises(WriterClosed) as told:
            writer.put(rows([2], 1.0), durable=durable)
        refused.append(told.value)
        writer.sync()

    writer._publisher.drain = late  # type: ignore[method-assign]
    writer.close()
    assert len(refused) == 1
    now = capture(dataset._store, dataset._session)
    assert values(LsmScan(now).table()) == {1: 1.0}
