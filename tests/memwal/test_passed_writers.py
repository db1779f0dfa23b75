"""Writers that others have passed, and those whom they leave something behind: what the simulation found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamed import SHARD, rows, streamed, values
from tiltyard.errors import OutcomeUnknown, StoreError, WriterPoisoned
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout, publishing, sstable
from tiltyard.memwal.capture import capture
from tiltyard.memwal.claim import Identity, claim
from tiltyard.memwal.incoming import rows_of
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.manifest import newest, publish, read, update
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.wal import Log, Persistence, positions, put_sentinel
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store import Created, Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


def test_a_late_sentinel_of_a_passed_claimant_does_not_end_the_owner(tmp_path: Path) -> None:
    """A claimant that slept before its sentinel puts it into the log of whoever passed it."""
    dataset = streamed(tmp_path / "t")
    owner = ShardWriter.open(dataset, SHARD)
    owner.put(rows([10], 1.0))
    put_sentinel(owner.owned.shard, replace(owner.manifest, writer_epoch=0))
    owner.put(rows([11], 2.0))
    assert positions(owner.owned.shard) == [1, 2, 3]
    owner.abort()
    with ShardWriter.open(dataset, SHARD) as after:
        found = values(LsmScan(capture(dataset._store, dataset._session, [after])).table())
    assert (found[10], found[11]) == (1.0, 2.0)


def _log(tmp_path: Path, *rules: Rule) -> tuple[Log, Store, Any]:
    dataset = streamed(tmp_path / "t")
    schema = log_schema(dataset._snapshot.schema)
    shard = MemoryStore(Space("shard")).at(SHARD)
    manifest = claim(shard, Identity(SHARD, 0), lambda _: None)
    faulty = FaultyStore(shard, Plan(*rules))
    return Log(faulty, manifest, 1, schema.entry, Persistence(2, 0.0)), shard, rows_of(rows([1]), schema)


def test_a_fence_check_that_fails_once_is_made_again(tmp_path: Path) -> None:
    log, _, batch = _log(tmp_path, Rule(Fault.FAIL_BEFORE, "exists"))
    assert log.append(batch, 1) == 1
    assert log.poison is None


def test_a_fence_check_that_cannot_be_made_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """The entry stands: its caller must not be told that it failed."""
    log, shard, batch = _log(tmp_path, Rule(Fault.FAIL_BEFORE, "exists", times=None))
    with pytest.raises(OutcomeUnknown, match="may or may not stand"):
        log.append(batch, 1)
    assert positions(shard) == [1]


def test_a_passed_writers_process_reads_no_later_row_without_the_earlier_ones(tmp_path: Path) -> None:
    """Its memory hid the published generation of the same number, in which its successor had put more."""
    dataset = streamed(tmp_path / "t", [])
    first = ShardWriter.open(dataset, SHARD)
    first.put(rows([1], 1.0))
    second = ShardWriter.open(dataset, SHARD)
    second.put(rows([2], 2.0))
    second.flush()
    second.put(rows([3], 3.0))
    second.flush()
    found = values(LsmScan(capture(dataset._store, dataset._session, [first])).table())
    assert found == {1: 1.0, 2: 2.0, 3: 3.0}
    first.abort()


def test_a_passed_writers_process_reads_what_was_acknowledged_to_it(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", [])
    first = ShardWriter.open(dataset, SHARD)
    first.put(rows([1], 1.0))
    second = ShardWriter.open(dataset, SHARD)
    second.put(rows([1], 2.0))
    found = values(LsmScan(capture(dataset._store, dataset._session, [first])).table())
    assert found == {1: 1.0}
    second.close()
    found = values(LsmScan(capture(dataset._store, dataset._session, [first])).table())
    assert found == {1: 2.0}
    first.abort()


def _collected() -> tuple[Store, ShardManifest, ShardManifest]:
    """A shard whose old manifests were collected: a sleeper's view of it, and what stands."""
    shard = MemoryStore(Space("collected")).at(SHARD)
    sleeper = claim(shard, Identity(SHARD, 0), lambda _: None)
    for _ in range(3):
        claim(shard, Identity(SHARD, 0), lambda _: None)
    for version in (1, 2, 3):
        shard.delete(layout.manifest_path(version))
    standing = newest(shard)
    assert standing is not None
    return shard, sleeper, standing


def test_a_sleeper_makes_no_version_in_the_place_of_one_that_was_collected() -> None:
    """It would believe that the shard is its own, and so would the owner."""
    shard, sleeper, standing = _collected()
    assert publish(shard, replace(sleeper, version=2, writer_epoch=2, claim_nonce=b"2")) is Created.UNKNOWN
    assert newest(shard) == standing


def test_a_sleeper_is_not_told_that_it_changed_what_was_collected() -> None:
    shard, sleeper, standing = _collected()
    with pytest.raises(OutcomeUnknown):
        update(shard, sleeper, lambda now: replace(now, last_seen=7))
    assert newest(shard) == standing


def test_a_version_on_which_others_built_counts_as_made() -> None:
    """Though the one below it was collected before its maker looked."""
    shard = MemoryStore(Space("built on")).at(SHARD)
    made = claim(shard, Identity(SHARD, 0), lambda _: None)

    class Slow(FaultyStore):
        def create(self, path: str, data: object) -> Created:
            answer = super().create(path, data)  # type: ignore[arg-type]
            if path == layout.manifest_path(2):
                update(shard, read(shard, 2), lambda now: replace(now, last_seen=now.last_seen + 1))
                shard.delete(layout.manifest_path(1))
            return answer

    found = update(Slow(shard, Plan()), made, lambda now: replace(now, last_seen=now.last_seen + 1))
    assert (found.version, found.last_seen) == (2, 1)


def test_a_generation_that_can_never_be_published_ends_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried for ever, and each try left a directory."""
    tries = []

    def failing(*facts: Any, **how: Any) -> Any:
        tries.append(1)
        raise StoreError("the disk has failed")

    monkeypatch.setattr(sstable, "write_sstable", failing)
    monkeypatch.setattr(publishing, "back_off", lambda *facts: None)
    dataset = streamed(tmp_path / "t", [])
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([1], 1.0))
    with pytest.raises((StoreError, WriterPoisoned)):
        writer.flush()
    while writer.works:
        pass
    assert len(tries) == publishing.MAX_FAILURES
    with pytest.raises(WriterPoisoned, match="Its rows are in the log"):
        writer.put(rows([2]))
    monkeypatch.undo()
    with ShardWriter.open(dataset, SHARD) as after:
        found = values(LsmScan(capture(dataset._store, dataset._session, [after])).table())
    assert found == {1: 1.0}
