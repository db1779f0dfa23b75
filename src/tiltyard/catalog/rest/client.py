"""A catalog behind a server: each operation of the specification as one call.

Reads are asked again where no answer comes. A change is asked again only where that is safe: where nothing of
it can have arrived, where the server says that it is busy, or where the very process that was asked before
answers, which keeps what it answered (`tiltyard.server.replays`). The first two need nothing of the server;
for the last, a change is sent to one process by name, which it refuses where it is another. Of a change whose
answer cannot be had `OutcomeUnknown` is raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tiltyard import runtime
from tiltyard.catalog.rest import wire
from tiltyard.catalog.rest.codes import error_of
from tiltyard.catalog.rest.routes import (
    BY_OPERATION,
    DELIMITER,
    ID,
    INDEX,
    JSON,
    PREFIX,
    STREAM,
    Body,
    Gives,
    Route,
)
from tiltyard.catalog.rest.transport import Reply, Sent, Silence, Tls, Transport
from tiltyard.catalog.rest.wire import KEY_HEADER, OTHER_PROCESS, SERVER_HEADER
from tiltyard.dataset.arguments import shown
from tiltyard.errors import InvalidInput, OutcomeUnknown, ServerError, ServerUnavailable, TiltyardError

TRIES = 6
MAX_SECONDS = 60.0
"""Nothing is asked once more when so long has passed: a server that hangs is not waited for six times."""

FIRST_WAIT_SECONDS = 0.05
MAX_WAIT_SECONDS = 2.0
OK = range(200, 300)
BUSY = 429
UNAVAILABLE = (502, 503, 504)
MAX_OTHERS = 3
"""So often a change is sent to the process that answered last; where always another one answers, a load
balancer stands between, and the change goes to whichever takes it.
"""

MAX_TOLD = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation gave: a value in the form of its route, and the headers of the answer."""

    value: Any
    headers: Mapping[str, str]


class RestClient:
    """The operations of one server. Safe to share among threads.

    `headers` go with every request; `context` gives more for each, by the operation and the joined id.
    """

    def __init__(
        self,
        uri: str,
        headers: Mapping[str, str] | None = None,
        *,
        delimiter: str = DELIMITER,
        tls: Tls | None = None,
        context: Callable[[str, str], Mapping[str, str]] | None = None,
    ) -> None:
        self.uri = checked_uri(uri)
        self._headers = dict(headers or {})
        self._delimiter = delimiter
        self._context = context
        self._transport = Transport(tls or Tls())
        self._server: str | None = None
        self._greeted = False

    def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Outcome:
        """One operation with the fields of its request; `data` is an Arrow IPC stream for those that take
        rows. Raises the errors of the catalog, `ServerError` and its kinds, `OutcomeUnknown`.
        """
        route = BY_OPERATION[operation]
        id = fields.get("id")
        where = self._where(route, fields)
        whole = {**self._headers, **(headers or {})}
        if self._context is not None:
            joined = wire.joined(id, self._delimiter) if id else ""
            whole |= self._context(operation, joined)
        body = self._body(route, fields, data)
        if body is not None:
            whole["content-type"] = STREAM if route.body is Body.ROWS else JSON
        method = route.methods[0]
        if route.reads:
            reply = self._read(method, where, whole, body)
        else:
            reply = self._change(operation, method, where, whole, body)
        return Outcome(_value(route, reply), reply.headers)

    # -- what is sent ----------------------------------------------------------------------------------

    def _where(self, route: Route, fields: Mapping[str, Any]) -> str:
        path = route.path
        if ID in path:
            path = path.replace(ID, wire.encoded(wire.joined(fields.get("id") or (), self._delimiter)))
        if INDEX in path:
            name = fields.get("index_name")
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"{route.operation} needs 'index_name', found {shown(name)}")
            path = path.replace(INDEX, wire.encoded(name))
        pairs = [("delimiter", self._delimiter), *wire.query_of(fields, route.query)]
        query = "&".join(f"{name}={wire.encoded(value)}" for name, value in pairs)
        return f"{self.uri}/{PREFIX}/{path}?{query}"

    def _body(self, route: Route, fields: Mapping[str, Any], data: Any) -> Any:
        match route.body:
            case Body.NOTHING:
                return None if route.is_get else b"{}"
            case Body.ROWS:
                return data
            case Body.MAP:
                return _json(fields.get("metadata") or {}, route)
            case Body.MODEL:
                return _json({name: each for name, each in fields.items() if each is not None}, route)

    # -- asking ----------------------------------------------------------------------------------------

    def _read(self, method: str, where: str, headers: Mapping[str, str], body: Any) -> Reply:
        """Ask until there is an answer, a few times."""
        wait = _Waits()
        while True:
            reply = self._transport.ask(method, where, headers, body)
            if isinstance(reply, Reply) and reply.status not in (BUSY, *UNAVAILABLE):
                return _checked(reply)
            if not wait.once_more(reply):
                if isinstance(reply, Silence):
                    raise self._silent(reply)
                return _checked(reply)

    def _change(
        self, operation: str, method: str, where: str, headers: Mapping[str, str], body: Any
    ) -> Reply:
        """Ask for a change, which is made once, or not at all, or of which nobody can tell."""
        if not self._greeted:
            self._greet(headers)
        key = {KEY_HEADER: str(runtime.uuid4())}
        wait = _Waits()
        server = self._server  # of this change: other threads may meet other processes meanwhile
        lost = ""
        others = 0
        while True:
            named = {} if server is None else {SERVER_HEADER: server}
            reply = self._transport.ask(method, where, {**headers, **key, **named}, body)
            if isinstance(reply, Reply) and reply.status == OTHER_PROCESS:
                if lost:
                    raise _unknown(operation, f"{lost}; another process answers now")
                others += 1
                server = self._server = reply.headers.get(SERVER_HEADER) if others < MAX_OTHERS else None
                continue
            if isinstance(reply, Reply) and reply.status not in (BUSY, *UNAVAILABLE):
                self._server = reply.headers.get(SERVER_HEADER)
                return _checked(reply)
            if (told := _may_be_done(reply)) is not None:
                if server is None:
                    raise _unknown(operation, told)
                lost = lost or told
            if not wait.once_more(reply):
                if lost:
                    raise _unknown(operation, lost)
                if isinstance(reply, Silence):
                    raise self._silent(reply)
                return _checked(reply)

    def _greet(self, headers: Mapping[str, str]) -> None:
        """Find out whether the server keeps its answers, and which process it is."""
        reply = self._transport.ask("GET", f"{self.uri}/healthz", headers)
        if isinstance(reply, Reply):
            self._server = reply.headers.get(SERVER_HEADER)
            self._greeted = True

    def _silent(self, silence: Silence) -> ServerUnavailable:
        return ServerUnavailable(
            f"the catalog at {self.uri} does not answer ({silence.why}); look whether the server runs there"
        )


