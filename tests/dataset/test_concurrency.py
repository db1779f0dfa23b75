"""Handles and writes among threads and forked children: shared versions, no step back, files of one owner."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard import runtime
from tiltyard.dataset import handle as handles
from tiltyard.errors import ForkedHandle, OutcomeUnknown, RetryableConflict, StoreError, TableNotFound
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.restore import restore
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Fault, FaultyPort, FaultyStore, Plan, Rule, port_installed

APPENDERS = 16


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def rows(*values: int) -> Any:
    return pa.table({"x": list(values)})


def held_at_publication(path: str, session: Session) -> tuple[Any, Rule]:
    """A dataset whose first commit stands still before its manifest gets its name."""
    rule = Rule(Fault.PAUSE, "link_handle", path="_versions/*")
    with port_installed(FaultyPort(Plan(rule))):
        return lance.dataset(path, session=session, storage_options={"durable": False}), rule


def test_appends_of_threads_that_wait_for_a_commit_share_the_next_version(path: str) -> None:
    lance.write_dataset(rows(-1), path)
    session = Session()
    dataset, rule = held_at_publication(path, session)

    def append(number: int) -> int:
        return lance.write_dataset(rows(number), dataset, mode="append").version

    first = runtime.spawn(append, 0)
    rule.reached.wait()
    others = [runtime.spawn(append, number) for number in range(1, APPENDERS)]
    queue = session.cache.get((dataset._store.identity, "", "append queue", "False"))
    while len(queue._queue) < APPENDERS - 1:
        runtime.sleep(0.001)
    rule.resume.set()
    assert first.join() == 2
    assert [other.join() for other in others] == [3] * (APPENDERS - 1)
    assert sorted(lance.dataset(path).to_table()["x"].to_pylist()) == [-1, *range(APPENDERS)]


def test_appends_with_a_message_of_their_own_have_a_version_of_their_own(path: str) -> None:
    lance.write_dataset(rows(1), path)
    lance.write_dataset(rows(2), path, mode="append", commit_message="hello")
    transaction = lance.dataset(path).read_transaction(2)
    assert transaction.transaction_properties == {"__lance_commit_message": "hello"}


def test_a_late_look_does_not_take_a_handle_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lance.write_dataset(rows(0), path)
    late = open_latest(dataset._store, dataset._session)
    dataset.insert(rows(1))
    monkeypatch.setattr(handles, "open_latest", lambda store, session: late)
    dataset.checkout_latest()
    assert dataset.version == 2
    assert dataset.to_table()["x"].to_pylist() == [0, 1]


def test_a_handle_follows_when_the_versions_were_made_anew(tmp_path: Path) -> None:
    dataset = lance.write_dataset(rows(0), "memory://followsanew")
    dataset.insert(rows(1))
    dataset.insert(rows(2))
    lance.LanceDataset.drop("memory://followsanew")
    lance.write_dataset(rows(7), "memory://followsanew")
    dataset.checkout_latest()
    assert (dataset.version, dataset.to_table()["x"].to_pylist()) == (1, [7])


def test_a_handle_of_a_replaced_directory_says_so(path: str) -> None:
    dataset = lance.write_dataset(rows(0), path)
    shutil.rmtree(path)
    lance.write_dataset(rows(1), path)
    for use in (dataset.checkout_latest, lambda: dataset.insert(rows(2)), lambda: dataset.delete("x = 0")):
        with pytest.raises(TableNotFound, match="is another one; open it again"):
            use()
    assert lance.dataset(path).to_table()["x"].to_pylist() == [1]


def test_a_pickled_handle_needs_only_the_version_that_it_shows(path: str) -> None:
    lance.write_dataset(rows(1), path)
    lance.write_dataset(rows(2), path, mode="append")
    old = lance.dataset(path).checkout_version(1)
    text = pickle.dumps(old)
    Path(path, names.manifest_path(2)).write_bytes(b"damaged")
    assert pickle.loads(text).to_table()["x"].to_pylist() == [1]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_first_append_that_lost_to_a_table_of_other_types_asks_for_another_append(
    path: str, kind: Any
) -> None:
    data = pa.table({"x": pa.array([1], kind)})
    rule = Rule(Fault.PAUSE, "link_handle", path="_versions/*")

    def append() -> int:
        return lance.write_dataset(data, path, mode="append", session=Session()).version

    with port_installed(FaultyPort(Plan(rule))):
        loser = runtime.spawn(append)
        rule.reached.wait()
    lance.write_dataset(rows(2), path, mode="append")
    rule.resume.set()
    if kind == pa.int64():
        assert loser.join() == 2
    else:
        with pytest.raises(RetryableConflict, match="append again"):
            loser.join()
        assert append() == 2
    assert lance.dataset(path).to_table()["x"].to_pylist() == [2, 1]
    assert len(os.listdir(os.path.join(path, "data"))) == 2


def test_a_child_forked_within_a_write_neither_commits_it_nor_removes_its_files(path: str) -> None:
    lance.write_dataset(pa.table({"n": np.arange(10)}), path)
    codes = []

    def batches() -> Iterator[Any]:
        for number in range(3):
            if number == 2:
                child = os.fork()
                if child:
                    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                else:
                    codes.clear()
            yield pa.record_batch({"n": np.arange(1000)})

    schema, parent = pa.schema([("n", pa.int64())]), os.getpid()
    try:
        lance.write_dataset(batches(), path, schema=schema, mode="append", max_rows_per_file=1000)
    except ForkedHandle:
        os._exit(7 if os.getpid() != parent else 1)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert codes == [7]
    assert lance.dataset(path).to_table().num_rows == 3010


def test_a_restore_that_stands_is_not_reported_as_failed(path: str) -> None:
    """The versions that it leaves behind are listed afterwards; that listing, as every other, fails once."""
    lance.write_dataset(rows(1), path)
    lance.write_dataset(rows(2), path, mode="append")
    store, plan = open_store(path), Plan()
    restore(open_latest(FaultyStore(store, plan), Session()))
    outcomes = set()
    for point in range(1, plan.calls("list_names") + 1):
        before = open_latest(store, Session())
        faulty = FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "list_names", at=point)))
        try:
            done = restore(replace(before, store=faulty, session=Session()))
        except StoreError:
            assert open_latest(store, Session()).version == before.version
            outcomes.add("failed")
        except OutcomeUnknown:  # whether a cleanup takes its files away was to be seen after it stood
            assert open_latest(store, Session()).version == before.version + 1
            outcomes.add("unknown")
        else:
            assert open_latest(store, Session()).version == done.snapshot.version == before.version + 1
            outcomes.add("done")
    assert outcomes == {"failed", "done", "unknown"}
