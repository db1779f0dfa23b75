"""Scans of tables in object stores ask for what comes next while they decode, and never twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import StoreError
from tiltyard.file import ranged
from tiltyard.session import Limits, Session
from tiltyard.store import Store, open_store
from tiltyard.table import fetching, plan
from tiltyard.table import scan as scan_module
from tiltyard.table.plan import Unit
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import open_snapshot
from tiltyard.testing.faults import FaultyStore, Plan

FRAGMENTS, ROWS = 6, 4000
WAIT_SECONDS = 20.0


class Far(FaultyStore):
    """A store whose files are fetched by ranges; says which were asked for, and calls `seen` before."""

    ranged = True

    def __init__(self, store: Store, seen: Callable[[str], None] = lambda path: None) -> None:
        super().__init__(store, Plan())
        self.seen = seen
        self.asked: list[tuple[str, int, int]] = []

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.asked += [(path, start, length) for start, length in ranges]
        self.seen(path)
        return super().read_ranges(path, ranges)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        if length is not None and path.endswith(".lance"):
            self.asked.append((path, start, length))
            self.seen(path)
        return super().read(path, start, length)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    rng = np.random.default_rng(4)
    n = FRAGMENTS * ROWS
    table = pa.table(
        {
            "id": pa.array(np.arange(n)),
            "noise": pa.array(rng.integers(0, 1 << 60, n)),
            "text": pa.array([f"{i * 2654435761 % (1 << 32):x}" for i in range(n)]),
        }
    )
    path = tmp_path_factory.mktemp("fetching") / "t.lance"
    lance.write_dataset(table, path, max_rows_per_file=ROWS)
    return path, table


@pytest.fixture(autouse=True)
def _by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "TAIL_BYTES", 8192)
    for module in (plan, scan_module):
        monkeypatch.setattr(module, "STREAM_BYTES", 20_000)


def scan(store: Far, session: Session | None = None, **request: Any) -> Scan:
    return Scan(open_snapshot(store, session or Session()), ScanRequest(batch_rows=100, **request))


def overlapping(asked: list[tuple[str, int, int]]) -> list[Any]:
    pieces = sorted((path, start, start + length) for path, start, length in asked)
    return [(one, two) for one, two in pairwise(pieces) if one[0] == two[0] and one[2] > two[1]]


WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "columns": {"columns": ["id", "noise"]},
    "filter": {"where": "id % 2 = 0"},
    "part": {"offset": 3000, "limit": 9000},
}


@pytest.mark.parametrize("way", list(WAYS))
def test_no_byte_is_asked_for_twice_and_the_rows_are_the_same(place: tuple[Path, Any], way: str) -> None:
    path, _ = place
    expected = Scan(open_snapshot(open_store(path), Session()), ScanRequest(**WAYS[way])).table()
    for read in (
        lambda it: it.table(),
        lambda it: pa.Table.from_batches(it.batches(), it.schema),
    ):
        store = Far(open_store(path))
        assert read(scan(store, **WAYS[way])).equals(expected)
        assert not overlapping(store.asked)


def test_the_next_fragments_are_asked_for_while_one_is_consumed(place: tuple[Path, Any]) -> None:
    path, table = place
    all_asked, files = threading.Event(), set()

    def seen(name: str) -> None:
        files.add(name)
        if len(files) == FRAGMENTS:
            all_asked.set()

    stream = scan(Far(open_store(path), seen)).batches()
    first = next(stream)
    assert all_asked.wait(WAIT_SECONDS)  # all of this table is less than what may be asked for ahead
    assert pa.Table.from_batches([first, *stream]).equals(table)


def test_rows_fetched_ahead_are_read_where_they_were_put_when_the_file_begins_anew(
    place: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = place
    monkeypatch.setattr(ranged, "RENEW_BYTES", 30_000)
    store = Far(open_store(path))
    batches = list(scan(store).batches())
    assert pa.Table.from_batches(batches).equals(table)


def test_a_failure_ahead_is_raised_where_its_rows_are_read(place: tuple[Path, Any]) -> None:
    path, table = place
    bad: list[str] = []

    def seen(name: str) -> None:
        if not bad and len({each for each, _, _ in store.asked}) == FRAGMENTS // 2:
            bad.append(name)
        if name in bad:
            raise StoreError(f"{name} cannot be read")

    store = Far(open_store(path), seen)
    stream, found = scan(store).batches(), []
    with pytest.raises(StoreError, match="cannot be read"):  # noqa: PT012
        while True:
            found.append(next(stream))
    rows = sum(batch.num_rows for batch in found)
    assert rows > 0
    assert pa.Table.from_batches(found, table.schema).equals(table[:rows])


def test_a_session_that_keeps_nothing_fetches_nothing_ahead(place: tuple[Path, Any]) -> None:
    path, table = place
    store = Far(open_store(path))
    assert scan(store, Session(Limits(map_bytes=0))).table().equals(table)


class Plain:
    """A reader whose pieces come to as many bytes as they say."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.fetched = sizes, []  # type: tuple[list[int], list[int]]
        self.snapshot = SimpleNamespace(session=Session())

    def fetch(self, unit: Unit) -> tuple[None, int]:
        self.fetched.append(unit.fragment)
        return None, self.sizes[unit.fragment]


def ahead(monkeypatch: pytest.MonkeyPatch, sizes: list[int], guess: int) -> tuple[Plain, Any]:
    """Pieces of ten rows; what is asked for is here at once."""
    monkeypatch.setattr(fetching.runtime, "spawn", lambda fn, *args: fn(*args))
    monkeypatch.setattr(fetching, "FIRST_BYTES", 100)
    monkeypatch.setattr(fetching, "FETCH_BYTES", 400)
    reader = Plain(sizes)
    units = [Unit(at, 0, 10, 0) for at in range(len(sizes))]
    return reader, fetching.FetchAhead(reader, units, guess)  # type: ignore[arg-type]


def test_bytes_ahead_are_bounded_and_grow_with_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, fetch = ahead(monkeypatch, [50] * 40, guess=5)
    fetch.begin()
    assert reader.fetched == [0, 1]
    fetch.passed(10)
    assert reader.fetched == list(range(5))
    for count in range(2, 10):
        fetch.passed(10)
        assert len(reader.fetched) <= count + 8
    fetch.end()
    before = len(reader.fetched)
    fetch.passed(10)
    assert len(reader.fetched) == before


def test_what_was_fetched_counts_not_what_was_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, fetch = ahead(monkeypatch, [1000, 1, 1, 1], guess=1)
    fetch.begin()
    assert reader.fetched == [0]  # it came to ten times what is allowed
    fetch.passed(10)
    assert reader.fetched == [0, 1, 2, 3]


def test_pieces_that_were_read_before_they_were_asked_for_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, fetch = ahead(monkeypatch, [100] * 5, guess=10)
    fetch.passed(30)
    assert reader.fetched == [3, 4]
