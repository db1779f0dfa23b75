"""Whoever sleeps between a shard's manifest and its log finds sentinels above entries that were published and
collected meanwhile: that is no hole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from streamed import BASE, SHARD, newest_manifest, rows, streamed, values
from tiltyard.errors import ClaimLost, CorruptFile
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.draining import drain
from tiltyard.memwal.ending import undrained
from tiltyard.memwal.life import shards_of
from tiltyard.memwal.repair import repair
from tiltyard.memwal.resharding import compacted, revise
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.sealing import seal
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore

EXPECTED = {**BASE, **dict.fromkeys((10, 11, 12, 13), 1.0)}


def fresh(path: Path) -> Any:
    return lance.dataset(str(path), session=lance.Session())


def seen(path: Path) -> dict[int, float]:
    dataset = fresh(path)
    return values(LsmScan(capture(dataset._store, dataset._session, with_logs=True)).table())


def repaired(path: Path) -> None:
    assert not repair(fresh(path)._snapshot, SHARD).steps
    assert newest_manifest(path).writer_epoch == 2, "nobody was fenced"


def counted(path: Path) -> None:
    dataset = fresh(path)
    assert not undrained(*shards_of(dataset._store, dataset._session)).unreadable


def checked(path: Path) -> None:
    assert not [each for each in check_shards(fresh(path)._snapshot) if each.is_damage]


def opened(path: Path) -> None:
    with pytest.raises(ClaimLost, match="another writer claimed epoch 2"):
        ShardWriter.open(fresh(path), SHARD)


LOOKS: dict[str, Callable[[Path], Any]] = {
    "open": opened,
    "seal": lambda path: seal(fresh(path), SHARD),
    "read": seen,
    "revise": lambda path: revise(fresh(path), compacted, {"unsharded": True}, to_the_end=False),
    "drain": lambda path: drain(fresh(path), take_over=True),
    "check": checked,
    "repair": repaired,
    "count": counted,
}


def begun(path: Path) -> None:
    """A shard of an owner that died, with two rows in its log."""
    writer = ShardWriter.open(streamed(path), SHARD)
    for key in (10, 11):
        writer.put(rows([key], 1.0))
    writer.abort()


@pytest.mark.parametrize("look", LOOKS)
def test_what_was_published_and_collected_since_is_not_missed(
    tmp_path: Path, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    begun(path)
    real = LocalStore.list_names

    def late(self: LocalStore, prefix: str = "", *rest: Any) -> Any:
        if prefix == layout.WAL_DIR:
            monkeypatch.setattr(LocalStore, "list_names", real)
            with ShardWriter.open(fresh(path), SHARD) as writer:
                for key in (12, 13):
                    writer.put(rows([key], 1.0))
            dataset = fresh(path)
            done = collect_streams(dataset._store, dataset._session, grace=Grace(3600, 0, 3600))
            assert done.entries == 3
        return real(self, prefix, *rest)

    monkeypatch.setattr(LocalStore, "list_names", late)
    LOOKS[look](path)
    assert LocalStore.list_names is real
    assert seen(path) == EXPECTED


def test_a_hole_is_told_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "t"
    begun(path)
    LocalStore(str(path / layout.shard_dir(SHARD))).delete(layout.entry_path(1))
    with pytest.raises(CorruptFile, match="no entry at position 1"):
        ShardWriter.open(fresh(path), SHARD)
    for look in ("seal", "read", "revise"):
        with pytest.raises(CorruptFile, match="no entry at position 1"):
            LOOKS[look](path)