class _Waits:
    """How long to wait between tries, and when to give up."""

    def __init__(self) -> None:
        self._tries = 1
        self._until = runtime.monotonic() + MAX_SECONDS
        self._seconds = FIRST_WAIT_SECONDS

    def once_more(self, reply: Reply | Silence) -> bool:
        """Wait, unless it was tried often enough."""
        if self._tries == TRIES or runtime.monotonic() > self._until:
            return False
        self._tries += 1
        seconds = self._seconds * (0.5 + runtime.random().random())
        if isinstance(reply, Reply) and (told := reply.headers.get("retry-after", "")).isdigit():
            seconds = max(seconds, min(float(told), MAX_WAIT_SECONDS))
        runtime.sleep(seconds)
        self._seconds = min(2 * self._seconds, MAX_WAIT_SECONDS)
        return True


def checked_uri(uri: str) -> str:
    """The place of a server, without a slash at its end. Raises `InvalidInput`."""
    if not isinstance(uri, str) or not uri.lower().startswith(("http://", "https://")):
        raise InvalidInput(f"the URI of a REST catalog begins with http:// or https://, found {shown(uri)}")
    if "?" in uri or "#" in uri or "@" in uri:
        raise InvalidInput(
            "the URI of a REST catalog has no query, fragment or user: a key is given as the property "
            "'header.authorization' or 'header.x-api-key'"
        )
    return uri.rstrip("/")


def _json(fields: Mapping[str, Any], route: Route) -> bytes:
    try:
        return json.dumps(fields, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the request of {route.operation} cannot be written as JSON: {error}") from error


def _plain(value: Any) -> Any:
    """Models of the interface inside a request."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is none of JSON's values")
    return {name: each for name, each in dump(by_alias=True).items() if each is not None}


def _checked(reply: Reply) -> Reply:
    """An answer that is a success. Raises the error that another one tells."""
    if reply.status in OK:
        return reply
    raise _told(reply)


def _told(reply: Reply) -> TiltyardError:
    try:
        found = json.loads(reply.body)
        code, message = found["code"], found.get("error") or found.get("detail") or ""
        instance = found.get("instance")
        if isinstance(code, int) and isinstance(message, str):
            return error_of(code, message, instance if isinstance(instance, str) else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    start = reply.body[:MAX_TOLD].decode("utf-8", "replace")
    kind = ServerUnavailable if reply.status in (BUSY, *UNAVAILABLE) else ServerError
    return kind(f"the server answers {reply.status} without the specification's JSON: {shown(start)}")


def _may_be_done(reply: Reply | Silence) -> str | None:
    """Why a change of which there is no good answer may have been made; None where it was not."""
    if isinstance(reply, Silence):
        return reply.why if reply.sent is Sent.MAYBE else None
    return None if reply.status == BUSY else f"{reply.status}: {_told(reply)}"


def _unknown(operation: str, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{operation} was sent and its answer lost ({why}): it may have been done or not; look before you "
        "ask for it again"
    )


def _value(route: Route, reply: Reply) -> Any:
    """The body of a success, in the form of the route; earlier forms of a count too."""
    if route.gives is Gives.NOTHING:
        return None
    if route.gives is Gives.ROWS:
        return reply.body
    try:
        value = json.loads(reply.body) if reply.body else {}
    except ValueError as error:
        raise ServerError(
            f"the server's answer to {route.operation} is no JSON: {error}; is there a proxy between?"
        ) from error
    if route.gives is Gives.COUNT and isinstance(value, dict):
        value = value.get("count")
    expected = {Gives.COUNT: int, Gives.TEXT: str}.get(route.gives, dict)
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ServerError(
            f"the server's answer to {route.operation} should be {route.gives.value}, found {shown(value)}"
        )
    return value
