"""What the catalog refuses, told in the dotted names that one types, with what is near and what to do next.

The types of the errors stay. Nothing here is on the way of what succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tiltyard.catalog.declaring import table_exists
from tiltyard.catalog.found import MAX_COMPARED
from tiltyard.catalog.listing import list_all_tables
from tiltyard.catalog.names import Id, object_id, parts
from tiltyard.catalog.namespaces import namespace_exists
from tiltyard.catalog.rows import NAMESPACE, TABLE
from tiltyard.catalog.trash import dropped_tables
from tiltyard.errors import (
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
    nearest,
)
from tiltyard.lake.listing import namespaces_of
from tiltyard.lake.names import text_of
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiltyard.catalog import Catalog


@contextmanager
def dotted(catalog: Catalog, id: Id, *, into: Id | None = None) -> Iterator[None]:
    """A block about a table, and of its errors the words. `into`: the id that it is to get."""
    try:
        yield
    except TableNotDropped as error:
        known = [each.id for each in dropped_tables(catalog)]
        if id in known or f"table {object_id(id)!r}" not in str(error) or "no record" not in str(error):
            renamed(error, id)
            raise
        near = _nearest(id, known)
        raise TableNotDropped(
            f"no dropped table {text_of(id)!r} in {catalog.uri} can be brought back; of dropped ones, {near}"
        ) from None
    except TableNotFound:
        raise no_table(catalog, id) from None
    except NamespaceNotFound:
        raise no_parent(catalog, id if into is None else into) from None
    except TiltyardError as error:
        renamed(error, id, *(() if into is None else (into,)))
        raise


@contextmanager
def dotted_namespace(catalog: Catalog, id: Id) -> Iterator[None]:
    """The same for a block about a namespace."""
    try:
        yield
    except NamespaceNotFound:
        raise no_namespace(catalog, id) from None
    except NamespaceNotEmpty as error:
        if told := _inside(catalog, id):
            named = text_of(id)
            raise NamespaceNotEmpty(
                f"namespace {named!r} of {catalog.uri} is not empty, it holds {told}; nothing was changed. "
                f"drop_namespace({named!r}, cascade=True) drops all that is in it first"
            ) from None
        renamed(error, id)
        raise
    except TiltyardError as error:
        renamed(error, id)
        raise


def no_table(catalog: Catalog, id: Id) -> TableNotFound:
    """The error for an id that no table has that can be opened."""
    named = text_of(id)
    if table_exists(catalog, id):
        return TableNotFound(
            f"table {named!r} of {catalog.uri} is only declared and holds nothing yet: "
            f"create_table({named!r}, ...) fills it"
        )
    if _is_namespace(catalog, id):
        return TableNotFound(
            f"{named!r} is a namespace of {catalog.uri}, not a table; tables({named!r}) gives the names in it"
        )
    whole = (".".join(id),)
    if len(id) > 1 and table_exists(catalog, whole):
        return TableNotFound(
            f"there is no table {named!r} in {catalog.uri}; one whose name has the dot itself is "
            f"{text_of(whole)!r}"
        )
    near = _nearest(id, [parts(each) for each in list_all_tables(catalog)])
    return TableNotFound(f"there is no table {named!r} in {catalog.uri}; {near}")


def no_namespace(catalog: Catalog, id: Id) -> NamespaceNotFound:
    """The error for an id that no namespace has."""
    named = text_of(id)
    if table_exists(catalog, id):
        return NamespaceNotFound(
            f"{named!r} is a table of {catalog.uri}, not a namespace; drop({named!r}) drops a table"
        )
    return NamespaceNotFound(
        f"there is no namespace {named!r} in {catalog.uri}; {_nearest(id, namespaces_of(catalog))}"
    )


def no_parent(catalog: Catalog, id: Id) -> NamespaceNotFound:
    """The error for an id whose namespace is missing."""
    above = next((id[:depth] for depth in range(1, len(id)) if not _is_namespace(catalog, id[:depth])), ())
    named = text_of(id[:-1])
    if above and table_exists(catalog, above):
        return NamespaceNotFound(
            f"{text_of(id)!r} cannot be in {catalog.uri}: {text_of(above)!r} is a table, not a namespace"
        )
    return NamespaceNotFound(
        f"there is no namespace {named!r} for {text_of(id)!r} in {catalog.uri}: create_namespace({named!r}) "
        f"makes it; of namespaces, {_nearest(id[:-1], namespaces_of(catalog))}"
    )


def _is_namespace(catalog: Catalog, id: Id) -> bool:
    return catalog.settings.mode.has_register and namespace_exists(catalog, id)


def _nearest(id: Id, known: Sequence[Id]) -> str:
    if len(known) > MAX_COMPARED:
        return f"there are {len(known)}"
    return nearest(text_of(id), list(dict.fromkeys(map(text_of, known))))


def _inside(catalog: Catalog, id: Id) -> str:
    """What a namespace holds; '' where that is, among others, what another program put there."""
    kinds = [row.object_type for row in catalog.register().rows.below(object_id(id))]
    if any(each not in (TABLE, NAMESPACE) for each in kinds):
        return ""
    counts = ((kinds.count(TABLE), "table"), (kinds.count(NAMESPACE), "namespace"))
    return " and ".join(counted(count, what) for count, what in counts if count)


def renamed(error: TiltyardError, *ids: Id) -> None:
    """Put the names that one types in the place of stored ids."""
    if not (error.args and isinstance(error.args[0], str)):
        return
    told = error.args[0]
    for id in ids:
        for depth in range(len(id), 0, -1):
            told = told.replace(repr(object_id(id[:depth])), repr(text_of(id[:depth])))
    error.args = (told, *error.args[1:])
