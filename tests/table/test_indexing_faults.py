"""Making and keeping up an index under faults: every call of the store may fail, be lost, or be the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tiltyard import lance as tl
from tiltyard.errors import OutcomeUnknown, TiltyardError
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.index_segments import segment_of
from tiltyard.table.indexing import create_index, drop_index, optimize_indices
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

STEPS: dict[str, Callable[[Store, Session], Any]] = {
    "create": lambda store, session: create_index(store, session, "k"),
    "replace": lambda store, session: create_index(store, session, "v", name="v_idx"),
    "optimise": lambda store, session: optimize_indices(store, session),
    "drop": lambda store, session: drop_index(store, session, "v_idx"),
}


def _table(path: Path) -> Store:
    ds = tl.write_dataset(pa.table({"k": range(50), "v": range(50)}), str(path), max_rows_per_file=20)
    ds.create_scalar_index("v", "BTREE")
    ds.insert(pa.table({"k": [7], "v": [7]}))
    return open_store(str(path), {"durable": False})


def _calls(path: Path, step: str) -> int:
    plan = Plan()
    STEPS[step](FaultyStore(_table(path), plan), Session())
    return len(plan.trace)


def _check(path: Path, *, tidy: bool) -> None:
    """The newest version can be read, with its indices; where `tidy`, nothing else was left."""
    store, session = open_store(str(path), {"durable": False}), Session()
    snapshot = open_latest(store, session)
    for entry in snapshot.manifest.indices:
        tree = segment_of(snapshot, entry).tree()
        assert sum(len(ids) for _, ids in tree.entries()) == tree.rows
    ds = tl.dataset(str(path), session=session)
    for column in ("k", "v"):
        assert ds.count_rows(f"{column} = 7") == 2
        assert ds.to_table(filter=f"{column} < 3").num_rows == 3
    if tidy:
        kept = {entry.uuid for number in range(1, snapshot.version + 1) for entry in _entries(path, number)}
        assert set(store.list_names("_indices")) <= kept


def _entries(path: Path, version: int) -> Any:
    return tl.dataset(str(path), version=version)._snapshot.manifest.indices


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.CRASH, Fault.CRASH_AFTER])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_fault_at_any_call_leaves_a_table_whose_indices_are_right(
    tmp_path: Path, step: str, fault: Fault
) -> None:
    calls = _calls(tmp_path / "learnt", step)
    for at in range(1, calls + 1):
        path = tmp_path / str(at)
        store = _table(path)
        tidy = False
        try:
            STEPS[step](FaultyStore(store, Plan(Rule(fault, at=at))), Session())
        except Crashed:
            pass
        except OutcomeUnknown:
            pass
        except TiltyardError:
            tidy = fault is Fault.FAIL_BEFORE
        _check(path, tidy=tidy)
