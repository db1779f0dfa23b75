"""Namespaces: the directory catalog behind the `lance_namespace` interface, and that interface's words."""

from __future__ import annotations

from typing import Any

from lance_namespace import *  # noqa: F403  # requests and answers, as in the official module

from tiltyard.catalog.plugin import DirectoryNamespace, DynamicContextProvider

__all__ = ["DirectoryNamespace", "DynamicContextProvider"]


def __getattr__(name: str) -> Any:
    from tiltyard.dataset.not_yet import missing

    raise missing("tiltyard.lance.namespace", name, __all__)
