"""A server process: uvicorn around the application, until it is told to end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tiltyard.catalog.plugin import DirectoryNamespace
from tiltyard.errors import InvalidInput, MissingPackage
from tiltyard.server import access as keys
from tiltyard.server.access import Access
from tiltyard.server.app import App
from tiltyard.server.limits import Limits
from tiltyard.server.operations import Operations

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORT = 2333
"""The specification's."""

BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens. `certificate` and `key` are PEM files; without them it speaks plain HTTP."""

    host: str = LOOPBACK[0]
    port: int = PORT
    certificate: str | None = None
    key: str | None = None

    def uri(self, port: int) -> str:
        """What clients connect to, with the port that was given out."""
        scheme = "https" if self.certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"


def access_of(file: tuple[str, str] | None, host: str, anonymous: bool) -> Access:
    """The keys of a server: those of a file (its name and text), else of the environment, else none.

    Raises `InvalidInput` where everybody could come from other machines and nobody said so.
    """
    if file is None and (text := os.environ.get(keys.ENVIRONMENT)):
        file = keys.ENVIRONMENT, text
    if file is not None:
        if anonymous:
            raise InvalidInput(f"--anonymous and the keys of {file[0]} contradict each other; give one")
        return keys.parsed(file[1], file[0])
    if host not in LOOPBACK and not anonymous:
        raise InvalidInput(
            f"{host} is reached from other machines, and no keys are given: everybody could read and change "
            f"all tables. Give --auth FILE (or {keys.ENVIRONMENT}), or --anonymous if that is meant"
        )
    return Access()


def application(namespace: DirectoryNamespace, access: Access, limits: Limits | None = None) -> App:
    """The ASGI application over a catalog, for a server of your own choice."""
    limits = limits or Limits()
    return App(Operations(namespace, limits), access, limits)


def serve(
    app: Any, place: Place, limits: Limits, started: Callable[[int], None], listening: Any = None
) -> None:
    """Serve until the process is told to end (SIGINT, SIGTERM); requests at work are finished first.
    `started` is told the port. `listening`: a socket to take connections from, instead of one at the place.
    Raises `InvalidInput` where the place cannot be listened at or its certificate not be read,
    `MissingPackage` without the extra `server`.
    """
    run(server_of(app, place, limits, started), place, listening)


def server_of(app: Any, place: Place, limits: Limits, started: Callable[[int], None]) -> Any:
    """uvicorn's server for an application; `run` runs it. Raises as `serve`."""
    try:
        import uvicorn

        from tiltyard.server.protocol import protocol_with
    except ImportError as error:
        raise MissingPackage(
            f"the server needs the extra `server`: pip install 'tiltyard[server]' ({error})"
        ) from error

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                started(self.servers[0].sockets[0].getsockname()[1])

    config = uvicorn.Config(
        app,
        host=place.host,
        port=place.port,
        http=protocol_with(limits.head_seconds, limits.step_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.drain_seconds),
        backlog=BACKLOG,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        config.load()
    except OSError as error:  # of the certificate; ssl.SSLError is one
        raise InvalidInput(
            f"the certificate {place.certificate} with the key {place.key} cannot be used: {error}"
        ) from error
    return Server(config)


def run(server: Any, place: Place, listening: Any = None) -> None:
    """Run a server to its end. Raises `InvalidInput` where it cannot listen at its place."""
    try:
        server.run(sockets=None if listening is None else [listening])
    except SystemExit:  # uvicorn's way to say so; the log says why
        raise InvalidInput(
            f"cannot listen at {place.host}:{place.port}: another program does, or the host is not this one"
        ) from None
