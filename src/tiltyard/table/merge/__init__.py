"""merge_insert: rows of a source met with those of a table by key, in one version.

`settings` says what to do, `bind` checks it against a version, `join` and `plan` decide (pure), `source`
holds the rows, `rows` makes those that are written, `execute` runs it all.

Each is imported when it is first asked for: who looks keys up loads nothing of merging.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiltyard.table.merge.execute import Merged, MergeJob, Planned
    from tiltyard.table.merge.settings import Duplicates, Matched, Settings, WriteMode
    from tiltyard.table.merge.source import Source

__all__ = ["Duplicates", "Matched", "MergeJob", "Merged", "Planned", "Settings", "Source", "WriteMode"]

_HOMES = {
    "Merged": "execute",
    "MergeJob": "execute",
    "Planned": "execute",
    "Duplicates": "settings",
    "Matched": "settings",
    "Settings": "settings",
    "WriteMode": "settings",
    "Source": "source",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
