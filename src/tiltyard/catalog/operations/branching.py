"""Branches of a table: listed and removed; making them is not here yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.found import find_table, table_store
from tiltyard.table import branching, refs

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.format.refs import Branch


def list_branches(catalog: Catalog, id: Id) -> dict[str, Branch]:
    """All branches by name."""
    return {each.name: each for each in refs.every_branch(table_store(catalog, find_table(catalog, id)))}


def delete_branch(catalog: Catalog, id: Id, name: str) -> None:
    """Remove a branch with its versions and files. Raises `BranchNotFound`, and `CleanupRefused` while a tag
    or another branch needs it.
    """
    branching.delete_branch(table_store(catalog, find_table(catalog, id)), name)
