"""Filters of inserted keys: byte for byte those of the official writer, which a merge there shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.format.operations import Update
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.conflict.keys import is_empty, may_share_a_key
from tiltyard.table.merge.key_filter import BITMAP_BYTES, key_filter, saturated
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.snapshot import open_latest

PRIMARY = {"lance-schema:unenforced-primary-key": "true"}

KEYS: dict[str, list[pa.Array]] = {
    "int64": [pa.array([7, -7, 2**62, 0], pa.int64())],
    "int32": [pa.array([7, -7, 2**31 - 1], pa.int32())],
    "uint32": [pa.array([7, 2**32 - 1], pa.uint32())],
    "uint64": [pa.array([7, 2**64 - 1], pa.uint64())],
    "string": [pa.array(["", "a", "é" * 40, "x" * 33])],
    "large_string": [pa.array(["key", "k"], pa.large_string())],
    "binary": [pa.array([b"", b"\0", b"ab" * 20])],
    "many": [pa.array(range(20000), pa.int64())],
    "two parts": [pa.array([1, 2, 3], pa.int64()), pa.array(["a", "", "b\0c"])],
    "two texts": [pa.array(["a", "b"]), pa.array(["", "x"])],
}

MERGE = """
ds = lance.dataset(p)
ds.merge_insert(on).when_matched_update_all().when_not_matched_insert_all().execute(rows)
"""


def _schema(columns: list[pa.Array]) -> pa.Schema:
    fields = [
        pa.field(f"k{at}", column.type, nullable=False, metadata=PRIMARY) for at, column in enumerate(columns)
    ]
    return pa.schema([*fields, pa.field("v", pa.int64())])


def _table(columns: list[pa.Array]) -> pa.Table:
    return pa.table([*columns, pa.array(range(len(columns[0])), pa.int64())], schema=_schema(columns))


def _recorded(place: str) -> Any:
    snapshot = open_latest(open_store(place), Session())
    operation = snapshot.transaction().operation
    assert isinstance(operation, Update)
    return operation.inserted_rows


@pytest.mark.parametrize("name", list(KEYS))
def test_the_filter_of_an_upsert_on_the_primary_key_is_the_official_one(
    tmp_path: Path, peer: Peer, name: str
) -> None:
    columns = KEYS[name]
    table = _table(columns)
    mine, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    on = [f"k{at}" for at in range(len(columns))]
    for place in (mine, theirs):
        lance.write_dataset(table.slice(0, 1), place)
    peer(MERGE, p=theirs, on=on, rows=table)
    ours = lance.dataset(mine).merge_insert(on).when_matched_update_all().when_not_matched_insert_all()
    ours.execute(table)
    assert _recorded(mine) == _recorded(theirs)
    assert not is_empty(_recorded(mine))


@pytest.mark.parametrize("inserts", [False, True])
def test_a_merge_on_the_primary_key_that_inserts_nothing_says_so(
    tmp_path: Path, peer: Peer, inserts: bool
) -> None:
    table = _table([pa.array([1, 2], pa.int64())])
    mine, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    text = MERGE if inserts else MERGE.replace(".when_not_matched_insert_all()", "")
    for place in (mine, theirs):
        lance.write_dataset(table, place)
    peer(text, p=theirs, on=["k0"], rows=table)
    builder = lance.dataset(mine).merge_insert().when_matched_update_all()
    (builder.when_not_matched_insert_all() if inserts else builder).execute(table)
    assert _recorded(mine) == _recorded(theirs)
    assert is_empty(_recorded(mine))


@pytest.mark.parametrize("kind", [pa.int16(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")])
def test_keys_that_the_official_writer_does_not_hash_fill_the_filter(kind: pa.DataType) -> None:
    table = _table([pa.array([True, False]) if kind == pa.bool_() else pa.array([1, 0], kind)])
    key = resolve_key(_written(table), None)
    made = key_filter(key, [table["k0"].combine_chunks()])
    assert made == saturated(key)
    assert made.bloom is not None
    assert len(made.bloom.bitmap) == BITMAP_BYTES
    assert is_empty(key_filter(key, [table["k0"].combine_chunks().slice(0, 0)]))


def test_keys_with_a_null_part_are_not_in_the_filter() -> None:
    table = pa.table({"a": pa.array([1, None], pa.int64()), "b": pa.array([None, "x"])})
    key = resolve_key(_written(table), ["a", "b"])
    assert is_empty(key_filter(key, [table["a"].combine_chunks(), table["b"].combine_chunks()]))
    single = resolve_key(_written(table), ["a"])
    whole = key_filter(single, [table["a"].combine_chunks()])
    assert whole == key_filter(single, [table["a"].combine_chunks().slice(0, 1)])


def test_different_keys_rarely_meet_and_equal_ones_always() -> None:
    table = pa.table({"a": pa.array(range(2000), pa.int64())})
    key = resolve_key(_written(table), ["a"])
    column = table["a"].combine_chunks()
    first = key_filter(key, [column.slice(0, 300)])
    assert may_share_a_key(first, key_filter(key, [column.slice(299, 300)]))
    assert not may_share_a_key(first, key_filter(key, [column.slice(1500, 10)]))


def _written(table: pa.Table) -> Any:
    from tiltyard.format.schema import Schema

    return Schema.from_arrow(table.schema)
