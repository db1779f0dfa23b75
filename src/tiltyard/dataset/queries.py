"""SQL queries over one version of a table, run by DuckDB.

DuckDB takes the table as a dataset of Arrow: it asks for the columns that it needs and pushes comparisons
down, which a scan of ours applies by the same rules. The query sees the table alone: neither files nor Python
variables nor the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.lance_dataset import LanceDataset
from tiltyard.errors import InvalidExpression, MissingPackage

if TYPE_CHECKING:
    from tiltyard.dataset.engines import EngineFace
    from tiltyard.dataset.scanner import LanceScanner

DEFAULT_TABLE = "dataset"
RESULT_ROWS = 1 << 17
"""Rows of a batch of a result, unless the query says."""

_SETTINGS = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class _Source(LanceDataset):
    """The dataset as DuckDB scans it: with the options and pseudo columns that are asked for."""

    _options: Mapping[str, Any] = {}
    _pseudo: Mapping[str, bool] = {}

    @property
    def schema(self) -> Any:
        return super().scanner(**self._options, **self._pseudo).projected_schema

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> LanceScanner:
        names = self.schema.names if columns is None else columns
        return super().scanner(names, filter, **self._options, **options)


class SqlQueryBuilder:
    """Collects how a query is to be run; every method returns the builder."""

    def __init__(self, ds: EngineFace, sql: str) -> None:
        self._ds = ds
        self._sql = sql
        self._table = DEFAULT_TABLE
        self._pseudo: dict[str, bool] = {}
        self._options: dict[str, Any] = {}

    def table_name(self, table_name: str) -> SqlQueryBuilder:
        """What the query calls the table."""
        self._table = arguments.text("table_name", table_name)
        return self

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Whether the table has a column `_rowid`."""
        self._pseudo["with_row_id"] = arguments.flag("with_row_id", with_row_id)
        return self

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Whether the table has a column `_rowaddr`."""
        self._pseudo["with_row_address"] = arguments.flag("with_row_addr", with_row_addr)
        return self

    def blob_handling(self, blob_handling: str | None) -> SqlQueryBuilder:
        """Whether blobs are seen as their descriptions (the default) or as their bytes: `all_binary`."""
        self._options["blob_handling"] = blob_handling
        return self

    def batch_size(self, batch_size: int) -> SqlQueryBuilder:
        """At most so many rows in a batch, of the scan and of the result."""
        self._options["batch_size"] = arguments.whole("batch_size", batch_size, 1, arguments.MAX_U32)
        return self

    def batch_size_bytes(self, batch_size_bytes: int) -> SqlQueryBuilder:
        """About so many bytes at most in a batch of the scan."""
        wanted = arguments.whole("batch_size_bytes", batch_size_bytes, 1)
        self._options["batch_size_bytes"] = wanted
        return self

    def build(self) -> SqlQuery:
        """The query, ready to run. Raises `MissingPackage` where DuckDB is not installed."""
        duckdb = _duckdb()
        ds = self._ds
        source = _Source._made(ds._snapshot, root=ds._root, storage_options=ds._storage_options)
        source._options, source._pseudo = dict(self._options), dict(self._pseudo)
        source.scanner()  # raises what is wrong with the options
        return SqlQuery(duckdb, self._sql, self._table, source, self._options.get("batch_size", RESULT_ROWS))


class SqlQuery:
    """A query that can be run, as often as one likes, always on the same version."""

    def __init__(self, duckdb: Any, sql: str, table: str, source: Any, rows: int) -> None:
        self._duckdb = duckdb
        self._sql = sql
        self._table = table
        self._source = source
        self._rows = rows

    def to_batch_records(self) -> list[Any]:
        """The whole result as `pa.RecordBatch`es."""
        return list(self.to_stream_reader())

    def to_table(self) -> Any:
        """The whole result as a `pa.Table`."""
        return self.to_stream_reader().read_all()

    def to_stream_reader(self) -> Any:
        """The result as a `pa.RecordBatchReader`, computed while it is read.

        Raises `InvalidExpression` with DuckDB's words for what it does not take; what it meets later comes
        out of the reader.
        """
        connection = self._duckdb.connect(":memory:")
        try:
            connection.register(self._table, self._source)
            for setting in _SETTINGS:
                connection.execute(setting)
            if (found := len(connection.extract_statements(self._sql))) > 1:
                raise InvalidExpression(f"{found} statements were given: a query is one", self._sql)
            relation = connection.sql(self._sql)
            if relation is None:
                raise InvalidExpression("the statement gives no rows: a query begins with SELECT", self._sql)
            reader = relation.to_arrow_reader(self._rows)
        except self._duckdb.Error as error:
            connection.close()
            raise self._refused(error) from error
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(connection, reader))

    def _batches(self, connection: Any, reader: Any) -> Iterator[Any]:
        """The batches of a result; the connection lives as long as they come."""
        try:
            yield from reader
        except self._duckdb.Error as error:
            raise self._refused(error) from error
        finally:
            connection.close()

    def _refused(self, error: Exception) -> InvalidExpression:
        return InvalidExpression(f"DuckDB does not run the query: {error}", self._sql)


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise MissingPackage(
            "dataset.sql() runs queries with DuckDB, which is not installed here: pip install 'tiltyard[sql]'"
        ) from error
