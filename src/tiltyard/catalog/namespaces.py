"""Namespaces: rows of the register without a location (namespace pack, sections 4.3, 4.8 and 11).

Everything is decided inside the change, on the version that its rewrite builds on. Invariants, with their
tests in tests/catalog/test_namespaces.py:

1. Of all creators of an id one is told that it made it, every other that it exists.
2. Nothing is ever below a namespace that is not there: a creator looks for every ancestor, a dropper that
   nothing is below, both in the change.
3. A namespace and a table never share an id; at the root this includes tables that are found by their
   directories.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from tiltyard.catalog.found import directory_table, register_of
from tiltyard.catalog.listing import Page, page_of
from tiltyard.catalog.names import Id, check_new_id, object_id, root_location
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row, properties_text
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.taking import check_parents
from tiltyard.catalog.waiting import NewRow
from tiltyard.dataset import arguments
from tiltyard.errors import (
    InvalidInput,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    UnsupportedFeature,
    WrongType,
    nearest,
)

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft

RESERVED_KEYS = ("table_version_management", "schema")
RESERVED_PREFIXES = ("lance.namespace.", "tiltyard.", "partition_spec_v")
"""Keys of the register's metadata that are no properties of the root namespace."""


class CreateMode(Enum):
    """What to do about a namespace that exists."""

    CREATE = "create"
    EXIST_OK = "existok"
    OVERWRITE = "overwrite"


class DropMode(Enum):
    """What to do about a namespace that does not exist."""

    FAIL = "fail"
    SKIP = "skip"


class DropBehavior(Enum):
    """What to do about a namespace that holds something."""

    RESTRICT = "restrict"
    CASCADE = "cascade"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and its properties; None where it was made without any."""

    id: Id
    properties: dict[str, str] | None = None


Word = TypeVar("Word", CreateMode, DropMode, DropBehavior)


def _word(kind: type[Word], value: str | Word | None, default: Word, what: str) -> Word:
    """A mode from a word as the interface's users write it: ExistOk, exist_ok, existok."""
    if value is None:
        return default
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        text = value.strip().lower().replace("_", "")
        for each in kind:
            if each.value == text:
                return each
    known = ", ".join(each.value for each in kind)
    raise InvalidInput(f"{what} must be one of {known}, found {value!r}")


# -- making --------------------------------------------------------------------------------------


def create_namespace(
    catalog: Catalog,
    id: Id,
    properties: Mapping[str, str] | None = None,
    mode: str | CreateMode | None = None,
) -> Namespace:
    """Make a namespace; the properties given, or with `exist_ok` those of the one that is there.

    `overwrite` makes an existing one anew, with these properties only; what is in it is dropped. Raises
    NamespaceAlreadyExists (also for a table of this id), NamespaceNotFound (an ancestor), InvalidName.
    """
    how = _word(CreateMode, mode, CreateMode.CREATE, "the mode of creating a namespace")
    given = _checked_properties(properties)
    if not id:
        return _root_again(catalog, how)
    _need_register(catalog)
    row = Row(object_id(id), NAMESPACE, metadata=properties_text(given))
    made = Namespace(id, given)

    def refused(existing: Row) -> Namespace:
        if existing.object_type != NAMESPACE:
            raise _exists(id, f"a {existing.object_type}")
        if how is CreateMode.CREATE:
            raise _exists(id, "a namespace")
        return Namespace(id, existing.properties)

    def change(draft: Draft) -> Namespace:
        check_parents(draft.rows, id)
        existing = draft.rows.find(row.object_id)
        if existing is None:
            check_new_id(id, "a namespace")
            _refuse_directory(catalog, draft.register, id)
            draft.put(row)
            return made
        if existing.object_type != NAMESPACE or how is not CreateMode.OVERWRITE:
            return refused(existing)
        _clear(draft, id, catalog.settings.grace_seconds)
        draft.put(replace(existing, metadata=row.metadata))
        return made

    by_name = len(id) == 1 and catalog.settings.mode.lists_directories
    place = root_location(id[0]) if by_name else ""
    new = NewRow(row, made, place, refused=None if how is CreateMode.OVERWRITE else refused)
    return catalog.mutate(change, new=new)


def _root_again(catalog: Catalog, how: CreateMode) -> Namespace:
    if how is CreateMode.EXIST_OK:
        return describe_namespace(catalog, ())
    if how is CreateMode.OVERWRITE:
        raise InvalidInput("the root namespace cannot be made anew: drop what is in it")
    raise NamespaceAlreadyExists("root namespace")


def _refuse_directory(catalog: Catalog, register: Register, id: Id) -> None:
    """Raise where a table without a row has this name: root tables are found by their directories, too."""
    if len(id) > 1 or not catalog.settings.mode.lists_directories:
        return
    if directory_table(catalog, register, id) is not None:
        raise _exists(id, "a table")


