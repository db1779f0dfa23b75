"""Tags of a table: names for its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.found import find_table, table_store
from tiltyard.catalog.operations.opening import opened
from tiltyard.dataset import arguments
from tiltyard.errors import TagNotFound
from tiltyard.table import refs, tagging

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.format.refs import Tag
    from tiltyard.store import Store


def list_tags(catalog: Catalog, id: Id) -> dict[str, Tag]:
    """All tags by name."""
    return refs.list_tags(_root(catalog, id))


def read_tag(catalog: Catalog, id: Id, name: str) -> Tag:
    """The version, and its branch, that a tag names. Raises `TagNotFound`."""
    return refs.read_tag(_root(catalog, id), _named(name))


def create_tag(catalog: Catalog, id: Id, name: str, version: int, *, branch: str | None = None) -> None:
    """Name a version. Raises `TagAlreadyExists`, `VersionNotFound`, and `InvalidInput` for a name that no tag
    may have.
    """
    tagging.check_name(_named(name))
    arguments.whole("version", version, 1)
    target = opened(catalog, id, version=version, branch=branch)
    tagging.create_tag(target._root, name, target._held)


def move_tag(catalog: Catalog, id: Id, name: str, version: int, *, branch: str | None = None) -> None:
    """Let a tag name another version. Raises `TagNotFound`, `VersionNotFound`."""
    arguments.whole("version", version, 1)
    root = _root(catalog, id)
    refs.read_tag(root, _named(name))
    target = opened(catalog, id, version=version, branch=branch)
    tagging.move_tag(root, name, target._held)


def delete_tag(catalog: Catalog, id: Id, name: str) -> None:
    """Remove a tag; its version stays. Raises `TagNotFound`."""
    tagging.delete_tag(_root(catalog, id), _named(name))


def _root(catalog: Catalog, id: Id) -> Store:
    return table_store(catalog, find_table(catalog, id))


def _named(name: str) -> str:
    if not name:
        raise TagNotFound("the name of a tag is empty")
    return name
