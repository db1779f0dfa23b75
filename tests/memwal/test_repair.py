"""Logs that cannot be opened are mended: what can be read is kept, the rest is put aside (decision D32)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from mem_wal_peer import CLOSE, OPEN
from peer import Peer
from streamed import BASE, SHARD, digest, live, newest_manifest, rows, shard_dir, streamed, values
from tiltyard.errors import CorruptFile, InvalidInput, ShardError, ShardSealed, WriterFenced
from tiltyard.memwal import layout
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.manifest import update
from tiltyard.memwal.repair import plan_repair, repair
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.apply import mem_wal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    dataset = streamed(tmp_path / "t")
    writer = ShardWriter.open(dataset, SHARD)
    for key in (10, 11, 12, 13):
        writer.put(rows([key], float(key)))
    writer.abort()
    return tmp_path / "t"


def base(path: Path) -> Any:
    return lance.dataset(str(path), session=lance.Session())._snapshot


def entry(path: Path, position: int) -> Path:
    return shard_dir(path) / layout.entry_path(position)


def opened(path: Path) -> dict[int, float]:
    with ShardWriter.open(lance.dataset(str(path)), SHARD) as writer:
        return values(live(path, writer))


def test_a_sound_log_is_left_alone(path: Path) -> None:
    before = digest(path)
    assert plan_repair(base(path), SHARD) == []
    done = repair(base(path), SHARD)
    assert (list(done.steps), done.kept_in) == ([], None)
    assert digest(path) == before


@pytest.mark.parametrize("data", [b"", b"garbage", None], ids=["empty", "garbage", "cut short"])
@pytest.mark.parametrize("position", [1, 3, 4])
def test_an_entry_that_cannot_be_read_is_put_aside(path: Path, position: int, data: bytes | None) -> None:
    torn = entry(path, position).read_bytes()[:150] if data is None else data
    entry(path, position).write_bytes(torn)
    with pytest.raises(CorruptFile):
        ShardWriter.open(lance.dataset(str(path)), SHARD)
    before = digest(path)
    (planned,) = plan_repair(base(path), SHARD)
    assert (planned.position, planned.nbytes) == (position, len(torn))
    assert digest(path) == before
    done = repair(base(path), SHARD)
    assert [each.position for each in done.steps] == [position]
    assert done.kept_in is not None
    assert (path / done.kept_in / f"{layout.digits(position)}.arrow").read_bytes() == torn
    told = json.loads((path / done.kept_in / "steps.json").read_text())
    assert (told["shard"], told["epoch"], told["steps"][0]["position"]) == (SHARD, 2, position)
    expected = {**BASE, **{key: float(key) for key in (10, 11, 12, 13) if key != 9 + position}}
    assert opened(path) == expected
    assert not any(each.is_damage for each in check_shards(base(path)))


def test_holes_are_closed_and_what_stands_above_is_kept(path: Path, peer: Peer) -> None:
    for position in (2, 3):
        entry(path, position).unlink()
    assert [(each.position, each.nbytes) for each in plan_repair(base(path), SHARD)] == [(2, None), (3, None)]
    repair(base(path), SHARD)
    expected = {**BASE, 10: 10.0, 13: 13.0}
    assert values(peer(OPEN, p=str(path), shard=SHARD, options={})) == expected
    peer(CLOSE)
    assert opened(path) == expected


def test_the_epoch_is_raised_to_that_of_the_log(path: Path, peer: Peer) -> None:
    """Manifests were lost: the official writer syncs none."""
    for _ in range(8):
        ShardWriter.open(lance.dataset(str(path)), SHARD).abort()
    writer = ShardWriter.open(lance.dataset(str(path)), SHARD)
    writer.put(rows([14], 14.0))
    writer.abort()
    for version in range(2, newest_manifest(path).version + 1):
        (shard_dir(path) / layout.manifest_path(version)).unlink()
    before = digest(path)
    with pytest.raises(CorruptFile, match="which no manifest of the shard has come to"):
        ShardWriter.open(lance.dataset(str(path)), SHARD)
    assert digest(path) == before
    damaged = [str(each) for each in check_shards(base(path)) if each.is_damage]
    assert damaged
    assert all("is of epoch" in each for each in damaged)
    done = repair(base(path), SHARD)
    assert max(each.epoch or 0 for each in done.steps) == newest_manifest(path).writer_epoch == 10
    expected = {**BASE, **{key: float(key) for key in (10, 11, 12, 13, 14)}}
    assert values(peer(OPEN, p=str(path), shard=SHARD, options={})) == expected
    peer(CLOSE)
    assert opened(path) == expected


def test_who_owns_the_shard_is_fenced_by_a_repair(path: Path) -> None:
    writer = ShardWriter.open(lance.dataset(str(path)), SHARD)
    writer.put(rows([14], 14.0))
    entry(path, 2).write_bytes(b"garbage")
    repair(base(path), SHARD)
    with pytest.raises(WriterFenced):
        writer.put(rows([15], 15.0))
    assert opened(path) == {**BASE, 10: 10.0, 12: 12.0, 13: 13.0, 14: 14.0}


def test_a_sealed_shard_is_mended_and_stays_sealed(path: Path) -> None:
    """It could not be emptied otherwise."""
    from dataclasses import replace

    from tiltyard.format.shard_manifest import SEALED
    from tiltyard.memwal.manifest import update
    from tiltyard.memwal.sealing import seal
    from tiltyard.store.local import LocalStore

    update(LocalStore(str(shard_dir(path))), newest_manifest(path), lambda now: replace(now, status=SEALED))
    entry(path, 2).write_bytes(b"garbage")
    before = digest(path)
    with pytest.raises(CorruptFile, match="position 2"):
        seal(lance.dataset(str(path)), SHARD)
    assert digest(path) == before
    assert repair(base(path), SHARD).steps
    with pytest.raises(ShardSealed):
        opened(path)
    assert seal(lance.dataset(str(path)), SHARD).sstables
    assert values(live(path)) == {**BASE, 10: 10.0, 12: 12.0, 13: 13.0}


def test_no_shard_is_told(path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no shard"):
        plan_repair(base(path), "00000000-0000-4000-8000-000000000000")
    with pytest.raises(InvalidInput, match="Invalid shard_id"):
        repair(base(path), "x")


# -- generations that are gone -------------------------------------------------------------------


def gone(path: Path, *, marked: bool) -> ShardWriter:
    """A writer with two generations, of which the first is named no more. `marked`: a version had it, which
    the official package has restored an older one over.
    """
    dataset = lance.dataset(str(path))
    version = dataset.version
    writer = ShardWriter.open(dataset, SHARD)
    writer.flush()
    if marked:
        assert compact_streams(dataset._store, lance.Session()).generations == 1
    else:
        update(writer.owned.shard, newest_manifest(path), lambda now: replace(now, sstables=()))
    writer.put(rows([14], 14.0))
    writer.flush()
    if marked:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(mem_wal, "keeping_marks", lambda manifest, *_: manifest)  # as it does
            lance.dataset(str(path), version=version).restore()
    return writer


def test_what_a_version_had_that_an_older_one_was_restored_over_is_skipped(path: Path) -> None:
    writer = gone(path, marked=True)
    assert values(live(path, writer)) == {**BASE, 14: 14.0}
    assert plan_repair(base(path), SHARD) == []
    assert not [each for each in check_shards(base(path)) if each.is_damage]
    dataset = lance.dataset(str(path))
    done = compact_streams(dataset._store, lance.Session())
    assert (done.generations, dict(done.problems)) == (1, {})
    assert values(lance.dataset(str(path)).to_table()) == values(live(path, writer)) == {**BASE, 14: 14.0}
    writer.close()


def test_what_no_version_had_is_given_up_when_asked_for(path: Path) -> None:
    writer = gone(path, marked=False)
    dataset = lance.dataset(str(path))
    done = compact_streams(dataset._store, lance.Session())
    assert done.generations == 0
    with pytest.raises(ShardError, match=r"names generation 2 and not 1.*shard repair"):
        raise done.problems[SHARD]
    (found,) = [each for each in check_shards(base(path)) if each.is_damage]
    assert "have none of generation 1" in str(found)
    (step,) = plan_repair(base(path), SHARD)
    assert "generation 1 of the shard" in str(step)
    done = repair(base(path), SHARD)
    assert list(done.steps) == [step]
    assert json.loads((path / str(done.kept_in) / "steps.json").read_text())["steps"][0]["generation"] == 1
    writer.put(rows([15], 15.0))  # it is not fenced
    writer.close()
    assert not compact_streams(dataset._store, lance.Session()).problems
    assert values(lance.dataset(str(path)).to_table()) == {**BASE, 14: 14.0, 15: 15.0}
    assert repair(base(path), SHARD).kept_in is None


def test_gone_generations_and_a_log_that_cannot_be_read_are_mended_together(path: Path) -> None:
    writer = gone(path, marked=False)
    writer.put(rows([15], 15.0))
    writer.abort()
    newest = max(layout.entry_positions([each.name for each in (shard_dir(path) / "wal").iterdir()]))
    entry(path, newest).write_bytes(b"garbage")
    assert len(plan_repair(base(path), SHARD)) == 2
    assert len(repair(base(path), SHARD).steps) == 2
    assert plan_repair(base(path), SHARD) == []
    dataset = lance.dataset(str(path))
    assert not compact_streams(dataset._store, lance.Session()).problems
    assert opened(path) == {**BASE, 14: 14.0}
