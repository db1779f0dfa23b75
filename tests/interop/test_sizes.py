"""Our files are no larger than the official writer's: in sum over the matrix, and each within a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiltyard.lance as ours
from peer import Peer
from typematrix import Entry, entries, sample

SLACK_SHARE = 0.02
SLACK_BYTES = 4096

WRITE = """
import os
lance.write_dataset(table, path, data_storage_version=version)
data = os.path.join(path, "data")
names = os.listdir(data) if os.path.isdir(data) else []
result = sum(os.path.getsize(os.path.join(data, name)) for name in names)
"""


def data_bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in (path / "data").glob("*.lance"))


def compare(chosen: list[Entry], tmp_path: Path, peer: Peer) -> None:
    total_ours = total_theirs = 0
    too_large = []
    for number, entry in enumerate(chosen):
        table = entry.table
        for version in entry.versions:
            mine = tmp_path / f"ours{number}-{version}.lance"
            ours.write_dataset(table, str(mine), data_storage_version=version)
            theirs_path = str(tmp_path / f"peer{number}-{version}.lance")
            theirs = peer(WRITE, table=table, path=theirs_path, version=version)
            size = data_bytes(mine)
            total_ours += size
            total_theirs += theirs
            if size > theirs * (1 + SLACK_SHARE) + SLACK_BYTES:
                too_large.append(f"{entry.name} at {version}: {size} bytes against {theirs}")
    assert not too_large, "\n".join(too_large)
    assert total_ours <= total_theirs, f"{total_ours} bytes in sum against {total_theirs}"


def test_files_of_the_sample_are_no_larger_than_the_official_ones(tmp_path: Path, peer: Peer) -> None:
    compare(sample(), tmp_path, peer)


@pytest.mark.wide
def test_files_of_the_matrix_are_no_larger_than_the_official_ones(tmp_path: Path, peer: Peer) -> None:
    compare(entries(), tmp_path, peer)
