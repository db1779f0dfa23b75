"""One request, read: which route, whose table, with which fields.

Source: namespace pack, 6.1, 6.2 and 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiltyard.catalog.names import Id
from tiltyard.catalog.plugin.requests import parts_of, plain_word
from tiltyard.catalog.plugin.tables import CREATE_NAMESPACE
from tiltyard.catalog.rest import wire
from tiltyard.catalog.rest.routes import JSON, PREFIX, READ_QUERY, Body, Match, Role, Route, matched
from tiltyard.dataset.arguments import shown
from tiltyard.errors import InvalidInput
from tiltyard.server.access import Caller
from tiltyard.server.failures import Failure, invalid

UNKNOWN_ROUTE = 404
WRONG_METHOD = 405

PLACES = {"declare_table": "location"}
"""Operations that need only the right to write, unless they name this field: what lies at a place of the
caller's choice may be another one's, so that only an admin of all gives it a name."""


OVERWRITE = CREATE_NAMESPACE["overwrite"]
"""The mode in which `create_namespace` drops what was there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose head is read; its body is not."""

    route: Route
    id: Id | None
    index_name: str | None
    fields: dict[str, Any]
    delimiter: str
    method: str


def is_catalogs(path: str) -> bool:
    """Whether a path belongs to the specification's routes."""
    return path == f"/{PREFIX}" or path.startswith(f"/{PREFIX}/")


def asked_for(method: str, path: str, query: str) -> Asked:
    """What a request line asks for; `path` and `query` in percent-encoding. Raises `Failure`."""
    match = _matched(path)
    if method not in match.route.methods:
        allowed = ", ".join(match.route.methods)
        failure = invalid(f"{match.route.operation} is asked for by {allowed}, found {method}", WRONG_METHOD)
        failure.headers = (("allow", allowed),)
        raise failure
    try:
        pairs = wire.pairs_of(query)
        delimiter = wire.delimiter_of(pairs)
        id = None if match.id is None else wire.parts_of_path(match.id, delimiter)
        index = match.index_name and wire.decoded(match.index_name, "the name of the index in the path")
        route = match.route
        known = (*route.query, *READ_QUERY) if method == "GET" else route.query
        fields = wire.fields_of_query(pairs, known)
    except InvalidInput as error:
        raise invalid(str(error)) from error
    return Asked(route, id, index, fields, delimiter, method)


def _matched(path: str) -> Match:
    segments = path.split("/")[2:]
    if segments and not segments[-1]:
        segments.pop()  # a slash at the end
    found = matched(segments)
    if found is None:
        raise Failure(UNKNOWN_ROUTE, 0, f"there is no route {shown(path)}; /openapi.json tells all routes")
    return found


def fields_with(asked: Asked, body: bytes, content_type: str | None) -> dict[str, Any]:
    """The fields of the request, from the path, the query and a body of JSON. Raises `InvalidInput`."""
    fields: dict[str, Any] = {}
    if asked.route.body is Body.MAP:
        fields["metadata"] = _object(body, content_type) or {}
    elif asked.route.body is not Body.ROWS:
        fields = _object(body, content_type) or {}
    fields.pop("identity", None)  # who asks is told by headers alone
    fields |= asked.fields
    _put(fields, "id", asked.id, asked.delimiter)
    if asked.index_name is not None:
        said = fields.setdefault("index_name", asked.index_name)
        if said is not None and said != asked.index_name:
            raise InvalidInput(
                f"request body names the index {shown(said)}, the route {shown(asked.index_name)}"
            )
        fields["index_name"] = asked.index_name
    return fields


def _put(fields: dict[str, Any], name: str, of_path: Id | None, delimiter: str) -> None:
    """The id of the path, which that of the body must not contradict; a route without one has none: rights
    are checked for what is done, which is not about the id that a body says.
    """
    if of_path is None:
        fields.pop(name, None)
        return
    said = fields.get(name)
    if said is not None and parts_of(said, "'id' of the request body") != of_path:
        raise InvalidInput(f"request body names {shown(said)}, the route names {shown(list(of_path))}")
    fields[name] = list(of_path)


def _object(body: bytes, content_type: str | None) -> dict[str, Any] | None:
    """The JSON object of a body; None for no body, and for `null`, which clients send for one."""
    if not body:
        return None
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise InvalidInput(f"Expected request with `Content-Type: {JSON}`, found {shown(kind)}")
    found = wire.json_of(body, "the request body")
    if found is not None and not isinstance(found, dict):
        raise InvalidInput(f"the request body must be a JSON object, found {shown(found)}")
    return found


def check_rights(caller: Caller, route: Route, fields: dict[str, Any]) -> None:
    """Raise the `Failure` of a caller who may not do this. Ids that are wrong are refused later."""
    operation = route.operation
    match operation:
        case "batch_commit_tables":
            for each in _dicts(fields.get("operations")):
                for kind, inner in each.items():
                    _check_batched(caller, str(kind), inner)
        case "batch_create_table_versions":
            for each in _dicts(fields.get("entries")):
                caller.check(Role.WRITE, _id(each), operation)
        case "register_table":
            caller.check(Role.ADMIN, (), operation)
        case "create_namespace" if _word(fields.get("mode")) == OVERWRITE:
            caller.check(Role.ADMIN, _id(fields), f"{operation} with mode Overwrite")
        case "rename_table":
            id = _id(fields)
            caller.check(Role.ADMIN, id, operation)
            into = fields.get("new_namespace_id")
            caller.check(Role.ADMIN, id[:-1] if into is None else _parts(into), operation)
        case _:
            admin = fields.get(PLACES.get(operation, "")) is not None
            caller.check(Role.ADMIN if admin else route.role, () if admin else _id(fields), operation)


BATCHED = {
    "declare_table": Role.WRITE,
    "create_table_version": Role.WRITE,
    "delete_table_versions": Role.ADMIN,
    "deregister_table": Role.ADMIN,
}


def _check_batched(caller: Caller, kind: str, inner: Any) -> None:
    if not isinstance(inner, dict):
        return
    placed = kind in PLACES and inner.get(PLACES[kind]) is not None
    role = Role.ADMIN if placed else BATCHED.get(kind, Role.ADMIN)
    caller.check(role, () if placed else _id(inner), kind)


def _word(mode: Any) -> str | None:
    return CREATE_NAMESPACE.get(plain_word(mode)) if isinstance(mode, str) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _id(fields: dict[str, Any]) -> Id:
    return _parts(fields.get("id"))


def _parts(value: Any) -> Id:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    return ()
