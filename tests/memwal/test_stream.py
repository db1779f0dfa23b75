"""Streams over several shards: bad rows reach none, ends are told for each, large puts are cut."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from streamed import SCHEMA, digest, keys, live, rows, streamed, values
from tiltyard.errors import (
    InvalidInput,
    SchemaMismatch,
    ShardError,
    WriterClosed,
    WriterFenced,
    WrongType,
)
from tiltyard.format.operations import Overwrite, Project
from tiltyard.format.transaction import Transaction
from tiltyard.memwal.stream import ShardedWriter, open_writers
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.commit import commit


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    return streamed(tmp_path / "t", bucket_column="id", num_buckets=4)


BAD: dict[str, tuple[Any, type[Exception]]] = {
    "missing column": (rows([1]).select(["id", "v"]), SchemaMismatch),
    "extra column": (rows([1]).append_column("x", pa.array([1])), SchemaMismatch),
    "narrow key": (
        pa.RecordBatch.from_pydict(
            {"id": pa.array([1], pa.int32()), "v": pa.array([1.0], pa.float32()), "s": ["a"]}
        ),
        SchemaMismatch,
    ),
    "wide number": (pa.RecordBatch.from_pydict({"id": [1], "v": [1.0], "s": ["a"]}), SchemaMismatch),
    "null key": (
        pa.RecordBatch.from_arrays(
            [pa.array([1, None]), pa.array([1.0, 2.0], pa.float32()), pa.array(["a", "b"])],
            names=["id", "v", "s"],
        ),
        InvalidInput,
    ),
    "two of one name": (
        pa.RecordBatch.from_arrays([*rows([1]).columns, pa.array([1])], names=["id", "v", "s", "id"]),
        SchemaMismatch,
    ),
    "a tombstone": (rows([1]).append_column("_tombstone", pa.array([True])), SchemaMismatch),
    "a list": ([{"id": 1}], WrongType),
    "nothing": (None, WrongType),
    "text": ("rows", WrongType),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_reach_no_shard(dataset: Any, tmp_path: Path, name: str) -> None:
    """Case M18, over shards: not even one is taken over."""
    data, error = BAD[name]
    with ShardedWriter(dataset) as writer:
        before = digest(tmp_path / "t")
        with pytest.raises(error):
            writer.put(data)
        assert digest(tmp_path / "t") == before
        assert writer.writers == ()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (pa.RecordBatch.from_pydict({"v": [1.0]}), SchemaMismatch),
        (pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())}), SchemaMismatch),
        (pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64())}), InvalidInput),
        (pa.RecordBatch.from_pydict({"id": ["1"]}), SchemaMismatch),
        ([1, 2], WrongType),
    ],
    ids=["no key", "narrow key", "null key", "text key", "a list"],
)
def test_bad_keys_delete_nothing(dataset: Any, tmp_path: Path, data: Any, error: type[Exception]) -> None:
    with ShardedWriter(dataset) as writer:
        before = digest(tmp_path / "t")
        with pytest.raises(error):
            writer.delete(data)
        assert digest(tmp_path / "t") == before


def test_empty_puts_and_deletes_do_nothing(dataset: Any, tmp_path: Path) -> None:
    before = digest(tmp_path / "t")
    with ShardedWriter(dataset) as writer:
        writer.put(rows([]))
        writer.put(pa.Table.from_batches([], SCHEMA))
        writer.delete(keys([]))
        assert writer.writers == ()
    assert digest(tmp_path / "t") == before


def test_every_arrow_kind_of_rows_is_taken(dataset: Any, tmp_path: Path) -> None:
    batch = rows([10], 1.0)
    table = pa.Table.from_batches([rows([11], 1.0), rows([12], 1.0)])
    with ShardedWriter(dataset) as writer:
        writer.put(batch)
        writer.put(table)
        writer.put(pa.RecordBatchReader.from_batches(SCHEMA, [rows([13], 1.0)]))
        writer.put([rows([14], 1.0), rows([15], 1.0)])
        writer.put(rows([16], 1.0).select(["s", "id", "v"]))  # columns are found by name
    assert {k for k, v in values(live(tmp_path / "t")).items() if v == 1.0} == set(range(10, 17))


def test_a_put_larger_than_a_memtable_is_cut_by_streams_and_refused_by_shards(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [], unsharded=True, max_memtable_rows=10)
    with ShardedWriter(dataset) as writer:
        writer.put(rows(list(range(35)), 1.0))
        writer.delete(keys(list(range(25))))
        (shard,) = writer.writers
        with pytest.raises(InvalidInput, match="write of 11 rows exceeds max_memtable_rows=10"):
            shard.put(rows(list(range(11))))
    assert values(live(tmp_path / "t")) == dict.fromkeys(range(25, 35), 1.0)


def test_who_ended_one_shard_does_not_keep_the_others_from_closing(dataset: Any, tmp_path: Path) -> None:
    stream = ShardedWriter(dataset)
    stream.put(rows(list(range(40)), 1.0))
    taken = stream.writers[1].owned
    other = ShardWriter.open(dataset, taken.shard_id, sharding_value=taken.manifest.field_entries[:1])
    with pytest.raises(WriterFenced):
        stream.close()
    other.close()
    assert all(each.closed for each in stream.writers)
    assert values(live(tmp_path / "t")) == dict.fromkeys(range(40), 1.0)
    with pytest.raises(WriterClosed):
        stream.put(rows([1]))


def test_an_interrupted_block_publishes_nothing_more(dataset: Any, tmp_path: Path) -> None:
    def interrupted() -> None:
        with ShardedWriter(dataset) as stream:
            stream.put(rows([10], 1.0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert 10 not in values(live(tmp_path / "t"))
    with ShardedWriter(dataset) as again:
        again.put(rows([10 + 0], 2.0))
    assert values(live(tmp_path / "t"))[10] == 2.0


def test_writers_that_are_open_here_are_known_until_they_end(dataset: Any) -> None:
    store, session = dataset._store, dataset._session
    with ShardedWriter(dataset) as stream:
        stream.put(rows(list(range(40))))
        assert len(open_writers(store, session)) == 4
        stream.writers[0].abort()
        assert len(open_writers(store, session)) == 3
    assert open_writers(store, session) == []


def _renamed(dataset: Any) -> None:
    """Another program renames a column."""
    schema = dataset._snapshot.schema
    fields = tuple(replace(each, name="text") if each.name == "s" else each for each in schema.fields)
    new = replace(schema, fields=fields)
    _committed(dataset, Project(new))


def _committed(dataset: Any, operation: Any) -> None:
    made = Transaction(dataset.version, str(uuid4()), operation)
    commit(dataset._store, made, session=dataset._session, base=dataset._snapshot)


def test_a_stream_whose_table_has_other_columns_by_now_puts_nothing_anywhere(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [], bucket_column="id", num_buckets=4)
    stream = ShardedWriter(dataset)
    stream.put(rows([1]))
    _renamed(dataset)
    before = digest(tmp_path / "t")
    for put in (lambda: stream.put(rows(list(range(20)))), lambda: stream.delete(keys(list(range(20))))):
        with pytest.raises(SchemaMismatch, match="have changed since this stream was opened"):
            put()
    with pytest.raises(SchemaMismatch, match="have changed"):
        asyncio.run(stream.aput(rows(list(range(20)))))
    assert digest(tmp_path / "t") == before
    stream.put(rows([1], 5.0))  # a shard that is open goes on: its entries name the columns' ids
    stream.close()
    found = live(tmp_path / "t").to_pydict()
    assert (found["id"], found["v"], found["text"]) == ([1], [5.0], ["a"])


def test_a_table_that_changes_while_a_shard_is_claimed_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t", [])
    stream = ShardedWriter(dataset)
    shard_of = stream._shard_of

    def then_renamed(value: Any) -> str:
        found = shard_of(value)
        _renamed(dataset)
        return found

    monkeypatch.setattr(stream, "_shard_of", then_renamed)
    with pytest.raises(SchemaMismatch, match="have changed since this stream was opened"):
        stream.put(rows([1]))
    assert stream.writers == ()
    assert live(tmp_path / "t").num_rows == 0


def test_who_streams_into_a_table_that_was_overwritten_is_told_when_it_publishes(tmp_path: Path) -> None:
    """By another program: our own overwrite refuses, or fences the streams."""
    dataset = streamed(tmp_path / "t", [], unsharded=True)
    stream = ShardedWriter(dataset)
    stream.put(rows([1]))
    schema = dataset._snapshot.schema
    _committed(dataset, Overwrite((), schema))
    with pytest.raises(ShardError, match="was overwritten or restored"):
        stream.close()
    assert live(tmp_path / "t").num_rows == 0
