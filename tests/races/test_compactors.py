"""Compactions of ours and of the official writer beside writers of the other kind (cases O05, D04)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard import runtime

ROWS = 400
DELETED = range(0, ROWS, 9)
ADDED = range(10_000, 10_010)

THEIR_CHANGES = """
import time
for id in deleted:
    lance.dataset(p).delete(f'id = {id}', conflict_retries=100)
    if id % 5 == 0 and added:
        lance.write_dataset(pa.table({'id': [added.pop()], 'v': [0]}), p, mode='append')
while added:
    lance.write_dataset(pa.table({'id': [added.pop()], 'v': [0]}), p, mode='append')
"""

THEIR_COMPACTIONS = """
lost = 0
for target in [60, 100, 60, 1000] * 3:
    try:
        lance.dataset(p).optimize.compact_files(target_rows_per_fragment=target)
    except OSError as error:
        if 'onflict' not in str(error):
            raise
        lost += 1
"""


def make(path: Path, *, stable: bool) -> None:
    for start in range(0, ROWS, 20):
        rows = range(start, start + 20)
        lance.write_dataset(
            pa.table({"id": rows, "v": rows}), path, mode="append", enable_stable_row_ids=stable
        )
    lance.dataset(path).create_scalar_index("id", "BTREE")


def check(path: Path, peer: Peer) -> None:
    expected = sorted({*range(ROWS), *ADDED} - {*DELETED})
    ours = lance.dataset(path)
    assert sorted(ours.to_table()["id"].to_pylist()) == expected
    assert sorted(peer("lance.dataset(p).to_table()['id'].to_pylist()", p=str(path))) == expected
    peer("lance.dataset(p).validate()", p=str(path))
    for where in ("id = 9", "id = 10", "id >= 395"):
        rows = [id for id in expected if eval(where.replace(" = ", " == "), {"id": id})]
        assert sorted(ours.to_table(filter=where)["id"].to_pylist()) == rows
        theirs = peer("lance.dataset(p).to_table(filter=w)['id'].to_pylist()", p=str(path), w=where)
        assert sorted(theirs) == rows


@pytest.mark.parametrize(("stable", "deferred"), [(False, False), (False, True), (True, False)])
def test_the_official_writer_deletes_and_appends_while_ours_compacts(
    tmp_path: Path, peer: Peer, stable: bool, deferred: bool
) -> None:
    make(tmp_path, stable=stable)
    ended = runtime.event()
    passes: list[Any] = []

    def compacting() -> None:
        while not ended.is_set() or not passes:
            for target in (60, 100, 1000):
                ds = lance.dataset(tmp_path)
                passes.append(
                    ds.optimize.compact_files(target_rows_per_fragment=target, defer_index_remap=deferred)
                )

    task = runtime.spawn(compacting)
    try:
        peer(THEIR_CHANGES, p=str(tmp_path), deleted=list(DELETED), added=list(ADDED))
    finally:
        ended.set()
        task.join(deadline=runtime.monotonic() + 120)
    assert any(each.fragments_removed for each in passes)
    check(tmp_path, peer)


@pytest.mark.parametrize("stable", [False, True])
def test_ours_deletes_and_appends_while_the_official_writer_compacts(
    tmp_path: Path, peer: Peer, stable: bool
) -> None:
    make(tmp_path, stable=stable)

    def changing() -> None:
        added = list(ADDED)
        for id in DELETED:
            lance.dataset(tmp_path).delete(f"id = {id}", conflict_retries=100)
            if added:
                row = pa.table({"id": [added.pop()], "v": [0]})
                lance.write_dataset(row, tmp_path, mode="append")

    task = runtime.spawn(changing)
    peer(THEIR_COMPACTIONS, p=str(tmp_path))
    task.join(deadline=runtime.monotonic() + 120)
    check(tmp_path, peer)


def test_both_compact_at_once(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path, stable=False)

    def compacting() -> None:
        for target in (60, 100, 60, 1000):
            lance.dataset(tmp_path).optimize.compact_files(target_rows_per_fragment=target)

    task = runtime.spawn(compacting)
    peer(THEIR_COMPACTIONS, p=str(tmp_path))
    task.join(deadline=runtime.monotonic() + 120)
    ds = lance.dataset(tmp_path)
    ds.optimize.compact_files()
    ds.delete(f"id in {tuple(DELETED)}")
    lance.write_dataset(pa.table({"id": list(ADDED), "v": [0] * len(ADDED)}), tmp_path, mode="append")
    check(tmp_path, peer)
