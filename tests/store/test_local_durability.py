"""What is synced, and in which order: the trace of system calls is the witness."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tiltyard.errors import ForkedHandle, InvalidInput, StoreError
from tiltyard.store import Created, open_store
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Fault, FaultyPort, Plan, Rule, port_installed


def _traced(path: Path, durable: bool = True) -> tuple[LocalStore, Plan]:
    plan = Plan()
    with port_installed(FaultyPort(plan)):
        return LocalStore(str(path), durable=durable), plan


def _steps(plan: Plan) -> list[str]:
    kept = ("mkdir", "open_tmp", "open_new", "write", "fdatasync", "link_handle", "rename", "fsync_dir")
    steps = [call for call, _ in plan.trace if call in kept]
    plan.trace.clear()
    return steps


def test_create_syncs_content_before_the_name_and_the_directory_after_it(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    store, plan = _traced(tmp_path)
    store.create("v/0", b"")
    plan.trace.clear()
    assert store.create("v/1", b"abc") is Created.WON
    assert _steps(plan) == ["open_tmp", "write", "fdatasync", "link_handle", "fsync_dir"]


def test_put_syncs_content_before_the_rename_and_the_directory_after_it(tmp_path: Path) -> None:
    store, plan = _traced(tmp_path)
    store.put("x", b"1")
    plan.trace.clear()
    store.put("x", b"2")
    assert _steps(plan) == ["open_new", "write", "fdatasync", "rename", "fsync_dir"]


def test_a_streamed_file_is_synced_with_its_directory_at_commit(tmp_path: Path) -> None:
    store, plan = _traced(tmp_path)
    with store.writer("x") as writer:
        writer.write([b"abc"])
        assert "write" not in _steps(plan)  # gathered
        writer.commit()
    assert [step for step in _steps(plan) if step != "fsync_dir"] == ["write", "fdatasync"]
    with store.writer("y") as writer:
        plan.trace.clear()
        writer.commit()
    assert _steps(plan) == ["fdatasync", "fsync_dir"]


def test_each_new_directory_is_synced_in_its_parent_before_the_first_object_in_it_is_won(
    tmp_path: Path,
) -> None:
    store, plan = _traced(tmp_path / "new" / "t")
    assert store.create("a/b/c", b"x") is Created.WON
    synced: list[str] = []
    opened = ""
    made = []
    for call, path in plan.trace:
        if call == "mkdir":
            made.append(path)
        elif call == "open_dir":
            opened = path
        elif call == "fsync_dir":
            synced.append(opened)
        elif call == "link_handle":
            break
    root = str(tmp_path / "new" / "t")
    assert {str(tmp_path / "new"), root, "a", "a/b"} <= set(made)
    assert {str(tmp_path), str(tmp_path / "new"), "a"} <= set(synced)
    assert len(synced) >= 4  # and the root itself, by its own handle


def test_directories_that_another_process_made_are_synced_once_before_something_in_them_is_won(
    tmp_path: Path,
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    store, plan = _traced(tmp_path)
    store.create("a/b/1", b"")
    assert _steps(plan).count("fsync_dir") == 4  # the root's parent, the root, a, and a/b at the end
    store.create("a/b/2", b"")
    assert _steps(plan).count("fsync_dir") == 1


def test_a_second_store_on_the_same_directory_does_not_settle_it_again(tmp_path: Path) -> None:
    plan = Plan()
    with port_installed(FaultyPort(plan)):
        LocalStore(str(tmp_path / "t")).create("a/1", b"")
        plan.trace.clear()
        LocalStore(str(tmp_path / "t")).create("a/2", b"")
        assert _steps(plan).count("fsync_dir") == 1
        LocalStore(str(tmp_path / "t")).create("b/1", b"")
        assert _steps(plan).count("fsync_dir") == 2  # the root for the name b, and b


def test_another_directory_at_the_path_of_a_settled_one_is_settled_itself(tmp_path: Path) -> None:
    plan = Plan()
    with port_installed(FaultyPort(plan)):
        store = LocalStore(str(tmp_path / "t"))
        store.create("a/1", b"")
        store.delete_tree("")
        del store
        plan.trace.clear()
        LocalStore(str(tmp_path / "t")).create("a/1", b"")
        assert _steps(plan).count("fsync_dir") == 3  # the root's parent, the root, a


def test_a_store_below_another_settles_through_it(tmp_path: Path) -> None:
    root, plan = _traced(tmp_path / "lake")
    store = root.at("x/t.lance")
    plan.trace.clear()
    assert store.create("v/1", b"") is Created.WON
    assert [path for call, path in plan.trace if call == "mkdir" and "/" not in path.strip("/")] == ["x", "v"]
    assert plan.calls("fsync_dir") >= 5  # lake's parent, lake, x, t.lance, v
    assert (tmp_path / "lake/x/t.lance/v/1").exists()


def test_what_is_made_together_is_synced_at_the_end_each_directory_once(tmp_path: Path) -> None:
    root, plan = _traced(tmp_path / "t")
    root.put("x", b"")
    whole = root.at("g")
    plan.trace.clear()
    with whole.together() as store:
        with store.writer("data/1") as writer:
            writer.write([b"abc"])
            writer.commit()
        store.put("data/2", b"de")
        assert store.create("v/1", b"f") is Created.WON
        store.put("b", b"g")
        assert plan.calls("fdatasync") + plan.calls("fsync_dir") == 0
        assert [whole.read(each).to_pybytes() for each in ("data/1", "data/2", "v/1", "b")] == [
            b"abc",
            b"de",
            b"f",
            b"g",
        ]
        plan.trace.clear()
    steps = _steps(plan)
    assert steps.count("fdatasync") == 4
    assert steps.count("fsync_dir") == 4  # data, v, g, and the root, which has the name g
    assert len(steps) == 8
    with whole.together() as store:
        store.put("data/3", b"")
        plan.trace.clear()
    assert _steps(plan) == ["fdatasync", "fsync_dir"]  # the way to it is known


def test_what_cannot_be_made_durable_together_is_an_error(tmp_path: Path) -> None:
    for call, goes_on in ("fdatasync", True), ("fsync_dir", False):
        root, plan = _traced(tmp_path / call)
        root.put("x", b"")
        plan.rules.append(Rule(Fault.FAIL_BEFORE, call))
        with pytest.raises(StoreError), root.together() as store:
            store.put("y", b"")
        if goes_on:
            root.put("z", b"")
        else:  # what the kernel forgot is not made good by a later sync
            with pytest.raises(StoreError, match="earlier sync"):
                root.put("z", b"")


def test_a_block_that_was_left_by_an_exception_syncs_nothing_and_its_store_is_of_no_use(
    tmp_path: Path,
) -> None:
    root, plan = _traced(tmp_path / "t")
    root.put("x", b"")
    plan.trace.clear()
    stores = []

    def left() -> None:
        with root.together() as store:
            stores.append(store)
            store.put("y", b"")
            raise KeyError

    with pytest.raises(KeyError):
        left()
    assert plan.calls("fdatasync") + plan.calls("fsync_dir") == 0
    assert plan.calls("close") == plan.calls("open*") + plan.calls("duplicate")
    with pytest.raises(InvalidInput, match="has ended"):
        stores[0].put("z", b"")
    with pytest.raises(InvalidInput, match="has ended"), stores[0].writer("z") as writer:
        writer.commit()


def test_without_durability_nothing_waits_for_the_end_of_a_block(tmp_path: Path) -> None:
    root, plan = _traced(tmp_path / "t", durable=False)
    with root.together() as store:
        assert store is root
        store.put("x", b"")
    assert plan.calls("fdatasync") + plan.calls("fsync_dir") == 0


@pytest.mark.parametrize("durable", [True, False])
def test_without_durability_nothing_is_synced(tmp_path: Path, durable: bool) -> None:
    store, plan = _traced(tmp_path / "t", durable)
    store.create("a/1", b"")
    store.put("a/2", b"")
    with store.writer("b/3") as writer:
        writer.commit()
    store.sync_dir("a")
    store.write_hint("a/h", b"1", sync=True)
    store.move_dir("a", "c")
    assert (plan.calls("*sync*") > 0) == durable


@pytest.mark.parametrize("value", ["0", "false", "off"])
def test_the_environment_turns_syncing_off_whatever_the_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TILTYARD_DURABLE", value)
    assert open_store(tmp_path, {"durable": True}).durable is False
    monkeypatch.setenv("TILTYARD_DURABLE", "1")
    assert open_store(tmp_path, {"durable": "false"}).durable is False
    assert open_store(tmp_path).durable is True
    monkeypatch.setenv("TILTYARD_DURABLE", "perhaps")
    with pytest.raises(InvalidInput, match="TILTYARD_DURABLE"):
        open_store(tmp_path)


@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync_dir"])
def test_a_streamed_file_that_cannot_be_made_durable_is_an_error_and_is_gone(
    tmp_path: Path, call: str
) -> None:
    with port_installed(FaultyPort(Plan(Rule(Fault.FAIL_BEFORE, call, error=errno.EIO)))):
        store = LocalStore(str(tmp_path))
    writer = store.writer("x")
    writer.write([b"abc"])
    with pytest.raises(StoreError, match="Input/output"):
        writer.commit()
    assert store._port.plan.calls(call) == 1  # type: ignore[attr-defined]
    assert store.list_names() == []


def test_a_failed_replacement_leaves_the_old_object_and_no_debris(tmp_path: Path) -> None:
    for call in ("write", "fdatasync", "rename"):
        plan = Plan(Rule(Fault.FAIL_BEFORE, call, at=2, error=errno.ENOSPC))
        with port_installed(FaultyPort(plan)):
            store = LocalStore(str(tmp_path / call))
        store.put("x", b"old")
        with pytest.raises(StoreError, match="free some space"):
            store.put("x", b"new")
        assert store.read("x").to_pybytes() == b"old"
        assert store.list_names() == ["x"]


def test_hints_are_changed_in_place_without_touching_the_directory(tmp_path: Path) -> None:
    store, plan = _traced(tmp_path)
    store.write_hint("v/hint", b'{"version":10}')
    before = store.dir_stat("v")
    plan.trace.clear()
    store.write_hint("v/hint", b'{"version":11}')
    assert plan.calls("pwrite") == 1
    assert plan.calls("fsync*") + plan.calls("fdatasync") + plan.calls("rename") == 0
    assert store.dir_stat("v") == before
    store.write_hint("v/hint", b"{}", sync=True)
    assert plan.calls("fdatasync") == 1
    assert store.read("v/hint").to_pybytes() == b"{}"


def test_large_writes_reach_the_system_in_few_large_calls(tmp_path: Path) -> None:
    store, plan = _traced(tmp_path, durable=False)
    with store.writer("x") as writer:
        for _ in range(1000):
            writer.write([b"x" * 8192])
        writer.write([b"y" * 1000] * 5000)  # more buffers than one writev takes
        assert writer.commit() == 1000 * 8192 + 5_000_000
    assert plan.calls("write") <= 10
    assert store.read("x", -3).to_pybytes() == b"yyy"
    assert store.stat("x").size == 1000 * 8192 + 5_000_000


@pytest.mark.parametrize("durable", [True, False])
def test_the_disk_is_set_to_work_while_a_large_file_is_written_if_it_is_to_be_durable(
    tmp_path: Path, durable: bool
) -> None:
    store, plan = _traced(tmp_path, durable)
    with store.writer("x") as writer:
        for _ in range(3):
            writer.write([b"x" * (2 << 20)])
        writer.commit()
    assert plan.calls("start_writeback") == (3 if durable else 0)


def test_a_writer_in_a_forked_child_refuses_and_leaves_the_parents_file(tmp_path: Path) -> None:
    import os

    store = LocalStore(str(tmp_path))
    with store.writer("x") as writer:
        writer.write([b"abc"])
        child = os.fork()
        if child == 0:
            try:
                writer.write([b"def"])
            except ForkedHandle:
                writer.abort()
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        writer.commit()
    assert store.read("x").to_pybytes() == b"abc"
