"""Rows and queries, as the interface asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance_namespace as interface

from tiltyard.catalog.operations import ipc, reading
from tiltyard.catalog.operations import rows as operations
from tiltyard.catalog.operations.reading import Query
from tiltyard.catalog.plugin.face import Face, served, served_with_data
from tiltyard.catalog.plugin.requests import Given, fields_of, number_of
from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, UnsupportedFeature

INSERT_MODES = {"append": "append", "overwrite": "overwrite"}
HINTS = ("nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef")
MAX_ROWS = (1 << 63) - 1


class QueryAnswer(bytes):
    """The bytes of an Arrow IPC file, which is what lancedb takes; also as `data`, as the model has them."""

    context: Mapping[str, str] | None = None

    @property
    def data(self) -> bytes:
        """The bytes."""
        return self


class RowFace(Face):
    """Inserts, merges, updates, deletes, queries and counts."""

    @served_with_data
    def insert_into_table(self, given: Given, data: Any) -> Any:
        """Add rows, or replace all: `(request, bytes of an Arrow IPC stream)`."""
        mode = given.word("mode", INSERT_MODES, "append")
        id, branch = given.table(), given.maybe_text("branch")
        rows = ipc.read_stream(data, "insert_into_table")
        done = operations.insert(self._catalog, id, rows, mode=mode, branch=branch)
        return interface.InsertIntoTableResponse(
            transaction_id=done.transaction_id, num_inserted_rows=done.inserted, version=done.version
        )

    @served_with_data
    def merge_insert_into_table(self, given: Given, data: Any) -> Any:
        """Match rows by columns, and update, insert, delete: `(request, bytes of an Arrow IPC stream)`."""
        on = given.field("on")
        rules = operations.MergeRules(
            on=(on,) if isinstance(on, str) else tuple(given.texts("on")),
            update=given.flag("when_matched_update_all"),
            update_filter=given.maybe_text("when_matched_update_all_filt"),
            insert=given.flag("when_not_matched_insert_all", True),
            delete_by_source=given.flag("when_not_matched_by_source_delete"),
            delete_filter=given.maybe_text("when_not_matched_by_source_delete_filt"),
            use_index=given.flag("use_index", True),
        )
        id, branch = given.table(), given.maybe_text("branch")
        given.maybe_text("timeout")  # without effect, as in the official implementation
        rules.check()
        rows = ipc.read_stream(data, "merge_insert_into_table")
        done = operations.merge_insert(self._catalog, id, rows, rules, branch=branch)
        return interface.MergeInsertIntoTableResponse(
            transaction_id=done.transaction_id,
            num_updated_rows=done.updated,
            num_inserted_rows=done.inserted,
            num_deleted_rows=done.deleted,
            version=done.version,
        )

    @served
    def update_table(self, given: Given) -> Any:
        """Set columns to SQL expressions where a predicate is true."""
        updates = _pairs(given)
        done = operations.update(
            self._catalog,
            given.table(),
            updates,
            given.maybe_text("predicate"),
            branch=given.maybe_text("branch"),
        )
        return interface.UpdateTableResponse(
            transaction_id=done.transaction_id, updated_rows=done.updated, version=done.version
        )

    @served
    def delete_from_table(self, given: Given) -> Any:
        """Delete the rows for which a predicate is true."""
        done = operations.delete(
            self._catalog, given.table(), given.text("predicate"), branch=given.maybe_text("branch")
        )
        return interface.DeleteFromTableResponse(transaction_id=done.transaction_id, version=done.version)

    @served
    def count_table_rows(self, given: Given) -> Any:
        """How many rows there are, or for how many a predicate is true."""
        rows = reading.count(
            self._catalog,
            given.table(),
            given.maybe_text("predicate"),
            version=given.maybe_whole("version"),
            branch=given.maybe_text("branch"),
        )
        return interface.CountTableRowsResponse(count=rows)

    @served
    def query_table(self, given: Given) -> Any:
        """The rows of a query, as bytes of an Arrow IPC file."""
        return QueryAnswer(ipc.write_file(reading.query(self._catalog, given.table(), query_of(given))))

    @served
    def explain_table_query_plan(self, given: Given) -> Any:
        """What a query would read, as text."""
        asked = Given(given.operation, given.field("query"))
        return reading.explain(
            self._catalog,
            given.table(),
            query_of(asked, given.maybe_text("branch")),
            verbose=given.flag("verbose"),
        )

    @served
    def analyze_table_query_plan(self, given: Given) -> Any:
        """What a query read and what it took, as text; the query is run."""
        return reading.analyze(self._catalog, given.table(), query_of(given))


def _pairs(given: Given) -> list[tuple[str, str]]:
    """The pairs of `updates`: a list of [column, SQL], or a map."""
    value = given.field("updates")
    if isinstance(value, Mapping):
        return list(arguments.text_map("'updates' of update_table", value).items())
    pairs: list[tuple[str, str]] = []
    if value is None:
        return pairs
    for at, each in enumerate(arguments.items("'updates' of update_table", value, object)):
        pair = arguments.texts(f"updates[{at}]", each)
        if len(pair) != 2:
            raise InvalidInput(
                f"updates[{at}] must be a column and an SQL expression, found {len(pair)} texts"
            )
        pairs.append((pair[0], pair[1]))
    return pairs


def query_of(given: Given, branch: str | None = None) -> Query:
    """The query that a request describes. Raises `InvalidInput`, and `UnsupportedFeature` for full-text
    search.
    """
    if given.field("full_text_query") is not None:
        raise UnsupportedFeature(
            f"full_text_query of {given.operation}: this version of tiltyard has no full-text search"
        )
    if given.field("vector") is None:
        raise InvalidInput(f"{given.operation} needs 'vector'; {{}} where no vector is searched for")
    given.flag("fast_search")
    return Query(
        k=given.whole("k", 0, MAX_ROWS),
        vector=_vector(given),
        vector_column=given.maybe_text("vector_column"),
        columns=_columns(given),
        filter=given.maybe_text("filter") or None,
        offset=given.maybe_whole("offset", 0),
        prefilter=given.flag("prefilter"),
        with_row_id=given.flag("with_row_id"),
        metric=given.maybe_text("distance_type"),
        low=given.maybe_number("lower_bound"),
        high=given.maybe_number("upper_bound"),
        bypass_index=given.flag("bypass_vector_index"),
        hints={name: hint for name in HINTS if (hint := given.maybe_whole(name, 0)) is not None},
        version=given.maybe_whole("version"),
        branch=branch or given.maybe_text("branch"),
    )


def _vector(given: Given) -> tuple[float, ...] | None:
    """The vector that is searched for; of several the first, None where there is none."""
    parts = given.inner("vector")
    found = parts.get("single_vector")
    several = parts.get("multi_vector")
    if not found and several:
        found = _listed("'multi_vector'", several)[0]
    if not found:
        return None
    name = "'single_vector'" if parts.get("single_vector") else "'multi_vector'[0]"
    return tuple(number_of(f"{name}[{at}]", each) for at, each in enumerate(_listed(name, found)))


def _listed(name: str, value: Any) -> list[Any]:
    return arguments.items(name, value, object)


def _columns(given: Given) -> tuple[str, ...] | dict[str, str] | None:
    value = given.field("columns")
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(arguments.texts("'columns'", value))
    parts = fields_of(value, f"'columns' of {given.operation}")
    names, aliases = parts.get("column_names"), parts.get("column_aliases")
    if names and aliases:
        raise InvalidInput("'columns' holds either 'column_names' or 'column_aliases', found both")
    if aliases:
        return arguments.text_map("'column_aliases'", aliases)
    return None if names is None else tuple(arguments.texts("'column_names'", names))
