"""A server in a thread of this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard import runtime
from tiltyard.catalog.plugin import DirectoryNamespace
from tiltyard.errors import InvalidInput, ServerUnavailable
from tiltyard.runtime import Task
from tiltyard.server.access import Access
from tiltyard.server.app import App
from tiltyard.server.limits import Limits
from tiltyard.server.run import LOOPBACK, PORT, Place, application, run, server_of

START_SECONDS = 30.0
NS_IMPLS = ("dir",)


class InThread:
    """An application that is served from `start` to `stop`, or inside `with`, by a thread."""

    def __init__(self, app: App, place: Place, limits: Limits) -> None:
        self._app = app
        self._place = place
        self._limits = limits
        self._port = place.port
        self._server: Any = None
        self._task: Task[None] | None = None

    @property
    def port(self) -> int:
        """Where it listens: the port that was given out, once it runs."""
        return self._port

    @property
    def uri(self) -> str:
        """What clients connect to."""
        return self._place.uri(self._port)

    def start(self) -> None:
        """Begin to serve. Raises `InvalidInput` where the port is taken."""
        if self._task is not None:
            return
        up = runtime.event()

        def is_up(port: int) -> None:
            self._port = port
            up.set()

        self._server = server_of(self._app, self._place, self._limits, is_up)

        def serve() -> None:
            try:
                run(self._server, self._place)
            finally:
                up.set()

        self._task = runtime.spawn(serve, name="tiltyard-server")
        if not up.wait(deadline=runtime.monotonic() + START_SECONDS):
            raise ServerUnavailable(f"the server did not start in {START_SECONDS:g} seconds")
        if not self._server.started:
            self._join()

    def stop(self) -> None:
        """End, after the requests at work."""
        if self._task is not None:
            self._server.should_exit = True
            self._join()

    def _join(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.join()

    def __enter__(self) -> InThread:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"


class RestAdapter(InThread):
    """Serves a catalog at a port of this machine, without keys.

    `namespace_impl` is "dir", `namespace_properties` those of `DirectoryNamespace`; port 0 takes a free one.
    """

    def __init__(
        self,
        namespace_impl: str,
        namespace_properties: Mapping[str, Any] | None = None,
        session: Any = None,
        host: str | None = None,
        port: int | None = None,
    ) -> None:
        if namespace_impl not in NS_IMPLS:
            raise InvalidInput(
                f"a RestAdapter serves a directory catalog, namespace_impl='dir', found {namespace_impl!r}"
            )
        limits = Limits()
        namespace = DirectoryNamespace(session=session, **dict(namespace_properties or {}))
        place = Place(host or LOOPBACK[0], PORT if port is None else port)
        super().__init__(application(namespace, Access(), limits), place, limits)
