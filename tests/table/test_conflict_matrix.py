"""Every cell of the conflict matrix, against the table of the transactions pack (section 6).

The table below is the pack's, written out a second time: ok, R (retryable), X (incompatible), or letters of
conditions; (n) is added where the pack says "in both directions". For each cell two operations are made that
meet in nothing, and two that meet in everything.
"""

from __future__ import annotations

import pytest

from conflict_operations import (
    DISJOINT,
    MEETING,
    NAMES,
)
from tiltyard.format.operations import Append, Clone, UnknownOperation
from tiltyard.table.conflict import Outcome, check
from tiltyard.table.conflict.matrix import COLUMNS, MATRIX

PACK = """
| Append | ok | ok | ok | X | ok | ok | ok(n) | ok(n) | X | ok | ok | ok | ok | ok | X |
| Delete | ok | (a) | (a) | X | ok | (f) | R | ok | X | ok | ok | (f) | ok | ok | X |
| Update | ok(k) | (a) | (a)(k) | X | ok | (f) | R | ok(n) | X | ok | ok | (f) | ok | (o) | (m) |
| Overwrite | ok | ok | ok | (u) | ok | ok | ok | ok | ok | ok | (u) | ok | ok | ok | X |
| CreateIndex | ok | ok | ok(b) | X | (i) | (j) | ok(w) | ok | X | ok | ok | (d) | ok | ok | X(w) |
| Rewrite | ok | (f) | (f) | X | (j) | (f)(r) | R | ok | X | ok | ok | (f) | ok | (f) | ok |
| Merge | R | R | R | X | ok(w) | R | R | X | X | ok | (s) | R | ok | R | X |
| Project | ok(n) | ok | ok(n) | X | ok | ok | R | R | X | ok | ok | ok(n) | ok | ok(n) | X |
| Restore | ok | ok | ok | ok | ok | ok | ok | ok | ok | ok | (t) | ok | ok | ok | X |
| ReserveFragments | ok | ok | ok | X | ok | ok | ok | ok | X | ok | ok | ok | ok | ok | ok |
| UpdateConfig | ok | ok | ok | (v) | ok | ok | (s) | ok | (t) | ok | (c) | ok | ok | ok | ok |
| DataReplacement | ok | (g) | (h) | X | (d) | (f) | R | (p) | X | ok | ok | (q) | ok | ok | X |
| UpdateBases | ok | ok | ok | ok | ok | ok | ok | ok | ok | ok | ok | ok | (x) | ok | ok |
| DataOverlay | ok | (g') | (o') | X | ok | (f) | R | ok(n) | X | ok | ok | ok | ok | ok | X |
| UpdateMemWalState | X | X | (m) | X | (m') | ok | X | X | X | ok | ok | X | ok | X | (m) |
"""

# What a cell with conditions answers for operations that meet in nothing, and for those that meet in all that
# the conditions ask about; `None`: there is no such pair. The faces of each condition:
# test_conflict_conditions.py.
DECIDED = {
    "(a)": ("ok", "R"),
    "(a)(k)": ("ok", "R"),
    "(c)": ("ok", "X"),
    "(d)": ("ok", "R"),
    "(f)": ("ok", "R"),
    "(f)(r)": ("ok", "R"),
    "(g)": ("ok", "X"),
    "(g')": ("ok", "R"),
    "(h)": ("ok", "X"),
    "(i)": ("ok", "R"),
    "(j)": ("ok", "R"),
    "(m)": ("ok", "X"),
    "(m')": ("ok", "X"),
    "(o)": ("ok", "R"),
    "(o')": ("ok", "R"),
    "(p)": ("ok", "X"),
    "(q)": ("ok", "R"),
    "(s)": ("ok", "R"),
    "(t)": ("ok", "X"),
    "(u)": (None, "X"),
    "(v)": ("ok", "X"),
    "(x)": ("ok", "X"),
    "X(w)": ("X", "ok"),
    "ok(b)": ("ok", "ok"),
    "ok(k)": ("ok", "R"),
    "ok(n)": ("ok", "R"),
    "ok(w)": ("ok", "R"),
}
OUTCOMES = {"ok": Outcome.OK, "R": Outcome.RETRYABLE, "X": Outcome.INCOMPATIBLE}


def _table() -> dict[tuple[str, str], str]:
    cells = {}
    for line in PACK.strip().splitlines():
        mine, *row = [part.strip() for part in line.strip("|").split("|")]
        assert len(row) == len(COLUMNS)
        cells.update({(mine, theirs): cell for theirs, cell in zip(COLUMNS, row, strict=True)})
    return cells


TABLE = _table()


def test_every_pair_of_operations_has_a_cell() -> None:
    assert set(MATRIX) == set(TABLE)
    assert {mine for mine, _ in MATRIX} == set(NAMES)


@pytest.mark.parametrize(("mine", "theirs"), sorted(TABLE))
def test_cell(mine: str, theirs: str) -> None:
    cell = TABLE[mine, theirs]
    apart, together = DECIDED.get(cell, (cell, cell))
    if apart is not None:
        verdict = check(DISJOINT[mine][0], DISJOINT[theirs][1])
        assert verdict.outcome is OUTCOMES[apart], verdict
        assert verdict.ok or verdict.reason
    for ours, other in MEETING(mine, theirs):
        verdict = check(ours, other)
        assert verdict.outcome is OUTCOMES[together], (verdict, ours, other)
        assert verdict.ok or verdict.reason


@pytest.mark.parametrize("theirs", COLUMNS)
def test_unknown_operation_is_incompatible_with_everything(theirs: str) -> None:
    unknown = UnknownOperation(number=116)
    assert check(DISJOINT[theirs][0], unknown).outcome is Outcome.INCOMPATIBLE
    verdict = check(unknown, DISJOINT[theirs][1])
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert "116" in verdict.reason


@pytest.mark.parametrize("theirs", COLUMNS)
def test_clone_of_ours_never_conflicts_and_theirs_always_asks_for_another_plan(theirs: str) -> None:
    assert check(Clone(ref_version=1), DISJOINT[theirs][1]).ok
    assert check(DISJOINT[theirs][0], Clone(ref_version=1)).outcome is Outcome.RETRYABLE


def test_append_after_append_is_fine() -> None:
    assert check(Append(()), Append(())).ok
