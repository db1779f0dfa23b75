"""The routes of the REST catalog, a line each: what the server serves, the client calls and OpenAPI tells.

Source: namespace pack, section 6 and appendix A (54 routes of the specification, client 0.13.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

PREFIX = "v1"
DELIMITER = "$"
STREAM = "application/vnd.apache.arrow.stream"
FILE = "application/vnd.apache.arrow.file"
JSON = "application/json"

ID = "{id}"
INDEX = "{index_name}"


class Body(Enum):
    """What a request carries."""

    NOTHING = "nothing"
    MODEL = "a JSON object, the request's model"
    MAP = "a JSON object, from text to text"
    ROWS = "an Arrow IPC stream"


class Gives(Enum):
    """What a successful answer carries."""

    NOTHING = "nothing"
    MODEL = "a JSON object, the answer's model"
    MAP = "a JSON object, from text to text"
    COUNT = "a JSON integer"
    TEXT = "a JSON string"
    ROWS = "an Arrow IPC file"


class Role(Enum):
    """What a caller may do in a namespace; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    `operation` is the method of the `lance_namespace` interface, `path` is below `/v1`, `request` and
    `answer` name the interface's models. `query`: parameters beside `delimiter`; what both the body and the
    query say, the query decides. `statuses`: of errors, beside those that every route may answer.
    """

    operation: str
    path: str
    request: str = ""
    answer: str = ""
    role: Role = Role.READ
    body: Body = Body.MODEL
    gives: Gives = Gives.MODEL
    query: tuple[str, ...] = ()
    status: int = 200
    statuses: tuple[int, ...] = ()
    is_get: bool = False

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path below the prefix."""
        return tuple(self.path.split("/"))

    @property
    def reads(self) -> bool:
        """Whether the call changes nothing, so that it may be made again."""
        return self.role is Role.READ

    @property
    def methods(self) -> tuple[str, ...]:
        """What is served: reads by both GET and POST, as earlier revisions of the clients ask."""
        if not self.reads:
            return ("POST",)
        return ("GET", "POST") if self.is_get else ("POST", "GET")


PAGE = ("page_token", "limit")
TABLES = (*PAGE, "include_declared")
MERGE = (
    "on",
    "when_matched_update_all",
    "when_matched_update_all_filt",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_delete",
    "when_not_matched_by_source_delete_filt",
    "timeout",
    "use_index",
    "branch",
)


def _model(operation: str, path: str, role: Role, request: str = "", answer: str = "", **more: Any) -> Route:
    """A route whose models are named like its operation."""
    name = "".join(map(str.capitalize, operation.split("_")))
    return Route(
        operation,
        path,
        request or f"{name}Request",
        answer or f"{name}Response",
        role,
        **more,
    )


def _read(operation: str, path: str, **more: Any) -> Route:
    return _model(operation, path, Role.READ, **more)


def _write(operation: str, path: str, **more: Any) -> Route:
    return _model(operation, path, Role.WRITE, **more)


def _admin(operation: str, path: str, **more: Any) -> Route:
    return _model(operation, path, Role.ADMIN, **more)


