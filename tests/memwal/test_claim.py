"""Claims of a shard, one call after the other and against each other, with answers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamed import OTHER_SHARD, SHARD
from tiltyard.errors import (
    ClaimLost,
    CorruptFile,
    OutcomeUnknown,
    ShardContention,
    ShardError,
    ShardSealed,
    ShardSpecMismatch,
    StoreError,
    UnsupportedFeature,
)
from tiltyard.format.shard_manifest import SEALED, ShardManifest, encode_shard_manifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION, MAX_CLAIMS, Identity, claim
from tiltyard.memwal.manifest import newest, publish, update
from tiltyard.store import Created, Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

MANUAL = Identity(SHARD, 0)
AUTOMATIC = Identity(SHARD, 1)


def nothing(_: ShardManifest) -> None:
    """A log that can be replayed."""


def shard(*versions: ShardManifest) -> MemoryStore:
    store = MemoryStore(Space(""))
    for version in versions:
        assert publish(store, version) is Created.WON
    return store


def content(store: Store) -> dict[str, bytes]:
    return {each.path: bytes(store.read(each.path)) for each in store.list("")}


class Meddled(FaultyStore):
    """Somebody else acts right before the claim's first creation."""

    def __init__(self, store: Store, act: Callable[[], Any]) -> None:
        super().__init__(store, Plan())
        self._act: Callable[[], Any] | None = act

    def create(self, path: str, data: Any) -> Created:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().create(path, data)


@pytest.mark.parametrize(("stored", "asked"), [(0, 1), (1, 0), (1, 2)])
def test_another_identity_changes_no_byte_and_fences_nobody(stored: int, asked: int) -> None:
    store = shard()
    owner = claim(store, Identity(SHARD, stored), nothing)
    before = content(store)
    with pytest.raises(ShardSpecMismatch, match=f"spec {stored}.*spec {asked}") as told:
        claim(store, Identity(SHARD, asked), nothing)
    assert (told.value.shard_id, told.value.requested, told.value.stored) == (SHARD, asked, stored)
    assert SHARD in str(told.value)
    assert content(store) == before
    assert newest(store) == owner


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (ShardManifest(SHARD, status=SEALED), ShardSealed),
        (ShardManifest(SHARD, status=7), UnsupportedFeature),
        (ShardManifest(OTHER_SHARD), CorruptFile),
        (ShardManifest(""), CorruptFile),
        (ShardManifest(SHARD, field_entries=((INCARNATION, b"earlier"),)), ShardError),
    ],
    ids=["sealed", "unknown status", "another shard's", "nobody's", "another table's"],
)
def test_what_refuses_a_claim_is_looked_at_first(found: ShardManifest, error: type[Exception]) -> None:
    store = shard(found)
    before = content(store)
    with pytest.raises(error):
        claim(store, MANUAL, nothing)
    assert content(store) == before


def test_sealed_is_told_apart_from_another_identity() -> None:
    store = shard(ShardManifest(SHARD, shard_spec_id=1, status=SEALED))
    with pytest.raises(ShardSealed, match="is sealed; refusing claim"):
        claim(store, MANUAL, nothing)


def test_sealed_while_it_was_claimed() -> None:
    store = shard(ShardManifest(SHARD))
    known = newest(store)
    assert known is not None
    meddled = Meddled(store, lambda: update(store, known, lambda now: replace(now, status=SEALED)))
    with pytest.raises(ShardSealed):
        claim(meddled, MANUAL, nothing)
    found = newest(store)
    assert found is not None
    assert (found.version, found.writer_epoch) == (2, 0)


def test_a_log_that_cannot_be_replayed_is_not_claimed() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=3))
    before = content(store)

    def broken(_: ShardManifest) -> None:
        raise CorruptFile("torn")

    with pytest.raises(CorruptFile, match="torn"):
        claim(store, MANUAL, broken)
    assert content(store) == before


def test_a_harmless_version_in_between_is_claimed_over() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=4))
    known = newest(store)
    assert known is not None
    meddled = Meddled(store, lambda: update(store, known, lambda now: replace(now, last_seen=9)))
    made = claim(meddled, MANUAL, nothing)
    assert (made.version, made.writer_epoch, made.last_seen) == (3, 5, 9)


@pytest.mark.parametrize(("first", "second"), [(MANUAL, AUTOMATIC), (AUTOMATIC, MANUAL)])
def test_of_first_claims_that_meet_one_identity_is_stored(first: Identity, second: Identity) -> None:
    store = shard()
    meddled = Meddled(store, lambda: claim(store, first, nothing))
    with pytest.raises(ShardSpecMismatch):
        claim(meddled, second, nothing)
    found = newest(store)
    assert found is not None
    assert (found.version, found.writer_epoch, found.shard_spec_id) == (1, 1, first.spec_id)


