"""Reading tags and branches (table format, section 5). A tag names a branch and a version; it never falls
back to the latest.
"""

from __future__ import annotations

from tiltyard.errors import BranchNotFound, ObjectNotFound, TagNotFound
from tiltyard.format import names
from tiltyard.format.refs import Branch, Tag, decode_branch, decode_tag
from tiltyard.store import Store

MAX_TAGS_SHOWN = 20

JSON = ".json"

CLONE_PREFIX = "clone-"
CLONE_KEY = "tiltyard.clone"
"""What name and metadata of a tag say that protects the files which a clone of ours shares (decision D7)."""


def read_tag(root: Store, name: str) -> Tag:
    """The tag of this name under the table's root. Raises TagNotFound, which lists those there are."""
    if not isinstance(name, str) or not names.is_tag_name(name):
        raise unknown_tag(root, name)
    path = names.tag_path(name)
    try:
        data = root.read(path)
    except ObjectNotFound:
        raise unknown_tag(root, name) from None
    return decode_tag(data, name, path)


def list_tags(root: Store) -> dict[str, Tag]:
    """All tags under the table's root, by name; those removed meanwhile are left out."""
    tags: dict[str, Tag] = {}
    for file_name in root.list_names(names.TAGS_DIR):
        name = names.parse_tag_name(file_name)
        if name is None:
            continue
        path = names.tag_path(name)
        try:
            data = root.read(path)
        except ObjectNotFound:
            continue
        tags[name] = decode_tag(data, name, path)
    return tags


def every_tag(root: Store) -> list[Tag]:
    """Whatever may protect a version: all JSON files where tags are, also under names that no tag of ours
    has.

    Raises `CorruptFile` for one that cannot be read.
    """
    found: list[Tag] = []
    for file_name in root.list_names(names.TAGS_DIR):
        if not file_name.endswith(JSON) or names.is_temporary(file_name):
            continue
        path = f"{names.TAGS_DIR}/{file_name}"
        try:
            found.append(decode_tag(root.read(path), file_name.removesuffix(JSON), path))
        except ObjectNotFound:
            continue  # deleted meanwhile
    return found


def is_of_clone(tag: Tag) -> bool:
    """Whether a tag was made by us to protect the files that a clone shares with the table."""
    return tag.name.startswith(CLONE_PREFIX) and CLONE_KEY in tag.metadata


def every_branch(root: Store) -> list[Branch]:
    """The records of all branches under the table's root, whatever their file names. Raises `CorruptFile`."""
    found: list[Branch] = []
    for file_name in root.list_names(names.BRANCHES_DIR):
        if not file_name.endswith(JSON) or names.is_temporary(file_name):
            continue
        path = f"{names.BRANCHES_DIR}/{file_name}"
        name = names.parse_branch_file_name(file_name) or file_name.removesuffix(JSON)
        try:
            found.append(decode_branch(root.read(path), name, path))
        except ObjectNotFound:
            continue
    return found


def unknown_tag(root: Store, name: object) -> TagNotFound:
    """The error for a tag that is not there."""
    known = sorted(list_tags(root))
    return TagNotFound(
        f"Ref not found error: tag {name} does not exist in {root.uri}; there are: {_shown(known)}"
    )


def unknown_branch(root: Store, name: object) -> BranchNotFound:
    """The error for a branch that is not there."""
    known = sorted(branch.name for branch in every_branch(root))
    return BranchNotFound(
        f"Ref not found error: branch {name} does not exist in {root.uri}; there are: {_shown(known)}"
    )


def _shown(known: list[str]) -> str:
    shown = ", ".join(known[:MAX_TAGS_SHOWN]) or "none"
    return f"{shown} and {len(known) - MAX_TAGS_SHOWN} more" if len(known) > MAX_TAGS_SHOWN else shown
