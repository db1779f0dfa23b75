"""Processes of both implementations append to one table at once: nothing is lost, no version is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer
from workers import Crew, together

APPENDS = 12

APPEND = """
for step in range(appends):
    rows = pa.table({"worker": [me] * 3, "step": [step] * 3, "k": [0, 1, 2]})
    lance.write_dataset(rows, path, mode="append")
result = appends
"""

DELETE_OWN = """
ds = lance.dataset(path)
for step in range(appends):
    lance.dataset(path).delete(f"worker = {me} AND step = {step}")
result = appends
"""


def start(path: str) -> None:
    ours.write_dataset(
        pa.table(
            {
                "worker": pa.array([], pa.int64()),
                "step": pa.array([], pa.int64()),
                "k": pa.array([], pa.int64()),
            }
        ),
        path,
    )


def versions(path: str) -> list[int]:
    return [v["version"] for v in ours.dataset(path).versions()]


@pytest.mark.parametrize(("mine", "theirs"), [(2, 2), (3, 1)])
def test_mixed_appends_all_land_and_versions_are_contiguous(
    mine: int, theirs: int, tmp_path: Path, peer: Peer, crew: Crew
) -> None:
    path = str(tmp_path / "t.lance")
    start(path)
    workers = crew.ours(mine) + crew.peers(theirs)
    together(workers, APPEND, tmp_path / "gate", path=path, appends=APPENDS)
    right = sorted((w, s, k) for w in range(len(workers)) for s in range(APPENDS) for k in range(3))
    for table in (ours.dataset(path).to_table(), peer("lance.dataset(p).to_table()", p=path)):
        found = sorted(zip(*(table[c].to_pylist() for c in ("worker", "step", "k")), strict=True))
        assert found == right
    listed = versions(path)
    assert listed == list(range(1, listed[-1] + 1))
    # ours may combine appends that wait at the same time; the official ones take one version each
    assert theirs * APPENDS + 1 < listed[-1] <= len(workers) * APPENDS + 1
    assert not [n for n in os.listdir(os.path.join(path, "_versions")) if n.startswith(".tmp")]


def test_mixed_deletes_of_distinct_rows_all_land(tmp_path: Path, peer: Peer, crew: Crew) -> None:
    """All rows lie in one fragment: each delete meets the deletion vectors of the others."""
    path = str(tmp_path / "t.lance")
    steps = 4
    whole = [(w, s) for w in range(5) for s in range(steps)]
    ours.write_dataset(pa.table({"worker": [w for w, _ in whole], "step": [s for _, s in whole]}), path)
    workers = crew.ours(2) + crew.peers(2)
    together(workers, DELETE_OWN, tmp_path / "gate", path=path, appends=steps)
    for table in (ours.dataset(path).to_table(), peer("lance.dataset(p).to_table()", p=path)):
        assert table["worker"].to_pylist() == [4] * steps
    assert versions(path)[-1] == len(workers) * steps + 1
