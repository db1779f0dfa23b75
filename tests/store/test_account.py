"""What was read is counted: requests and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiltyard.store import open_store
from tiltyard.store.account import bytes_read_counter, iops_counter
from tiltyard.store.protocol import MIN_MAP_BYTES


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_every_read_is_counted_once_with_its_bytes(place: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path) if place == "disk" else "memory://")
    store.put("a", b"0123456789")
    store.put("large", bytes(MIN_MAP_BYTES))
    before = iops_counter(), bytes_read_counter()
    store.read("a", 2, 3)
    store.read("a", -4)
    store.read_ranges("a", [(0, 1), (5, 2)])
    store.map("a", 10)
    store.map("large")
    assert iops_counter() - before[0] == 6
    assert bytes_read_counter() - before[1] == 3 + 4 + 1 + 2 + 10 + MIN_MAP_BYTES
