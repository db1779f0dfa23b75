"""Providers of context for each request: named in the properties, kept, and never asked by a directory."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tiltyard.errors import InvalidInput

PREFIX = "dynamic_context_provider."
IMPL = "dynamic_context_provider.impl"


class DynamicContextProvider(ABC):
    """Gives context, such as headers, for each request of a namespace."""

    @abstractmethod
    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        """The context of a request; `info` has its `operation` and `object_id`. Keys that begin with
        `headers.` are headers.
        """


def provider_of(properties: Mapping[str, str]) -> Any:
    """The provider that properties name by its class, made with those that begin with the prefix; None for
    none. Raises `InvalidInput` where the class cannot be loaded.
    """
    impl = properties.get(IMPL)
    if not impl:
        return None
    module, _, name = impl.rpartition(".")
    if not module:
        raise InvalidInput(f"{IMPL} must be a class by its full path, as in 'module.Class', found {impl!r}")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{IMPL}: {impl!r} cannot be loaded: {error}") from error
    given = {
        key.removeprefix(PREFIX): value
        for key, value in properties.items()
        if key.startswith(PREFIX) and key != IMPL
    }
    return made(**given)


def without_provider(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are the catalog's."""
    return {key: value for key, value in properties.items() if not key.startswith(PREFIX)}
