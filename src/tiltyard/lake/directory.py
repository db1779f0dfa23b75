"""A directory of tables: `<name>.lance` below one path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard.dataset.handle import open_root
from tiltyard.errors import InvalidInput
from tiltyard.lake.table import Table, create_table, open_table

SUFFIX = ".lance"


class Directory:
    """Tables of one directory, by name."""

    def __init__(self, uri: Any, storage_options: Mapping[str, Any] | None = None) -> None:
        self._store = open_root(uri, storage_options)
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"Directory({self._store.uri!r})"

    def uri_of(self, name: str) -> str:
        """Where the table of this name is. Raises `InvalidInput` for a name that is no plain file name."""
        if not isinstance(name, str) or not name or "/" in name or "\\" in name or name.startswith("."):
            raise InvalidInput(f"a table's name is a plain name, found {name!r}")
        return f"{self._store.uri.rstrip('/')}/{name}{SUFFIX}"

    def open_table(self, name: str) -> Table:
        """Open a table. Raises `TableNotFound`."""
        return open_table(self.uri_of(name), storage_options=self._storage_options)

    def create_table(self, name: str, data: Any, *, exist_ok: bool = False, **options: Any) -> Table:
        """Make a table of data or of a schema. Raises `TableAlreadyExists` unless `exist_ok`."""
        uri = self.uri_of(name)
        return create_table(uri, data, exist_ok=exist_ok, storage_options=self._storage_options, **options)

    def table_names(self) -> list[str]:
        """Names of the tables in the directory, sorted."""
        found = [name for name in self._store.list_names("") if name.endswith(SUFFIX) and name != SUFFIX]
        return [name[: -len(SUFFIX)] for name in found if self._store.list_names(f"{name}/_versions")]


def connect(uri: Any, *, storage_options: Mapping[str, Any] | None = None) -> Directory:
    """The directory of tables at a path or URI; nothing is made or read yet."""
    return Directory(uri, storage_options)
