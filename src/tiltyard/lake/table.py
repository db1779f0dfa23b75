"""A table in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import TableAlreadyExists

Columns = Sequence[str] | Mapping[str, str] | None


class Scan:
    """Some rows and columns of a table at one version, not yet read."""

    def __init__(self, ds: LanceDataset, columns: Columns, where: str | None, limit: int | None) -> None:
        self._scanner = ds.scanner(columns, where, limit=limit)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._scanner.projected_schema

    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return self._scanner.to_table()

    def to_pandas(self) -> Any:
        """Everything, as a `pandas.DataFrame`."""
        return self._scanner.to_pandas()

    def batches(self) -> Iterator[Any]:
        """`pa.RecordBatch`es one after another, in bounded memory."""
        return self._scanner.to_batches()

    def count(self) -> int:
        """How many rows."""
        return self._scanner.count_rows()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scanner.__arrow_c_stream__(requested_schema)


class Table:
    """A table. Reads see the newest version; `at` gives a table that stays at one.

    The handle may be shared among threads and pickled.
    """

    def __init__(self, ds: LanceDataset, storage_options: Mapping[str, Any] | None = None) -> None:
        self._ds = ds
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self._ds._held.version})"

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._ds.uri

    @property
    def version(self) -> int:
        """The version that reads see now."""
        return self._ds.version

    @property
    def schema(self) -> Any:
        """The `pa.Schema`."""
        return self._ds.schema

    @property
    def dataset(self) -> LanceDataset:
        """The same table with every knob."""
        return self._ds

    # -- writing ---------------------------------------------------------------------------------

    def append(self, data: Any, **options: Any) -> None:
        """Add rows: anything Arrow-like, pandas, Polars, dicts, readers. Options as for `write_dataset`."""
        self._ds.insert(data, mode="append", **options)

    def overwrite(self, data: Any, **options: Any) -> None:
        """Put these rows, with their schema, in the place of all; old versions stay readable."""
        self._ds.insert(data, mode="overwrite", **options)

    def delete(self, where: str) -> int:
        """Delete the rows for which the SQL is true; how many they were."""
        return self._ds.delete(where)["num_deleted_rows"]

    # -- reading ---------------------------------------------------------------------------------

    def scan(self, columns: Columns = None, where: str | None = None, limit: int | None = None) -> Scan:
        """Rows for which `where` (SQL) is true; `columns` are names, or a map from names to SQL
        expressions.
        """
        return Scan(self._ds, columns, where, limit)

    def take(self, rows: Any, columns: Columns = None) -> Any:
        """Rows by number, in the order given, as a `pa.Table`."""
        return self._ds.take(rows, columns)

    def count(self, where: str | None = None) -> int:
        """How many rows there are, or for how many the SQL is true."""
        return self._ds.count_rows(where)

    def __len__(self) -> int:
        return self.count()

    # -- time ------------------------------------------------------------------------------------

    def at(self, version: int | None = None, tag: str | None = None) -> Table:
        """The table as it was at a version or tag; it stays there."""
        from tiltyard.errors import InvalidInput

        if (version is None) == (tag is None):
            raise InvalidInput("give either version or tag")
        return Table(self._ds.checkout_version(tag if version is None else version), self._storage_options)

    def history(self) -> list[dict[str, Any]]:
        """Number, time and totals of every version, oldest first."""
        return self._ds.versions()

    def restore(self) -> int:
        """Make the version shown the newest one again; its new number."""
        return int(self._ds.restore()["version"])


def open_table(
    uri: Any, *, storage_options: Mapping[str, Any] | None = None, freshness: Any = "latest"
) -> Table:
    """Open the table at a path or URI. Raises `TableNotFound`. `freshness`: see `LanceDataset`."""
    return Table(LanceDataset(uri, storage_options=storage_options, freshness=freshness), storage_options)


def create_table(
    uri: Any,
    data: Any,
    *,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Table:
    """Make a table of data, or an empty one of a `pa.Schema`. Of several creators exactly one succeeds.

    Raises `TableAlreadyExists`; with `exist_ok` the table that is there is opened instead, whatever its
    schema.
    """
    if isinstance(data, pa.Schema):
        data = data.empty_table()
    try:
        write_dataset(data, uri, mode="create", storage_options=storage_options, **options)
    except TableAlreadyExists:
        if not exist_ok:
            raise
    return open_table(uri, storage_options=storage_options)
