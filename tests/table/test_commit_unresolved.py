"""A round that may have been won makes no later failure definite: no file that a version may name goes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from committing import now, transaction
from conflict_operations import new_fragment
from tiltyard import runtime
from tiltyard.errors import OutcomeUnknown
from tiltyard.format.operations import Append
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed

LONG = 30  # seconds; a hang fails the test


class ReplayingPort(FaultyPort):
    """A file system that names the manifest, says that the name was taken, and then cannot read it: a network
    server that lost its own answer.
    """

    broken = False

    def link_handle(self, fd: int, path: str, dir_fd: int) -> None:
        super().link_handle(fd, path, dir_fd)
        if path.startswith("_versions/"):
            self.broken = True
            raise FileExistsError(errno.EEXIST, "said twice", path)

    def stat(self, path: str, dir_fd: int) -> Any:
        self._fail(path)
        return super().stat(path, dir_fd)

    def open_read(self, path: str, dir_fd: int) -> int:
        self._fail(path)
        return super().open_read(path, dir_fd)

    def _fail(self, path: str) -> None:
        if self.broken and path.endswith(".manifest"):
            raise OSError(errno.EIO, "input/output error", path)


def rows(uri: str) -> list[int]:
    return sorted(lance.dataset(uri, session=Session()).to_table()["x"].to_pylist())


@pytest.mark.parametrize(
    ("operation", "after"),
    [(lambda ds: ds.insert(pa.table({"x": [9]})), [0, 1, 2, 9]), (lambda ds: ds.delete("x = 1"), [0, 2])],
    ids=["append", "delete"],
)
def test_a_version_that_cannot_be_read_after_a_lost_answer_keeps_its_files(
    operation: Callable[[Any], Any], after: list[int], tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": [0, 1, 2]}), uri)
    with port_installed(ReplayingPort(Plan())):
        ds = lance.dataset(uri, session=Session())
    with pytest.raises(OutcomeUnknown):
        operation(ds)
    assert rows(uri) == after


@pytest.mark.parametrize(
    "operation",
    [lambda ds: ds.update_config({"a": "b"}), lambda ds: ds.checkout_version(1).restore()],
    ids=["config", "restore"],
)
def test_a_version_that_another_was_built_on_is_not_taken_back_for_a_late_time(
    operation: Callable[[Any], Any], tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": [0, 1, 2]}), uri)
    # Without unnamed files a temporary name is removed after the link, which moves the manifest's time.
    pause = Rule(Fault.PAUSE_AFTER, "link", path="_versions/*")
    plan = Plan(Rule(Fault.FAIL_BEFORE, "open_tmp", times=None, error=errno.EOPNOTSUPP), pause)
    with port_installed(FaultyPort(plan)):
        ds = lance.dataset(uri, session=Session())
    told: list[str] = []

    def run() -> None:
        try:
            operation(ds)
        except OutcomeUnknown:
            told.append("unknown")

    writer = threading.Thread(target=run)
    writer.start()
    deadline = runtime.monotonic() + LONG
    while not pause.reached.is_set() and writer.is_alive():
        assert runtime.monotonic() < deadline
        runtime.sleep(0.001)
    rival = lance.write_dataset(pa.table({"x": [50]}), uri, mode="append", session=Session())
    runtime.sleep(0.03)  # another clock tick for the removal of the temporary name
    pause.resume.set()
    writer.join(LONG)
    versions = [each["version"] for each in lance.dataset(uri, session=Session()).versions()]
    assert versions == list(range(1, rival.version + 1))
    assert 50 in rows(uri)
    assert told in ([], ["unknown"])


@pytest.mark.usefixtures("syncing")
def test_a_repetition_that_finds_itself_landed_is_acknowledged_once_its_name_is_durable(
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": [0]}), uri)
    base = open_latest(open_store(uri), Session())
    ours = transaction(Append((new_fragment("mine"),)), base.version)
    named = Rule(Fault.CRASH_AFTER, "link_handle", path="_versions/*")
    with port_installed(FaultyPort(Plan(named))):
        dying = open_store(uri)
    with pytest.raises(Crashed):
        commit(dying, ours, session=Session(), base=base)
    failing, plain = Plan(Rule(Fault.FAIL_BEFORE, "fsync_dir")), Plan()
    with port_installed(FaultyPort(failing)):
        broken = open_store(uri)
    for _ in range(2):  # a later sync through this handle would say nothing
        with pytest.raises(OutcomeUnknown, match="power loss"):
            commit(broken, ours, session=Session(), base=base)
    with port_installed(FaultyPort(plain)):
        store = open_store(uri)
    assert commit(store, ours, session=Session(), base=base).version == 2
    assert plain.calls("fsync_dir") >= 1
    assert now(store).version == 2
