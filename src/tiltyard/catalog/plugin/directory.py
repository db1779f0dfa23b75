"""`DirectoryNamespace`: a directory catalog as `lance_namespace` knows it."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface

from tiltyard.catalog.catalog import open_catalog
from tiltyard.catalog.plugin.batches import BatchFace
from tiltyard.catalog.plugin.context import provider_of, without_provider
from tiltyard.catalog.plugin.face import not_served
from tiltyard.catalog.plugin.indices import IndexFace
from tiltyard.catalog.plugin.metrics import Metrics
from tiltyard.catalog.plugin.rows import RowFace
from tiltyard.catalog.plugin.tables import TableFace
from tiltyard.catalog.plugin.versions import VersionFace
from tiltyard.errors import InvalidInput
from tiltyard.session import Session

_COLUMNS = "this version of tiltyard does not change the columns of a table"
_BRANCHES = "this version of tiltyard makes no branches"
_VIEWS = "this version of tiltyard has no materialized views"


class DirectoryNamespace(TableFace, RowFace, IndexFace, VersionFace, BatchFace, interface.LanceNamespace):
    """A directory catalog behind the `lance_namespace` interface.

        lance_namespace.connect("tiltyard.lance.namespace.DirectoryNamespace", {"root": "./lake"})

    `root` is a path or URI; other properties are strings as the official implementation takes them
    (docs/catalog.md). Requests are models of the interface or mappings, answers are its models. Errors are of
    `tiltyard.errors` and of `lance_namespace` at once. Safe to share among threads; pickles by its
    properties. Nothing is created before the first change.
    """

    def __init__(self, session: Any = None, context_provider: Any = None, **properties: Any) -> None:
        try:
            given = {str(key): str(value) for key, value in properties.items()}
        except ValueError as error:  # a number with more digits than Python writes
            raise InvalidInput(f"a property of the catalog cannot be written as text: {error}") from error
        root = given.get("root", "")
        if not root:
            raise InvalidInput(
                "a DirectoryNamespace needs the property 'root': the path or URI of a directory"
            )
        if session is not None and not isinstance(session, Session):
            session = None  # one of another library: it has nothing for us
        self._context_provider = provider_of(given) if context_provider is None else context_provider
        self._properties = given
        self._root = root if root.endswith("://") else root.rstrip("/") or "/"
        self._catalog = open_catalog(self._root, properties=without_provider(given), session=session)
        self._metrics = Metrics(self._catalog.settings.ops_metrics)

    def namespace_id(self) -> str:
        """What tells this catalog from others, in the words of the official implementation."""
        return f'DirectoryNamespace {{ root: "{self._root}" }}'

    def __repr__(self) -> str:
        return f"DirectoryNamespace({self.namespace_id()})"

    def __reduce__(self) -> Any:
        if self._root.startswith("memory://"):
            raise InvalidInput(
                f"{self._root} lives in the memory of this process: no other process could open it"
            )
        return _opened, (self._properties, self._context_provider)

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """How often each operation was asked for; empty unless `ops_metrics_enabled` is true."""
        return self._metrics.counts()

    def reset_ops_metrics(self) -> None:
        """Count anew."""
        self._metrics.reset()

    # -- what later versions have ------------------------------------------------------------------

    alter_table_add_columns = not_served("alter_table_add_columns", _COLUMNS)
    alter_table_alter_columns = not_served("alter_table_alter_columns", _COLUMNS)
    alter_table_drop_columns = not_served("alter_table_drop_columns", _COLUMNS)
    alter_table_backfill_columns = not_served("alter_table_backfill_columns", _COLUMNS)
    create_table_branch = not_served("create_table_branch", _BRANCHES)
    create_materialized_view = not_served("create_materialized_view", _VIEWS)
    refresh_materialized_view = not_served("refresh_materialized_view", _VIEWS)


def _opened(properties: dict[str, str], provider: Any) -> DirectoryNamespace:
    return DirectoryNamespace(context_provider=provider, **properties)
