"""What a catalog holds, its namespaces included: ids in the order of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.listing import list_all_tables
from tiltyard.catalog.names import Id, parts
from tiltyard.catalog.namespaces import list_namespaces, namespace_exists
from tiltyard.errors import NamespaceNotFound

if TYPE_CHECKING:
    from tiltyard.catalog import Catalog


def tables_of(catalog: Catalog, namespace: Id = ()) -> list[Id]:
    """The tables in a namespace and in those below it; all without one. Raises `NamespaceNotFound`."""
    _check(catalog, namespace)
    depth = len(namespace)
    found = sorted(map(parts, list_all_tables(catalog)))
    return [id for id in found if id[:depth] == namespace and len(id) > depth]


def namespaces_of(catalog: Catalog, namespace: Id = ()) -> list[Id]:
    """The namespaces in another, and those below them; all without one. Raises `NamespaceNotFound`."""
    _check(catalog, namespace)
    found: list[Id] = []
    for name in list_namespaces(catalog, namespace):
        id = (*namespace, name)
        found += [id, *namespaces_of(catalog, id)]
    return found


def _check(catalog: Catalog, namespace: Id) -> None:
    from tiltyard.lake.names import text_of

    if namespace and not namespace_exists(catalog, namespace):
        raise NamespaceNotFound(f"there is no namespace {text_of(namespace)!r} in {catalog.uri}")
