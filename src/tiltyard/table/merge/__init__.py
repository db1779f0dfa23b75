"""merge_insert: rows of a source met with those of a table by key, in one version.

`settings` says what to do, `bind` checks it against a version, `join` and `plan` decide (pure), `source`
holds the rows, `rows` makes those that are written, `execute` runs it all.
"""

from __future__ import annotations

from tiltyard.table.merge.execute import Merged, MergeJob, Planned
from tiltyard.table.merge.settings import Duplicates, Matched, Settings, WriteMode
from tiltyard.table.merge.source import Source

__all__ = ["Duplicates", "Matched", "MergeJob", "Merged", "Planned", "Settings", "Source", "WriteMode"]
