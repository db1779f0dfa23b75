"""Namespaces: catalogs behind the `lance_namespace` interface, and that interface's words."""

from __future__ import annotations

from typing import Any

from lance_namespace import *  # noqa: F403  # requests and answers, as in the official module

from tiltyard.catalog.plugin import DirectoryNamespace, DynamicContextProvider, RestNamespace

__all__ = ["DirectoryNamespace", "DynamicContextProvider", "RestAdapter", "RestNamespace"]  # noqa: F405


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "RestAdapter":  # loads the server, which few need
        from tiltyard.server.adapter import RestAdapter

        return RestAdapter
    from tiltyard.dataset.not_yet import missing

    raise missing("tiltyard.lance.namespace", name, __all__)
