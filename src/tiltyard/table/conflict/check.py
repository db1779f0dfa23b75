"""`check(mine, theirs)`: may this transaction follow that one? Pure; the loop around it is in
`table.commit`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tiltyard.format.operations import Clone, Operation, Restore, UnknownOperation
from tiltyard.format.transaction import Transaction
from tiltyard.table.conflict.conditions import CONDITIONS, Plan, nullability, worst
from tiltyard.table.conflict.matrix import MATRIX
from tiltyard.table.conflict.touched import name_of
from tiltyard.table.conflict.verdict import OK, Verdict, refuse, retry

_WHY = {
    "Append": "it added rows",
    "Delete": "it deleted rows",
    "Update": "it changed rows",
    "Overwrite": "it replaced the whole table",
    "CreateIndex": "it changed the indices",
    "Rewrite": "it rewrote fragments",
    "Merge": "it rewrote the schema and the columns of every fragment",
    "Project": "it changed the schema",
    "DataReplacement": "it replaced the data of columns",
    "DataOverlay": "it overlaid the data of columns",
    "UpdateMemWalState": "it moved the compaction marks of the MemWAL",
}


def check(
    mine: Transaction | Operation,
    theirs: Transaction | Operation,
    *,
    my_affected: Mapping[int, np.ndarray] | None = None,
    my_reuse: bool = False,
    their_reuse: bool = False,
    unhashed_key: bool = False,
) -> Verdict:
    """Whether `mine` may be committed after `theirs`, which was committed since `mine` was planned.

    `my_affected`: per fragment id the sorted uint32 physical offsets that we delete or move, None when
    unknown. `my_reuse`, `their_reuse`: whether a Rewrite carries a fragment-reuse index (not on the wire).
    `unhashed_key`: the primary key is of a type that the official writer leaves out of its key filters.
    An OK for a Delete or Update still needs `rebase`, which compares the rows themselves.
    """
    ours = mine.operation if isinstance(mine, Transaction) else mine
    other = theirs.operation if isinstance(theirs, Transaction) else theirs
    for operation, whose in ((ours, "ours"), (other, "it")):
        if isinstance(operation, UnknownOperation):
            return refuse(
                f"{whose} is an operation that this version does not know (number {operation.number})"
            )
    if isinstance(ours, Clone):
        return OK  # the first commit of a new root
    if isinstance(other, Clone):
        return retry("the table was created as a clone meanwhile")
    plan = Plan(my_affected, my_reuse, their_reuse, unhashed_key)
    cell = MATRIX[name_of(ours), name_of(other)]
    tighter = nullability(ours, other)
    return _cell(cell, ours, other, plan) if tighter.ok else tighter


def _cell(cell: str, ours: Operation, other: Operation, plan: Plan) -> Verdict:
    match cell:
        case "ok":
            return OK
        case "R":
            return retry(_why(other))
        case "X":
            return refuse(_why(other))
    return worst(*(CONDITIONS[letter](ours, other, plan) for letter in cell.split("+")))


def _why(other: Operation) -> str:
    if isinstance(other, Restore):
        return f"it restored version {other.version}"
    return _WHY[name_of(other)]
