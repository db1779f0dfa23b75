"""Real processes of ours that update, delete and append on one table at once (cases O05 and O09)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from workers import Crew, together

UPDATE_OWN = """
for step in range(updates):
    done = lance.dataset(path).update({"n": "n + 1", "s": "s || '.'"}, f"id = {me * updates + step}")
    assert done == {"num_rows_updated": 1}, done
result = updates
"""

COUNT = """
ds = lance.dataset(path)
for step in range(updates):
    ds.update({"n": "n + 1"}, "id = 3", conflict_retries=1000, retry_timeout=100)
result = updates
"""

MIXED = """
ds = lance.dataset(path)
for step in range(updates):
    row = me * updates + step
    if step % 3 == 0:
        ds.delete(f"id = {row}")
    elif step % 3 == 1:
        ds.update({"n": "100"}, f"id = {row}")
    else:
        lance.write_dataset(pa.table({"id": [1000 + row], "n": [0], "s": ["new"]}), path, mode="append")
result = updates
"""


COMPACTING = """
ds = lance.dataset(path)
for step in range(updates):
    row = me * updates + step
    if me == 0:
        lance.dataset(path).optimize.compact_files()
    elif me % 2:
        ds.update({"n": "n + 1"}, f"id = {row}", conflict_retries=100)
    elif step % 2:
        ds.delete(f"id = {row}", conflict_retries=100)
    else:
        rows = pa.table({"id": [row, 1000 + row], "n": [7, 7], "s": ["m", "m"]})
        merge = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.conflict_retries(100).execute(rows)
result = updates
"""


def make(path: str, rows: int) -> None:
    data = pa.table({"id": list(range(rows)), "n": [0] * rows, "s": [""] * rows})
    lance.write_dataset(data, path, max_rows_per_file=max(1, rows // 3))


def distinct(tmp_path: Path, peer: Peer, crew: Crew, processes: int, updates: int) -> None:
    path, rows = str(tmp_path / "t.lance"), processes * updates
    make(path, rows)
    together(crew.ours(processes), UPDATE_OWN, tmp_path / "gate", path=path, updates=updates)
    found = lance.dataset(path).to_table().sort_by("id").to_pydict()
    assert found == {"id": list(range(rows)), "n": [1] * rows, "s": ["."] * rows}
    assert peer("lance.dataset(p).count_rows('n = 1')", p=path) == rows
    assert lance.dataset(path).version == rows + 1


def test_updates_of_distinct_rows_all_land(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    distinct(tmp_path, peer, crew, 8, 25)


@pytest.mark.soak
def test_sixteen_processes_update_twenty_rows_each(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    """Case O09, its second half."""
    distinct(tmp_path, peer, crew, 16, 20)


def test_a_counter_that_all_raise_loses_nothing(tmp_path: Path, crew: Crew) -> None:
    path, processes, updates = str(tmp_path / "t.lance"), 4, 8
    make(path, 6)
    together(crew.ours(processes), COUNT, tmp_path / "gate", path=path, updates=updates)
    assert lance.dataset(path).to_table(filter="id = 3")["n"].to_pylist() == [processes * updates]


def test_updates_deletes_and_appends_at_once(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    path, updates = str(tmp_path / "t.lance"), 9
    workers = crew.ours(4) + crew.peers(2)
    rows = len(workers) * updates
    make(path, rows)
    together(workers, MIXED, tmp_path / "gate", path=path, updates=updates)
    model = dict.fromkeys(range(rows), 0)
    for row in range(rows):
        if row % updates % 3 == 0:
            del model[row]
        elif row % updates % 3 == 1:
            model[row] = 100
        else:
            model[1000 + row] = 0
    for found in (lance.dataset(path).to_table(), peer("lance.dataset(p).to_table()", p=path)):
        assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == model


def test_compactions_beside_changes_lose_none_of_them(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    path, processes, updates = str(tmp_path / "t.lance"), 5, 8
    rows = processes * updates
    make(path, rows)
    together(crew.ours(processes), COMPACTING, tmp_path / "gate", path=path, updates=updates)
    model = dict.fromkeys(range(rows), 0)
    for row in range(updates, rows):
        worker, step = divmod(row, updates)
        if worker % 2:
            model[row] = 1
        elif step % 2:
            del model[row]
        else:
            model[row] = model[1000 + row] = 7
    for found in (lance.dataset(path).to_table(), peer("lance.dataset(p).to_table()", p=path)):
        assert sorted(found["id"].to_pylist()) == sorted(model)
        assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == model
