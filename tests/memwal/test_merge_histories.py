"""Tables with merge functions: whatever is put, published, replayed, compacted and read between, the rows are
those of a dictionary into which everything is put one after the other.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tiltyard.lance as lance
from streamed import KEY, digest, live
from tiltyard.errors import InvalidInput
from tiltyard.memwal import compaction, layout
from tiltyard.memwal import merged as merged_module
from tiltyard.memwal.capture import capture
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.nearest import nearest_rows
from tiltyard.memwal.resharding import compacted, revise
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.stream import ShardedWriter, open_writers
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.nearest.query import Nearest
from tiltyard.table.row_changes import RowChanges

SCHEMA = pa.schema(
    [
        pa.field("total", pa.int64()),
        pa.field("id", pa.string(), False, KEY),
        pa.field("born", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.timestamp("us")),
        pa.field("note", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
        pa.field("at", pa.list_(pa.float32(), 2)),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)
FUNCTIONS = {
    "total": "sum",
    "born": "first",
    "name": "keep_non_null",
    "low": "min",
    "high": "max",
    "note": "last",
    "at": "last",
    "kind": "max",
}
IDS = [f"k{number:02}" for number in range(12)]
Row = dict[str, Any]


def merged(old: Row, new: Row) -> Row:
    def of(name: str) -> Any:
        before, now = old[name], new[name]
        match FUNCTIONS.get(name, "last"):
            case "first":
                return before
            case "last":
                return now
            case _ if before is None or now is None:
                return now if before is None else before
            case "sum":
                return before + now
            case "min":
                return min(before, now)
            case "max":
                return max(before, now)
            case _:
                return now

    return {name: of(name) for name in SCHEMA.names}


class History:
    """A table, its model, and what may happen to both."""

    def __init__(self, path: Path, seed: int, **sharding: Any) -> None:
        self.draw = random.Random(seed)
        self.path = str(path)
        self.model: dict[str, Row] = {id: self.row(id) for id in self.draw.sample(IDS, 5)}
        rows = pa.Table.from_pylist(list(self.model.values()), SCHEMA)
        self.dataset = lance.write_dataset(rows, self.path, max_rows_per_file=3)
        self.dataset.initialize_mem_wal(**sharding, merge_functions=FUNCTIONS)
        self.writer = ShardedWriter(self.dataset)

    def row(self, id: str) -> Row:
        def maybe(value: Any) -> Any:
            return None if self.draw.random() < 0.3 else value

        draw = self.draw
        return {
            "total": maybe(draw.randrange(-50, 50)),
            "id": id,
            "born": maybe(draw.randrange(9)),
            "name": maybe(draw.choice("abc")),
            "low": maybe(draw.randrange(-9, 9) / 2),
            "high": maybe(pa.scalar(draw.randrange(10**6), pa.timestamp("us")).as_py()),
            "note": maybe({"a": maybe(draw.randrange(5)), "b": maybe("x")}),
            "kind": maybe(draw.choice("xyz")),
            "at": [float(draw.randrange(-9, 9)), float(draw.randrange(-9, 9))],
        }

    def put(self) -> None:
        rows = [self.row(self.draw.choice(IDS)) for _ in range(self.draw.randrange(1, 7))]
        self.writer.put(pa.RecordBatch.from_pylist(rows, SCHEMA))
        for row in rows:
            old = self.model.get(row["id"])
            self.model[row["id"]] = row if old is None else merged(old, row)

    def delete(self) -> None:
        gone = self.draw.sample(IDS, 2)
        self.writer.delete(pa.RecordBatch.from_pydict({"id": gone}))
        for id in gone:
            self.model.pop(id, None)

    def flush(self) -> None:
        self.writer.flush()

    def replay(self) -> None:
        """Its process dies, and another one opens the shards when it has rows for them."""
        self.writer.abort()
        self.writer = ShardedWriter(self.dataset)

    def append(self) -> None:
        """Rows that come into the base beside the stream, of keys that nobody knows."""
        id = f"n{len(self.model)}{self.draw.random()}"
        row = self.row(id)
        lance.write_dataset(pa.Table.from_pylist([row], SCHEMA), self.path, mode="append")
        self.model[id] = row

    def compact(self) -> None:
        done = compact_streams(self.dataset._store, self.dataset._session)
        assert not done.problems

    def step(self) -> None:
        often = [self.put, self.put, self.put, self.flush]
        seldom = [self.delete, self.replay, self.append, self.compact]
        self.draw.choice(often + seldom)()

    # -- looking ---------------------------------------------------------------------------------

    def now(self) -> Any:
        store, session = self.dataset._store, self.dataset._session
        return capture(store, session, open_writers(store, session), with_logs=True)

    def check(self) -> None:
        draw, now = self.draw, self.now()
        assert by_id(LsmScan(now).table()) == self.model
        assert LsmScan(now).count() == len(self.model)
        columns = draw.sample(SCHEMA.names, 3)
        some = LsmScan(now, columns).table()
        assert some.schema.names == columns
        wanted = [{name: row[name] for name in columns} for row in self.model.values()]
        assert sorted(map(repr, some.to_pylist())) == sorted(map(repr, wanted))
        low = draw.randrange(-30, 30)
        totals = {id: row["total"] for id, row in self.model.items()}
        passing = {id: self.model[id] for id, total in totals.items() if total is not None and total > low}
        assert by_id(LsmScan(now, where=f"total > {low}").table()) == passing
        assert LsmScan(now, where=f"total > {low}").count() == len(passing)
        assert LsmScan(now, where=f"total > {low}", limit=2).table().num_rows == min(2, len(passing))
        asked = [*draw.sample(IDS, 5), "absent"]
        found = {id: self.model[id] for id in asked if id in self.model}
        assert by_id(Lookup(now).find([asked])) == found
        assert by_id(LsmScan(now, where=f"id in ({', '.join(map(repr, asked))})").table()) == found
        self.check_nearest(now)

    def check_nearest(self, now: Any) -> None:
        place = [float(self.draw.randrange(-9, 9)), 0.5]
        near = nearest_rows(now, Nearest("at", place, 3, "l2"), ["id", "total"])
        ranked = sorted(
            (sum((a - b) ** 2 for a, b in zip(row["at"], place, strict=True)), id)
            for id, row in self.model.items()
        )
        assert near.column("_distance").to_pylist() == pytest.approx([each for each, _ in ranked[:3]])
        for row in near.to_pylist():
            assert row["total"] == self.model[row["id"]]["total"]


def by_id(table: pa.Table) -> dict[str, Row]:
    found = {row["id"]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


SHARDINGS = [{"unsharded": True}, {"bucket_column": "id", "num_buckets": 3}]


@pytest.mark.parametrize("sharding", SHARDINGS, ids=["one shard", "three shards"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_merged_alike_wherever_they_are(tmp_path: Path, seed: int, sharding: Any) -> None:
    history = History(tmp_path / "t", seed, **sharding)
    for number in range(14):
        history.step()
        if number % 4 == 0:
            history.check()
    history.check()
    history.writer.close()
    history.check()
    for shard in layout.shard_ids(history.dataset._store.list_names(layout.ROOT)):
        ShardWriter.open(history.dataset, shard).close()  # publishes what somebody who died has left
    history.compact()
    history.check()
    assert by_id(lance.dataset(history.path).to_table()) == history.model


def test_generations_of_each_row_are_told(tmp_path: Path) -> None:
    history = History(tmp_path / "t", 3, unsharded=True)
    for _ in range(3):
        history.put()
        history.flush()
    told = LsmScan(history.now(), ["id", "total"], generation=True).table()
    assert set(told.column("_memtable_gen").to_pylist()) <= {0, 3}
    assert pc.max(told.column("_memtable_gen")).as_py() == 3
    history.writer.abort()


@pytest.mark.parametrize("seed", [11, 12])
def test_more_rows_than_one_array_holds_are_merged_in_pieces(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_module, "SLAB_BYTES", 400)
    history = History(tmp_path / "t", seed, unsharded=True)
    for number in range(12):
        history.step()
        if number % 4 == 0:
            history.check()
    history.check()
    history.writer.abort()


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_merged_alike_when_the_sharding_changes_between(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t", seed, **SHARDINGS[0])
    for sharding in (SHARDINGS[1], {"identity_column": "id"}, SHARDINGS[0]):
        for _ in range(4):
            history.step()
        revise(history.dataset, compacted, sharding)
        history.dataset = lance.dataset(history.path)
        history.writer.abort()
        history.writer = ShardedWriter(history.dataset)
        history.check()
        details = history.dataset.mem_wal_index_details()
        assert details["merge_functions"] == FUNCTIONS
        assert len(details["sharding_specs"]) == 2  # which closes the table to other programs
    history.put()
    history.check()
    before = digest(tmp_path)
    with pytest.raises(InvalidInput, match="all rows of a key in one shard"):
        revise(history.dataset, compacted, {"identity_column": "born"})
    assert digest(tmp_path) == before
    history.writer.abort()


def counter(path: Path) -> Any:
    """A table of one counter of ten, to which five and seven were streamed in two generations."""
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("n", pa.int64())])
    dataset = lance.write_dataset(pa.table({"id": [1], "n": [10]}, schema=schema), str(path))
    dataset.initialize_mem_wal(unsharded=True, merge_functions={"n": "sum"})
    with ShardedWriter(dataset) as writer:
        for n in (5, 7):
            writer.put(pa.table({"id": [1], "n": [n]}, schema=schema))
            writer.flush()
    return dataset


def test_what_was_compacted_counts_once(tmp_path: Path) -> None:
    dataset = counter(tmp_path / "t")
    for _ in range(2):
        compact_streams(dataset._store, dataset._session)
        assert lance.dataset(dataset.uri).to_table().to_pylist() == [{"id": 1, "n": 22}]
        assert live(tmp_path / "t").to_pylist() == [{"id": 1, "n": 22}]


def test_a_row_of_the_base_that_changes_meanwhile_is_merged_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = counter(tmp_path / "t")
    commit = RowChanges.commit

    def patched(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(RowChanges, "commit", commit)
        lance.dataset(dataset.uri).update({"n": "n + 100"})
        return commit(*given, **options)

    monkeypatch.setattr(RowChanges, "commit", patched)
    compact_streams(dataset._store, dataset._session)
    assert lance.dataset(dataset.uri).to_table().to_pylist() == [{"id": 1, "n": 122}]


def test_of_two_compactors_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = counter(tmp_path / "t")
    other = lance.dataset(dataset.uri)
    commit = RowChanges.commit

    def patched(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(RowChanges, "commit", commit)
        assert compact_streams(other._store, other._session).generations == 2
        return commit(*given, **options)

    monkeypatch.setattr(RowChanges, "commit", patched)
    assert compact_streams(dataset._store, dataset._session).generations == 0
    assert lance.dataset(dataset.uri).to_table().to_pylist() == [{"id": 1, "n": 22}]


def test_many_rows_are_compacted_in_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_MERGED_ROWS", 1)
    dataset = counter(tmp_path / "t")
    assert compact_streams(dataset._store, dataset._session).commits == 2
    assert lance.dataset(dataset.uri).to_table().to_pylist() == [{"id": 1, "n": 22}]
