"""What a merge holds of its source: all rows, in bounded memory, in any order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import InvalidInput, SchemaMismatch
from tiltyard.table.merge import source as module
from tiltyard.table.merge.source import Source

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("t", pa.struct([pa.field("x", pa.list_(pa.int16()))])),
    ]
)


def _batches(sizes: list[int]) -> list[pa.RecordBatch]:
    first, made = 0, []
    for size in sizes:
        numbers = range(first, first + size)
        words = pa.array([f"word {n % 5 + len(made)}" for n in numbers])
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array([None if n % 7 == 0 else f"text {n}" for n in numbers], pa.string()),
            words.dictionary_encode().cast(SCHEMA.field("d").type),
            pa.array([{"x": [n % 3] * (n % 4)} for n in numbers], SCHEMA.field("t").type),
        ]
        made.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        first += size
    return made


def _plain(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


@settings(max_examples=40)
@given(st.data(), st.lists(st.integers(0, 40), max_size=6), st.sampled_from([0, 500, 10**9]))
def test_rows_come_back_in_order_and_by_number(
    data: st.DataObject, sizes: list[int], spill_bytes: int
) -> None:
    batches = _batches(sizes)
    whole = _plain(batches)
    source = Source.of(SCHEMA, iter(batches), held=False, spill_bytes=spill_bytes)
    assert source.rows == len(whole)
    assert source.is_spilled == (sum(b.nbytes for b in batches if b.num_rows) > spill_bytes)
    assert _plain(list(source.batches())) == whole
    numbers = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20) if whole else st.just([]))
    rows = np.array(numbers, np.int64)
    assert source.take(rows).to_pylist() == [whole[n] for n in numbers]
    assert source.take(rows, ["n"]).schema.names == ["n"]
    ordered = np.sort(rows)
    assert _plain(list(source.in_order(ordered))) == [whole[n] for n in ordered]


def test_rows_that_the_caller_holds_are_not_copied() -> None:
    batches = _batches([100, 200])
    source = Source.of(SCHEMA, batches, held=True, spill_bytes=0)
    assert not source.is_spilled
    assert next(source.batches()) is batches[0]
    every = np.arange(300, dtype=np.int64)
    assert [batch.num_rows for batch in source.in_order(every)] == [100, 200]
    assert next(source.in_order(every)) is batches[0]


def test_batches_of_one_source_are_brought_to_one_schema() -> None:
    first = pa.record_batch({"a": [1], "b": ["x"]})
    other = pa.record_batch({"b": pa.array(["y"], pa.large_string()), "a": pa.array([2], pa.int32())})
    source = Source.of(first.schema, [first, other], held=True, spill_bytes=0)
    assert _plain(list(source.batches())) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    for wrong in ({"a": [1]}, {"a": ["text"], "b": ["x"]}):
        with pytest.raises(SchemaMismatch, match="batch of the source"):
            Source.of(first.schema, [first, pa.record_batch(wrong)], held=True, spill_bytes=0)


def test_very_many_small_batches_are_joined() -> None:
    batches = [batch.select(["n", "s"]) for batch in _batches([2] * 300)]
    source = Source.of(batches[0].schema, batches, held=True, spill_bytes=0)
    assert len(list(source.batches())) == 1
    assert _plain(list(source.batches())) == _plain(batches)


@pytest.mark.parametrize("spill_bytes", [0, 10**9])
def test_batches_whose_dictionaries_do_not_fit_together_stay_apart(spill_bytes: int) -> None:
    batches = _batches([2] * 300)
    source = Source.of(SCHEMA, iter(batches), held=False, spill_bytes=spill_bytes)
    assert _plain(list(source.batches())) == _plain(batches)
    with pytest.raises(InvalidInput, match="wider index"):
        source.take(np.arange(600, dtype=np.int64))


def test_a_stream_is_read_once_and_gathered_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 2000)
    monkeypatch.setattr(module, "PIECE_ROWS", 50)
    batches = _batches([3] * 100)
    read = []

    def stream() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.append(batch.num_rows)
            yield batch

    source = Source.of(SCHEMA, stream(), held=False, spill_bytes=1000)
    assert source.is_spilled
    assert len(read) == 100
    assert _plain(list(source.batches())) == _plain(batches)
    assert len(list(source.batches())) < 60
