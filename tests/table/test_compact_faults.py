"""A compaction whose store fails, or whose process dies, at each of its operations in turn."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import OutcomeUnknown, TiltyardError
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.compact import CompactionOptions, commit_rewrites, compact, execute, plan_compaction
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

NAMES = count()
LIVE = sorted(set(range(40)) - {3, 14, 25})
FOLDERS = ("data/", "_deletions/", "_indices/")


def table() -> Store:
    """Four fragments with an index and a deleted row."""
    uri = f"memory://compact-faults-{next(NAMES)}"
    for start in range(0, 40, 10):
        rows = range(start, start + 10)
        lance.write_dataset(pa.table({"id": rows, "v": rows}), uri, mode="append")
    ds = lance.dataset(uri)
    ds.create_scalar_index("id", "BTREE")
    ds.delete("id = 3")
    return open_store(uri)


def run(store: Store, faulty: Store, *, deferred: bool) -> None:
    """Compact through a store with faults; others delete rows before it commits."""
    session = Session()
    options = CompactionOptions.of({"target_rows_per_fragment": 20, "defer_index_remap": deferred})
    plan = plan_compaction(open_snapshot(faulty, session), options)
    done = [execute(open_snapshot(faulty, session), task) for task in plan.tasks[:1]]
    lance.dataset(store.uri).delete("id in (14, 25)")
    if done:
        commit_rewrites(faulty, session, done, defer_index_remap=deferred)


def rows(snapshot: Snapshot, where: str | None = None) -> list[int]:
    found: list[int] = Scan(snapshot, ScanRequest(columns=["id"], where=where)).table()["id"].to_pylist()
    return found


def named(store: Store) -> set[str]:
    """Files that some version names."""
    found: set[str] = set()
    for location in list_versions(store):
        manifest = open_snapshot(store, Session(), version=location.version).manifest
        for fragment in manifest.fragments:
            found |= {f"data/{file.path}" for file in fragment.files}
            if fragment.deletion is not None:
                found.add(fragment.deletion.path(fragment.id))
        for entry in manifest.indices:
            found |= {f"_indices/{entry.uuid}/{file.path}" for file in entry.files}
    return found


def there(store: Store) -> set[str]:
    return {each.path for folder in FOLDERS for each in store.list(folder.rstrip("/")) if each.path}


def calls(*, deferred: bool) -> int:
    store = table()
    plan = Plan()
    run(store, FaultyStore(store, plan), deferred=deferred)
    assert there(store) == named(store)
    assert len(there(store)) > 8
    return len(plan.trace)


def check(store: Store) -> None:
    """The rows are right, with the index and without, and another compaction goes through."""
    for _ in range(2):
        newest = open_snapshot(store, Session())
        known = [id for id in LIVE if id not in (14, 25)] if rows(newest).count(14) == 0 else LIVE
        expected = sorted({*known} | ({14, 25} & set(rows(newest))))
        assert sorted(rows(newest)) == expected
        for where in ("id = 5", "id = 14", "id = 39"):
            assert rows(newest, where) == [id for id in expected if where == f"id = {id}"]
        compact(store, Session())


@pytest.mark.parametrize("deferred", [False, True], ids=["remapped", "deferred"])
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_ANSWER])
def test_a_failure_anywhere_leaves_a_right_table_and_no_stray_file(deferred: bool, fault: Fault) -> None:
    for at in range(1 + deferred, calls(deferred=deferred) + 1, 2):
        store = table()
        plan = Plan(Rule(fault, at=at))
        outcome: Any = None
        try:
            run(store, FaultyStore(store, plan), deferred=deferred)
        except (TiltyardError, OSError) as error:
            outcome = error
        if not isinstance(outcome, OutcomeUnknown):
            call = plan.trace[at - 1] if at <= len(plan.trace) else ("", "")
            stray = there(store) - named(store)
            # What cannot be deleted, or whose creation may have happened, is collected by age.
            assert not stray or call[0] in ("delete", "delete_tree") or call[1] in stray, (at, call, stray)
        check(store)


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
def test_a_crash_anywhere_leaves_a_right_table(fault: Fault) -> None:
    for at in range(1, calls(deferred=False) + 1, 3):
        store = table()
        with suppress(Crashed, TiltyardError):
            run(store, FaultyStore(store, Plan(Rule(fault, at=at))), deferred=False)
        check(store)
