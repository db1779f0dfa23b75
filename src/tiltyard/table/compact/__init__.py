"""Compaction: small fragments and those with many deleted rows, rewritten as few large ones (transactions,
section 10). `options` and `plan` are pure, `execute` writes files, `commit` publishes them, `run` does all.
"""

from __future__ import annotations

from tiltyard.table.compact.commit import Committed, commit_rewrites
from tiltyard.table.compact.execute import execute
from tiltyard.table.compact.options import CompactionOptions
from tiltyard.table.compact.plan import CompactionPlan, Held, Task, plan_compaction
from tiltyard.table.compact.results import Metrics, Rewritten, remove_rewritten
from tiltyard.table.compact.run import Compacted, compact

__all__ = [
    "Committed",
    "Compacted",
    "CompactionOptions",
    "CompactionPlan",
    "Held",
    "Metrics",
    "Rewritten",
    "Task",
    "commit_rewrites",
    "compact",
    "execute",
    "plan_compaction",
    "remove_rewritten",
]
