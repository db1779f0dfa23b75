"""Updates that die, or whose answers are lost, at every call to the file system: the rows are the old ones or
the new ones, never a mixture, and no version names a file that is not there.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from column_rewrites import bounded
from tiltyard.errors import OutcomeUnknown, TiltyardError
from tiltyard.session import Session
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed

CALLS = ("open_tmp", "open_new", "write", "fdatasync", "link_handle", "link", "mkdir", "fsync_dir", "unlink")
OLD = {"n": list(range(9)), "s": [f"row {n}" for n in range(9)]}
CHANGED = {n: "new" for n in range(9) if n % 3}


def change(place: str, plan: Plan) -> None:
    with port_installed(FaultyPort(plan)):
        lance.dataset(place, session=Session()).update({"s": "'new'"}, "n % 3 > 0")


def rows(place: str) -> dict[int, str]:
    table = lance.dataset(place, session=Session()).to_table().to_pydict()
    return dict(zip(table["n"], table["s"], strict=True))


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_AFTER])
@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_old_or_new_rows_whatever_happens_on_the_way(
    columns: bool, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, 0 if columns else 2.0**40)
    old = dict(zip(OLD["n"], OLD["s"], strict=True))
    new = old | CHANGED

    def make(name: str) -> str:
        place = str(tmp_path / name)
        lance.write_dataset(pa.table(OLD), place, max_rows_per_file=4)
        return place

    learnt = Plan()
    change(make("learnt"), learnt)
    calls = [call for call, *_ in learnt.trace]
    outcomes = set()
    for call in CALLS:
        for at in range(1, calls.count(call) + 1):
            place = make(f"{call}-{at}")
            try:
                change(place, Plan(Rule(fault, call, at=at, error=errno.EIO)))
                outcome = "done"
            except Crashed:
                outcome = "died"
            except OutcomeUnknown:
                outcome = "unknown"
            except TiltyardError:
                outcome = "failed"
            outcomes.add(outcome)
            found = rows(place)
            allowed = {"done": [new], "failed": [old]}.get(outcome, [old, new])
            assert found in allowed, f"{call} {at}: {outcome}"
            lance.dataset(place, session=Session()).update({"s": "'after'"}, "n = 1")
            assert rows(place)[1] == "after"
    assert outcomes - {"done"}
