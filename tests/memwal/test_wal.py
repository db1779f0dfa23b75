"""The log's appends, when answers get lost, others claim, and files cannot be written (MemWAL, sections 3.2
and 3.3; decision D18).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamed import SHARD
from tiltyard.errors import (
    CorruptFile,
    OutcomeUnknown,
    ShardError,
    StoreError,
    TableNotFound,
    TiltyardError,
    WriterFenced,
    WriterPoisoned,
)
from tiltyard.format.names import manifest_path
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import Identity, claim
from tiltyard.memwal.entry import encode_sentinel
from tiltyard.memwal.wal import Log, Persistence, entries, positions, put_sentinel, read_entry
from tiltyard.store import Created, Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("_tombstone", pa.bool_(), False)])
QUICK = Persistence(2, 0.0)


def batch(*ids: int) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array([False] * len(ids))], schema=SCHEMA)


def claimed(store: Store) -> ShardManifest:
    return claim(store, Identity(SHARD, 0), lambda _: None)


def begun(*rules: Rule, position: int = 1) -> tuple[MemoryStore, Plan, Log]:
    """A shard of epoch 1, and its log through a store with these faults."""
    store, plan = MemoryStore(Space("")), Plan(*rules)
    manifest = claimed(store)
    return store, plan, Log(FaultyStore(store, plan), manifest, position, SCHEMA, QUICK)


def logged(store: Store) -> list[list[int]]:
    return [[i for each in entry.batches for i in each.to_pydict()["id"]] for entry in entries(store, 0)]


def test_entries_stand_one_after_the_other() -> None:
    store, _, log = begun()
    assert [log.append(batch(each), 1) for each in (10, 20, 30)] == [1, 2, 3]
    assert logged(store) == [[10], [20], [30]]
    assert [each.epoch for each in entries(store, 1)] == [1, 1]
    assert (log.next_position, log.poison) == (4, None)


@pytest.mark.parametrize(
    "fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_DUPLICATE, Fault.LATE_REQUEST]
)
def test_a_lost_answer_is_settled_at_its_own_position(fault: Fault) -> None:
    store, plan, log = begun(Rule(fault, "create", path="wal/*"))
    assert log.append(batch(10), 1) == 1
    assert log.append(batch(20), 1) == 2
    plan.deliver()
    assert logged(store) == [[10], [20]]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_a_failed_append_is_tried_again(fault: Fault) -> None:
    store, _, log = begun(Rule(fault, "create", times=2, path="wal/*"))
    assert log.append(batch(10), 1) == 1
    assert logged(store) == [[10]]


def test_a_disk_that_stays_broken_poisons_and_nothing_is_there() -> None:
    """Case M02."""
    store, _, log = begun(Rule(Fault.FAIL_BEFORE, "create", at=2, times=None, path="wal/*"))
    log.append(batch(10), 1)
    with pytest.raises(WriterPoisoned, match="position 2 after 2 retries"):
        log.append(batch(20), 1)
    for call in (log.check, lambda: log.append(batch(30), 1)):
        with pytest.raises(WriterPoisoned):
            call()
    assert logged(store) == [[10]]


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LATE_REQUEST])
def test_what_stays_unknown_is_told_so_and_ends_the_log(fault: Fault) -> None:
    store, plan, log = begun(
        Rule(fault, "create", times=None, path="wal/*"),
        Rule(Fault.FAIL_BEFORE, "read", times=None, path="wal/*"),
    )
    with pytest.raises(OutcomeUnknown, match=r"position 1 .* may or may not stand"):
        log.append(batch(10), 1)
    with pytest.raises(OutcomeUnknown):
        log.append(batch(20), 1)
    plan.deliver()
    assert logged(store) in ([], [[10]])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_append_that_was_interrupted_may_stand_and_ends_the_log(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    store, _, log = begun()

    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(store, "create", interrupted)
    with pytest.raises(error):
        log.append(batch(10), 1)
    monkeypatch.undo()
    with pytest.raises(OutcomeUnknown, match="interrupted"):
        log.append(batch(20), 1)


def test_who_was_passed_before_the_append_put_nothing() -> None:
    store, _, log = begun()
    log.append(batch(10), 1)
    theirs = claimed(store)
    put_sentinel(store, theirs)
    with pytest.raises(WriterFenced) as told:
        log.append(batch(20), 1)
    assert told.value.outcome == "refused"
    assert logged(store) == [[10], []]


def test_who_was_passed_but_not_closed_off_yet_does_not_acknowledge() -> None:
    """Its entry stands below the next owner's sentinel, and is found there: that is told as unknown."""
    store, _, log = begun()
    theirs = claimed(store)
    with pytest.raises(WriterFenced) as told:
        log.append(batch(10), 1)
    assert told.value.outcome == "unknown"
    assert put_sentinel(store, theirs) == 2
    assert logged(store) == [[10], []]


def test_a_change_of_the_manifest_within_the_epoch_is_no_fence() -> None:
    from dataclasses import replace

    from tiltyard.memwal.manifest import update

    store, _, log = begun()
    update(store, log.manifest, lambda now: replace(now, last_seen=7))
    assert log.append(batch(10), 1) == 1
    assert log.manifest.last_seen == 7


def test_a_sentinel_goes_above_the_cursor_even_if_the_log_was_collected() -> None:
    """Section 9.3: below it nobody would look."""
    store = MemoryStore(Space(""))
    assert put_sentinel(store, ShardManifest(SHARD, version=1, writer_epoch=4, replay_after=9)) == 10
    assert read_entry(store, 10).epoch == 4


