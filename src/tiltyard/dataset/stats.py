"""Statistics of a version that cost no scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.table.row_counts import live_rows

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

SMALL_FILE_ROWS = 1024


@dataclass(frozen=True)
class FieldStatistics:
    """Bytes that a field takes on disk."""

    id: int
    bytes_on_disk: int


@dataclass(frozen=True)
class DataStatistics:
    """Statistics of every field that owns a column."""

    fields: list[FieldStatistics]


class LanceStats:
    """Counts of rows, fragments and files."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def dataset_stats(self, max_rows_per_group: int = SMALL_FILE_ROWS) -> dict[str, int]:
        """Deleted rows, fragments, and fragments with fewer rows than `max_rows_per_group`."""
        max_rows_per_group = arguments.whole("max_rows_per_group", max_rows_per_group)
        fragments = self._snapshot.fragments
        return {
            "num_deleted_rows": int(fragments.deleted_rows.sum()),
            "num_fragments": len(fragments),
            "num_small_files": int((fragments.physical_rows < max_rows_per_group).sum()),
        }

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Rows and fragments that an index answers for, and what its segments hold. Raises
        `IndexNotFound`."""
        from tiltyard.dataset.indexing import statistics

        return statistics(self._snapshot, index_name)

    def num_rows(self) -> int:
        """Live rows."""
        return int(live_rows(self._snapshot).sum())
