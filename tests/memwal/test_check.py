"""What is told about shards that are damaged in each way; looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from streamed import OTHER_SHARD, SHARD, digest, newest_manifest, rows, shard_dir, streamed
from tiltyard.errors import InvalidInput
from tiltyard.format.shard_manifest import SEALED, encode_shard_manifest
from tiltyard.memwal import layout
from tiltyard.memwal.check import Finding, check_shards
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.manifest import update
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A shard with a published generation, and three entries above it."""
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([10, 10], 1.0))
    writer.flush()
    for key in (11, 12, 13):
        writer.put(rows([key], 2.0))
    writer.abort()
    return tmp_path / "t"


def told(path: Path, shard: str | None = None) -> list[Finding]:
    fresh = lance.dataset(str(path), session=lance.Session())
    before = digest(path)
    found = check_shards(fresh._snapshot, shard)
    assert digest(path) == before
    return found


def entry(path: Path, position: int) -> Path:
    return shard_dir(path) / layout.entry_path(position)


def sstable(path: Path) -> Path:
    return shard_dir(path) / newest_manifest(path).sstables[0].path


def rewritten(path: Path, **changes: Any) -> None:
    now = newest_manifest(path)
    data = encode_shard_manifest(replace(now, **changes))
    (shard_dir(path) / layout.manifest_path(now.version)).write_bytes(data)


def test_a_sound_shard_is_told_nothing_of(path: Path) -> None:
    assert told(path) == []
    assert told(path, SHARD.upper()) == []


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a torn entry": (lambda p: entry(p, 4).write_bytes(entry(p, 4).read_bytes()[:100]), "log entry 4"),
    "garbage": (lambda p: entry(p, 3).write_bytes(b"x"), "log entry 3"),
    "a hole": (lambda p: entry(p, 3).unlink(), "no entry at 3, but entries up to 4"),
    "a foreign shard": (lambda p: rewritten(p, shard_id=OTHER_SHARD), f"is that of shard {OTHER_SHARD}"),
    "no id": (lambda p: rewritten(p, shard_id=""), "is that of shard none"),
    "a status": (lambda p: rewritten(p, status=7), "its status: 7 is not known"),
    "a spec": (lambda p: rewritten(p, shard_spec_id=3), "its sharding spec: is 3, the table has none"),
    "another life": (
        lambda p: rewritten(p, field_entries=(("tiltyard.incarnation", b"x"),)),
        "those of an earlier table",
    ),
    "a late epoch": (
        lambda p: entry(p, 5).write_bytes(encode_sentinel(9)),
        "is of epoch 9, the shard's is 1",
    ),
    "no data": (lambda p: next((sstable(p) / "data").iterdir()).unlink(), "its rows cannot be read"),
    "no deletions": (
        lambda p: next((sstable(p) / "_deletions").iterdir()).unlink(),
        "its rows cannot be read",
    ),
    "no filter": (lambda p: (sstable(p) / layout.BLOOM_FILTER).unlink(), f"lacks {layout.BLOOM_FILTER}"),
    "no key index": (lambda p: (sstable(p) / layout.PK_LOOKUP).unlink(), f"lacks {layout.PK_LOOKUP}"),
    "no manifest of it": (
        lambda p: next((sstable(p) / "_versions").glob("*.manifest")).unlink(),
        "cannot be opened",
    ),
    "the newest manifest": (
        lambda p: (shard_dir(p) / layout.manifest_path(newest_manifest(p).version)).write_bytes(b"\xff"),
        "its newest manifest: cannot be read",
    ),
    "a missing manifest": (
        lambda p: (
            (shard_dir(p) / layout.manifest_path(1)).write_bytes(b"")
            or (shard_dir(p) / layout.manifest_path(9)).write_bytes(
                encode_shard_manifest(replace(newest_manifest(p), version=9))
            )
        ),
        "versions are missing",
    ),
    "generations": (lambda p: rewritten(p, current_generation=1), "have generations [1], up to 1"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(path: Path, name: str) -> None:
    act, problem = DAMAGE[name]
    act(path)
    damaged = [str(each) for each in told(path) if each.is_damage]
    assert any(problem in each for each in damaged), damaged
    assert all(each.startswith(f"shard {SHARD}: ") for each in damaged)


REMARKS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a temporary file": (
        lambda p: (shard_dir(p) / "wal" / f"{layout.digits(5)}.arrow.tmp.00").write_bytes(b""),
        "1 files that are no entries",
    ),
    "an unfinished flush": (
        lambda p: (shard_dir(p) / "0123abcd_gen_2").mkdir(),
        "directory 0123abcd_gen_2: is named by no manifest",
    ),
    "no manifest at all": (
        lambda p: (p / "_mem_wal" / OTHER_SHARD / "wal").mkdir(parents=True),
        f"shard {OTHER_SHARD}: its directory: has no manifest",
    ),
    "a hole below sentinels": (
        lambda p: entry(p, 6).write_bytes(encode_sentinel(1)),
        "no entry at 5, and nothing but sentinels above",
    ),
}


@pytest.mark.parametrize("name", REMARKS)
def test_what_is_no_damage_is_remarked(path: Path, name: str) -> None:
    act, problem = REMARKS[name]
    act(path)
    found = told(path)
    assert not any(each.is_damage for each in found)
    assert any(problem in str(each) for each in found)


def test_a_sealed_shard_is_sound(path: Path) -> None:
    update(LocalStore(str(shard_dir(path))), newest_manifest(path), lambda now: replace(now, status=SEALED))
    assert told(path) == []


@pytest.mark.parametrize("shard", ["x", "", "../t"])
def test_bad_ids_are_refused(path: Path, shard: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid shard_id UUID"):
        told(path, shard)
