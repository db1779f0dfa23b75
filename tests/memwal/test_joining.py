"""Batches made one: memory of its own, and what cannot be one kept apart."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard as ty
from streamed import SCHEMA, SHARD, live, rows, streamed, values
from tiltyard.errors import BatchTooLarge, ShardError
from tiltyard.memwal import sstable
from tiltyard.memwal.incoming import rows_of
from tiltyard.memwal.joining import DictionaryRoom, joined
from tiltyard.memwal.writer import ShardWriter

CODED = pa.dictionary(pa.int8(), pa.string())
WORDS = pa.schema([("id", pa.int64()), ("word", CODED), ("deep", pa.list_(pa.field("item", CODED)))])
MANY = 100


def words(number: int) -> Any:
    """A hundred rows whose dictionaries have no value in common with those of another number."""
    ids = range(number * MANY, (number + 1) * MANY)
    coded = pa.array([f"w{each}" for each in ids]).dictionary_encode().cast(CODED)
    deep = pa.ListArray.from_arrays(pa.array(range(MANY + 1), pa.int32()), coded)
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), coded, deep], schema=WORDS)


@pytest.mark.parametrize("durable", [True, False])
def test_arrays_may_be_used_again_after_they_were_put(tmp_path: Path, durable: bool) -> None:
    dataset = streamed(tmp_path / "t", [])
    ids, numbers = np.arange(5), np.zeros(5, np.float32)
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(numbers), pa.array(["a"] * 5)], schema=SCHEMA)
    gone = np.array([1])
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(batch, durable=durable)
        writer.delete(pa.RecordBatch.from_arrays([pa.array(gone)], names=["id"]), durable=durable)
        ids += 100
        numbers += 9
        gone[0] = 2
        expected = dict.fromkeys((0, 2, 3, 4), 0.0)
        assert values(live(tmp_path / "t", writer)) == expected
        writer.sync()
    assert values(live(tmp_path / "t")) == expected


def test_what_is_joined_shares_no_memory_with_its_parts() -> None:
    items, numbers = np.arange(3), np.zeros(3, np.int8)
    coded = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(items))
    nested = pa.StructArray.from_arrays([coded], ["of"])
    batch = pa.RecordBatch.from_arrays([coded, nested], names=["plain", "nested"])
    made = joined([batch])
    items += 7
    numbers += 1
    assert made.to_pydict() == {"plain": [0] * 3, "nested": [{"of": 0}] * 3}
    assert made.schema == batch.schema


def test_dictionaries_that_cannot_become_one_make_generations_of_their_own(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", WORDS, key="id")
    with table.stream() as stream:
        stream.put(words(0))
        stream.put(words(1), durable=False)
        stream.put(words(2))
        threads = [Thread(target=stream.put, args=(words(number),)) for number in range(3, 7)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        with pytest.raises(BatchTooLarge, match="200 rows cannot become one batch"):
            stream.put(pa.Table.from_batches([words(7), words(8)]))
        stream.put(words(0).slice(0, 10))  # the same dictionary again
        assert table.live().lookup([5, 150, 650])["word"].to_pylist() in (
            list(each) for each in _orders("w5", "w150", "w650")
        )
    found = {row["id"]: row for row in table.live().to_arrow().to_pylist()}
    assert found == {id: {"id": id, "word": f"w{id}", "deep": [f"w{id}"]} for id in range(7 * MANY)}
    with table.stream() as stream:  # what another owner replays is counted too
        stream.put(words(7))
        stream._writer.abort()
    with table.stream() as stream:
        stream.put(words(8))
    assert table.live().count() == 9 * MANY
    table.drain()
    assert table.count() == 9 * MANY
    assert sum(each.num_rows for each in table.scan(["word"]).batches()) == 9 * MANY


def _orders(*words: str) -> list[tuple[str, ...]]:
    from itertools import permutations

    return list(permutations(words))


def test_a_room_that_was_full_stays_full() -> None:
    room = DictionaryRoom(WORDS)
    assert room.takes(words(0))
    assert not room.takes(words(1))
    assert not room.takes(words(0))
    assert DictionaryRoom(SCHEMA).takes(rows([1]))


def test_an_entry_and_a_generation_have_bounded_bytes(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [])
    large = "x" * 10_000
    with ShardWriter.open(dataset, SHARD, max_memtable_size=25_000) as writer:
        threads = [Thread(target=writer.put, args=(rows([id], 1.0, large),)) for id in range(12)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        writer.put(rows([99], 2.0, large * 9))  # larger than a generation: in one of its own
    sizes = [each.in_memory_bytes or 0 for each in writer.manifest.sstables]
    assert sum(each.physical_rows or 0 for each in writer.manifest.sstables) == 13
    assert max(sizes[:-1]) < 40_000 < 90_000 < sizes[-1]
    assert len(values(live(tmp_path / "t"))) == 13


def test_who_waits_for_a_generation_is_told_whatever_keeps_it_from_being_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t", [])
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([1], 1.0))

    def broken(*_: object, **__: object) -> None:
        raise MemoryError("none left")

    with monkeypatch.context() as patched:
        patched.setattr(sstable, "write_sstable", broken)
        with pytest.raises(ShardError, match="could not be published: MemoryError: none left"):
            writer.flush()
    writer.put(rows([2], 1.0))
    writer.close()
    assert values(live(tmp_path / "t")) == {1: 1.0, 2: 1.0}


def test_of_callers_that_share_a_round_those_whose_rows_stand_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t", [])
    writer = ShardWriter.open(dataset, SHARD, max_memtable_rows=2)
    schema = writer.owned.schema
    items: list[Any] = [writer._item(rows_of(rows(ids, 1.0), schema), True) for ids in ([1, 2], [3, 4])]
    append, appended = writer._log.append, []

    def second_fails(batch: Any, generation: int) -> int:
        if appended:
            raise MemoryError("none left")
        appended.append(batch)
        return append(batch, generation)

    with monkeypatch.context() as patched:
        patched.setattr(writer._log, "append", second_fails)
        answers = writer._round(items)
    assert answers[0] is None
    assert isinstance(answers[1], MemoryError)
    writer.close()
    assert values(live(tmp_path / "t")) == {1: 1.0, 2: 1.0}
