"""What the official package keeps in its native module and scripts import from there."""

from __future__ import annotations

from tiltyard.dataset.shown import manifest_needs_migration
from tiltyard.lance.optimize import (
    Compaction,
    CompactionMetrics,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
    "manifest_needs_migration",
]
