"""May one transaction follow another? The matrix as data, its conditions, and the rebase. All pure.

Source of the rules: transactions pack, sections 6 and 7.
"""

from __future__ import annotations

from tiltyard.table.conflict.check import check
from tiltyard.table.conflict.rebase import (
    Merged,
    merge_deletions,
    rebase_operation,
    stale_fragments,
    with_deletions,
)
from tiltyard.table.conflict.verdict import OK, Outcome, Verdict

__all__ = [
    "OK",
    "Merged",
    "Outcome",
    "Verdict",
    "check",
    "merge_deletions",
    "rebase_operation",
    "stale_fragments",
    "with_deletions",
]
