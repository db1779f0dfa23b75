"""What a merge is asked to do, as one value; nothing here looks at a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tiltyard.errors import InvalidInput
from tiltyard.format.operations import CompactedSsTable
from tiltyard.format.version import FileVersion
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS


class Matched(Enum):
    """What becomes of a row of the table whose key the source brings."""

    KEEP = "DoNothing"
    UPDATE = "UpdateAll"
    FAIL = "Fail"
    DELETE = "Delete"


class Duplicates(Enum):
    """Which of several source rows with one key counts."""

    FAIL = "fail"
    FIRST = "first_seen"
    LAST = "last_seen"


class WriteMode(Enum):
    """How updated rows are written: moved whole, or their columns beside the others; `AUTO` by cost."""

    AUTO = "auto"
    ROWS = "rewrite_rows"
    COLUMNS = "rewrite_columns"


@dataclass(frozen=True, slots=True)
class Settings:
    """`on`: key columns, None for the primary key. `condition`: SQL over `source.` and `target.` that a
    matched row must fulfil to be updated. `updates`: column to SQL expression, instead of taking over all
    columns of the source. `by_source`: whether rows of the table that no source row matches are deleted,
    those of `by_source_condition` (SQL over the table's columns) where it is given.
    """

    on: tuple[str, ...] | None = None
    matched: Matched = Matched.KEEP
    condition: str | None = None
    updates: Mapping[str, str] = field(default_factory=dict)
    insert: bool = False
    by_source: bool = False
    by_source_condition: str | None = None
    duplicates: Duplicates = Duplicates.FAIL
    write_mode: WriteMode = WriteMode.AUTO
    use_index: bool = True
    conflict_retries: int = CONFLICT_RETRIES
    retry_seconds: float = RETRY_SECONDS
    file_version: FileVersion | None = None
    compacted_sstables: tuple[CompactedSsTable, ...] = ()

    def check(self) -> None:
        """Raise `InvalidInput` for settings that change nothing or contradict each other."""
        changes = self.matched in (Matched.UPDATE, Matched.DELETE) or self.insert or self.by_source
        if not changes and self.matched is not Matched.FAIL:
            raise InvalidInput(
                "The merge insert job is not configured to change the data in any way: add "
                "when_matched_update_all(), when_not_matched_insert_all() or another action"
            )
        if self.write_mode is WriteMode.COLUMNS:
            problem = self._not_by_columns()
            if problem:
                raise cannot_rewrite_columns(problem)

    def _not_by_columns(self) -> str:
        if self.matched is not Matched.UPDATE:
            return "it patches columns of matched rows, and matched rows are not updated"
        if self.insert:
            return "inserting unmatched source rows adds rows, which patching cannot do"
        if self.by_source:
            return "deleting rows that the source does not match removes rows, which patching cannot do"
        return ""

    def told(self) -> str:
        """In one line, for plans."""
        matched = self.matched.value
        if self.matched is Matched.UPDATE and self.updates:
            matched = "Update(" + ", ".join(f"{k} = {v}" for k, v in self.updates.items()) + ")"
        if self.condition is not None:
            matched = f"{'UpdateIf' if not self.updates else matched + ' if '}({self.condition})"
        by_source = "Keep" if not self.by_source else "Delete"
        if self.by_source_condition is not None:
            by_source = f"DeleteIf({self.by_source_condition})"
        return (
            f"when_matched={matched}, when_not_matched={'InsertAll' if self.insert else 'DoNothing'}, "
            f"when_not_matched_by_source={by_source}"
        )


def cannot_rewrite_columns(problem: str) -> InvalidInput:
    """The error for `rewrite_columns` where it cannot be."""
    return InvalidInput(
        f"write_mode 'rewrite_columns' cannot express this merge insert: {problem}; use 'auto' or "
        "'rewrite_rows'"
    )
