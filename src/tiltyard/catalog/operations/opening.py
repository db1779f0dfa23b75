"""From a table's id to the dataset that an operation works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.catalog.found import Found, find_table, table_store
from tiltyard.catalog.names import object_id
from tiltyard.dataset import LanceDataset
from tiltyard.errors import TableNotFound, UnsupportedFeature
from tiltyard.format.names import branch_path
from tiltyard.table import refs
from tiltyard.table.snapshot import open_snapshot

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.store import Store

MAIN = "main"
"""The name of the branch that has none."""

MAX_LOOKS = 8
"""How often a table is looked for again whose directory went elsewhere between being found and opened."""


def opened(
    catalog: Catalog,
    id: Id,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
) -> LanceDataset:
    """The table as a dataset: its newest version, or the one that `version` (on `branch`) or `tag` names.

    Raises `TableNotFound` (also for a table that is only declared), `VersionNotFound`, `TagNotFound`,
    `BranchNotFound`.
    """
    found = find_table(catalog, id)
    for _ in range(MAX_LOOKS):
        try:
            return open_found(catalog, found, version=version, tag=tag, branch=branch)
        except TableNotFound:
            again = find_table(catalog, id)
            if again.location == found.location:
                raise
            found = again  # its directory was on the way to another name
    return open_found(catalog, found, version=version, tag=tag, branch=branch)


def open_found(
    catalog: Catalog,
    found: Found,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
) -> LanceDataset:
    """As `opened`, of a table that was found already."""
    root, chain = table_store(catalog, found), chain_of(catalog, found, branch)
    try:
        snapshot = open_snapshot(chain, catalog.session, version=version, tag=tag)
    except TableNotFound as error:
        raise TableNotFound(
            f"table id {object_id(found.id)!r} is declared and holds no version yet; create it, or insert "
            "rows"
        ) from error
    return LanceDataset._made(snapshot, root=root)


def chain_of(catalog: Catalog, found: Found, branch: str | None) -> Store:
    """Where the versions of a branch are. Raises `BranchNotFound`, which lists those that there are."""
    root = table_store(catalog, found)
    if branch in (None, "", MAIN):
        return root
    if all(each.name != branch for each in refs.every_branch(root)):
        raise refs.unknown_branch(root, branch)
    return root.at(branch_path(str(branch)))


def refuse_branch(branch: Any, what: str) -> None:
    """Raise `UnsupportedFeature` for an operation that only the main branch has."""
    if branch not in (None, "", MAIN):
        raise UnsupportedFeature(
            f"{what} on branch {branch!r}: this version of tiltyard reads branches and changes only the main "
            "one"
        )


def transaction_of(dataset: LanceDataset) -> str | None:
    """The uuid of the transaction that made the version which the dataset shows."""
    made = dataset._held.transaction()
    return None if made is None else made.uuid
