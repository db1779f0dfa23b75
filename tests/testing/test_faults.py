"""The faults do what they are called, at the call that was named, and nothing else."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tiltyard import runtime
from tiltyard.errors import InvalidInput, StoreError, UnsupportedFeature
from tiltyard.store import Created, Store, open_store
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import (
    PORT_CALLS,
    Crashed,
    Fault,
    FaultyPort,
    FaultyStore,
    Plan,
    Rule,
    planned_clock,
    port_installed,
    refusing,
)


def _store(*rules: Rule) -> FaultyStore:
    return FaultyStore(open_store("memory://"), Plan(*rules))


@pytest.mark.parametrize(
    ("fault", "answer", "landed"),
    [
        (Fault.DELAY, Created.WON, True),
        (Fault.FAIL_BEFORE, Created.NOT_DONE, False),
        (Fault.FAIL_AFTER, Created.UNKNOWN, True),
        (Fault.LOSE_REQUEST, Created.UNKNOWN, False),
        (Fault.LOSE_ANSWER, Created.UNKNOWN, True),
    ],
)
def test_what_a_fault_makes_of_a_creation(fault: Fault, answer: Created, landed: bool) -> None:
    store = _store(Rule(fault, "create", seconds=0.0))
    assert store.create("x", b"1") is answer
    assert store.inner.exists("x") is landed
    assert (store.failure("x") is None) == (answer is Created.WON)
    assert store.create("y", b"1") is Created.WON


@pytest.mark.parametrize(
    "fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER]
)
def test_what_a_fault_makes_of_another_call(fault: Fault) -> None:
    store = _store(Rule(fault, "put"))
    with pytest.raises(StoreError, match=fault.value):
        store.put("x", b"1")
    assert store.inner.exists("x") is (fault in (Fault.FAIL_AFTER, Fault.LOSE_ANSWER))
    assert isinstance(store, Store)


def test_a_rule_strikes_at_its_call_its_path_and_its_turn() -> None:
    store = _store(Rule(Fault.FAIL_BEFORE, "read", at=2, times=2, path="t/v/*"))
    table = store.at("t")
    table.put("v/1", b"1")
    table.put("w", b"1")
    table.read("w")
    table.read("v/1")
    for _ in range(2):
        with pytest.raises(StoreError):
            table.read("v/1")
        table.read("w")
    table.read("v/1")
    assert store.plan.calls("read", "t/v/1") == 4


def test_after_a_crash_nothing_works_and_nothing_tidies_up() -> None:
    store = _store(Rule(Fault.CRASH, "writer.commit"))
    writer = store.writer("x")
    writer.write([b"1"])
    with pytest.raises(Crashed), writer:
        writer.commit()
    for call in (store.list, store.at("t").list_names, writer.abort, lambda: store.delete("x")):
        with pytest.raises(Crashed):
            call()
    assert not issubclass(Crashed, Exception)
    assert store.plan.trace[-1] == ("writer.commit", "x")


def test_a_crash_after_the_effect_leaves_it() -> None:
    store = _store(Rule(Fault.CRASH_AFTER, "create"))
    with pytest.raises(Crashed):
        store.create("x", b"1")
    assert store.inner.exists("x")


@pytest.mark.parametrize("fault", [Fault.PAUSE, Fault.PAUSE_AFTER])
def test_a_paused_caller_stands_still_until_it_is_resumed(fault: Fault) -> None:
    rule = Rule(fault, "create")
    store = _store(rule)
    zombie = runtime.spawn(store.create, "x", b"zombie")
    assert rule.reached.wait(deadline=runtime.monotonic() + 20)
    if fault is Fault.PAUSE:
        assert store.create("x", b"quick") is Created.WON
    rule.resume.set()
    assert zombie.join() is (Created.EXISTS if fault is Fault.PAUSE else Created.WON)


def test_every_call_of_the_port_can_be_made_to_fail(tmp_path: Path) -> None:
    assert {"open_tmp", "link_handle", "link", "rename_noreplace", "fdatasync", "fsync_dir"} <= set(
        PORT_CALLS
    )
    with port_installed(FaultyPort(refusing(unlink=errno.EROFS, list=errno.EACCES))):
        store = LocalStore(str(tmp_path))
    store.put("x", b"1")
    with pytest.raises(StoreError, match="read-only"):
        store.delete("x")
    with pytest.raises(StoreError, match="permissions"):
        store.list_names()


def test_an_installed_port_is_bound_by_the_stores_made_meanwhile_only(tmp_path: Path) -> None:
    plan = Plan()
    before = open_store(tmp_path)
    with port_installed(FaultyPort(plan)):
        during = open_store(tmp_path)
    after = open_store(tmp_path)
    before.list_names()
    after.list_names()
    assert plan.trace == []
    during.list_names()
    assert plan.calls("list") == 1


def test_a_late_duplicate_arrives_after_other_calls_and_brings_back_what_was_deleted() -> None:
    store = _store(Rule(Fault.LATE_DUPLICATE, "create", later=3))
    data = bytearray(b"first")
    assert store.create("x", data) is Created.WON
    data[:] = b"other"
    store.delete("x")
    assert not store.inner.exists("x")
    store.exists("x")
    store.exists("x")  # the duplicate arrives before this one
    assert store.read("x").to_pybytes() == b"first"
    assert store.plan.calls("late:create") == 1


def test_a_late_request_has_no_answer_and_arrives_some_calls_later() -> None:
    store = _store(Rule(Fault.LATE_REQUEST, "create", later=2), Rule(Fault.LATE_REQUEST, "delete"))
    assert store.create("x", b"1") is Created.UNKNOWN
    assert not store.exists("x")
    assert store.exists("x")  # it arrived before this call
    assert ("late:create", "x") in store.plan.trace
    with pytest.raises(StoreError):
        store.delete("x")
    assert store.inner.exists("x")
    assert store.plan.deliver() == 1
    assert not store.inner.exists("x")


def test_a_late_duplicate_of_a_creation_does_not_replace_what_stands_there() -> None:
    store = _store(Rule(Fault.LATE_DUPLICATE, "create"), Rule(Fault.LATE_DUPLICATE, "put"))
    assert store.create("x", b"1") is Created.WON
    store.put("x", b"2")
    assert store.plan.deliver() == 1  # of the put; that of the creation came before it and found it taken
    assert store.read("x").to_pybytes() == b"2"
    assert store.plan.deliver() == 0


@pytest.mark.parametrize("call", ["read", "writer", "list"])
def test_a_late_duplicate_of_what_is_no_request_is_refused_by_name(call: str) -> None:
    store = _store(Rule(Fault.LATE_DUPLICATE, call))
    store.put("x", b"1")
    with pytest.raises(UnsupportedFeature, match=f"late duplicate of {call}.*create"):
        getattr(store, call)("" if call == "list" else "x")


def test_a_system_call_is_never_done_twice() -> None:
    with pytest.raises(UnsupportedFeature, match="FaultyStore"):
        FaultyPort(Plan(Rule(Fault.LATE_DUPLICATE, "rename")))
    with pytest.raises(UnsupportedFeature, match="late requests"):
        FaultyPort(Plan(Rule(Fault.LATE_REQUEST, "rename")))
    with pytest.raises(InvalidInput, match="not 0"):
        Rule(Fault.LATE_DUPLICATE, later=0)


def test_a_clock_jump_moves_the_wall_clock_and_no_other(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.CLOCK_JUMP, "fdatasync", seconds=-7200.0))
    with port_installed(FaultyPort(plan)) as changed:
        before, wait = runtime.now_ns(), runtime.monotonic()
        assert LocalStore(str(tmp_path), durable=True).create("x", b"1") is Created.WON
        assert runtime.now_ns() - before < -7e12 + 6e11
        assert changed.now_ns() < before
        assert runtime.monotonic() >= wait
    assert runtime.now_ns() > before


def test_a_clock_jump_needs_a_clock_that_goes_by_the_plan() -> None:
    rule = Rule(Fault.CLOCK_JUMP, "put", seconds=3600.0, times=2)
    store = _store(rule)
    with pytest.raises(UnsupportedFeature, match="planned_clock"):
        store.put("x", b"1")
    with planned_clock(store.plan):
        before = runtime.now_ns()
        store.put("x", b"1")
        assert runtime.now_ns() - before > 3e12
    assert store.read("x").to_pybytes() == b"1"


def test_a_machine_crash_is_refused_and_the_simulation_named() -> None:
    with pytest.raises(UnsupportedFeature, match=r"tiltyard\.testing\.simulation"):
        Rule(Fault.MACHINE_CRASH, "fdatasync")