def test_who_was_overtaken_says_so_and_does_not_fight() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    meddled = Meddled(store, lambda: claim(store, MANUAL, nothing))
    with pytest.raises(ClaimLost, match="another writer claimed epoch 2"):
        claim(meddled, MANUAL, nothing)
    found = newest(store)
    assert found is not None
    assert found.writer_epoch == 2


def test_a_claim_whose_answer_was_lost_is_known_by_its_nonce() -> None:
    for fault in (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_DUPLICATE, Fault.LATE_REQUEST):
        store = shard(ShardManifest(SHARD, writer_epoch=1))
        plan = Plan(Rule(fault, "create"))
        made = claim(FaultyStore(store, plan), MANUAL, nothing)
        plan.deliver()
        assert (made.version, made.writer_epoch) == (2, 2)
        assert newest(store) == made


def test_a_lost_answer_beside_another_claim_is_not_taken_for_ours() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    plan = Plan(Rule(Fault.LOSE_REQUEST, "create"))
    faulty = FaultyStore(Meddled(store, lambda: None), plan)
    theirs = claim(store, MANUAL, nothing)
    with pytest.raises(ClaimLost):
        claim(_Stale(faulty, 1), MANUAL, nothing)
    assert newest(store) == theirs


class _Stale(FaultyStore):
    """Shows old versions only, at the first look."""

    def __init__(self, store: Store, upto: int) -> None:
        super().__init__(store, Plan())
        self._upto: int | None = upto

    def list_names(self, directory: str = "") -> list[str]:
        found = super().list_names(directory)
        upto, self._upto = self._upto, None
        if upto is None:
            return found
        return [name for name in found if layout.manifest_versions([name]) in ([], [upto])]


def test_failing_writes_end_in_what_made_them_fail_and_nothing_is_there() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    before = content(store)
    plan = Plan(Rule(Fault.FAIL_BEFORE, "create", times=None))
    with pytest.raises(StoreError, match=f"after {MAX_CLAIMS} tries.*nothing was claimed") as raised:
        claim(FaultyStore(store, plan), MANUAL, nothing)
    assert raised.value.__cause__ is not None
    assert str(raised.value.__cause__) in str(raised.value)
    assert content(store) == before


class _Busy(FaultyStore):
    """Its owner publishes whenever somebody is about to claim."""

    def create(self, path: str, data: Any) -> Created:
        found = newest(self.inner)
        assert found is not None
        publish(self.inner, replace(found, version=found.version + 1))
        return super().create(path, data)


def test_an_owner_that_is_always_faster_is_told_as_contention() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    with pytest.raises(ShardContention, match="due to manifest contention; nothing was claimed"):
        claim(_Busy(store, Plan()), MANUAL, nothing)
    found = newest(store)
    assert found is not None
    assert (found.version, found.writer_epoch) == (1 + MAX_CLAIMS, 1)


def test_a_claim_that_stays_unknown_is_told_as_unknown() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    plan = Plan(Rule(Fault.LOSE_REQUEST, "create", times=None))
    with pytest.raises(OutcomeUnknown, match="may or may not have been made"):
        claim(FaultyStore(store, plan), MANUAL, nothing)


def test_a_manifest_under_another_versions_name_is_damage() -> None:
    store = shard()
    store.put(layout.manifest_path(4), encode_shard_manifest(ShardManifest(SHARD, version=3)))
    with pytest.raises(CorruptFile, match="named for version 4"):
        claim(store, MANUAL, nothing)


def test_strangers_beside_the_manifests_are_not_looked_at() -> None:
    store = shard(ShardManifest(SHARD, writer_epoch=1))
    name = layout.manifest_path(9)
    store.put(f"{name}.tmp.0123456789abcdef0123456789abcdef", b"half")
    store.put("manifest/version_hint.json", b"{not json")
    assert claim(store, MANUAL, nothing).version == 2


def test_what_other_writers_wrote_is_kept() -> None:
    unknown = b"\xfa\x01\x03abc"  # field 31
    data = encode_shard_manifest(ShardManifest(SHARD, shard_spec_id=0, last_seen=3)) + unknown
    store = shard()
    store.put(layout.manifest_path(1), data)
    claim(store, MANUAL, nothing)
    assert unknown in bytes(store.read(layout.manifest_path(2)))


def test_errors_of_the_store_are_told() -> None:
    store = shard(ShardManifest(SHARD))
    plan = Plan(Rule(Fault.FAIL_BEFORE, "list_names"))
    with pytest.raises(StoreError):
        claim(FaultyStore(store, plan), MANUAL, nothing)
