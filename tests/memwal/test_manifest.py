"""Versions of a shard's manifest: made one above the other, changed within an epoch, found when others remove
old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamed import SHARD
from tiltyard.errors import CorruptFile, OutcomeUnknown, ShardContention, ShardError, StoreError, WriterFenced
from tiltyard.format.shard_manifest import (
    ShardManifest,
    SsTable,
    decode_shard_manifest,
    encode_shard_manifest,
)
from tiltyard.memwal import layout
from tiltyard.memwal.manifest import MAX_UPDATES, newest, of_begun, publish, read, update
from tiltyard.store import Created, Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

FIRST = ShardManifest(SHARD, writer_epoch=3)
BYTES = {
    "fresh": (
        ShardManifest(SHARD, writer_epoch=1),
        "0801 1001 3001 5a12 0a10 6f1f3a529d0e4f7c8a570c6a5d1e2b3c",
    ),
    "of a spec": (
        ShardManifest(SHARD, writer_epoch=1, shard_spec_id=1),
        "0801 1001 3001 5001 5a12 0a10 6f1f3a529d0e4f7c8a570c6a5d1e2b3c",
    ),
    "published": (
        ShardManifest(SHARD, 2, 1, 3, 3, 2, (SsTable(1, "d2d10979_gen_1", 192, 4, 32),)),
        "0802 1001 1803 2003 3002 4219 0801 120e 6432643130393739 5f67656e5f31 18c001 2004 2820"
        " 5a12 0a10 6f1f3a529d0e4f7c8a570c6a5d1e2b3c",
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_the_packs_bytes(name: str) -> None:
    """Section 10.1."""
    manifest, octets = BYTES[name]
    data = bytes.fromhex(octets)
    assert encode_shard_manifest(manifest) == data
    assert decode_shard_manifest(data, "x") == manifest


def begun(*rules: Rule) -> tuple[MemoryStore, FaultyStore, Plan]:
    store, plan = MemoryStore(Space("")), Plan(*rules)
    assert publish(store, FIRST) is Created.WON
    return store, FaultyStore(store, plan), plan


def raised(now: ShardManifest) -> ShardManifest:
    return replace(now, last_seen=now.last_seen + 1)


def test_a_change_makes_the_next_version() -> None:
    store, _, _ = begun()
    made = update(store, FIRST, raised)
    assert (made.version, made.last_seen) == (2, 1)
    assert newest(store) == made
    assert read(store, 1) == FIRST
    assert bytes(store.read("manifest/version_hint.json")) == b'{"version":2}'


def test_no_change_makes_no_version() -> None:
    store, _, _ = begun()
    assert update(store, FIRST, lambda now: now) is FIRST
    assert newest(store) == FIRST


def test_a_change_is_made_again_on_what_others_put_in_between() -> None:
    store, _, _ = begun()
    update(store, FIRST, lambda now: replace(now, shard_spec_id=0, status=1))
    made = update(store, FIRST, raised)
    assert (made.version, made.status, made.last_seen) == (3, 1, 1)


def test_a_change_is_not_made_where_the_epoch_has_risen() -> None:
    store, _, _ = begun()
    assert publish(store, replace(FIRST, version=2, writer_epoch=4)) is Created.WON
    with pytest.raises(WriterFenced, match="local epoch 3 < stored epoch 4"):
        update(store, FIRST, raised)
    found = newest(store)
    assert found is not None
    assert found.version == 2


def test_a_shard_that_was_removed_is_told() -> None:
    store, _, _ = begun()
    publish(store, replace(FIRST, version=2))
    for version in (1, 2):
        store.delete(layout.manifest_path(version))
    publish(store, replace(FIRST, version=2))
    store.delete(layout.manifest_path(2))
    with pytest.raises((ShardError, OutcomeUnknown)):
        update(_Full(store), FIRST, raised)


class _Full(FaultyStore):
    """Whatever is created stands already."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Plan())

    def create(self, path: str, data: Any) -> Created:
        return Created.EXISTS


