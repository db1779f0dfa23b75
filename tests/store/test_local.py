"""The local store beyond the model: handles, maps, other programs at work, forks, turnstiles."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from handles import open_files
from tiltyard import runtime
from tiltyard.errors import CorruptFile, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.runtime.port import Port
from tiltyard.store import MIN_MAP_BYTES, Created, open_store
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Fault, FaultyPort, Plan, Rule, port_installed


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path), durable=False)


def test_an_open_table_goes_on_working_when_its_directory_is_renamed(store: LocalStore) -> None:
    store.put("a/v/1", b"one")
    table = store.at("a")
    assert store.move_dir("a", "b") is Created.WON
    store.put("a/v/1", b"another table")
    assert table.read("v/1").to_pybytes() == b"one"
    assert table.create("v/2", b"two") is Created.WON
    assert store.list_names("b/v") == ["1", "2"]


def test_a_move_never_replaces_a_directory_not_even_an_empty_one(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/1", b"one")
    (tmp_path / "b").mkdir()
    assert store.move_dir("a", "b") is Created.EXISTS
    with pytest.raises(ObjectNotFound, match="missing"):
        store.move_dir("missing", "c")


@pytest.mark.parametrize("filled", [False, True])
def test_a_move_without_exclusive_rename_keeps_what_another_puts_there_meanwhile(
    tmp_path: Path, filled: bool
) -> None:
    class Meddling(FaultyPort):
        def mkdir(self, path: str, dir_fd: int | None = None) -> None:
            Port.mkdir(self, path, dir_fd)
            if filled and path == "b":
                (tmp_path / "b" / "theirs").touch()

    plan = Plan(Rule(Fault.FAIL_BEFORE, "rename_noreplace", times=None, error=errno.EINVAL))
    with port_installed(Meddling(plan)):
        store = LocalStore(str(tmp_path))
    store.put("a/1", b"one")
    assert store.move_dir("a", "b") is (Created.EXISTS if filled else Created.WON)
    assert store.list_names("b") == (["theirs"] if filled else ["1"])
    assert store.exists("a/1") == filled


def test_a_move_that_may_have_been_done_though_it_failed_is_not_told_as_another_ones(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.FAIL_AFTER, "rename_noreplace"))
    with port_installed(FaultyPort(plan)):
        store = LocalStore(str(tmp_path))
    store.put("a/1", b"one")
    assert store.move_dir("a", "b") is Created.UNKNOWN
    assert "error" in str(store.failure("b"))
    assert store.list_names("b") == ["1"]


def test_a_removed_directory_is_empty_and_its_successor_is_not_taken_for_it(store: LocalStore) -> None:
    store.put("t/x", b"1")
    table = store.at("t")
    store.delete_tree("t")
    store.put("t/x", b"2")
    assert table.list() == []
    assert not table.exists("x")
    with pytest.raises(ObjectNotFound):
        table.read("x")
    assert store.at("t").read("x").to_pybytes() == b"2"


def test_deleting_a_tree_removes_links_but_not_what_they_lead_to(store: LocalStore, tmp_path: Path) -> None:
    store.put("kept/x", b"1")
    store.put("t/y", b"2")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "kept")
    store.delete_tree("t")
    store.delete_tree("t")
    assert [one.path for one in store.list()] == ["kept/x"]
    store.delete_tree("")
    assert not tmp_path.exists()


@pytest.mark.parametrize("others", [3, 100])
def test_deleting_a_tree_that_others_write_into_goes_on_and_ends(tmp_path: Path, others: int) -> None:
    class Written(FaultyPort):
        left = others

        def rmdir(self, path: str, dir_fd: int) -> None:
            if self.left:
                self.left -= 1
                (tmp_path / "s" / path / f"late{self.left}").touch()
            super().rmdir(path, dir_fd)

    store = LocalStore(str(tmp_path / "s"))
    store.put("t/deep/x", b"1")
    with port_installed(Written(Plan())):
        store = LocalStore(str(tmp_path / "s"))
    if others == 3:
        store.delete_tree("t")
        assert not (tmp_path / "s" / "t").exists()
    else:
        with pytest.raises(StoreError, match="Directory not empty"):
            store.delete_tree("t")


def test_who_deletes_a_tree_that_another_deletes_deletes_the_rest(tmp_path: Path) -> None:
    class Deleted(FaultyPort):
        def list(self, path: str, dir_fd: int) -> list[str]:
            if path == "t/a":
                shutil.rmtree(tmp_path / "s" / "t" / "a")
            return super().list(path, dir_fd)

    with port_installed(Deleted(Plan())):
        store = LocalStore(str(tmp_path / "s"))
    store.put("t/a/x", b"1")
    store.put("t/b/x", b"1")
    store.delete_tree("t")
    assert not (tmp_path / "s" / "t").exists()


def test_listing_survives_names_that_vanish_meanwhile(store: LocalStore) -> None:  # case O12
    """Another writer's temporary manifests come and go; what stands there throughout is always listed."""
    for n in range(5):
        store.put(f"_versions/{n}.manifest", b"x")
    stop = threading.Event()

    def other_writer() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            name = f"_versions/.tmp_{n}.manifest"
            store.put(name, b"")
            store.delete(name)
            store.put(f"_versions/{n}.d/f", b"")
            store.delete_tree(f"_versions/{n}.d")

    task = runtime.spawn(other_writer)
    try:
        expected = {f"{n}.manifest" for n in range(5)}
        for _ in range(200):
            assert expected <= set(store.list_names("_versions"))
            assert {f"_versions/{name}" for name in expected} <= {one.path for one in store.list()}
    finally:
        stop.set()
        task.join()


