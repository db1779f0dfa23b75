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
    """Statistics of every field of the schema, in pre-order; those that own no column take nothing."""

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

    def data_stats(self) -> DataStatistics:
        """Bytes on disk of each field, over all data files of the version; reads the files' tails."""
        from tiltyard.table.fragment_columns import FragmentColumns

        snapshot = self._snapshot
        files = FragmentColumns(snapshot, ())
        sizes = {field.id: 0 for field in snapshot.schema.walk()}
        for fragment in snapshot.fragments:
            for file in fragment.files:
                reader = files.open(fragment, file)
                for id, column in zip(file.fields, file.column_indices, strict=False):
                    if id in sizes and 0 <= column < reader.num_columns:
                        sizes[id] += reader.column_bytes(column)
        return DataStatistics([FieldStatistics(id, size) for id, size in sizes.items()])

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Rows and fragments that an index answers for, and what its segments hold. Raises
        `IndexNotFound`."""
        from tiltyard.dataset.indexing import statistics

        return statistics(self._snapshot, index_name)

    def num_rows(self) -> int:
        """Live rows."""
        return int(live_rows(self._snapshot).sum())
