"""Answers: what the plug-in's methods give, as bytes for the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tiltyard.catalog.rest.routes import FILE, JSON, Gives, Route
from tiltyard.server.failures import Failure

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, its headers and the whole body."""

    status: int
    body: Any = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def answer_of(route: Route, given: Any) -> Answer:
    """What a method gave, in the form of its route."""
    match route.gives:
        case Gives.NOTHING:
            return Answer(route.status)
        case Gives.ROWS:
            return Answer(route.status, bytes(given) if not isinstance(given, bytes) else given, FILE)
        case Gives.COUNT:
            return _json(route.status, given.count)
        case Gives.TEXT:
            return _json(route.status, given if isinstance(given, str) else str(given))
        case Gives.MAP:
            return _json(route.status, given.metadata or {})
        case Gives.MODEL:
            body = given.model_dump_json(by_alias=True, exclude_none=True).encode()
            return Answer(route.status, body, JSON)


def counted_as_before(answer: Answer) -> Answer:
    """A count in the form of earlier revisions of the specification, which ask for it by GET."""
    return Answer(answer.status, b'{"count":' + answer.body + b"}", JSON)


def failed(failure: Failure, instance: str) -> Answer:
    """The answer that tells a failure."""
    return Answer(failure.status, failure.body(instance), JSON, failure.headers)


def _json(status: int, value: Any) -> Answer:
    return Answer(status, json.dumps(value).encode(), JSON)
