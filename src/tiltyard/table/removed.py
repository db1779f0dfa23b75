"""What a reader meets whose version is cleaned up while it reads (case K13): one error that says so.

A file that is missing is damage only while the version that names it is there. Manifests go before files, so
a reader that misses a file looks whether its manifest is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from tiltyard.errors import CorruptFile, ObjectNotFound, VersionNotFound

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


class Reader(Protocol):
    """What reads a version."""

    @property
    def snapshot(self) -> Snapshot: ...


R = TypeVar("R", bound=Reader)
P = ParamSpec("P")
T = TypeVar("T")


def tells_removed(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """A method that reads its object's snapshot, also a generator: raises `VersionNotFound` where a file is
    missing because the version was removed.
    """
    if isgeneratorfunction(method):

        @wraps(method)
        def stream(self: R, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            try:
                yield from cast(Iterator[Any], method(self, *args, **kwargs))
            except (ObjectNotFound, CorruptFile) as error:
                _tell(self.snapshot, error)
                raise

        return cast(Callable[Concatenate[R, P], T], stream)

    @wraps(method)
    def call(self: R, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except (ObjectNotFound, CorruptFile) as error:
            _tell(self.snapshot, error)
            raise

    return cast(Callable[Concatenate[R, P], T], call)


def _tell(snapshot: Snapshot, error: Exception) -> None:
    store, path = snapshot.store, snapshot.location.path
    if store.exists(path):
        return
    raise VersionNotFound(
        f"version {snapshot.version} of {store.uri} was removed by a cleanup while it was read; read a newer "
        "version, and give versions that are read for long a tag"
    ) from error
