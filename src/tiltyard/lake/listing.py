"""What a catalog holds, its namespaces included: ids in the order of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_all_tables
from tiltyard.catalog.names import Id, parts
from tiltyard.catalog.namespaces import list_namespaces, namespace_exists
from tiltyard.errors import CatalogDamaged, TableNotFound

if TYPE_CHECKING:
    from tiltyard.catalog import Catalog


def tables_of(catalog: Catalog, namespace: Id = (), *, declared: bool = False) -> list[Id]:
    """The tables in a namespace and in those below it; all without one. `declared`: also those that hold
    nothing yet. Raises `NamespaceNotFound`.
    """
    _check(catalog, namespace)
    if not namespace:
        return sorted(map(parts, list_all_tables(catalog, include_declared=declared)))
    depth = len(namespace)
    found = sorted(map(parts, list_all_tables(catalog)))
    inside = [id for id in found if id[:depth] == namespace and len(id) > depth]
    return inside if declared else [id for id in inside if is_written(catalog, id)]


def is_written(catalog: Catalog, id: Id) -> bool:
    """Whether a table holds a version, so that it can be opened. A damaged one is: opening it says what is
    wrong.
    """
    try:
        return not find_table(catalog, id, check_declared=True).declared_only
    except CatalogDamaged:
        return True
    except TableNotFound:
        return False


def namespaces_of(catalog: Catalog, namespace: Id = ()) -> list[Id]:
    """The namespaces in another, and those below them; all without one. Raises `NamespaceNotFound`."""
    _check(catalog, namespace)
    found: list[Id] = []
    for name in list_namespaces(catalog, namespace):
        id = (*namespace, name)
        found += [id, *namespaces_of(catalog, id)]
    return found


def _check(catalog: Catalog, namespace: Id) -> None:
    if namespace and not namespace_exists(catalog, namespace):
        from tiltyard.lake.missing import no_namespace

        raise no_namespace(catalog, namespace)
