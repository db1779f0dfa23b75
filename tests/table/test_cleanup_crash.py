"""A cleanup that dies, or whose store fails, at any call: every version that is listed can be read, and the
next run finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.dataset import write_dataset
from tiltyard.errors import StoreError, TiltyardError
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.cleanup.run import Cleaned, clean
from tiltyard.table.cleanup.select import Policy
from tiltyard.table.cleanup.survey import decoded, place_of
from tiltyard.table.restore import restore
from tiltyard.table.scan import Scan
from tiltyard.table.snapshot import open_snapshot, read_snapshot
from tiltyard.table.tagging import create_tag
from tiltyard.table.versions import list_versions, read_hint
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

HARD = Policy(older_than_ns=0, refuse_tagged=False)
MADE = count(1)


def rows(n: int) -> pa.Table:
    return pa.table({"a": list(range(n, n + 3))})


def history(store: Store, steps: str) -> None:
    """Versions: `o` overwrite, `a` append, `d` delete a row, `t` tag the newest, `r` restore the oldest, `x`
    an orphan.
    """
    write_dataset(rows(0), store.uri)
    for n, step in enumerate(steps, 1):
        newest = open_snapshot(store, Session())
        if step in "oa":
            write_dataset(rows(10 * n), store.uri, mode="overwrite" if step == "o" else "append")
        elif step == "d":
            write_dataset(rows(0), store.uri, mode="append").delete(f"a >= {10 * n - 9} AND a < {10 * n}")
        elif step == "t":
            create_tag(store, f"t{n}", newest)
        elif step == "r":
            restore(open_snapshot(store, Session(), version=list_versions(store)[0].version))
        else:
            store.put(names.data_path(names.new_data_file_name()), b"waste")


def contents(store: Store) -> dict[int, list[int]]:
    """What every version that is listed holds; raises where one cannot be read."""
    found = {}
    for location in list_versions(store):
        snapshot = read_snapshot(store, Session(), location)
        found[location.version] = sorted(Scan(snapshot).table()["a"].to_pylist())
    return found


def hard(store: Store, policy: Policy = HARD) -> Cleaned:
    newest = open_snapshot(store, Session())
    return clean(place_of(newest), newest.version, policy)


@settings(max_examples=25, deadline=None)
@given(st.text("oadtrx", min_size=1, max_size=8), st.integers(1, 3))
def test_of_any_history_a_cleanup_leaves_every_remaining_version_as_it_was(steps: str, retain: int) -> None:
    store = open_store(f"memory://history-{next(MADE)}")
    history(store, steps)
    before = contents(store)
    newest = max(before)
    tagged = {snapshot.version for snapshot in _tagged(store)}
    done = hard(store, Policy(older_than_ns=0, retain_versions=retain, refuse_tagged=False))
    after = contents(store)
    assert after == {n: before[n] for n in after}
    kept = set(sorted(before)[-retain:]) | tagged | {newest}
    assert set(after) == kept
    assert sorted(done.versions) == sorted(set(before) - kept)
    assert _named_files(store) <= set(_files(store))
    waste = set(_files(store)) - _named_files(store)
    assert len(waste) == steps.count("x")  # younger than the grace period
    hard(store, Policy(older_than_ns=0, delete_unverified=True, refuse_tagged=False))
    assert set(_files(store)) == _named_files(store)


def _tagged(store: Store) -> list[Any]:
    from tiltyard.table.refs import list_tags

    return list(list_tags(store).values())


def _files(store: Store) -> list[str]:
    return [each.path for folder in ("data", "_deletions") for each in store.list(folder)]


def _named_files(store: Store) -> set[str]:
    named: set[str] = set()
    for location in list_versions(store):
        named |= decoded(store, location.path, location.version).own
    return {path for path in named if path.startswith(("data/", "_deletions/"))}


def trace(make: Callable[[], Store]) -> list[tuple[str, str]]:
    plan = Plan()
    store = FaultyStore(make(), plan)
    newest = open_snapshot(store, Session())
    plan.trace.clear()
    clean(place_of(newest), newest.version, Policy(0, delete_unverified=True, refuse_tagged=False))
    return plan.trace


STEPS = "oadtoxa"
CHANGES = ("create", "put", "delete", "write_hint", "sync_dir", "delete_tree")
"""All of these; of calls that only read every sixth: a death there is one before the next change."""


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.LOSE_ANSWER])
def test_whatever_call_it_dies_at_every_version_reads_and_the_next_run_finishes(fault: Fault) -> None:
    def make() -> Store:
        store = open_store(f"memory://crash-{fault.name}-{next(MADE)}")
        history(store, STEPS)
        return store

    calls = [at for at, (call, _) in enumerate(trace(make), 1) if call in CHANGES or at % 6 == 0]
    changing = 0
    for at in calls:
        inner = make()
        before = contents(inner)
        whole = set(_files(inner))
        plan = Plan()
        store = FaultyStore(inner, plan)
        newest = open_snapshot(store, Session())
        plan.rules.append(Rule(fault, at=at))
        with suppress(Crashed, TiltyardError):
            clean(place_of(newest), newest.version, Policy(0, delete_unverified=True, refuse_tagged=False))
        changing += set(_files(inner)) != whole
        after = contents(inner)
        assert after == {n: before[n] for n in after}, plan.trace[-3:]
        assert max(after) == max(before)
        hint = read_hint(inner)
        assert len(after) == len(before) or (hint is not None and hint >= max(after))
        hard(inner)
        final = contents(inner)
        assert set(final) == {n for n in before if n == max(before) or n in {5}}
        left = set(_files(inner)) - _named_files(inner)
        if plan.calls("create", "_tiltyard/*"):
            assert {inner.read(path).to_pybytes() for path in left} <= {b"waste"}
    assert changing


def test_a_manifest_that_cannot_be_deleted_keeps_its_files(tmp_path: Path) -> None:
    inner = open_store(str(tmp_path / "t"))
    history(inner, "oo")
    before = contents(inner)
    plan = Plan(Rule(Fault.FAIL_BEFORE, "delete", path=names.manifest_path(1), times=None))
    store = FaultyStore(inner, plan)
    newest = open_snapshot(store, Session())
    done = clean(place_of(newest), newest.version, HARD)
    assert done.versions == [2]
    assert done.failed == [names.manifest_path(1)]
    assert contents(inner) == {1: before[1], 3: before[3]}


def test_files_that_cannot_be_deleted_are_counted_and_left_to_the_next_run(tmp_path: Path) -> None:
    inner = open_store(str(tmp_path / "t"))
    history(inner, "oo")
    plan = Plan(Rule(Fault.FAIL_BEFORE, "delete", path="data/*", times=None))
    store = FaultyStore(inner, plan)
    newest = open_snapshot(store, Session())
    done = clean(place_of(newest), newest.version, HARD)
    assert (done.versions, len(done.failed)) == ([1, 2], 2)
    assert len(_files(inner)) == 3
    assert len(hard(inner).files) == 2
    assert set(_files(inner)) == _named_files(inner)


def test_nothing_is_deleted_where_the_hint_or_the_plan_cannot_be_written(tmp_path: Path) -> None:
    for call in ("write_hint", "create"):
        inner = open_store(str(tmp_path / call))
        history(inner, "oo")
        before = contents(inner)
        store = FaultyStore(inner, Plan(Rule(Fault.FAIL_BEFORE, call, times=None)))
        newest = open_snapshot(store, Session())
        with pytest.raises(StoreError):
            clean(place_of(newest), newest.version, HARD)
        assert contents(inner) == before
        assert inner.list_names("_tiltyard/cleanup") == []


def test_manifests_go_oldest_first_and_before_any_file(tmp_path: Path) -> None:
    inner = open_store(str(tmp_path / "t"))
    history(inner, "ooo")
    plan = Plan()
    store = FaultyStore(inner, plan)
    newest = open_snapshot(store, Session())
    clean(place_of(newest), newest.version, HARD)
    changes = [
        (call, path) for call, path in plan.trace if call in ("create", "write_hint", "delete", "sync_dir")
    ]
    kinds = [(call, path.partition("/")[0]) for call, path in changes]
    assert kinds[:2] == [("create", "_tiltyard"), ("write_hint", "_versions")]
    assert [path for call, path in changes[2:5]] == [names.manifest_path(n) for n in (1, 2, 3)]
    assert kinds[5] == ("sync_dir", "_versions")
    assert set(kinds[6:]) == {("delete", "data")}
