"""Many rows that are picked from a file are read as the runs of consecutive rows that they consist of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.file import column
from tiltyard.file.column import Rows, expanded

ROWS = 6000


@settings(max_examples=50)
@given(
    runs=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 40)), max_size=60),
    shuffled=st.booleans(),
)
def test_runs_are_the_same_rows_in_the_same_order(runs: list[tuple[int, int]], shuffled: bool) -> None:
    parts = [np.arange(start, start + count) for start, count in runs]
    rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if shuffled:
        rows = np.random.default_rng(1).permutation(rows)
    found = Rows.picked(rows)
    assert found.total == len(rows)
    assert np.array_equal(expanded(found), rows)
    assert len(found.count) == 0 or len(found.start) * column.RUNS_PAY <= len(rows)


def everything() -> Any:
    rng = np.random.default_rng(2)
    holes = rng.random(ROWS) < 0.2
    text = [None if hole else f"text {i % 1000} " * (i % 5) for i, hole in enumerate(holes)]
    return pa.table(
        {
            "id": np.arange(ROWS),
            "noise": rng.integers(-(1 << 60), 1 << 60, ROWS),
            "gaps": pa.array(rng.integers(0, 100, ROWS), mask=holes),
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=holes),
            "text": pa.array(text),
            "plain": pa.array([f"{i * 2654435761 % (1 << 32):x}" for i in range(ROWS)]),
            "large": pa.array([b"x" * (i % 300) for i in range(ROWS)], pa.large_binary()),
            "few": pa.array([f"word {i % 7}" for i in range(ROWS)]),
            "coded": pa.array([f"word {i % 7}" for i in range(ROWS)]).dictionary_encode(),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(8 * ROWS, np.float32)), 8),
            "list": pa.array([None if hole else list(range(i % 6)) for i, hole in enumerate(holes)]),
            "struct": pa.array([{"a": None if hole else i, "b": str(i)} for i, hole in enumerate(holes)]),
        }
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("picked")
    table = everything()
    found = {}
    for version in ("2.0", "2.1", "2.2"):
        found[version] = str(place / version)
        if version != "2.0":
            found[f"ours {version}"] = str(place / f"ours-{version}")
            lance.write_dataset(table, found[f"ours {version}"], data_storage_version=version)
    return found


@pytest.mark.parametrize("writer", ["2.0", "2.1", "2.2", "ours 2.1", "ours 2.2"])
def test_takes_and_filters_that_keep_much_give_the_right_rows(
    writer: str, paths: dict[str, str], peer: Peer
) -> None:
    table, path = everything(), paths[writer]
    if not Path(path).exists():
        peer("lance.write_dataset(t, p, data_storage_version=v) and None", t=table, p=path, v=writer)
    ds = lance.dataset(path)
    rng = np.random.default_rng(3)
    for share in (0.3, 0.6, 0.97):
        rows = np.flatnonzero(rng.random(ROWS) < share)
        assert ds.take(rows).equals(table.take(pa.array(rows)))
    backwards = np.concatenate([np.arange(5000, 5400), np.arange(100, 900), np.arange(300, 700)])
    assert ds.take(backwards).equals(table.take(pa.array(backwards)))
    for where, keep in (
        ("gaps < 50", lambda row: row["gaps"] is not None and row["gaps"] < 50),
        ("flag", lambda row: bool(row["flag"])),
    ):
        rows = np.array([i for i, row in enumerate(table.select(["gaps", "flag"]).to_pylist()) if keep(row)])
        for late in (None, True, False):
            found = ds.to_table(filter=where, late_materialization=late)
            assert found.equals(table.take(pa.array(rows))), late
