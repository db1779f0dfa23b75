"""What a request does in the catalog: one call of the plug-in, in a thread of its own."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa

from tiltyard.catalog.plugin import DirectoryNamespace
from tiltyard.catalog.plugin.rows import MAX_ROWS
from tiltyard.catalog.rest.routes import Body
from tiltyard.server.access import Caller
from tiltyard.server.answers import Answer, answer_of, counted_as_before, failed
from tiltyard.server.asked import Asked, check_rights, fields_with
from tiltyard.server.failures import broken, failure_of, invalid
from tiltyard.server.limits import Limits

log = logging.getLogger("tiltyard.server")

QUERIES = ("query_table", "analyze_table_query_plan")


class Operations:
    """The catalog of a server. Safe to share among threads."""

    def __init__(self, namespace: DirectoryNamespace, limits: Limits) -> None:
        self._namespace = namespace
        self._limits = limits

    def answer(
        self, asked: Asked, caller: Caller, body: Any, content_type: str | None, instance: str
    ) -> Answer:
        """The answer to a request, whatever becomes of it; `instance` is its id."""
        try:
            given = self._done(asked, caller, body, content_type)
            made = answer_of(asked.route, given)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                log.exception("%s failed (request %s)", asked.route.operation, instance)
                failure = broken()
            return failed(failure, instance)
        if asked.method == "GET" and asked.route.operation == "count_table_rows":
            return counted_as_before(made)
        return made

    def _done(self, asked: Asked, caller: Caller, body: Any, content_type: str | None) -> Any:
        operation = asked.route.operation
        has_rows = asked.route.body is Body.ROWS
        fields = fields_with(asked, b"" if has_rows else body, content_type)
        check_rights(caller, asked.route, fields)
        method = getattr(self._namespace, operation)
        if has_rows:
            return method(fields, body)
        if operation not in QUERIES:
            return method(fields)
        limit = self._limits.rows
        given = method(_bounded(fields, limit))
        if operation == "query_table" and _rows_of(given) > limit:
            raise invalid(
                f"the answer has more than {limit:,} rows, which is the limit here: ask with a 'k' of at "
                "most that, or read the table itself, at its location"
            )
        return given

    def ready(self) -> None:
        """Read what every request reads. Raises what stands in the way."""
        self._namespace.list_namespaces({"id": [], "limit": 1})


def _bounded(fields: dict[str, Any], limit: int) -> dict[str, Any]:
    """A query that gives one row more than the limit at most, so that too many are noticed."""
    k = fields.get("k")
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= MAX_ROWS:
        return fields  # refused where it is read
    searches = bool(fields.get("vector"))
    if k > limit or (k == 0 and not searches):
        return fields | {"k": limit + 1}
    return fields


def _rows_of(ipc_file: bytes) -> int:
    with pa.ipc.open_file(pa.py_buffer(ipc_file)) as reader:
        return sum(reader.get_batch(at).num_rows for at in range(reader.num_record_batches))
