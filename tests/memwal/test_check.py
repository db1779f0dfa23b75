"""What is told about shards that are damaged in each way; looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import OTHER_SHARD, SHARD, digest, keys, newest_manifest, rows, shard_dir, streamed
from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.format.flags import recomputed
from tiltyard.format.fragment import FragmentList
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.shard_manifest import SEALED, encode_shard_manifest
from tiltyard.lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot
from tiltyard.memwal import layout
from tiltyard.memwal import sstable as sstable_module
from tiltyard.memwal.capture import capture
from tiltyard.memwal.check import Finding, check_shards
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.manifest import update
from tiltyard.memwal.repair import plan_repair
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
    "generations": (lambda p: rewritten(p, current_generation=1), "are published and that the next is 1"),
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


def _flipped(file: Path, at: int, value: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= value
    file.write_bytes(bytes(data))


def deep(path: Path) -> list[str]:
    fresh = lance.dataset(str(path), session=lance.Session())
    assert check_shards(fresh._snapshot) == []  # nothing that can be seen without reading the rows
    return [each.problem for each in check_shards(fresh._snapshot, checksums=True)]


def test_all_that_was_published_can_be_compared(path: Path) -> None:
    assert deep(path) == []
    (data,) = (sstable(path) / "data").iterdir()
    _flipped(data, 0, 1)
    (problem,) = deep(path)
    assert "checksum" in problem


def test_a_filter_that_hides_rows_is_told(path: Path) -> None:
    (sstable(path) / layout.BLOOM_FILTER).write_bytes(bytes(32768))
    assert deep(path) == ["bloom_filter.bin does not know 1 of its 1 keys: lookups miss their rows"]


def test_a_key_index_that_hides_rows_is_told(path: Path) -> None:
    other = streamed(path.parent / "other")
    with ShardWriter.open(other, SHARD) as writer:
        writer.put(rows([8, 9], 1.0))
    for name in (layout.PK_PAGES, layout.PK_LOOKUP):
        (sstable(path) / name).write_bytes((sstable(path.parent / "other") / name).read_bytes())
    assert deep(path) == ["its key index does not lead to 1 of its 1 rows: lookups miss them"]


def test_a_key_index_that_leads_to_rows_that_are_not_there_is_told_by_lookups_too(path: Path) -> None:
    other = streamed(path.parent / "other")
    with ShardWriter.open(other, SHARD) as writer:
        writer.put(rows([8, 9, 10], 1.0))  # the key stands in row 2, and there are 2 rows here
    for name in (layout.PK_PAGES, layout.PK_LOOKUP):
        (sstable(path) / name).write_bytes((sstable(path.parent / "other") / name).read_bytes())
    assert deep(path) == [
        "its key index leads to 1 rows that it does not have: lookups raise",
        "its key index does not lead to 1 of its 1 rows: lookups miss them",
    ]
    dataset = lance.dataset(str(path), session=lance.Session())
    shard = ShardSnapshot(SHARD).with_sstable(1, sstable(path).name)
    with pytest.raises(CorruptFile, match="leads to row 2, and there are 2"):
        LsmPointLookupPlanner(dataset, [shard]).plan_lookup(pa.array([10])).to_table()


def test_rows_that_count_twice_and_rows_that_are_not_counted_are_told(path: Path) -> None:
    now = newest_manifest(path)
    rewritten(path, sstables=(replace(now.sstables[0], physical_rows=7),))
    assert deep(path) == ["has 2 rows, the shard's manifest says 7"]
    rewritten(path, sstables=now.sstables)
    snapshot = lance.dataset(str(sstable(path)))._snapshot
    bare = FragmentList.of([replace(snapshot.fragments[0], deletion=None)])
    whole = recomputed(replace(snapshot.manifest, fragments=bare), None)
    (sstable(path) / snapshot.location.path).write_bytes(b"".join(encode_manifest(whole, None)))
    assert deep(path) == ["several of its rows count for one key: its deletion file lacks some"]


def test_rows_that_are_to_be_merged_are_compared_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key has two rows after a delete and a put: neither is one too many."""
    dataset = streamed(tmp_path / "t", unsharded=True, merge_functions={"v": "sum", "s": "last"})

    def published() -> None:
        with ShardWriter.open(dataset, SHARD) as writer:
            writer.put(rows([10, 11], 1.0))
            writer.delete(keys([10]))
            writer.put(rows([10, 11], 2.0))

    published()
    assert deep(tmp_path / "t") == []
    monkeypatch.setattr(sstable_module, "_shortened", lambda rows, _: rows)
    published()
    (problem,) = deep(tmp_path / "t")
    assert "several of its rows are to be merged for one key" in problem


@pytest.mark.parametrize(
    "changes",
    [
        {"shard_id": OTHER_SHARD},
        {"shard_id": ""},
        {"field_entries": (("tiltyard.incarnation", b"\xe6" * 32),)},
    ],
    ids=["of another shard", "of none", "of a life that nobody gave"],
)
def test_readers_refuse_a_manifest_that_does_not_say_whose_it_is(path: Path, changes: dict[str, Any]) -> None:
    rewritten(path, **changes)
    dataset = lance.dataset(str(path), session=lance.Session())
    for with_logs in (False, True):
        with pytest.raises(CorruptFile, match="shard check"):
            capture(dataset._store, dataset._session, with_logs=with_logs)
    assert [each.is_damage for each in told(path)] == [True]


def test_a_shard_whose_manifests_were_removed_is_not_taken_for_none(path: Path) -> None:
    """Its rows would be missing in silence, and whoever opened it would begin at generation 1 again."""
    for each in (shard_dir(path) / layout.MANIFEST_DIR).iterdir():
        each.unlink()
    before = digest(path)
    dataset = lance.dataset(str(path), session=lance.Session())
    for call in (
        lambda: capture(dataset._store, dataset._session, []),
        lambda: ShardWriter.open(dataset, SHARD),
        lambda: plan_repair(dataset._snapshot, SHARD),
        lambda: dataset.revise_sharding(unsharded=True),
    ):
        with pytest.raises(CorruptFile, match="log entries and no manifest"):
            call()
    (found,) = told(path)
    assert found.is_damage
    assert "no manifest" in found.problem
    assert digest(path) == before
