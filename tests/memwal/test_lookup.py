"""Lookups give what scans with a filter on the key give (invariant L1)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import KEY, OTHER_SHARD, SHARD, newest_manifest, shard_dir
from tiltyard.errors import BatchTooLarge, FieldNotFound, InvalidInput, SchemaMismatch
from tiltyard.format.operations import Project
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import layout
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.commit import commit
from tiltyard.table.merge import sorted_keys

KINDS: dict[str, Any] = {
    "int64": (lambda i: i - 20, pa.int64()),
    "int8": (lambda i: i - 20, pa.int8()),
    "uint64": (lambda i: 2**64 - 1 - i, pa.uint64()),
    "string": (lambda i: "" if i == 0 else f"k{'é' * (i % 4)}{i}", pa.string()),
    "large_string": (lambda i: f"k{i}", pa.large_string()),
    "binary": (lambda i: bytes([i, 0, 255]), pa.binary()),
    "large_binary": (lambda i: bytes([i] * (i % 9)) + bytes([i]), pa.large_binary()),
}


def made(
    path: Path, fields: dict[str, Any], seed: int
) -> tuple[Any, list[ShardWriter], list[tuple[Any, ...]]]:
    """A table of these key columns, with levels of all sorts; all keys that it may have."""
    draw = random.Random(seed)
    schema = pa.schema(
        [pa.field(n, kind, False, KEY) for n, (_, kind) in fields.items()] + [("v", pa.int64())]
    )
    every = [tuple(make(i) for make, _ in fields.values()) for i in range(60)]

    def rows(keys: list[tuple[Any, ...]], v: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [dict(zip(schema.names, (*k, v), strict=True)) for k in keys], schema
        )

    dataset = lance.write_dataset(pa.Table.from_batches([rows(every[:30], 0)]), str(path))
    dataset.initialize_mem_wal()
    writers = []
    for number, shard in enumerate((SHARD, OTHER_SHARD)):
        writer = ShardWriter.open(dataset, shard)
        own = [key for at, key in enumerate(every[:50]) if at % 2 == number]
        for step in range(1, 5):
            put = draw.sample(own, 6)
            writer.put(rows([*put, put[0]], step))
            gone = draw.sample(own, 2)
            writer.delete(rows(gone, 0))
            if step in (1, 3):
                writer.flush()
        writers.append(writer)
    return dataset, writers, every


def check(now: Captured, every: list[tuple[Any, ...]], draw: random.Random) -> None:
    names = now.schema.key
    whole = {tuple(row[n] for n in names): row for row in LsmScan(now).table().to_pylist()}
    for count in (1, 5, 60, 1, 5, 60, 60, 1, 1):  # again: keys are kept from the second time on
        asked = draw.sample(every, count)
        parts = [[key[at] for key in asked] for at in range(len(names))]
        found = Lookup(now).find(parts).to_pylist()
        assert {tuple(row[n] for n in names): row for row in found} == {
            k: whole[k] for k in asked if k in whole
        }
        assert len(found) == len({k for k in asked if k in whole})


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_one_column(tmp_path: Path, kind: str) -> None:
    dataset, writers, every = made(tmp_path / "t", {"k": KINDS[kind]}, 3)
    check(capture(dataset._store, dataset._session, writers), every, random.Random(1))
    for writer in writers:
        writer.close()
    check(capture(dataset._store, dataset._session), every, random.Random(2))


@pytest.mark.parametrize("kinds", [("string", "int8"), ("int64", "binary", "uint64")], ids="-".join)
def test_keys_of_several_columns(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    dataset, writers, every = made(
        tmp_path / "t", {f"k{at}": KINDS[kind] for at, kind in enumerate(kinds)}, 4
    )
    check(capture(dataset._store, dataset._session, writers), every, random.Random(1))
    for writer in writers:
        writer.close()
    check(capture(dataset._store, dataset._session), every, random.Random(2))


@pytest.mark.parametrize("kinds", [("string",), ("int64", "binary")], ids="-".join)
def test_keys_of_one_hash_are_told_apart(
    tmp_path: Path, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = sorted_keys.hashes
    monkeypatch.setattr(sorted_keys, "hashes", lambda columns: true(columns) % np.uint64(5))
    test_keys_of_several_columns(tmp_path, kinds)


def test_a_key_that_is_put_again_and_again_is_found_as_of_each_moment(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"k": [1], "v": [0]}, made_schema()), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with ShardWriter.open(dataset, SHARD) as writer:
        moments = []
        for step in range(1, 30):
            writer.put(pa.RecordBatch.from_pydict({"k": [step % 3, 7], "v": [step, step]}, made_schema()))
            moments.append((step, capture(dataset._store, dataset._session, [writer])))
            if step % 4:
                moments[-1][1].shards[0].levels[0].last_rows(np.array([7], np.uint64))
        for step, now in moments:
            for asked in ([7], [7, step % 3]):
                found = Lookup(now).find([asked]).to_pydict()
                assert dict(zip(found["k"], found["v"], strict=True)) == dict.fromkeys(asked, step)
        writer.abort()


def made_schema() -> pa.Schema:
    return pa.schema([pa.field("k", pa.int64(), False, KEY), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, Any, Captured]:
    dataset, writers, _ = made(tmp_path / "t", {"k": KINDS["int64"]}, 5)
    for writer in writers:
        writer.close()
    return tmp_path / "t", dataset, capture(dataset._store, dataset._session)


@pytest.mark.parametrize("kind", ["int8", "int64", "uint64", "string"])
def test_a_filter_on_one_key_is_a_lookup(tmp_path: Path, kind: str) -> None:
    dataset, writers, every = made(tmp_path / "t", {"k": KINDS[kind]}, 6)
    values = [key for (key,) in every]
    more = [] if kind == "string" else [-(10**17), 300, 10**17]

    def ask(now: Captured) -> None:
        whole = {row["k"]: row for row in LsmScan(now).table().to_pylist()}
        for value in (*values, *more):
            text = f"'{value}'" if kind == "string" else str(value)
            for spelled in (f"k = {text}", f"(k) = {text}"):  # as lookups ask it, and as it must be read
                expected = [whole[value]] if value in whole else []
                assert LsmScan(now, where=spelled).table().to_pylist() == expected
                assert LsmScan(now, where=spelled).count() == len(expected)
                only = LsmScan(now, ["v"], spelled, generation=True, row_address=True).table()
                assert only.column("v").to_pylist() == [each["v"] for each in expected]
                assert LsmScan(now, where=spelled, offset=1).count() == 0

    for _ in range(2):
        ask(capture(dataset._store, dataset._session, writers))
    for writer in writers:
        writer.close()
    for _ in range(2):
        ask(capture(dataset._store, dataset._session))


def test_a_column_that_is_named_like_a_word_of_sql_is_no_key_to_filters(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("null", pa.int64(), False, KEY), ("v", pa.int64())])
    dataset = lance.write_dataset(pa.table({"null": [1, 2], "v": [3, 4]}, schema), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    now = capture(dataset._store, dataset._session)
    assert LsmScan(now, where="null = 1").count() == 0
    assert LsmScan(now, where='"null" = 1').table().to_pylist() == [{"null": 1, "v": 3}]


def test_a_lookup_in_rows_of_an_earlier_schema(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"k": [1, 2], "v": [0, 0]}, made_schema()), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(pa.RecordBatch.from_pydict({"k": [1], "v": [5]}, made_schema()))
        table = dataset._snapshot.schema
        named = zip(table.fields, ("id", "w"), strict=True)
        other = replace(table, fields=tuple(replace(field, name=name) for field, name in named))
        renaming = Transaction(dataset.version, str(uuid4()), Project(other))
        commit(dataset._store, renaming, session=dataset._session, base=dataset._snapshot)
        now = capture(dataset._store, dataset._session, [writer])
        for key, w in ((1, 5), (2, 0)):
            assert LsmScan(now, where=f"id = {key}").table().to_pylist() == [{"id": key, "w": w}]
        writer.abort()


def test_a_key_that_the_base_has_twice_gives_both_rows(tmp_path: Path) -> None:
    twice = pa.table({"k": [1, 2, 2, 3], "v": [1, 2, 3, 4]}, made_schema())
    dataset = lance.write_dataset(twice, str(tmp_path / "t"), max_rows_per_file=3)
    dataset = lance.write_dataset(twice.slice(3), str(tmp_path / "t"), mode="append")
    dataset.initialize_mem_wal()
    for _ in range(3):
        now = capture(dataset._store, dataset._session)
        found = {key: LsmScan(now, where=f"k = {key}").table()["v"].to_pylist() for key in (1, 2, 3, 4)}
        assert found == {1: [1], 2: [2, 3], 3: [4, 4], 4: []}


def test_a_key_that_is_asked_for_twice_gives_its_row_once(table: Any) -> None:
    now = table[2]
    there = LsmScan(now, ["k"]).table()["k"].to_pylist()[:3]
    found = Lookup(now).find([[there[0], there[0], 999, there[1], 999]])
    assert sorted(found["k"].to_pylist()) == sorted(there[:2])


@pytest.mark.parametrize(
    "given",
    [[[]], [pa.array([], pa.int64())], [pa.chunked_array([], pa.int64())]],
    ids=["list", "array", "chunks"],
)
def test_no_keys_give_no_rows(table: Any, given: Any) -> None:
    found = Lookup(table[2], ["v"]).find(given)
    assert (found.num_rows, found.schema.names) == (0, ["v"])


def test_keys_of_other_types_are_cast_where_they_can_be(table: Any) -> None:
    now = table[2]
    key = LsmScan(now, ["k"]).table()["k"].to_pylist()[0]
    for given in (pa.array([key], pa.int32()), pa.array([str(key)]), pa.chunked_array([[key]])):
        assert Lookup(now).find([given])["k"].to_pylist() == [key]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([["x"]], SchemaMismatch),
        ([pa.array(["x"])], SchemaMismatch),
        ([[2**70]], SchemaMismatch),
        ([[1], [2]], InvalidInput),
        ([], InvalidInput),
    ],
    ids=["text", "array of text", "too large", "two parts", "no part"],
)
def test_keys_that_are_none_are_refused(table: Any, given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Lookup(table[2]).find(given)


def test_columns_that_are_not_there_are_told(table: Any) -> None:
    with pytest.raises(FieldNotFound):
        Lookup(table[2], ["nope"])


def test_a_null_key_has_no_row(table: Any) -> None:
    try:
        found = Lookup(table[2]).find([pa.array([None], pa.int64())])
    except (InvalidInput, SchemaMismatch):
        return
    assert found.num_rows == 0


def test_parts_of_different_lengths_are_refused(tmp_path: Path) -> None:
    dataset, writers, _ = made(tmp_path / "t", {"a": KINDS["int64"], "b": KINDS["string"]}, 5)
    now = capture(dataset._store, dataset._session, writers)
    with pytest.raises(InvalidInput, match="different lengths"):
        Lookup(now).find([[1, 2], ["a"]])
    for writer in writers:
        writer.abort()


@pytest.mark.parametrize("lost", [layout.BLOOM_FILTER, layout.PK_INDEX, layout.PK_PAGES])
def test_a_missing_filter_or_index_changes_no_answer(table: Any, lost: str) -> None:
    """Section 9.7: another writer may have published without them."""
    import shutil

    path, _, before = table
    every = [(key,) for key in range(-20, 40)]
    expected = sorted(Lookup(before).find([[k for (k,) in every]]).to_pylist(), key=str)
    for each in newest_manifest(path).sstables:
        target = shard_dir(path) / each.path / lost
        target.unlink() if target.is_file() else shutil.rmtree(target)
    fresh = lance.dataset(str(path), session=lance.Session())
    now = capture(fresh._store, fresh._session)
    assert sorted(Lookup(now).find([[k for (k,) in every]]).to_pylist(), key=str) == expected
    check(now, every, random.Random(9))


def test_a_filter_of_an_unknown_size_is_not_asked(table: Any) -> None:
    path, _, before = table
    every = [list(range(-20, 40))]
    expected = sorted(Lookup(before).find(every).to_pylist(), key=str)
    for each in newest_manifest(path).sstables:
        (shard_dir(path) / each.path / layout.BLOOM_FILTER).write_bytes(bytes(64))
    fresh = lance.dataset(str(path), session=lance.Session())
    now = capture(fresh._store, fresh._session)
    assert sorted(Lookup(now).find(every).to_pylist(), key=str) == expected


def test_a_table_without_a_key_has_no_lookups(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with pytest.raises(InvalidInput, match="no primary key"):
        Lookup(capture(dataset._store, dataset._session))


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("functions", [None, {"d": "last"}], ids=["newest", "merged"])
def test_dictionaries_of_several_fragments_may_be_too_many_for_one(
    tmp_path: Path, kind: str, functions: dict[str, str] | None
) -> None:
    make, key_type = KINDS[kind]
    words = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field("k", key_type, False, KEY), ("d", words)])

    def some(numbers: range) -> pa.RecordBatch:
        texts = pa.array([f"t{i}" for i in numbers]).dictionary_encode().cast(words)
        return pa.record_batch([pa.array([make(i) for i in numbers], key_type), texts], schema)

    path = str(tmp_path / "t")
    for numbers in (range(100), range(100, 200)):
        dataset = lance.write_dataset(pa.Table.from_batches([some(numbers)]), path, mode="append")
    dataset.initialize_mem_wal(unsharded=True, merge_functions=functions)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(some(range(200, 205)))
        for _ in range(3):  # keys are kept from the second time on
            now = capture(dataset._store, dataset._session, [writer])
            found = Lookup(now).find([[make(i) for i in range(202)]]).to_pylist()
            assert {each["k"]: each["d"] for each in found} == {make(i): f"t{i}" for i in range(202)}
            assert len(found) == 202
        if functions is not None:
            writer.put(some(range(99, 101)))  # merged with rows of both
            now = capture(dataset._store, dataset._session, [writer])
            with pytest.raises(BatchTooLarge, match="a wider index"):
                Lookup(now).find([[make(i) for i in range(202)]])
        writer.abort()
