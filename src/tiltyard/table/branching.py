"""Removing branches (table format, section 5; case K05). Making them comes later.

A branch goes only while no tag names one of its versions and no other branch starts from it. As in a cleanup,
what is about to go is written down before the tags are read, so that of a tagger and the removal one always
sees the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.errors import CleanupRefused, InvalidInput
from tiltyard.format import names
from tiltyard.table import refs
from tiltyard.table.cleanup import intents
from tiltyard.table.versions import list_names

if TYPE_CHECKING:
    from tiltyard.store import Store

MAX_NAMED = 20
MAIN = "main"


def delete_branch(root: Store, name: str) -> None:
    """Remove a branch with its versions and files; directories of other branches below it stay.

    Raises `BranchNotFound`, `InvalidInput` for main, `CleanupRefused` naming the tags and branches that need
    it, `StoreError` (then calling it again goes on).
    """
    if name == MAIN:
        raise InvalidInput(
            f"Ref is invalid: {MAIN!r} is the table itself and cannot be removed; drop the table"
        )
    if not names.is_branch_name(name):
        raise refs.unknown_branch(root, name)
    record, directory = names.branch_file_path(name), names.branch_path(name)
    if not root.exists(record):
        raise refs.unknown_branch(root, name)
    _refuse_needed(root, name)
    store = root.at(directory)
    versions = [each.version for each in list_names(store)]
    intent = intents.announce(store, versions, (), ()) if versions else None
    try:
        _refuse_needed(root, name)
    except CleanupRefused:
        if intent is not None:
            intents.withdraw(store, intent)
        raise
    root.delete(record)
    root.sync_dir(names.BRANCHES_DIR)
    _delete_files(root, name, directory)


def _refuse_needed(root: Store, name: str) -> None:
    tags = [(tag.name, tag.version) for tag in refs.every_tag(root) if tag.branch == name]
    branches = refs.every_branch(root)
    own = next((each.identifier for each in branches if each.name == name), ())
    children = [
        (each.name, each.parent_version)
        for each in branches
        if each.name != name and (each.parent_branch == name or (own and each.identifier[: len(own)] == own))
    ]
    for found, what, advice in (
        (tags, "tags", "delete the tags, or let them name other versions"),
        (children, "branches that start from it:", "delete those first"),
    ):
        if found:
            shown = ", ".join(f"{each!r} (version {version})" for each, version in found[:MAX_NAMED])
            raise CleanupRefused(
                f"Ref conflict error: branch {name!r} of {root.uri} is referenced by {what} {shown}, and was "
                f"not removed; {advice}"
            )


def _delete_files(root: Store, name: str, directory: str) -> None:
    """The branch's folders, versions first; what other branches have below it stays."""
    needed = [f"{each.name}/" for each in refs.every_branch(root) if each.name != name]
    inside = root.list_names(directory)
    for part in sorted(inside, key=lambda each: each != names.VERSIONS_DIR):
        if not any(other.startswith(f"{name}/{part}/") for other in needed):
            root.delete_tree(f"{directory}/{part}")
    while directory != names.TREE_DIR and not root.list_names(directory):
        root.delete_tree(directory)
        directory = directory.rpartition("/")[0]
