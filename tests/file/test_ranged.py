"""Files of object stores, of which only ranges are fetched: equal to whole ones, whatever is read.

Memory that was not fetched holds a pattern instead of zeros here, so that who looks at it is found out.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer, PeerError
from reading import read, unlike
from tiltyard import runtime
from tiltyard.errors import CorruptFile, StoreError
from tiltyard.file import FileReader, open_file, ranged
from tiltyard.file.ranged import Fetched, RangedReader
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.testing.faults import FaultyStore, Plan
from typematrix import Entry, entries

WRITE = """
import lance.file
with lance.file.LanceFileWriter(path, table.schema, version=version) as writer:
    for batch in table.to_batches(max_chunksize=rows):
        writer.write_batch(batch)
"""
SAMPLE = [entry for entry in entries() if entry.sampled]

PATTERN = b"\xa5"


class Far(FaultyStore):
    """A store of which ranges are read, and which says what was."""

    ranged = True

    def __init__(self, store: Store) -> None:
        super().__init__(store, Plan())
        self.asked: list[tuple[int, int]] = []

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.asked += ranges
        return super().read_ranges(path, ranges)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        assert length is not None
        self.asked.append((start, length))
        return super().read(path, start, length)

    @property
    def nbytes(self) -> int:
        return sum(length for _, length in self.asked)


@pytest.fixture(autouse=True)
def _small_and_patterned(monkeypatch: pytest.MonkeyPatch) -> None:
    def patterned(nbytes: int) -> mmap.mmap:
        memory = mmap.mmap(-1, max(nbytes, 1))
        memory.write(PATTERN * nbytes)
        return memory

    monkeypatch.setattr(ranged, "reserved", patterned)
    monkeypatch.setattr(ranged, "TAIL_BYTES", 64)


def far(path: Path) -> tuple[FileReader, Far]:
    store = Far(open_store(path.parent))
    return open_file(store, path.name, session=Session()), store


def check(path: Path, table: pa.Table) -> None:
    """Ranges and takes, each as the first read of a file and after others."""
    rng = np.random.default_rng(1)
    n = table.num_rows
    choices: list[Any] = [slice(0, n), slice(0, 0), slice(n // 3, n // 3 + min(n, 3)), slice(n // 2, n)]
    choices += [np.array([n - 1, 0, n // 2, n - 1]), rng.integers(0, n, 7)] if n else []
    kept, _ = far(path)
    for rows in choices:
        wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        right = table.take(pa.array(wanted, pa.int64()))
        for reader in (far(path)[0], kept):
            assert not unlike(read(reader, rows), right), rows


@pytest.mark.parametrize("entry", SAMPLE, ids=str)
def test_every_type_reads_as_from_the_whole_file(entry: Entry, peer: Peer, tmp_path: Path) -> None:
    table = entry.table
    for version in entry.versions:
        path = tmp_path / f"{version}.lance"
        rows = 2000 if entry.alone else 400
        peer(WRITE, path=str(path), table=table, version=version, rows=rows)
        check(path, table.combine_chunks())


HINTS = [
    {"lance-encoding:compression": "zstd"},
    {"lance-encoding:compression": "lz4", "lance-encoding:bss": "on"},
    {"lance-encoding:structural-encoding": "fullzip"},
    {"lance-encoding:structural-encoding": "miniblock"},
]


@pytest.mark.parametrize("hints", HINTS, ids=lambda hints: "-".join(hints.values()))
def test_every_layout_reads_as_from_the_whole_file(hints: dict[str, str], peer: Peer, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 5000
    holes = rng.random(n) < 0.1
    columns = {
        "int": pa.array(rng.integers(0, 1 << 40, n), mask=holes),
        "double": pa.array(rng.random(n)),
        "text": pa.array([None if hole else f"text {i} " * (i % 9) for i, hole in enumerate(holes)]),
        "few": pa.array([f"word {i % 5}" for i in range(n)]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(8 * n, np.float32)), 8),
        "list": pa.array([None if hole else list(range(i % 7)) for i, hole in enumerate(holes)]),
        "words": pa.array([[f"w{j}" * j for j in range(i % 4)] for i in range(n)]),
    }
    for name, values in columns.items():
        schema = pa.schema([pa.field(name, values.type, metadata=hints)])
        for rows in (n, 1300):
            path = tmp_path / f"{name}-{rows}.lance"
            table = pa.table([values], schema=schema)
            try:
                peer(WRITE, path=str(path), table=table, version="2.2", rows=rows)
            except PeerError:  # it does not lay out everything in every way
                continue
            check(path, table.combine_chunks())


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, pa.Table]:
    """A file of some megabytes with pages of many chunks, and what is in it."""
    rng = np.random.default_rng(5)
    n = 60_000
    table = pa.table(
        {
            "id": pa.array(np.arange(n)),
            "value": pa.array(rng.random(n)),
            "text": pa.array([f"{i * 2654435761 % (1 << 32):x}" * 2 for i in range(n)]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(64 * n, np.float32)), 64),
        }
    )
    lance.write_dataset(table, tmp_path / "t")
    (path,) = (tmp_path / "t" / "data").iterdir()
    return path, table


def _fields(reader: FileReader, *names: str) -> list[Any]:
    return [reader.schema.field(name) for name in names]


def test_a_take_fetches_the_chunks_that_hold_its_rows(large: tuple[Path, pa.Table]) -> None:
    path, table = large
    reader, store = far(path)
    assert isinstance(reader, RangedReader)
    rows = np.array([17, 30_000, 59_999])
    found = reader.read(_fields(reader, *table.column_names), None, rows)
    assert pa.table(found, table.column_names).equals(table.take(pa.array(rows)))
    assert store.nbytes < path.stat().st_size / 40
    before = store.nbytes
    reader.read(_fields(reader, "id", "vector"), None, rows)
    assert store.nbytes == before


def test_a_projection_fetches_its_columns_once(large: tuple[Path, pa.Table]) -> None:
    path, table = large
    reader, store = far(path)
    for _ in range(2):
        (found,) = reader.read(_fields(reader, "value"), None, slice(0, table.num_rows))
        assert found.equals(table["value"].combine_chunks())
    assert store.nbytes < 1.1 * 8 * table.num_rows + 20_000
    piece = slice(20_000, 21_000)
    (found,) = reader.read(_fields(reader, "vector"), None, piece)
    assert found.equals(table["vector"].combine_chunks()[piece])
    assert store.nbytes < 1.1 * 8 * table.num_rows + 1.1 * 256 * 1000 + 20_000


def test_filters_on_what_is_packed_fetch_what_they_look_at(large: tuple[Path, pa.Table]) -> None:
    path, _ = large
    for rows in (slice(100, 300), slice(0, 60_000), np.array([5, 50_000])):
        reader, _ = far(path)
        wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        mask = reader.within(_fields(reader, "id")[0], None, rows, 0, 199)
        assert mask is not None
        assert mask.tolist() == (wanted < 200).tolist()


def test_a_file_begins_anew_and_arrays_stay(
    large: tuple[Path, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = large
    monkeypatch.setattr(ranged, "RENEW_BYTES", 1 << 20)
    reader, _ = far(path)
    kept = []
    for start in range(0, 60_000, 5_000):
        piece = slice(start, start + 5_000)
        kept.append((piece, reader.read(_fields(reader, "vector", "text"), None, piece)))
        assert reader.nbytes < 4 << 20
    for piece, (vector, text) in kept:
        assert vector.equals(table["vector"].combine_chunks()[piece])
        assert text.equals(table["text"].combine_chunks()[piece])
    assert reader.verify()


def test_a_file_of_another_size_than_recorded_is_damage(large: tuple[Path, pa.Table]) -> None:
    path, _ = large
    store = Far(open_store(path.parent))
    size = path.stat().st_size
    for wrong in (size - 1, size + 1, 10):
        with pytest.raises(CorruptFile):
            open_file(store, path.name, size=wrong, session=Session())
    assert open_file(store, path.name, session=Session()).num_rows == 60_000


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    class Counting(Far):
        def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
            self.asked += ranges
            return [pa.py_buffer(bytes(range(start, start + length))) for start, length in ranges]

    store = Counting(open_store(tmp_path))
    memory = Fetched(store, "x", 200)
    memory.put(190, pa.py_buffer(bytes(range(190, 200))))
    memory.need([(10, 10), (15, 10), (40, 5)])
    assert store.asked == [(10, 15), (40, 5)]
    memory.need([(0, 50), (185, 15)])
    assert store.asked[2:] == [(0, 10), (25, 15), (45, 5), (185, 5)]
    memory.need([(0, 50), (12, 3)])
    assert len(store.asked) == 6
    assert memory.nbytes == 50 + 15
    assert bytes(memory.buffer)[:50] == bytes(range(50))
    assert bytes(memory.buffer)[50:60] == PATTERN * 10


def test_what_is_on_its_way_is_awaited_and_what_failed_is_asked_for_again(tmp_path: Path) -> None:
    started, answer = threading.Event(), threading.Event()

    class Slow(Far):
        def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
            self.asked += ranges
            if len(self.asked) == 1:
                started.set()
                assert answer.wait(20)
                raise StoreError("lost")
            return [pa.py_buffer(bytes(range(start, start + length))) for start, length in ranges]

    store = Slow(open_store(tmp_path))
    memory = Fetched(store, "x", 200)
    first = runtime.spawn(memory.need, [(10, 40)])
    assert started.wait(20)
    assert memory.need([(60, 5)]) == 5  # nothing is locked meanwhile
    second = runtime.spawn(memory.need, [(30, 10), (70, 5)])
    while len(store.asked) < 3:  # what the first does not bring, the second asks for at once
        pass
    assert store.asked == [(10, 40), (60, 5), (70, 5)]
    answer.set()
    with pytest.raises(StoreError, match="lost"):
        first.join()
    assert second.join() == 15
    assert store.asked[3:] == [(30, 10)]
    assert bytes(memory.buffer)[30:40] == bytes(range(30, 40))