ROUTES = (
    # namespaces
    _write("create_namespace", "namespace/{id}/create", statuses=(406, 409)),
    _read("describe_namespace", "namespace/{id}/describe"),
    _admin("drop_namespace", "namespace/{id}/drop", statuses=(409,)),
    _read("namespace_exists", "namespace/{id}/exists", gives=Gives.NOTHING),
    _read("list_namespaces", "namespace/{id}/list", body=Body.NOTHING, query=PAGE, is_get=True),
    _read("list_tables", "namespace/{id}/table/list", body=Body.NOTHING, query=TABLES, is_get=True),
    # tables
    _read(
        "list_all_tables",
        "table",
        request="ListTablesRequest",
        answer="ListTablesResponse",
        body=Body.NOTHING,
        query=TABLES,
        is_get=True,
    ),
    _write("batch_commit_tables", "table/batch-commit", statuses=(409,)),
    _write("batch_create_table_versions", "table/version/batch-create", statuses=(409,)),
    _write("declare_table", "table/{id}/declare", statuses=(409,)),
    _admin("register_table", "table/{id}/register", statuses=(406, 409)),
    _admin("deregister_table", "table/{id}/deregister"),
    _read(
        "describe_table",
        "table/{id}/describe",
        query=("with_table_uri", "load_detailed_metadata", "check_declared"),
    ),
    _read("table_exists", "table/{id}/exists", gives=Gives.NOTHING),
    _admin("drop_table", "table/{id}/drop", body=Body.NOTHING),
    _admin("rename_table", "table/{id}/rename", statuses=(409,)),
    _write("restore_table", "table/{id}/restore"),
    _read("get_table_stats", "table/{id}/stats"),
    # rows
    _write(
        "create_table",
        "table/{id}/create",
        body=Body.ROWS,
        query=("mode", "properties", "storage_options"),
        statuses=(409,),
    ),
    _write("insert_into_table", "table/{id}/insert", body=Body.ROWS, query=("branch", "mode")),
    _write("merge_insert_into_table", "table/{id}/merge_insert", body=Body.ROWS, query=MERGE),
    _write("update_table", "table/{id}/update"),
    _write("delete_from_table", "table/{id}/delete"),
    _read("count_table_rows", "table/{id}/count_rows", gives=Gives.COUNT),
    _read("query_table", "table/{id}/query", gives=Gives.ROWS),
    _read("explain_table_query_plan", "table/{id}/explain_plan", gives=Gives.TEXT),
    _read("analyze_table_query_plan", "table/{id}/analyze_plan", gives=Gives.TEXT),
    # columns
    _write("alter_table_add_columns", "table/{id}/add_columns"),
    _write("alter_table_alter_columns", "table/{id}/alter_columns"),
    _write("alter_table_drop_columns", "table/{id}/drop_columns"),
    _write("alter_table_backfill_columns", "table/{id}/backfill_column", status=202),
    _write(
        "update_table_schema_metadata",
        "table/{id}/schema_metadata/update",
        body=Body.MAP,
        gives=Gives.MAP,
        query=("branch",),
    ),
    _write("update_field_metadata", "table/{id}/update_field_metadata"),
    # indices
    _write("create_table_index", "table/{id}/create_index", statuses=(409,)),
    _write(
        "create_table_scalar_index",
        "table/{id}/create_scalar_index",
        request="CreateTableIndexRequest",
        statuses=(409,),
    ),
    _read("list_table_indices", "table/{id}/index/list"),
    _write("drop_table_index", "table/{id}/index/{index_name}/drop", body=Body.NOTHING, query=("branch",)),
    _read("describe_table_index_stats", "table/{id}/index/{index_name}/stats"),
    # tags and branches
    _write("create_table_tag", "table/{id}/tags/create", statuses=(409,)),
    _write("delete_table_tag", "table/{id}/tags/delete"),
    _write("update_table_tag", "table/{id}/tags/update"),
    _read("list_table_tags", "table/{id}/tags/list", body=Body.NOTHING, query=PAGE),
    _read("get_table_tag_version", "table/{id}/tags/version"),
    _write("create_table_branch", "table/{id}/branches/create", statuses=(409,)),
    _admin("delete_table_branch", "table/{id}/branches/delete"),
    _read("list_table_branches", "table/{id}/branches/list", body=Body.NOTHING, query=PAGE),
    # versions and transactions
    _write("create_table_version", "table/{id}/version/create", statuses=(409,)),
    _admin("batch_delete_table_versions", "table/{id}/version/delete"),
    _read("describe_table_version", "table/{id}/version/describe"),
    _read(
        "list_table_versions",
        "table/{id}/version/list",
        body=Body.NOTHING,
        query=("branch", *PAGE, "descending"),
    ),
    _read("describe_transaction", "transaction/{id}/describe"),
    _write("alter_transaction", "transaction/{id}/alter", statuses=(409,)),
    # materialized views
    _write("create_materialized_view", "materialized_view/{id}/create", status=201, statuses=(409,)),
    _write("refresh_materialized_view", "materialized_view/{id}/refresh", status=202),
)

BY_OPERATION: Mapping[str, Route] = {route.operation: route for route in ROUTES}

OLD_PATHS: Mapping[str, str] = {
    "table/{id}/refresh": "refresh_materialized_view",
    "table/{id}/create-empty": "declare_table",
}
"""Of earlier revisions of the specification; served, and not told of in the OpenAPI document."""

READ_QUERY = ("version", "branch", "tag", "predicate", *TABLES)
"""Fields that a read takes from the query when it comes by GET and has no body."""


@dataclass(frozen=True, slots=True)
class Match:
    """A route and what stood in its path, still in percent-encoding."""

    route: Route
    id: str | None
    index_name: str | None


def _key(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part != ID)


_STATIC = {route.segments: route for route in ROUTES if ID not in route.path}
_BY_ID = {_key(route.path): route for route in ROUTES if ID in route.path} | {
    _key(path): BY_OPERATION[operation] for path, operation in OLD_PATHS.items()
}


def matched(segments: Sequence[str]) -> Match | None:
    """The route of a path below the prefix; None for none. A route without an id comes before one of a table
    whose name reads like it.
    """
    parts = tuple(segments)
    found = _STATIC.get(parts)
    if found is not None:
        return Match(found, None, None)
    if len(parts) < 2:
        return None
    kind, id, *rest = parts
    found = _BY_ID.get((kind, *rest))
    if found is not None:
        return Match(found, id, None)
    if len(rest) == 3:
        found = _BY_ID.get((kind, rest[0], INDEX, rest[2]))
    return None if found is None else Match(found, id, rest[1])
