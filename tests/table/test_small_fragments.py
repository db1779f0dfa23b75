"""Scans of many tiny fragments, which are read together, and of large ones, which are read in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.session import Limits, Session
from tiltyard.table.scan import Scan, ScanRequest


def table(start: int, rows: int, *, nulls: bool = False) -> Any:
    number = list(range(start, start + rows))
    return pa.table(
        {
            "id": pa.array(number, pa.int64()),
            "small": pa.array([None if nulls and i % 3 == 0 else i % 100 for i in number], pa.int16()),
            "text": pa.array([f"value {i}" * (i % 5) for i in number]),
            "vector": pa.array([[i, 1, 2] for i in number], pa.list_(pa.float32(), 3)),
        }
    )


def write(path: str, parts: list[Any]) -> Any:
    for part in parts:
        ds = lance.write_dataset(part, path, mode="append")
    return ds


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("id % 7 = 3", lambda row: row["id"] % 7 == 3),
        ("small IS NULL OR id > 200", lambda row: row["small"] is None or row["id"] > 200),
        (
            "text LIKE 'value 1%' AND small < 50",
            lambda row: (
                row["text"].startswith("value 1") and (100 if row["small"] is None else row["small"]) < 50
            ),
        ),
        ("_rowoffset = 0", lambda row: row["id"] == 0),
        ("id < 0", lambda row: False),
    ],
)
def test_a_filter_over_tiny_fragments_finds_each_row_at_its_place(
    tmp_path: Path, where: str, passes: Any
) -> None:
    """Some have deleted rows or are large, so that they are tested alone between those tested together."""
    parts = [table(10 * i, 1 + i % 9, nulls=i % 4 == 0) for i in range(30)] + [
        table(300, 5000),
        table(9000, 3),
    ]
    ds = write(str(tmp_path / "t.lance"), parts)
    ds.delete("id IN (50, 53, 301, 9001)")
    expected = {row["id"] for row in ds.to_table().to_pylist() if passes(row)}
    assert ds.count_rows(where) == len(expected)
    found = Scan(ds._snapshot, ScanRequest(columns=[], where=where)).offsets()
    assert all((offsets[1:] > offsets[:-1]).all() for offsets in found.values())
    starts = [part["id"][0].as_py() for part in parts]
    assert {starts[id] + offset for id, offsets in found.items() for offset in offsets.tolist()} == expected


@pytest.mark.parametrize("columns", [["id"], ["text"], ["id", "small", "text"], None])
def test_rows_of_tiny_fragments_come_in_order(tmp_path: Path, columns: list[str] | None) -> None:
    parts = [table(10 * i, 1 + i % 9) for i in range(25)]
    ds = write(str(tmp_path / "t.lance"), parts)
    expected = pa.concat_tables(parts)
    expected = expected if columns is None else expected.select(columns)
    found = ds.to_table(columns=columns)
    assert found.combine_chunks().equals(expected.combine_chunks())
    batches = list(ds.to_batches(columns=columns, batch_size=7))
    assert max(batch.num_rows for batch in batches) <= 7
    assert pa.Table.from_batches(batches).combine_chunks().equals(expected.combine_chunks())
    assert ds.to_table(columns=columns, offset=30, limit=40).to_pylist() == expected.slice(30, 40).to_pylist()


def test_neighbours_share_a_chunk_and_others_stand_apart(tmp_path: Path) -> None:
    parts = [table(10 * i, 10, nulls=i in (3, 4)) for i in range(8)]
    ds = write(str(tmp_path / "t.lance"), parts)
    columns = ["id", "small", "text"]
    assert ds.to_table(columns=["id", "text"])["id"].num_chunks == 1
    assert ds.to_table(columns=columns).to_pylist() == pa.concat_tables(parts).select(columns).to_pylist()
    ds.delete("id = 25 or id = 71")
    expected = pa.concat_tables(parts).select(columns).to_pylist()
    expected = [row for row in expected if row["id"] not in (25, 71)]
    assert ds.to_table(columns=columns).to_pylist() == expected
    assert ds.to_table(columns=["id"], with_row_id=True)["_rowid"].to_pylist()[9:11] == [9, 1 << 32]


def test_the_damaged_file_among_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write(str(path), [table(10 * i, 10) for i in range(6)])
    victim = sorted((path / "data").iterdir())[2]
    data = np.frombuffer(victim.read_bytes(), np.uint8).copy()
    data[: len(data) // 4] = 0xFF
    victim.write_bytes(data.tobytes())
    with pytest.raises(CorruptFile, match=victim.name):
        lance.dataset(str(path), session=Session()).to_table(columns=["text"])


def test_a_large_fragment_is_read_in_pieces_with_the_same_rows(tmp_path: Path) -> None:
    rows = 40_000
    number = np.arange(rows)
    whole = pa.table(
        {
            "id": number,
            "few": pa.array(np.array([1.5, 2.5])[number % 2]),
            "text": pa.array([f"value {i % 977}" if i % 11 else None for i in number.tolist()]),
            "list": pa.array([None if i % 7 == 0 else [i] * (i % 5) for i in number.tolist()]),
            "struct": pa.array([{"a": i, "b": str(i)} if i % 3 else None for i in number.tolist()]),
            "vector": pa.array([[i, i + 1.5] for i in number.tolist()], pa.list_(pa.float32(), 2)),
        }
    )
    path = str(tmp_path / "t.lance")
    lance.write_dataset(whole, path)
    session = Session(Limits(parallel_bytes=1000))
    ds = lance.dataset(path, session=session)
    for columns in (None, ["id"], ["id", "few", "vector"], ["text"], ["list"], ["struct", "id"]):
        expected = whole if columns is None else whole.select(columns)
        assert ds.to_table(columns=columns).combine_chunks().equals(expected.combine_chunks())
    assert ds.to_table(columns=["list"])["list"].num_chunks > 1
    picked = np.random.default_rng(1).permutation(rows)[:3000]
    assert ds.take(picked).combine_chunks().equals(whole.take(picked).combine_chunks())
    assert ds.to_table(columns=["id", "few"], offset=777, limit=30_001).equals(
        whole.select(["id", "few"]).slice(777, 30_001)
    )


def test_batches_of_a_stream_end_where_their_fragment_does_unless_all_are_to_be_full(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": range(96)}), path, max_rows_per_file=32)
    handle = lance.dataset(path)
    assert [batch.num_rows for batch in handle.to_batches(batch_size=5)] == [5, 5, 5, 5, 5, 5, 2] * 3
    assert [batch.num_rows for batch in handle.to_batches(batch_size=50)] == [32, 32, 32]
    full = handle.to_batches(batch_size=50, strict_batch_size=True)
    assert [batch.num_rows for batch in full] == [50, 46]
    parts = handle.to_batches(offset=30, limit=40)
    assert [batch["a"].to_pylist() for batch in parts] == [[30, 31], [*range(32, 64)], [*range(64, 70)]]


def test_the_environment_names_the_batch_size_that_callers_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t.lance")
    handle = lance.write_dataset(pa.table({"a": range(100)}), path)
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "40")
    assert [batch.num_rows for batch in handle.to_batches()] == [40, 40, 20]
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "many")
    with pytest.raises(InvalidInput, match="LANCE_DEFAULT_BATCH_SIZE"):
        handle.to_batches()
