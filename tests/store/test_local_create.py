"""Exclusive creation on local disks: the four answers, the fallbacks (case O13), real races and kills."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tiltyard import runtime
from tiltyard.errors import StoreError
from tiltyard.store import Created
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed, refusing

# Refused calls, and the way that is left.
FALLBACKS = {
    "link of an unnamed file": {},
    "link of a temporary file": {"open_tmp": errno.EOPNOTSUPP},
    "link of a temporary file, without /proc": {"link_handle": errno.ENOENT},
    "exclusive rename of a temporary file": {"link_handle": errno.EPERM, "link": errno.EPERM},
    "exclusive creation under the final name": {
        "open_tmp": errno.EISDIR,
        "link": errno.EOPNOTSUPP,
        "rename_noreplace": errno.EINVAL,
    },
}
WAYS = list(FALLBACKS)


@contextmanager
def _store(path: Path, plan: Plan, durable: bool = True) -> Iterator[LocalStore]:
    with port_installed(FaultyPort(plan)):
        yield LocalStore(str(path), durable=durable)


def _refusals(way: str) -> list[Rule]:
    return refusing(**FALLBACKS[way]).rules


@pytest.mark.parametrize("way", WAYS)
def test_where_links_or_renames_are_refused_creation_stays_exclusive(tmp_path: Path, way: str) -> None:
    with _store(tmp_path / "t", Plan(*_refusals(way))) as store:
        assert store.create("v/1", [b"abc", b"def"]) is Created.WON
        assert store.create("v/1", b"other") is Created.EXISTS
        assert store.create("v/2", b"") is Created.WON
        assert store.read("v/1").to_pybytes() == b"abcdef"
        assert store.list_names("v") == ["1", "2"]
        assert store.create_mode == way.partition(",")[0]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_creators_that_use_different_ways_exclude_each_other(tmp_path: Path, first: str, second: str) -> None:
    with (
        _store(tmp_path, Plan(*_refusals(first)), False) as one,
        _store(tmp_path, Plan(*_refusals(second)), False) as two,
    ):
        assert one.create("x", b"1") is Created.WON
        assert two.create("x", b"2") is Created.EXISTS
        assert two.read("x").to_pybytes() == b"1"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_failure_before_the_name_is_given_is_not_done_and_leaves_nothing(
    tmp_path: Path, way: str, call: str
) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, call, error=errno.ENOSPC), *_refusals(way))
    with _store(tmp_path, plan) as store:
        assert store.create("v/1", b"abc") is Created.NOT_DONE
        assert "No space left" in str(store.failure("v/1"))
        assert "free some space" in str(store.failure("v/1"))
        assert isinstance(store.failure("v/1"), StoreError)
        assert store.list_names("v") == []
        assert store.create("v/1", b"abc") is Created.WON
        assert store.failure("v/1") is None


@pytest.mark.parametrize("way", WAYS)
def test_failed_sync_of_the_directory_is_unknown_and_never_tried_again(tmp_path: Path, way: str) -> None:
    (tmp_path / "v").mkdir()
    with _store(tmp_path, Plan(*_refusals(way))) as store:
        assert store.create("v/0", b"") is Created.WON  # settles what lies above
        store._port.plan.rules.append(Rule(Fault.FAIL_BEFORE, "fsync_dir"))  # type: ignore[attr-defined]
        before = store._port.plan.calls("fsync_dir")  # type: ignore[attr-defined]
        assert store.create("v/1", b"abc") is Created.UNKNOWN
        assert store._port.plan.calls("fsync_dir") == before + 1  # type: ignore[attr-defined]
        assert "Input/output error" in str(store.failure("v/1"))
        assert store.read("v/1").to_pybytes() == b"abc"  # an unknown outcome removes nothing (case O17)


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_visible_name_is_never_taken_back(tmp_path: Path, call: str) -> None:
    """Under the final name a failure comes when others may have seen the object: the outcome is open."""
    (tmp_path / "v").mkdir()
    with _store(tmp_path, Plan(*_refusals("exclusive creation under the final name"))) as store:
        assert store.create("v/0", b"") is Created.WON  # from now on directly
        plan = store._port.plan  # type: ignore[attr-defined]
        plan.rules.append(Rule(Fault.FAIL_BEFORE, call))
        plan.trace.clear()
        assert store.create("v/1", b"abc") is Created.UNKNOWN
        assert plan.calls("unlink") == 0
        assert store.exists("v/1")


@pytest.mark.parametrize("way", WAYS)
def test_handle_that_cannot_be_closed_does_not_change_a_durable_answer(tmp_path: Path, way: str) -> None:
    with _store(tmp_path, Plan(*_refusals(way), Rule(Fault.FAIL_AFTER, "close", times=None))) as store:
        assert store.create("v/1", b"abc") is Created.WON
        assert store.create("v/1", b"abc") is Created.EXISTS
        assert store.read("v/1").to_pybytes() == store.map("v/1").to_pybytes() == b"abc"
        store.write_hint("v/hint", b"1")
        with store.turnstile("v", 1.0) as ours:
            assert ours


def test_handle_that_cannot_be_closed_leaves_the_outcome_of_an_unsynced_creation_open(tmp_path: Path) -> None:
    """A network file system tells a lost write at the close, if nobody asked before."""
    (tmp_path / "v").mkdir()
    with _store(tmp_path, Plan(Rule(Fault.FAIL_AFTER, "close")), durable=False) as store:
        assert store.create("v/1", b"abc") is Created.UNKNOWN


def test_after_a_failed_sync_of_a_directory_the_handle_promises_nothing_more(tmp_path: Path) -> None:
    with _store(tmp_path, Plan()) as store:
        assert store.create("v/0", b"") is Created.WON
        plan = store._port.plan  # type: ignore[attr-defined]
        plan.rules.append(Rule(Fault.FAIL_BEFORE, "fsync_dir"))
        assert store.create("v/1", b"abc") is Created.UNKNOWN
        plan.trace.clear()
        assert store.create("v/2", b"abc") is Created.NOT_DONE
        assert "open the table again" in str(store.failure("v/2"))
        for write in (lambda: store.put("v/3", b""), lambda: store.writer("v/4").commit()):
            with pytest.raises(StoreError, match="open the table again"):
                write()
        assert plan.calls("link*") + plan.calls("fsync_dir") == 0
        assert sorted(store.list_names("v")) == ["0", "1"]
    with _store(tmp_path, Plan()) as again:
        assert again.create("v/2", b"abc") is Created.WON


def test_failed_fdatasync_is_never_tried_again_on_the_same_file(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, "fdatasync"))
    with _store(tmp_path, plan) as store:
        assert store.create("1", b"abc") is Created.NOT_DONE
        assert plan.calls("fdatasync") == 1
        assert plan.calls("link*") == 0


@pytest.mark.parametrize("way", [way for way in WAYS if "final" not in way])
def test_name_given_with_a_lost_answer_is_recognised_as_ours(tmp_path: Path, way: str) -> None:
    call = {"link of an": "link_handle", "link of a ": "link", "exclusive ": "rename_noreplace"}[way[:10]]
    plan = Plan(*_refusals(way), Rule(Fault.FAIL_AFTER, call, error=errno.EIO))
    with _store(tmp_path, plan) as store:
        assert store.create("1", b"abc") is Created.WON
        assert store.list_names() == ["1"]


def test_a_network_servers_repeated_link_is_recognised_as_ours(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.FAIL_AFTER, "link_handle", error=errno.EEXIST))
    with _store(tmp_path, plan) as store:
        assert store.create("1", b"abc") is Created.WON


def test_undecidable_link_on_a_network_file_system_is_unknown(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, "link_handle", error=errno.ETIMEDOUT))
    with _store(tmp_path, plan) as store:
        store._port.is_remote = lambda fd: True  # type: ignore[method-assign]
        assert store.create("1", b"abc") is Created.UNKNOWN


def test_link_that_failed_on_a_local_file_system_is_not_done(tmp_path: Path) -> None:
    with _store(tmp_path, Plan(Rule(Fault.FAIL_BEFORE, "link_handle", error=errno.ENOSPC))) as store:
        assert store.create("1", b"abc") is Created.NOT_DONE
        assert store.list_names() == []


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_any_call_leaves_nothing_or_the_whole_object(tmp_path: Path, way: str) -> None:
    learned = Plan(*_refusals(way))
    with _store(tmp_path / "learn", learned) as store:
        store.create("v/1", [b"abc", b"def"])
    outcomes = set()
    for k in range(1, len(learned.trace) + 1):
        for fault in (Fault.CRASH, Fault.CRASH_AFTER):
            root = tmp_path / f"{k}-{fault.name}"
            # The crash rule comes first: it strikes although the call would be refused.
            with _store(root, Plan(Rule(fault, at=k), *_refusals(way))) as store:
                with pytest.raises(Crashed):
                    store.create("v/1", [b"abc", b"def"])
                with pytest.raises(Crashed):
                    store.read("v/1")
            after = LocalStore(str(root))
            names = [name for name in after.list_names("v") if not name.startswith(".tmp")]
            outcomes.add(bool(names))
            if names and way != "exclusive creation under the final name":
                assert names == ["1"]
                assert after.read("v/1").to_pybytes() == b"abcdef"
            assert after.create("v/2", b"next") is Created.WON
    assert outcomes == {True, False}


def test_exactly_one_of_many_threads_wins(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), durable=False)
    for n in range(40):
        answers = [
            task.join()
            for task in [runtime.spawn(store.create, f"v/{n}", f"{who}".encode()) for who in range(6)]
        ]
        assert sorted(answer.name for answer in answers) == ["EXISTS"] * 5 + ["WON"]
        assert store.read(f"v/{n}").to_pybytes() == b"%d" % answers.index(Created.WON)


_RACER = """
import sys
from tiltyard.store import Created
from tiltyard.store.local import LocalStore
me, root = sys.argv[1], sys.argv[2]
store = LocalStore(root, durable=False)
print("ready", flush=True)
sys.stdin.readline()
for n in range(100):
    answer = store.create(f"v/{n}", [me.encode()] * 1000)
    assert answer in (Created.WON, Created.EXISTS), store.failure(f"v/{n}")
    found = store.read(f"v/{n}").to_pybytes()
    assert len(found) == 1000 and len(set(found)) == 1, found
    if answer is Created.WON:
        assert found[:1] == me.encode()
        print(n)