@pytest.mark.parametrize(
    "fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_DUPLICATE, Fault.LATE_REQUEST]
)
def test_a_sentinel_whose_answer_was_lost_stands_once(fault: Fault) -> None:
    store, plan = MemoryStore(Space("")), Plan(Rule(fault, "create", path="wal/*"))
    manifest = claimed(store)
    assert put_sentinel(FaultyStore(store, plan), manifest) == 1
    plan.deliver()
    assert positions(store) == [1]


def test_a_sentinel_that_cannot_be_written_is_told() -> None:
    store, plan = MemoryStore(Space("")), Plan(Rule(Fault.FAIL_BEFORE, "create", times=None, path="wal/*"))
    manifest = claimed(store)
    with pytest.raises(StoreError, match="was claimed, but its log cannot be written"):
        put_sentinel(FaultyStore(store, plan), manifest)
    assert positions(store) == []


def test_who_is_passed_while_closing_the_log_off_is_fenced() -> None:
    store = MemoryStore(Space(""))
    mine = claimed(store)
    put_sentinel(store, claimed(store))
    with pytest.raises(WriterFenced):
        put_sentinel(_WithoutLog(store), mine)


class _WithoutLog(FaultyStore):
    """Shows an empty log, once: another claimant's sentinel came after the look."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Plan())
        self._looked = False

    def list_names(self, directory: str = "") -> list[str]:
        if directory == layout.WAL_DIR and not self._looked:
            self._looked = True
            return []
        return super().list_names(directory)


def test_reading_stops_with_an_error_at_a_hole() -> None:
    store, _, log = begun()
    for each in (10, 20, 30, 40):
        log.append(batch(each), 1)
    store.delete(layout.entry_path(2))
    with pytest.raises(CorruptFile, match="no entry at position 2, but entries up to 4"):
        list(entries(store, 0))
    assert [each.position for each in entries(store, 2)] == [3, 4]
    assert [each.position for each in entries(store, 0, until=1)] == [1]


def test_a_log_ends_below_a_hole_with_nothing_but_sentinels_above_it() -> None:
    """The official writer's sentinel stands too high where a dead one left a temporary file at the tip: its
    owner appends into the hole, and is fenced there (section 9.14).
    """
    store, _, log = begun()
    log.append(batch(10), 1)
    for position in (3, 6):
        store.put(layout.entry_path(position), encode_sentinel(1))
    assert logged(store) == [[10]]
    assert put_sentinel(store, claimed(store)) == 7
    assert positions(store) == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(WriterFenced):
        log.append(batch(20), 1)


def test_a_hole_with_rows_above_it_is_not_closed_by_a_sentinel() -> None:
    store, _, log = begun()
    for each in (10, 20, 30):
        log.append(batch(each), 1)
    store.delete(layout.entry_path(2))
    assert put_sentinel(store, claimed(store)) == 4
    assert positions(store) == [1, 3, 4]
    with pytest.raises(CorruptFile, match="no entry at position 2"):
        list(entries(store, 0))


def test_names_that_are_no_entries_are_not_counted() -> None:
    store, _, log = begun()
    log.append(batch(10), 1)
    for name in (
        f"{layout.digits(2)}.arrow.tmp.0123",
        f"{layout.digits(2)}.arrow#1",
        f"{layout.digits(2)}",
        f"{layout.digits(2)[:-1]}.arrow",
        f"{layout.digits(2)[:-1]}2.arrow",
        ".tmp",
    ):
        store.put(f"wal/{name}", b"x")
    assert positions(store) == [1]
    assert log.append(batch(20), 1) == 2


def test_a_store_that_cannot_be_read_is_an_error_of_the_shard() -> None:
    store, _, log = begun()
    log.append(batch(10), 1)
    faulty = FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "read", times=None)))
    with pytest.raises(ShardError, match="position 1 cannot be read"):
        read_entry(faulty, 1)


class _Purged(FaultyStore):
    """The shard goes as soon as an entry stands; then there is something else in its place, or not."""

    def __init__(self, store: Store, instead: bytes | None) -> None:
        super().__init__(store, Plan())
        self._instead = instead

    def create(self, path: str, data: Any) -> Created:
        made = super().create(path, data)
        self.inner.delete_tree(layout.MANIFEST_DIR)
        if self._instead is not None:
            self.inner.put(path, self._instead)
        return made


def appended_to_purged(table: Store, instead: bytes | None) -> tuple[Exception, MemoryStore]:
    """What an append to a shard fails with that is purged meanwhile, and the shard."""
    shard = MemoryStore(Space(""))
    log = Log(_Purged(shard, instead), claimed(shard), 1, SCHEMA, QUICK, table)
    with pytest.raises(TiltyardError) as caught:
        log.append(batch(10), 1)
    assert log.poison is caught.value
    return caught.value, shard


def test_an_entry_that_came_after_its_table_was_purged_is_removed() -> None:
    error, shard = appended_to_purged(MemoryStore(Space("")), None)
    assert isinstance(error, TableNotFound)
    assert not shard.exists(layout.entry_path(1))


def test_what_is_not_our_entry_stays_where_a_table_was_purged() -> None:
    theirs = encode_sentinel(1)
    error, shard = appended_to_purged(MemoryStore(Space("")), theirs)
    assert not isinstance(error, TableNotFound)
    assert shard.read(layout.entry_path(1)).to_pybytes() == theirs


def test_an_entry_stays_where_the_table_does() -> None:
    table = MemoryStore(Space(""))
    table.put(manifest_path(1), b"")
    error, shard = appended_to_purged(table, None)
    assert not isinstance(error, TableNotFound)
    assert shard.exists(layout.entry_path(1))
