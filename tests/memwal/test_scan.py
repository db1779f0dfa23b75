"""Scans over base, SSTables and memory (MemWAL, section 6): of each key the newest row, then filters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from streamed import KEY, OTHER_SHARD, SHARD
from tiltyard.errors import FieldNotFound, InvalidInput, TiltyardError, UnsupportedFeature
from tiltyard.memwal import joining as module
from tiltyard.memwal import scan
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        pa.field("v", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("st", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
    ]
)


def row(key: int, v: int | None, s: str | None = "x") -> dict[str, Any]:
    return {"id": key, "v": v, "s": s, "st": None if v is None else {"a": v, "b": s}}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def keys(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


class Levels:
    """A table with two shards, each with two SSTables and rows in memory; and its model."""

    def __init__(self, path: Path, seed: int) -> None:
        draw = random.Random(seed)
        self.model = {key: row(key, draw.choice([None, key % 7]), "base") for key in range(60)}
        table = pa.Table.from_batches([batch(*self.model.values())])
        self.dataset = lance.write_dataset(table, str(path), max_rows_per_file=25)
        self.dataset.initialize_mem_wal()
        self.writers = []
        for number, shard in enumerate((SHARD, OTHER_SHARD)):
            writer = ShardWriter.open(self.dataset, shard)
            own = [key for key in range(90) if key % 2 == number]
            for step in range(3):
                put = [row(k, draw.choice([None, 1, 5, 9]), f"{step}") for k in draw.sample(own, 8)]
                put += [row(put[0]["id"], 3, "twice")]
                gone = draw.sample(own, 3)
                writer.put(batch(*put))
                writer.delete(keys(*gone))
                self.model.update({each["id"]: each for each in put})
                for key in gone:
                    self.model.pop(key, None)
                if step < 2:
                    writer.flush()
            self.writers.append(writer)

    def now(self) -> Captured:
        return capture(self.dataset._store, self.dataset._session, self.writers)

    def close(self) -> None:
        for writer in self.writers:
            writer.abort()


@pytest.fixture(params=[1, 2])
def levels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Levels]:
    made = Levels(tmp_path / "t", request.param)
    yield made
    made.close()


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda each: each["id"])


def test_of_each_key_the_newest_row(levels: Levels) -> None:
    found = LsmScan(levels.now()).table()
    assert plain(found) == [levels.model[key] for key in sorted(levels.model)]
    assert found.schema.equals(lance.dataset(levels.dataset.uri).schema, check_metadata=False)
    assert LsmScan(levels.now()).count() == len(levels.model)


FILTERS: dict[str, Any] = {
    "v = 5": lambda r: r["v"] == 5,
    "v > 2 AND s = 'base'": lambda r: r["v"] is not None and r["v"] > 2 and r["s"] == "base",
    "v IS NULL": lambda r: r["v"] is None,
    "NOT (v = 5)": lambda r: r["v"] is not None and r["v"] != 5,
    "st.a = 9": lambda r: r["st"] is not None and r["st"]["a"] == 9,
    "id IN (1, 2, 3, 4, 80)": lambda r: r["id"] in (1, 2, 3, 4, 80),
    "id = 3 OR v = 9": lambda r: r["id"] == 3 or r["v"] == 9,
    "id = 3 AND v = 9": lambda r: r["id"] == 3 and r["v"] == 9,
    "id BETWEEN 10 AND 20": lambda r: 10 <= r["id"] <= 20,
    "id = 5 AND id = 6": lambda r: False,
    "s LIKE 'tw%'": lambda r: r["s"].startswith("tw"),
}


@pytest.mark.parametrize("where", FILTERS)
def test_filters_ask_the_newest_row_only(levels: Levels, where: str) -> None:
    """Case M08: an older row that passes does not come back."""
    expected = [levels.model[key] for key in sorted(levels.model) if FILTERS[where](levels.model[key])]
    assert plain(LsmScan(levels.now(), where=where).table()) == expected
    assert LsmScan(levels.now(), where=where).count() == len(expected)
    ids = LsmScan(levels.now(), ["id"], where).table()
    assert sorted(ids["id"].to_pylist()) == [each["id"] for each in expected]


def test_a_filter_as_an_expression(levels: Levels) -> None:
    expected = [levels.model[key] for key in sorted(levels.model) if levels.model[key]["v"] == 5]
    assert plain(LsmScan(levels.now(), where=pc.field("v") == 5).table()) == expected


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["s"], ["s"]),
        (["s", "id"], ["s", "id"]),
        ([], []),
        (["st.a"], ["st.a"]),
        ({"twice": "v * 2", "key": "id"}, ["twice", "key"]),
    ],
    ids=str,
)
def test_columns_that_are_asked_for(levels: Levels, columns: Any, names: list[str]) -> None:
    found = LsmScan(levels.now(), columns).table()
    assert found.num_rows == len(levels.model)
    assert found.schema.names in (names, ["st"])
    if "twice" in names:
        assert dict(zip(found["key"].to_pylist(), found["twice"].to_pylist(), strict=True)) == {
            key: None if each["v"] is None else 2 * each["v"] for key, each in levels.model.items()
        }


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (1, 0), (10, 3), (None, 7), (1000, 5), (5, 1000)])
def test_limits_take_different_rows_each_once(levels: Levels, limit: int | None, offset: int) -> None:
    total = len(levels.model)
    found = LsmScan(levels.now(), ["id"], limit=limit, offset=offset).table()["id"].to_pylist()
    left = max(0, total - offset)
    assert len(found) == len(set(found)) == (left if limit is None else min(limit, left))
    assert LsmScan(levels.now(), ["id"], limit=limit, offset=offset).count() == len(found)


def test_pages_are_all_rows(levels: Levels) -> None:
    now = levels.now()
    pages = [LsmScan(now, ["id"], limit=7, offset=at).table()["id"].to_pylist() for at in range(0, 100, 7)]
    assert sorted(key for page in pages for key in page) == sorted(levels.model)


def test_where_each_row_comes_from(levels: Levels) -> None:
    found = LsmScan(levels.now(), row_address=True, generation=True).table().to_pylist()
    for each in found:
        assert (each["_memtable_gen"] == 0) == (each["_rowaddr"] is not None)
        assert (each["_memtable_gen"] == 0) == (each["s"] == "base")
        assert each["_memtable_gen"] in (0, 1, 2, 3)
    base = lance.dataset(levels.dataset.uri)
    some = [each for each in found if each["_memtable_gen"] == 0][:5]
    addresses = {
        e["id"]: e["_rowaddr"] for e in base.scanner(["id"], with_row_address=True).to_table().to_pylist()
    }
    assert all(addresses[each["id"]] == each["_rowaddr"] for each in some)


@pytest.mark.parametrize(
    "arguments",
    [
        {"columns": ["nope"]},
        {"columns": ["_tombstone"]},
        {"columns": ["_rowid"]},
        {"where": "nope = 1"},
        {"where": "_tombstone"},
        {"where": "v = = 1"},
        {"limit": -1},
        {"offset": -1},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_told_at_once(levels: Levels, arguments: dict[str, Any]) -> None:
    with pytest.raises((FieldNotFound, InvalidInput, UnsupportedFeature, TiltyardError)):
        LsmScan(levels.now(), **arguments)


def test_a_capture_stays_what_it_was(levels: Levels) -> None:
    now, model = levels.now(), dict(levels.model)
    levels.writers[0].put(batch(row(0, 77), row(200, 1)))
    levels.writers[0].flush()
    levels.writers[1].delete(keys(1, 3, 5))
    assert plain(LsmScan(now).table()) == [model[key] for key in sorted(model)]
    model.update({0: row(0, 77), 200: row(200, 1)})
    for key in (1, 3, 5):
        model.pop(key, None)
    assert plain(LsmScan(levels.now()).table()) == [model[key] for key in sorted(model)]


def test_fragments_of_which_no_row_counts_are_not_read(tmp_path: Path) -> None:
    table = pa.Table.from_batches([batch(*map(made_of, range(40)))])
    dataset = lance.write_dataset(table, str(tmp_path / "t"), max_rows_per_file=10)
    dataset.delete("id = 12")
    dataset.initialize_mem_wal()
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(batch(*(row(key, 1) for key in [*range(5), *range(10, 20), *range(30, 40)])))
        now = capture(dataset._store, dataset._session, [writer])
        whole = plain(LsmScan(now).table())
        for fragment in lance.dataset(str(tmp_path / "t")).get_fragments():
            if fragment.fragment_id in (1, 3):
                (tmp_path / "t" / "data" / fragment.data_files()[0].path).unlink()
        assert plain(LsmScan(now).table()) == whole
        assert [each["id"] for each in whole] == list(range(40))
        writer.abort()


def test_a_table_of_no_rows(tmp_path: Path) -> None:
    dataset = lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "t"), schema=SCHEMA)
    dataset.initialize_mem_wal()
    now = capture(dataset._store, dataset._session)
    assert LsmScan(now).table().num_rows == 0
    assert LsmScan(now, where="id = 3").count() == 0
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.delete(keys(1))
        assert LsmScan(capture(dataset._store, dataset._session, [writer])).table().num_rows == 0
    assert LsmScan(capture(dataset._store, dataset._session)).count() == 0


def test_what_is_kept_from_scan_to_scan_is_right_after_every_step(tmp_path: Path) -> None:
    draw = random.Random(8)
    dataset = lance.write_dataset(
        pa.Table.from_batches([batch(*map(made_of, range(40)))]), str(tmp_path / "t")
    )
    dataset.initialize_mem_wal()
    model = {key: made_of(key) for key in range(40)}
    store, session = dataset._store, dataset._session
    with ShardWriter.open(dataset, SHARD) as writer:
        for step in range(40):
            match draw.choice(["put", "put", "delete", "flush", "drain", "base"]):
                case "put":
                    put = [row(key, step) for key in draw.sample(range(60), 5)]
                    writer.put(batch(*put, row(put[0]["id"], -step)))
                    model |= {each["id"]: each for each in put} | {put[0]["id"]: row(put[0]["id"], -step)}
                case "delete":
                    gone = draw.sample(range(60), 3)
                    writer.delete(keys(*gone))
                    model = {key: each for key, each in model.items() if key not in gone}
                case "flush":
                    writer.flush()
                case "drain":
                    writer.flush()
                    compact_streams(store, session)
                case _:
                    dataset = lance.dataset(str(tmp_path / "t"))
                    dataset.delete("id = 1000")  # another version with the same rows
            for _ in range(3):  # the second time with what was kept, also without a change of memory
                now = capture(store, session, [writer])
                found = LsmScan(now).table().to_pylist()
                assert {each["id"]: each for each in found} == model
                assert (len(found), LsmScan(now).count()) == (len(model), len(model))
        writer.abort()


@pytest.mark.parametrize("limits", [(4, 10, 1 << 20), (4, 10, 100), (0, 1, 1)], ids=str)
def test_many_small_puts_are_given_in_few_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int, int]
) -> None:
    for name, value in zip(("SMALL_ROWS", "JOINED_ROWS", "JOINED_BYTES"), limits, strict=True):
        monkeypatch.setattr(module, name, value)
    dataset = lance.write_dataset(pa.Table.from_batches([batch(made_of(0))]), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with ShardWriter.open(dataset, SHARD) as writer:
        for first in range(1, 60, 6):
            for size in (1, 2, 3) if first % 4 else (6,):
                writer.put(batch(*map(made_of, range(first, first + size))))
                first += size
        now = capture(dataset._store, dataset._session, [writer])
        level = now.shards[0].levels[0]
        batches = list(level.batches(now.base.schema.fields))
        assert [i for each in batches for i in each["id"].to_pylist()] == list(range(1, 61))
        assert len(batches) < 20 or limits[0] == 0 or limits[2] == 100
        writer.abort()


def made_of(key: int) -> dict[str, Any]:
    return row(key, key % 7)


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30), unique=True))
@settings(max_examples=50, deadline=None)
def test_rows_that_are_gone_are_left_out_whatever_is_copied(rows: list[int], gone: list[int]) -> None:
    made = pa.RecordBatch.from_pydict({"a": rows, "_rowaddr": pa.array(rows, pa.uint64())})
    left = list(scan._without(made, np.array(sorted(gone), np.uint64)))
    assert [each for part in left for each in part["a"].to_pylist()] == [
        each for each in rows if each not in gone
    ]
