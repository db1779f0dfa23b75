"""Indices of a table: what there is, making and dropping them, keeping them up with new and moved rows.

Indices of kinds that this version does not build are kept as they are by everything here, and are refused by
name where they are to be built or brought up to date.

Each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiltyard.table.indexing.create import create_btree, create_index, drop_index
    from tiltyard.table.indexing.facts import IndexFacts, SegmentFacts, index_statistics, indices, prewarm
    from tiltyard.table.indexing.remap import RowMap, remap_indices
    from tiltyard.table.indexing.upkeep import Optimized, optimize_indices, optimize_once

__all__ = [
    "IndexFacts",
    "Optimized",
    "RowMap",
    "SegmentFacts",
    "create_btree",
    "create_index",
    "drop_index",
    "index_statistics",
    "indices",
    "optimize_indices",
    "optimize_once",
    "prewarm",
    "remap_indices",
]

_HOMES = {
    "create_btree": "create",
    "create_index": "create",
    "drop_index": "create",
    "IndexFacts": "facts",
    "SegmentFacts": "facts",
    "index_statistics": "facts",
    "indices": "facts",
    "prewarm": "facts",
    "RowMap": "remap",
    "remap_indices": "remap",
    "Optimized": "upkeep",
    "optimize_indices": "upkeep",
    "optimize_once": "upkeep",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
