"""The OpenAPI document of the server, from the table of routes and the interface's models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import lance_namespace_urllib3_client.models as models
from pydantic.json_schema import models_json_schema

from tiltyard import __version__
from tiltyard.catalog.rest import wire
from tiltyard.catalog.rest.routes import (
    FILE,
    ID,
    INDEX,
    JSON,
    PREFIX,
    READ_QUERY,
    ROUTES,
    STREAM,
    Body,
    Gives,
    Route,
)

EVERY_ERROR = (400, 401, 403, 404, 406, 408, 413, 421, 429, 500, 503)
WORDS = {
    200: "done",
    201: "made",
    202: "accepted",
    400: "the request cannot be right",
    401: "a key is needed",
    403: "the key may not do this",
    404: "something that the request names is not there",
    406: "not supported",
    408: "the request came too slowly",
    409: "it exists, is not empty, or another change came first",
    413: "the body is too large",
    421: "the request names another process than this one",
    429: "too much at once",
    500: "a fault of the server",
    503: "it cannot be answered just now",
}
TEXT_MAP = {"type": "object", "additionalProperties": {"type": "string"}}


@cache
def document() -> bytes:
    """The document, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        at = paths.setdefault(f"/{PREFIX}/{route.path}", {})
        for method in route.methods:
            at[method.lower()] = _operation(route, method)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Tiltyard REST catalog",
            "version": __version__,
            "description": "The Lance REST namespace specification over a directory catalog.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{"bearer": []}, {"key": []}, {}],
    }
    return json.dumps(whole).encode()


def _operation(route: Route, method: str) -> dict[str, Any]:
    by_get = method == "GET"
    is_first = method == route.methods[0]
    made: dict[str, Any] = {
        "operationId": route.operation if is_first else f"{route.operation}_by_{method.lower()}",
        "tags": [route.path.split("/")[0]],
        "parameters": _parameters(route, by_get),
        "responses": _responses(route, by_get),
    }
    if not by_get and (body := _body(route)) is not None:
        made["requestBody"] = body
    return made


def _parameters(route: Route, by_get: bool) -> list[dict[str, Any]]:
    found = [
        {"name": name.strip("{}"), "in": "path", "required": True, "schema": {"type": "string"}}
        for name in (ID, INDEX)
        if name in route.path
    ]
    names = ["delimiter", *route.query]
    if by_get:
        names += [name for name in _read_fields(route) if name not in names]
    for name in names:
        shown: dict[str, Any] = {"name": name, "in": "query", "schema": _schema_of(name)}
        if name in wire.MAPS:  # JSON text in one parameter
            shown = {"name": name, "in": "query", "content": {JSON: {"schema": TEXT_MAP}}}
        found.append(shown)
    return found


def _read_fields(route: Route) -> list[str]:
    """Fields of the request's model that a GET takes from its query."""
    known = getattr(models, route.request).model_fields
    return [name for name in READ_QUERY if name in known]


def _schema_of(name: str) -> dict[str, Any]:
    if name in wire.FLAGS:
        return {"type": "boolean"}
    if name in wire.WHOLE:
        return {"type": "integer"}
    if name in wire.SEVERAL:
        return {"type": "array", "items": {"type": "string"}}
    if name == "delimiter":
        return {"type": "string", "minLength": 1, "maxLength": wire.MAX_DELIMITER, "default": "$"}
    return {"type": "string"}


def _body(route: Route) -> dict[str, Any] | None:
    match route.body:
        case Body.NOTHING:
            return None
        case Body.ROWS:
            schema = {"type": "string", "format": "binary"}
            return {"required": True, "content": {STREAM: {"schema": schema}}}
        case Body.MAP:
            return {"required": True, "content": {JSON: {"schema": TEXT_MAP}}}
        case Body.MODEL:
            return {"required": False, "content": {JSON: {"schema": _reference(route.request)}}}


def _responses(route: Route, by_get: bool) -> dict[str, Any]:
    errors = sorted({*EVERY_ERROR, *route.statuses})
    told = {str(route.status): {"description": WORDS[route.status], **_content(route, by_get)}}
    for status in errors:
        told[str(status)] = {
            "description": WORDS[status],
            "content": {JSON: {"schema": _reference("ErrorResponse")}},
        }
    return told


def _content(route: Route, by_get: bool) -> dict[str, Any]:
    schema: dict[str, Any]
    match route.gives:
        case Gives.NOTHING:
            return {}
        case Gives.ROWS:
            return {"content": {FILE: {"schema": {"type": "string", "format": "binary"}}}}
        case Gives.COUNT:
            schema = {"type": "integer"}
            if by_get:
                schema = {"type": "object", "properties": {"count": schema}, "required": ["count"]}
        case Gives.TEXT:
            schema = {"type": "string"}
        case Gives.MAP:
            schema = TEXT_MAP
        case Gives.MODEL:
            schema = _reference(route.answer)
    return {"content": {JSON: {"schema": schema}}}


def _reference(model: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model}"}


def _schemas() -> dict[str, Any]:
    names = {"ErrorResponse"}
    for route in ROUTES:
        if route.body is Body.MODEL:
            names.add(route.request)
        if route.gives is Gives.MODEL:
            names.add(route.answer)
    wanted: list[Any] = [(getattr(models, name), "validation") for name in sorted(names)]
    _, whole = models_json_schema(wanted, by_alias=True, ref_template="#/components/schemas/{model}")
    return {name: _without_ids(schema) for name, schema in whole["$defs"].items()}


def _without_ids(schema: dict[str, Any]) -> dict[str, Any]:
    """A request's schema without the fields that other places of a request say: who asks, and the context."""
    properties = schema.get("properties", {})
    for name in ("identity", "context"):
        properties.pop(name, None)
    return schema
