"""The catalog behind the `lance_namespace` interface, for lancedb, pylance and whatever else speaks it.

Nothing here decides anything: requests become calls of the catalog and of `catalog.operations`, answers
become the interface's models, and errors become classes that are both ours and the interface's. Importing
this package costs the import of `lance_namespace` (a second), so that nothing else of the catalog does.
"""

from __future__ import annotations

from tiltyard.catalog.plugin.context import DynamicContextProvider
from tiltyard.catalog.plugin.directory import DirectoryNamespace
from tiltyard.catalog.plugin.rest import RestNamespace

__all__ = ["DirectoryNamespace", "DynamicContextProvider", "RestNamespace"]
