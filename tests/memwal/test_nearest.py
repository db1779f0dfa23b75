"""Exact nearest neighbours over all levels of a streamed table (MemWAL, section 6.4)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import KEY, OTHER_SHARD, SHARD, newest_manifest
from tiltyard.errors import InvalidInput, TiltyardError
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.nearest import nearest_rows
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.nearest.query import Nearest

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        pa.field("e", pa.list_(pa.float32(), 2)),
        pa.field("s", pa.string()),
    ]
)


def batch(vectors: dict[int, list[float] | None], s: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": k, "e": v, "s": s} for k, v in vectors.items()], SCHEMA)


def keys(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


def made(path: Path, vectors: dict[int, list[float] | None]) -> Any:
    dataset = lance.write_dataset(pa.Table.from_batches([batch(vectors)]), str(path))
    dataset.initialize_mem_wal()
    return dataset


def found(now: Captured, query: list[float], k: int, **options: Any) -> list[int]:
    asked = Nearest("e", pa.array(query, pa.float32()), k, options.pop("metric", None))
    return nearest_rows(now, asked, ["id"], options.pop("where", None))["id"].to_pylist()


def test_an_old_vector_is_never_a_neighbour(tmp_path: Path) -> None:
    """Case M09: k is 1, key 1 was near and is far away now; others are nearer."""
    dataset = made(tmp_path / "t", {1: [0.0, 0.0], 2: [5.0, 0.0]})
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(batch({1: [100.0, 0.0], 3: [1.0, 0.0]}))
        for _ in range(2):  # in memory, then published
            now = capture(dataset._store, dataset._session, [writer])
            assert found(now, [0.0, 0.0], 1) == [3]
            assert found(now, [0.0, 0.0], 3) == [3, 2, 1]
            writer.flush()
        writer.delete(keys(3))
        now = capture(dataset._store, dataset._session, [writer])
        assert found(now, [0.0, 0.0], 1) == [2]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("seed", [1, 2])
def test_neighbours_are_those_of_a_full_search(tmp_path: Path, metric: str, seed: int) -> None:
    draw = random.Random(seed)

    def vector() -> list[float] | None:
        return None if draw.random() < 0.1 else [draw.uniform(0.1, 9), draw.uniform(0.1, 9)]

    model = {key: vector() for key in range(40)}
    dataset = made(tmp_path / "t", model)
    writers = []
    for number, shard in enumerate((SHARD, OTHER_SHARD)):
        writer = ShardWriter.open(dataset, shard)
        for step in range(4):
            put = {key: vector() for key in draw.sample(range(number, 80, 2), 7)}
            writer.put(batch(put))
            gone = draw.sample(range(number, 80, 2), 2)
            writer.delete(keys(*gone))
            model.update(put)
            for key in gone:
                model.pop(key, None)
            if step == 2:
                writer.flush()
        writers.append(writer)
    now = capture(dataset._store, dataset._session, writers)
    query = [draw.uniform(0.1, 9), draw.uniform(0.1, 9)]

    def distance(v: list[float]) -> float:
        a, b = np.array(query, np.float32), np.array(v, np.float32)
        if metric == "l2":
            return float(((a - b) ** 2).sum())
        if metric == "dot":
            return float(1 - a @ b)
        return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    near = sorted((distance(v), key) for key, v in model.items() if v is not None)
    for k in (1, 7, 200):
        assert found(now, query, k, metric=metric) == [key for _, key in near[:k]]
    even = [key for _, key in near if key % 2 == 0][:5]
    assert found(now, query, 5, metric=metric, where="id % 2 = 0") == even
    for writer in writers:
        writer.abort()


def test_the_answers_columns_and_distances(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t", {1: [0.0, 3.0], 2: [4.0, 0.0]})
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(batch({3: [0.0, 1.0]}, "new"))
    now = capture(dataset._store, dataset._session)
    table = nearest_rows(now, Nearest("e", [0.0, 0.0], 3, None), ["s", "id"])
    assert table.to_pydict() == {"s": ["new", "x", "x"], "id": [3, 1, 2], "_distance": [1.0, 9.0, 16.0]}
    whole = nearest_rows(now, Nearest("e", [0.0, 0.0], 1, None))
    assert whole.schema.names == ["id", "e", "s", "_distance"]


@pytest.mark.parametrize(
    ("column", "query", "k"),
    [("nope", [0.0, 0.0], 1), ("s", [0.0, 0.0], 1), ("e", [0.0], 1), ("e", [[0.0, 0.0], [1.0, 1.0]], 1)],
    ids=str,
)
def test_what_cannot_be_searched_is_told(tmp_path: Path, column: str, query: Any, k: int) -> None:
    dataset = made(tmp_path / "t", {1: [0.0, 3.0]})
    now = capture(dataset._store, dataset._session)
    with pytest.raises(TiltyardError):
        nearest_rows(now, Nearest(column, query, k, None))


def test_the_planner_of_the_official_surface(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t", {key: [float(key), 0.0] for key in range(30)})
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(batch({0: [50.0, 0.0], 40: [0.5, 0.0]}))
    snapshot = lance.mem_wal.ShardSnapshot(SHARD)
    for each in newest_manifest(tmp_path / "t").sstables:
        snapshot.with_sstable(each.generation, each.path)
    of = lance.dataset(str(tmp_path / "t"))
    planner = lance.mem_wal.LsmVectorSearchPlanner(of, [snapshot], "e", filter="id <> 1")
    plan = planner.plan_search(pa.array([0.0, 0.0], pa.float32()), k=2, columns=["id"])
    assert plan.to_table()["id"].to_pylist() == [40, 2]
    assert plan.schema.names == plan.to_table().schema.names == ["id", "_distance"]
    query = pa.array([0.0, 0.0], pa.float32())
    for options, told in (
        ({"k": 0}, "k must be positive"),
        ({"nprobes": 0}, "nprobes must be positive"),
        ({"overfetch_factor": float("inf")}, "overfetch_factor must be finite"),
        ({"overfetch_factor": float("nan")}, "overfetch_factor must be finite"),
        ({"overfetch_factor": 0.5}, "at least 1"),
    ):
        with pytest.raises(InvalidInput, match=told):
            planner.plan_search(query, **options)


def ranked(now: Captured, query: list[float]) -> dict[int, float]:
    """A hybrid search by key, since streamed rows have no row id: the ranks of two searches put together, the
    nearest of all and the nearest of those whose text has a word, and what a filter alone finds.
    """
    scores: dict[int, float] = {}
    parts = [found(now, query, 8), found(now, query, 8, where="s LIKE '%lance%' AND id % 2 = 0")]
    parts.append(sorted(LsmScan(now, ["id"], where="s LIKE '%lance%'").table()["id"].to_pylist()))
    for part in parts:
        for rank, key in enumerate(part):
            scores[key] = scores.get(key, 0.0) + 1 / (60 + rank)
    return scores


def test_a_search_joined_by_key_finds_the_same_wherever_the_rows_are(tmp_path: Path) -> None:
    """Case M19, with filters in place of an index of texts, which there is not."""
    draw = random.Random(19)
    words = ["a lance", "tilts", "lances and shields", "nothing"]
    rows = {key: [draw.random(), draw.random()] for key in range(60)}
    dataset = made(tmp_path / "t", {key: rows[key] for key in range(0, 60, 2)})
    with ShardWriter.open(dataset, SHARD) as writer:
        for turn, key in enumerate(range(1, 60, 2)):
            if turn in (8, 16):
                writer.flush()
            writer.put(batch({key: rows[key], key - 1: rows[key - 1][::-1]}, s=words[turn % 4]))
        writer.delete(keys(6, 7))
        query = [0.4, 0.6]
        streamed = ranked(capture(dataset._store, dataset._session, [writer]), query)
        others = ranked(capture(dataset._store, lance.Session(), with_logs=True), query)
    assert len(streamed) > 20
    assert not {6, 7} & set(streamed)
    assert compact_streams(dataset._store, lance.Session()).generations == 3
    merged = lance.dataset(str(tmp_path / "t"), session=lance.Session())
    assert merged.count_rows() == 58
    whole = ranked(capture(merged._store, merged._session), query)
    assert streamed == others == whole
