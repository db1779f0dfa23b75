"""A directory of tables: `<name>.lance` below one path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tiltyard.dataset import LanceDataset, arguments
from tiltyard.dataset.handle import open_root
from tiltyard.dataset.places import SUFFIX, is_table, tables_in
from tiltyard.errors import InvalidInput, InvalidUri, TableNotFound, nearest
from tiltyard.lake.table import Table, create_table, open_table


class Directory:
    """Tables of one directory, by name: `flights` is in `flights.lance`. `lake["flights"]` opens it,
    iterating gives the names.
    """

    def __init__(self, uri: Any, storage_options: Mapping[str, Any] | None = None) -> None:
        self._store = open_root(uri, storage_options)
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"Directory({self._store.uri!r})"

    @property
    def uri(self) -> str:
        """Where the directory is."""
        return self._store.uri

    def uri_of(self, name: str) -> str:
        """Where the table of this name is. Raises `InvalidInput` for a name that is no plain file name."""
        if not isinstance(name, str) or not name or "/" in name or "\\" in name or name.startswith("."):
            raise InvalidInput(f"a table's name is a plain name, found {name!r}")
        arguments.text("a table's name", name)
        if name.endswith(SUFFIX):
            raise InvalidInput(
                f"a table's name has no suffix here: give {name.removesuffix(SUFFIX)!r} instead of {name!r}"
            )
        return f"{self._store.uri.rstrip('/')}/{name}{SUFFIX}"

    def open_table(self, name: str) -> Table:
        """Open a table. Raises `TableNotFound`, which names those that are there."""
        try:
            return open_table(self.uri_of(name), storage_options=self._storage_options)
        except TableNotFound as error:
            raise self._no_table(name) from error

    def _no_table(self, name: str) -> TableNotFound:
        return TableNotFound(f"there is no table {name!r} in {self.uri}; {nearest(name, self.table_names())}")

    def __getitem__(self, name: str) -> Table:
        return self.open_table(name)

    def create_table(self, name: str, data: Any, *, exist_ok: bool = False, **options: Any) -> Table:
        """Make a table of data or of a schema; options as for `tiltyard.create_table`. Raises
        `TableAlreadyExists` unless `exist_ok`.
        """
        uri = self.uri_of(name)
        return create_table(uri, data, exist_ok=exist_ok, storage_options=self._storage_options, **options)

    def drop_table(self, name: str) -> None:
        """Delete a table for good, with all its versions. Raises `TableNotFound`, which names those that are
        there.
        """
        try:
            LanceDataset.drop(self.uri_of(name), storage_options=self._storage_options)
        except TableNotFound as error:
            raise self._no_table(name) from error

    def table_names(self) -> list[str]:
        """Names of the tables in the directory, sorted."""
        return [name.removesuffix(SUFFIX) for name in tables_in(self._store)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table_names())

    def __len__(self) -> int:
        return len(self.table_names())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self.table_names()


def connect(uri: Any, *, storage_options: Mapping[str, Any] | None = None) -> Directory:
    """The directory of tables at a path or URI; nothing is made, and no table is opened yet.

    `lake["flights"]` opens one. Raises `InvalidUri` where a table lies at the very place.
    """
    lake = Directory(uri, storage_options)
    if is_table(lake._store):
        raise InvalidUri(
            f"{lake.uri} is itself a table, no directory of tables: open it with open_table({lake.uri!r}), "
            "or connect to the directory that it lies in"
        )
    return lake
