"""B-tree indices (indices, 2.1): `open_btree` and its `search` answer questions; `build`, `merge` and `remap`
write.

Everything is imported when it is first asked for: tables without an index load none of it, and searching
loads nothing of building.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiltyard.index.btree.search import BTree, Statistics, open_btree
    from tiltyard.index.btree.written import BuildLimits, BuiltIndex, build, merge, remap

__all__ = [
    "BTree",
    "BuildLimits",
    "BuiltIndex",
    "Statistics",
    "build",
    "merge",
    "open_btree",
    "remap",
]

_SEARCH = ("BTree", "Statistics", "open_btree")


def __getattr__(name: str) -> Any:
    if name in _SEARCH:
        from tiltyard.index.btree import search

        return getattr(search, name)
    if name in __all__:
        from tiltyard.index.btree import written

        return getattr(written, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