@pytest.mark.parametrize(
    "fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_DUPLICATE, Fault.LATE_REQUEST]
)
def test_a_lost_answer_is_settled(fault: Fault) -> None:
    store, faulty, plan = begun(Rule(fault, "create"))
    made = update(faulty, FIRST, raised)
    plan.deliver()
    assert (made.version, made.last_seen) == (2, 1)
    assert newest(store) == made


def test_what_stays_unknown_is_told_so() -> None:
    store, faulty, _ = begun(
        Rule(Fault.LOSE_REQUEST, "create", times=None), Rule(Fault.FAIL_BEFORE, "read", times=None)
    )
    with pytest.raises(OutcomeUnknown, match="version 2"):
        update(faulty, FIRST, raised)
    assert newest(store) == FIRST


def test_a_write_that_fails_is_told_and_changes_nothing() -> None:
    store, faulty, _ = begun(Rule(Fault.FAIL_BEFORE, "create", times=None))
    with pytest.raises(StoreError, match="Failed to write manifest version 2"):
        update(faulty, FIRST, raised)
    assert newest(store) == FIRST


def test_somebody_who_is_always_faster_ends_in_an_error_of_its_own() -> None:
    store, _, _ = begun()
    tries = 0

    def beaten(now: ShardManifest) -> ShardManifest:
        nonlocal tries
        tries += 1
        publish(store, replace(now, version=now.version + 1, last_seen=100 + tries))
        return raised(now)

    with pytest.raises(ShardContention, match=f"changed {MAX_UPDATES} times"):
        update(store, FIRST, beaten)
    assert tries == MAX_UPDATES


def test_the_newest_is_found_while_old_ones_are_collected() -> None:
    store, _, _ = begun()
    publish(store, replace(FIRST, version=2))

    class Collected(FaultyStore):
        def list_names(self, directory: str = "") -> list[str]:
            found = super().list_names(directory)
            act()
            return found

    acts: list[Callable[[], Any]] = [
        lambda: (publish(store, replace(FIRST, version=3)), store.delete(layout.manifest_path(2)))
    ]

    def act() -> None:
        if acts:
            acts.pop()()

    found = newest(Collected(store, Plan()))
    assert found is not None
    assert found.version == 3


def test_no_manifest_is_no_shard() -> None:
    assert newest(MemoryStore(Space(""))) is None


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x08", b"\x5a\x03abc", b"garbage" * 9])
def test_a_manifest_that_cannot_be_read_is_damage(data: bytes) -> None:
    store = MemoryStore(Space(""))
    store.put(layout.manifest_path(1), data)
    with pytest.raises(CorruptFile):
        newest(store)


@pytest.mark.parametrize(
    ("sstables", "following"),
    [
        ((SsTable(3, "d2d10979_gen_2"),), 4),
        ((SsTable(2, "d2d10979_gen_2"), SsTable(1, "d2d10979_gen_1")), 3),
        ((SsTable(2, "d2d10979_gen_2"), SsTable(2, "e2d10979_gen_2")), 3),
        ((SsTable(2, "d2d10979_gen_2"),), 2),
    ],
    ids=["another name", "descending", "twice", "not published yet"],
)
def test_generations_that_contradict_each_other_are_damage(
    sstables: tuple[SsTable, ...], following: int
) -> None:
    store = MemoryStore(Space("s"))
    manifest = replace(FIRST, current_generation=following, sstables=sstables)
    store.create(layout.manifest_path(1), encode_shard_manifest(manifest))
    with pytest.raises(CorruptFile, match="it is damaged"):
        newest(store)


def test_a_log_without_a_manifest_is_damage_and_an_empty_directory_none() -> None:
    store = MemoryStore(Space("s"))
    assert of_begun(store) is None
    store.create(layout.entry_path(1), b"")
    with pytest.raises(CorruptFile, match="log entries and no manifest"):
        of_begun(store)


def test_a_manifest_that_is_made_during_the_look_is_found() -> None:
    """It stands before the first entry, which may be seen first."""

    class Late(MemoryStore):
        def list_names(self, directory: str) -> list[str]:
            found = super().list_names(directory)
            if directory == layout.MANIFEST_DIR and not found:
                self.create(layout.manifest_path(1), encode_shard_manifest(FIRST))
                self.create(layout.entry_path(1), b"")
            return found

    assert of_begun(Late(Space("s"))) == FIRST