"""


def test_exactly_one_of_eight_processes_wins_each_race_and_losers_see_the_winners_object(
    tmp_path: Path,
) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(who), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(8)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert sorted(int(n) for each in won for n in each) == list(range(100))


_CREATOR = """
import sys
from tiltyard.store.local import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
for n in range(1_000_000):
    store.create(f"v/{n}", [b"%08d" % n] * 4096)
"""


def test_kill_in_the_middle_of_creations_leaves_whole_objects_only(tmp_path: Path) -> None:
    for round_ in range(4):
        root = tmp_path / str(round_)
        victim = subprocess.Popen(
            [sys.executable, "-c", _CREATOR, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        store = LocalStore(str(root))
        while len(store.list_names("v")) < 3 + round_:  # at some point of a later creation
            assert victim.poll() is None
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        names = store.list_names("v")
        assert names == sorted((str(n) for n in range(len(names))), key=str)
        for name in names:
            assert store.read(f"v/{name}").to_pybytes() == b"%08d" % int(name) * 4096


def test_two_writers_of_one_name_are_never_both_told_that_it_is_theirs_when_the_parent_is_new(
    tmp_path: Path,
) -> None:
    for n in range(20):
        one, two = (LocalStore(str(tmp_path / f"deep/{n}/t"), durable=False) for _ in range(2))
        tasks = [runtime.spawn(store.create, "a/b/c", b"x") for store in (one, two)]
        assert sorted(task.join().name for task in tasks) == ["EXISTS", "WON"]


def test_creation_below_a_file_is_refused_and_says_where(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert store.create("file", b"x") is Created.WON
    assert store.create("file/below", b"x") is Created.NOT_DONE
    assert "file/below" in str(store.failure("file/below"))


def test_creation_in_a_directory_that_was_removed_does_not_land_in_its_successor(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "t"))
    assert store.create("x", b"1") is Created.WON
    LocalStore(str(tmp_path / "t")).delete_tree("")
    LocalStore(str(tmp_path / "t")).put("y", b"another table")
    assert store.create("x", b"1") is Created.NOT_DONE
    assert LocalStore(str(tmp_path / "t")).list_names() == ["y"]


def test_an_interrupted_creation_under_the_final_name_leaves_the_whole_object(tmp_path: Path) -> None:
    class Interrupted(FaultyPort):
        armed = False

        def write(self, fd: int, buffers: Any) -> int:
            if self.armed:
                super().write(fd, buffers[:1])
                raise KeyboardInterrupt
            return super().write(fd, buffers)

    port = Interrupted(Plan(*_refusals("exclusive creation under the final name")))
    with port_installed(port):
        store = LocalStore(str(tmp_path / "t"))
    assert store.create("v/zero", [b"finds out the way"]) is Created.WON
    port.armed = True
    with pytest.raises(KeyboardInterrupt):
        store.create("v/one", [b"begin", b"", memoryview(b" and end")])
    assert store.read("v/one").to_pybytes() == b"begin and end"
