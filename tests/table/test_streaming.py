"""Streams of batches: how tasks are cut, and what a stream leaves in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from tiltyard import runtime
from tiltyard.table import scan as scan_module
from tiltyard.table.plan import (
    STREAM_BYTES,
    Piece,
    cut_tasks,
    estimated_row_bytes,
    fitting_rows,
    plan_tasks,
    plan_units,
    probe,
    task_rows,
)

ROWS = 400_000
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/smaps")


def covered(tasks: list[list[Piece]]) -> list[tuple[int, int]]:
    """Fragment and live row of every row, in order."""
    return [
        (piece.fragment, row) for task in tasks for piece in task for row in range(piece.start, piece.stop)
    ]


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    unit=st.integers(1, 40),
    batch=st.integers(1, 5),
    rows=st.integers(1, 30),
)
def test_tasks_that_are_probed_and_cut_hold_the_same_rows(
    sizes: list[int], unit: int, batch: int, rows: int
) -> None:
    tasks = plan_tasks(plan_units(np.array(sizes, np.int64), unit_rows=unit), unit)
    before = covered(tasks)
    if not tasks:
        return
    first, rest = probe(tasks[0], batch)
    left = cut_tasks([rest, *tasks[1:]] if rest else tasks[1:], rows)
    assert covered([first, *left]) == before
    assert all(piece.rows <= rows for task in left for piece in task)
    assert not rest or task_rows(first) % batch == 0


def test_rows_that_fit_are_whole_batches_and_at_least_one() -> None:
    assert fitting_rows(100, 100 * 64, 8192) == STREAM_BYTES // 64 // 8192 * 8192
    assert fitting_rows(100, 10**9, 8192) == 8192
    assert fitting_rows(100, 0, 10) == 100 * STREAM_BYTES // 10 * 10


def test_the_bytes_of_a_vector_are_those_of_its_items(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * 768, np.float32)), 768)
    ds = lance.write_dataset(pa.table({"v": vectors}), tmp_path / "t.lance")
    assert estimated_row_bytes(ds._snapshot.schema.fields) == 768 * 4


def test_texts_longer_than_guessed_are_read_fewer_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 3000
    table = pa.table({"id": range(rows), "s": [f"{i:04d}" * 100 for i in range(rows)]})
    ds = lance.write_dataset(table, tmp_path / "t.lance")
    monkeypatch.setattr("tiltyard.table.plan.STREAM_BYTES", 40_000)
    monkeypatch.setattr(scan_module, "STREAM_BYTES", 40_000)
    units = list(ds.scanner(batch_size=10)._scan.units())
    assert len(units) > 25  # by the guess of 32 bytes there would be five
    assert max(unit.num_rows for unit in units[3:]) <= 100
    assert pa.Table.from_batches(units).equals(table)
    assert pa.Table.from_batches(ds.to_batches(batch_size=10)).equals(table)
    assert {batch.num_rows for batch in ds.to_batches(batch_size=10)} == {10}


def resident(path: Path) -> int:
    """Bytes of the table's data files that the kernel counts as memory of this process."""
    found, mine = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            mine = line.endswith(".lance") and str(path) in line
        elif mine and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A table of vectors, which are read from the map without a copy."""
    values = pa.array(np.arange(ROWS * 16, dtype=np.float32))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 16)})
    path = tmp_path_factory.mktemp("streaming") / "t.lance"
    lance.write_dataset(table, path)
    return path, table


@linux
def test_a_stream_leaves_no_mapped_pages_behind_and_what_was_given_stays(plain: tuple[Path, Any]) -> None:
    path, table = plain
    ds = lance.dataset(path)
    kept, most = [], 0
    for batch in ds.to_batches():
        batch.column(0).flatten().to_numpy()[::512].sum()
        kept.append(batch)
        most = max(most, resident(path))
    assert table.nbytes > 6 * STREAM_BYTES
    assert 0 < most < table.nbytes // 2
    assert resident(path) == 0
    assert pa.Table.from_batches(kept).equals(table)


@linux
def test_files_that_takes_have_entered_whole_stay_so(plain: tuple[Path, Any], tmp_path: Path) -> None:
    _, table = plain
    ds = lance.write_dataset(table, tmp_path / "taken.lance")
    for row in range(5):
        ds.take([row])
    assert resident(tmp_path) >= table.nbytes
    assert sum(batch.num_rows for batch in ds.to_batches()) == ROWS
    assert resident(tmp_path) >= table.nbytes


def test_memory_that_is_no_map_keeps_what_is_in_it() -> None:
    memory = np.full(1 << 20, 7, np.uint8)
    runtime.release_pages(memory.ctypes.data)
    assert int(memory.min()) == 7
