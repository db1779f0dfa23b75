"""What every method of the plug-in does around its work: read the request, count it, translate errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard.catalog.plugin.errors import as_interface_error
from tiltyard.catalog.plugin.requests import Given
from tiltyard.errors import TiltyardError, UnsupportedFeature

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.plugin.metrics import Metrics

T = TypeVar("T")


class Face:
    """What the methods of the plug-in share."""

    _catalog: Catalog
    _metrics: Metrics


def served(method: Callable[..., Any]) -> Any:
    """A method of the interface from one that takes a `Given`: calls are counted, errors translated."""
    name = method.__name__

    @wraps(method)
    def serve(self: Any, request: Any = None) -> Any:
        try:
            self._metrics.count(name)
            return method(self, Given(name, request))
        except TiltyardError as error:
            raise as_interface_error(error) from error

    return serve


def served_with_data(method: Callable[..., Any]) -> Any:
    """As `served`, for a method whose second argument is the bytes of an Arrow IPC stream."""
    name = method.__name__

    @wraps(method)
    def serve(self: Any, request: Any = None, request_data: Any = None) -> Any:
        try:
            self._metrics.count(name)
            return method(self, Given(name, request), request_data)
        except TiltyardError as error:
            raise as_interface_error(error) from error

    return serve


def not_served(name: str, why: str) -> Any:
    """A method of the interface whose feature this version does not have: it raises the interface's error."""

    def refuse(self: Any, request: Any = None, *data: Any) -> Any:
        self._metrics.count(name)
        raise as_interface_error(UnsupportedFeature(f"Not supported: {name}: {why}"))

    refuse.__name__ = name
    refuse.__doc__ = f"Not supported: {why}."
    return refuse
