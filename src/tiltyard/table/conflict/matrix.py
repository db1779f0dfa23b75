"""The conflict matrix as data: one row per operation being committed, one column per operation already
committed.

The table is section 6 of the transactions pack. `ok` is compatible, `R` retryable, `X` incompatible; a
lower-case word lists the conditions (module `conditions`) that decide, and the worst of them holds. Condition
`n` (nullability) is not spelt out in the cells: it is asked first for every pair that it concerns.
"""

from __future__ import annotations

COLUMNS = (
    "Append",
    "Delete",
    "Update",
    "Overwrite",
    "CreateIndex",
    "Rewrite",
    "Merge",
    "Project",
    "Restore",
    "ReserveFragments",
    "UpdateConfig",
    "DataReplacement",
    "UpdateBases",
    "DataOverlay",
    "UpdateMemWalState",
)

_ROWS = """
Append            ok ok ok    X  ok ok ok ok X  ok ok ok ok ok X
Delete            ok a  a     X  ok f  R  ok X  ok ok f  ok ok X
Update            k  a  a+k+m X  ok f  R  ok X  ok ok f  ok o  m
Overwrite         ok ok ok    u  ok ok ok ok ok ok u  ok ok ok X
CreateIndex       ok ok ok    X  i  j  w  ok X  ok ok d  ok ok w
Rewrite           ok f  f     X  j  f+r R  ok X  ok ok f  ok f  ok
Merge             R  R  R     X  w  R  R  X  X  ok s  R  ok R  X
Project           ok ok ok    X  ok ok R  R  X  ok ok ok ok ok X
Restore           ok ok ok    ok ok ok ok ok ok ok t  ok ok ok X
ReserveFragments  ok ok ok    X  ok ok ok ok X  ok ok ok ok ok ok
UpdateConfig      ok ok ok    v  ok ok s  ok t  ok c  ok ok ok ok
DataReplacement   ok g  h     X  d  f  R  p  X  ok ok q  ok ok X
UpdateBases       ok ok ok    ok ok ok ok ok ok ok ok ok x  ok ok
DataOverlay       ok gg oo    X  ok f  R  ok X  ok ok ok ok ok X
UpdateMemWalState X  X  m     X  mm ok X  X  X  ok ok X  ok X  m
"""
# Condition `b` does not appear: an index is compatible with an update, and loses fragments when it is
# rebased. `gg`, `oo` and `mm` are the primed conditions (g'), (o') and (m').


def _parse(text: str) -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    for line in text.strip().splitlines():
        mine, *row = line.split()
        cells.update({(mine, theirs): cell for theirs, cell in zip(COLUMNS, row, strict=True)})
    return cells


MATRIX: dict[tuple[str, str], str] = _parse(_ROWS)
"""(name of ours, name of theirs) -> `ok`, `R`, `X`, or condition names joined by `+`."""
