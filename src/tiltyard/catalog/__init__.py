"""The directory catalog: names and namespaces of tables below one root, shared with other programs.

`open_catalog` gives a `Catalog`; functions of the modules here work on it. Importing this package loads
neither numpy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog, open_catalog

__all__ = ["Catalog", "open_catalog"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tiltyard.catalog import catalog

        return getattr(catalog, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