def test_maps_outlive_their_file_and_keep_no_descriptor(store: LocalStore) -> None:
    content = os.urandom(1000) * (MIN_MAP_BYTES // 1000 + 1)
    store.put("big", content)
    gc.collect()  # ports of earlier tests and what they keep
    before = open_files()
    maps = [store.map("big", len(content)) for _ in range(50)]
    assert open_files() <= before
    store.delete("big")
    tail = maps[-1].slice(len(content) - 10)
    maps.clear()
    assert tail.to_pybytes() == content[-10:]
    assert not tail.is_mutable


def test_a_file_of_another_size_than_recorded_is_corrupt_not_a_bus_error(store: LocalStore) -> None:
    store.put("big", bytes(MIN_MAP_BYTES + 5))
    for size in (MIN_MAP_BYTES + 4, MIN_MAP_BYTES + 6, 10):
        with pytest.raises(CorruptFile, match=str(MIN_MAP_BYTES + 5)):
            store.map("big", size)


def test_files_on_network_file_systems_are_read_not_mapped(tmp_path: Path) -> None:
    plan = Plan()
    with port_installed(FaultyPort(plan)):
        store = LocalStore(str(tmp_path))
    store._port.is_remote = lambda fd: True  # type: ignore[method-assign]
    store.put("d/big", bytes(MIN_MAP_BYTES))
    assert store.map("d/big").size == MIN_MAP_BYTES
    assert plan.calls("map") == 0
    assert store.dir_stat("d") is None
    assert abs(store.now_ns() - store.stat("d/big").mtime_ns) < 60e9
    assert store.list_names("") == ["d"]


def test_this_machines_file_system_is_recognised() -> None:
    port = Port()
    fd = port.open_dir("/proc")
    try:
        from tiltyard.runtime.libc import file_system_type

        assert file_system_type(fd) == 0x9FA0  # PROC_SUPER_MAGIC
        assert port.is_remote(fd) is False
    finally:
        port.close(fd)


def test_a_small_read_costs_three_system_calls_and_a_known_range_no_stat(tmp_path: Path) -> None:
    plan = Plan()
    with port_installed(FaultyPort(plan)):
        store = LocalStore(str(tmp_path))
    store.put("x", b"abcdef")
    for call, steps in {
        lambda: store.read("x", 1, 3): ["open_read", "pread", "close"],
        lambda: store.read("x", -3): ["open_read", "fstat", "pread", "close"],
        lambda: store.map("x", 6): ["open_read", "pread", "close"],
        lambda: store.stat("x"): ["stat"],
        lambda: store.read_ranges("x", [(0, 1), (2, 2)]): ["open_read", "pread", "pread", "close"],
    }.items():
        plan.trace.clear()
        call()
        assert [name for name, _ in plan.trace] == steps


def _pipe(path: Path) -> str:
    os.mkfifo(path)
    return "pipe"


def _socket(path: Path) -> str:
    os.mknod(path, stat.S_IFSOCK | 0o600)
    return "socket"


def _directory(path: Path) -> str:
    path.mkdir()
    return "directory"


def _device(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "device|0 were recorded"


@pytest.mark.parametrize("make", [_pipe, _socket, _directory, _device])
def test_what_is_no_file_is_refused_at_once_and_named(
    make: Callable[[Path], str], store: LocalStore, tmp_path: Path
) -> None:
    kind = make(tmp_path / "x")
    calls: list[Callable[[], object]] = [
        lambda: store.read("x"),
        lambda: store.read("x", -4),
        lambda: store.map("x"),
        lambda: store.map("x", 2 << 20),
    ]
    if make is not _device:  # bytes that are asked for by place can be had from it
        calls += [lambda: store.read("x", 0, 4), lambda: store.map("x", 10)]
        calls += [lambda: store.read_ranges("x", [(0, 4)])]
    for call in calls:
        with pytest.raises(StoreError, match=f"x: .*({kind})"):
            call()


def test_a_hint_is_not_written_into_a_pipe(store: LocalStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(StoreError, match="pipe"):
        store.write_hint("x", b"1")


def test_files_are_read_rather_than_mapped_on_request(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_bytes(content)
    stores = [open_store(str(tmp_path), {"map": choice}) for choice in ("false", True)]
    read, mapped = (store.at("t").map("x") for store in stores)
    again = pickle.loads(pickle.dumps(stores[0])).at("t").map("x")
    os.truncate(tmp_path / "t" / "x", 1 << 20)
    assert read.to_pybytes() == again.to_pybytes() == content
    assert mapped.slice(0, 1 << 20).to_pybytes() == content[: 1 << 20]
    assert stores[0].identity != stores[1].identity


def test_no_descriptor_is_lost(store: LocalStore) -> None:
    store.put("v/x", b"abc")
    gc.collect()  # ports of earlier tests and what they keep
    before = open_files()
    for n in range(30):
        store.create("v/x", b"")
        store.create(f"v/{n}", b"")
        table = store.at("v")
        table.list()
        with store.turnstile("v", 0.0):
            pass
        with pytest.raises(CorruptFile):
            store.read("v/x", 0, 99)
        with pytest.raises(StoreError):
            store.read("v")
        with store.writer(f"w/{n}") as writer:
            writer.write([b"1"])
        del table
    assert open_files() <= before


def test_errors_name_the_object_and_the_next_step(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFound, match=r"nothing/here"):
        store.read("nothing/here")
    store.put("x", b"")
    with pytest.raises(ObjectNotFound):
        store.read("x/below")
    store.put("d/e", b"")
    with pytest.raises(StoreError, match="directory"):
        store.read("d")
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        store.list()


def test_stores_travel_by_pickle(store: LocalStore) -> None:
    store.put("d/x", b"1")
    again = pickle.loads(pickle.dumps(store.at("d")))
    assert again.read("x").to_pybytes() == b"1"
    assert (again.identity, again.durable) == (store.at("d").identity, False)


def test_identity_is_that_of_the_place_however_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = ["t", "./t/", "~/t", f"file://{tmp_path}/t", f"{tmp_path}/u/../t", tmp_path / "t"]
    assert len({open_store(spelling).identity for spelling in spellings}) == 1
    assert open_store(tmp_path).at("t").identity == open_store("t").identity


def test_forked_children_read_write_and_queue_beside_their_parent(store: LocalStore) -> None:  # case T06
    store.put("v/0", b"parent")
    big = bytes(MIN_MAP_BYTES)
    store.put("big", big)
    mapped = store.map("big")
    assert runtime.parallel([lambda: store.read("v/0").size] * 4) == [6] * 4
    children = []
    for who in range(6):
        child = os.fork()
        if child == 0:
            import signal

            signal.alarm(30)
            code = 1
            try:
                with store.turnstile("v", 0.05):
                    won = [store.create(f"v/{n}", b"%d" % who) for n in range(1, 20)]
                sizes = runtime.parallel([lambda n=n: store.read(f"v/{n}").size for n in range(1, 20)])
                same = store.map("big").equals(mapped)
                code = 10 + won.count(Created.WON) if sizes == [1] * 19 and same else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sum(codes) == 6 * 10 + 19


def test_a_turnstile_lets_one_process_through_and_the_others_after_their_time(store: LocalStore) -> None:
    store.put("v/x", b"")
    with store.turnstile("v", 0.0) as first:
        assert first is True
        with store.turnstile("v", 0.01) as second:
            assert second is False
        holder = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from tiltyard.store import open_store\n"
                "with open_store(sys.argv[1]).turnstile('v', 0.01) as mine: print(mine)",
                store.uri,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert holder.stdout == "False\n"
    with store.turnstile("v", 0.0) as again:
        assert again is True
    assert store.list_names("v") == ["x"]


def test_a_child_forked_while_the_turnstile_is_held_does_not_keep_it(store: LocalStore) -> None:
    store.put("v/x", b"")
    told, tell = os.pipe()
    with store.turnstile("v", 0.0) as held:
        assert held is True
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(told, 1)
            os._exit(0)
    try:
        with store.turnstile("v", 0.0) as again:
            assert again is True
    finally:
        os.close(tell)
        os.close(told)
        os.waitpid(child, 0)


def test_a_turnstile_passes_on_as_soon_as_it_is_free(store: LocalStore) -> None:
    store.put("v/x", b"")
    inside, leave = runtime.event(), runtime.event()

    def holder() -> None:
        with store.turnstile("v", 0.0):
            inside.set()
            leave.wait()

    task = runtime.spawn(holder)
    inside.wait()

    def waiter() -> bool:
        with store.turnstile("v", 30.0) as mine:
            return mine

    waiting = runtime.spawn(waiter)
    leave.set()
    assert waiting.join(deadline=runtime.monotonic() + 20) is True
    task.join()


def test_a_turnstile_where_it_cannot_stand_lets_all_through(tmp_path: Path) -> None:
    with port_installed(
        FaultyPort(Plan(Rule(Fault.FAIL_BEFORE, "try_flock", times=None, error=errno.EBADF)))
    ):
        store = LocalStore(str(tmp_path))
    store.put("v/x", b"")
    for directory in ("v", "absent"):
        with store.turnstile(directory, 5.0) as mine:
            assert mine is False


def test_directory_times_change_with_names_only(store: LocalStore) -> None:
    with pytest.raises(ObjectNotFound):
        store.dir_stat("v")
    store.put("v/x", b"1")
    first = store.dir_stat("v")
    store.write_hint("v/x", b"2")
    assert store.dir_stat("v") == first
    runtime.sleep(0.02)  # the kernel's clock for files ticks every 1 to 10 ms
    store.put("v/y", b"1")
    assert store.dir_stat("v") > first
    with pytest.raises(ObjectNotFound):
        store.dir_stat("v/x")


def test_link_times_are_those_of_the_creation(store: LocalStore) -> None:
    store.create("v/x", b"1")
    facts = store.stat("v/x")
    assert abs(facts.ctime_ns - store.dir_stat("v")) <= 10_000_000
    assert abs(store.now_ns() - facts.ctime_ns) < 60e9


@pytest.mark.parametrize("lacking", [(), ("rename_noreplace",), ("rename_noreplace", "link")])
def test_an_object_is_moved_to_a_name_that_is_free_and_nothing_is_made_for_one_that_is_not_there(
    tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    refusals = [Rule(Fault.FAIL_BEFORE, each, times=None, error=errno.EINVAL) for each in lacking]
    with port_installed(FaultyPort(Plan(*refusals))):
        store = LocalStore(str(tmp_path))
    store.put("t/_tiltyard/a", b"one")
    store.put("t/taken", b"two")
    if "link" in lacking:
        with pytest.raises(UnsupportedFeature, match="neither"):
            store.move_dir("t/_tiltyard/a", "t/b")
        return
    assert store.move_dir("t/_tiltyard/a", "t/taken") is Created.EXISTS
    assert store.move_dir("t/_tiltyard/a", "t/b") is Created.WON
    assert [each.path for each in store.list()] == ["t/b", "t/taken"]
    for source, target in [("gone/_tiltyard/a", "gone/b"), ("gone/a", "new/b")]:
        with pytest.raises(ObjectNotFound):
            store.move_dir(source, target)
    assert store.list_names() == ["t"]
