"""What is kept of shards' manifests stands only as long as nothing has changed."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamed import OTHER_SHARD, SHARD, rows, shard_dir, streamed, values
from tiltyard.format.shard_manifest import encode_shard_manifest
from tiltyard.memwal import layout, seen
from tiltyard.memwal.capture import capture
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from tiltyard.session import Session


def aged(*paths: Path) -> None:
    """As if they had been changed a minute ago."""
    for path in paths:
        facts = path.stat()
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns - 60_000_000_000))


def manifests(path: Path, shard: str = SHARD) -> Path:
    return shard_dir(path, shard) / layout.MANIFEST_DIR


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards whose manifests were listed."""
    found: list[str] = []
    true = seen.of_begun

    def looking(shard: Any) -> Any:
        found.append(shard.uri.rpartition("/")[2])
        return true(shard)

    monkeypatch.setattr(seen, "of_begun", looking)
    return found


def test_manifests_are_listed_once_until_something_changes(tmp_path: Path, looks: list[str]) -> None:
    path = tmp_path / "t"
    dataset = streamed(path)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 1.0))
    aged(path / layout.ROOT, manifests(path), *manifests(path).iterdir())
    store, session = dataset._store, dataset._session
    looks.clear()
    for _ in range(3):
        assert values(LsmScan(capture(store, session)).table()) == {1: 0.0, 2: 0.0, 3: 0.0, 10: 1.0}
    assert looks == [SHARD]
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 2.0))
    with ShardWriter.open(dataset, OTHER_SHARD) as writer:
        writer.put(rows([11], 3.0))
    expected = {1: 0.0, 2: 0.0, 3: 0.0, 10: 2.0, 11: 3.0}
    assert values(LsmScan(capture(store, session)).table()) == expected
    shutil.rmtree(shard_dir(path, OTHER_SHARD))
    assert seen.newest_manifest(store, session, OTHER_SHARD) is None
    assert seen.shards(store, session) == (SHARD,)


def test_what_was_changed_a_moment_ago_is_looked_at_again(tmp_path: Path, looks: list[str]) -> None:
    """Within one tick of its clock a directory's time does not tell a later change."""
    path = tmp_path / "t"
    dataset = streamed(path)
    ShardWriter.open(dataset, SHARD).close()
    soon = (path.stat().st_mtime_ns + 60_000_000_000,) * 2
    os.utime(manifests(path), ns=soon)
    looks.clear()
    for _ in range(3):
        seen.newest_manifest(dataset._store, dataset._session, SHARD)
    assert looks == [SHARD] * 3


def test_a_manifest_that_still_grows_is_read_again(tmp_path: Path, looks: list[str]) -> None:
    """Decision D12: where there are no links it is written under its final name."""
    path = tmp_path / "t"
    dataset = streamed(path)
    ShardWriter.open(dataset, SHARD).close()
    store, session = dataset._store, Session()
    whole = seen.newest_manifest(store, session, SHARD)
    assert whole is not None
    file = manifests(path) / Path(layout.manifest_path(whole.version)).name
    file.write_bytes(encode_shard_manifest(replace(whole, field_entries=(), last_seen=0)))
    aged(manifests(path))
    shorter = seen.newest_manifest(store, session, SHARD)
    assert shorter is not None
    assert not shorter.field_entries
    file.write_bytes(encode_shard_manifest(whole))
    assert seen.newest_manifest(store, session, SHARD) == whole
    aged(file)
    looks.clear()
    assert [seen.newest_manifest(store, session, SHARD) for _ in range(2)] == [whole] * 2
    assert looks == [SHARD]
    file.write_bytes(encode_shard_manifest(replace(whole, last_seen=5)))
    assert seen.newest_manifest(store, session, SHARD) == replace(whole, last_seen=5)