def _exists(id: Id, what: str) -> NamespaceAlreadyExists:
    return NamespaceAlreadyExists(f"{object_id(id)!r} exists already: {what} has this id")


def _checked_properties(properties: Mapping[str, str] | None) -> dict[str, str] | None:
    if properties is None:
        return None
    if not isinstance(properties, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in properties.items()
    ):
        raise WrongType(f"properties are a mapping of text to text, found {properties!r}")
    for key, value in properties.items():
        arguments.text("the name of a property", key)
        arguments.text(f"the property {key!r}", value)
    return dict(properties)


def _need_register(catalog: Catalog) -> None:
    if catalog.settings.mode is Mode.V1:
        raise UnsupportedFeature(
            "Child namespaces are only supported when manifest mode is enabled: this catalog was opened with "
            "manifest_enabled=false"
        )


# -- looking -------------------------------------------------------------------------------------


def describe_namespace(catalog: Catalog, id: Id) -> Namespace:
    """A namespace and its properties. Raises NamespaceNotFound, CatalogDamaged."""
    register = register_of(catalog)
    if not id:
        return Namespace((), _root_properties(register.metadata))
    _need_register(catalog)
    row = register.rows.find(object_id(id))
    if row is None or row.object_type != NAMESPACE:
        raise _missing(register, id)
    return Namespace(id, row.properties)


def _root_properties(metadata: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in metadata.items()
        if key not in RESERVED_KEYS and not key.startswith(RESERVED_PREFIXES)
    }


def _missing(register: Register, id: Id) -> NamespaceNotFound:
    if not register.version:
        return NamespaceNotFound(f"namespace {object_id(id)!r} does not exist: the catalog has none yet")
    names = register.rows.children(id[:-1], NAMESPACE)
    return NamespaceNotFound(f"namespace {object_id(id)!r} does not exist; {nearest(id[-1], names)}")


def namespace_exists(catalog: Catalog, id: Id) -> bool:
    """Whether there is a namespace of this id; the root always is there."""
    if not id:
        return True
    _need_register(catalog)
    rows = catalog.register().rows.all(object_id(id))
    return any(row.object_type == NAMESPACE for row in rows)


def list_namespaces(
    catalog: Catalog, id: Id = (), *, page_token: str | None = None, limit: int | None = None
) -> Page:
    """Names of the namespaces directly in another, sorted; none in one that does not exist."""
    if catalog.settings.mode is Mode.V1 and not id:
        return page_of([], page_token, limit)
    _need_register(catalog)
    return page_of(catalog.register().rows.children(id, NAMESPACE), page_token, limit)


# -- dropping ------------------------------------------------------------------------------------


def drop_namespace(
    catalog: Catalog,
    id: Id,
    mode: str | DropMode | None = None,
    behavior: str | DropBehavior | None = None,
) -> Namespace | None:
    """Drop a namespace; what it was, or None where `skip` found none.

    `cascade` drops all that is in it first, tables softly: they can be brought back while the namespace is
    made again. Raises NamespaceNotFound, NamespaceNotEmpty.
    """
    how = _word(DropMode, mode, DropMode.FAIL, "the mode of dropping a namespace")
    deep = _word(DropBehavior, behavior, DropBehavior.RESTRICT, "the behavior of dropping a namespace")
    if not id:
        raise InvalidInput("Root namespace cannot be dropped")
    _need_register(catalog)

    def change(draft: Draft) -> Namespace | None:
        row = draft.rows.find(object_id(id))
        if row is None or row.object_type != NAMESPACE:
            if how is DropMode.SKIP:
                return None
            raise _missing(draft.register, id)
        if deep is DropBehavior.CASCADE:
            _clear(draft, id, catalog.settings.grace_seconds)
        else:
            _refuse_full(draft, id)
        draft.remove(row.object_id)
        # The answer must not fail on properties that nobody can read.
        return Namespace(id, _readable(row))

    return catalog.mutate(change)


def _refuse_full(draft: Draft, id: Id) -> None:
    below = draft.rows.below(object_id(id))
    if below:
        raise NamespaceNotEmpty(f"{object_id(id)!r} (contains {len(below)} child objects)")


def _clear(draft: Draft, id: Id, grace_seconds: float) -> None:
    """Drop everything below a namespace. Objects of other programs are not ours to drop."""
    from tiltyard.catalog.trash import discard

    below = draft.rows.below(object_id(id))
    foreign = [row for row in below if row.object_type not in (NAMESPACE, TABLE)]
    if foreign:
        raise NamespaceNotEmpty(
            f"{object_id(id)!r} contains {foreign[0].object_id!r}, a {foreign[0].object_type} of another "
            "program: drop it with that program first"
        )
    for row in below:
        if row.object_type == TABLE:
            discard(draft, row, grace_seconds)
        else:
            draft.remove(row.object_id)


def _readable(row: Row) -> dict[str, str] | None:
    try:
        found = json.loads(row.metadata or "null")
    except ValueError:
        return None
    sound = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if sound else None
