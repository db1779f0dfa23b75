"""The tags and branches of a table, as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.not_yet import Named
from tiltyard.table import branching, refs, tagging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiltyard.dataset.handle import Handle
    from tiltyard.format.refs import Branch, Tag
    from tiltyard.table.snapshot import Snapshot

    TagDict = dict[str, Any]
    TagList = list[tuple[str, TagDict]]


class Tags(Named):
    """Names for versions; they live beside the table, not in a version."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._root = handle._root

    def list(self) -> dict[str, TagDict]:
        """All tags: name to branch (None: main), version, times, manifest size (bytes) and metadata."""
        return {name: _tag_dict(tag) for name, tag in refs.list_tags(self._root).items()}

    def list_ordered(self, order: str | None = None) -> TagList:
        """All tags by version: `desc` (the default) newest first, or `asc`."""
        return _ordered(self.list(), "version", order)

    def get_version(self, tag: str) -> int:
        """The version that a tag names. Raises `TagNotFound`."""
        return refs.read_tag(self._root, arguments.text("tag", tag)).version

    def create(self, tag: str, reference: Any = None, *, metadata: Mapping[str, str] | None = None) -> None:
        """Name a version. `reference`: its number (on the branch that the handle shows), another tag, or a
        pair of branch and number (None: main, its newest); without one, the version that the handle shows.

        Of several creators of one name one succeeds. Raises `TagAlreadyExists`, `InvalidInput` for a name
        that no tag may have, `VersionNotFound`, `TagNotFound`, `OutcomeUnknown`.
        """
        name = arguments.text("tag", tag)
        tagging.check_name(name)
        wanted = None if metadata is None else arguments.text_map("metadata", metadata)
        tagging.create_tag(self._root, name, self._target(reference), wanted)

    def update(self, tag: str, reference: Any = None) -> None:
        """Let a tag name another version; see `create`. Metadata and time of creation stay. Of several that
        move a tag, the last one holds. Raises `TagNotFound`, `VersionNotFound`, `OutcomeUnknown`.
        """
        name = arguments.text("tag", tag)
        refs.read_tag(self._root, name)
        tagging.move_tag(self._root, name, self._target(reference))

    def delete(self, tag: str) -> None:
        """Remove a tag; the version stays until it is cleaned up. Raises `TagNotFound`."""
        tagging.delete_tag(self._root, arguments.text("tag", tag))

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Put this metadata in the place of a tag's; where it points, and its times, stay. Raises
        `TagNotFound`.
        """
        name = arguments.text("tag", tag)
        tagging.replace_tag_metadata(self._root, name, arguments.text_map("metadata", metadata))

    def _target(self, reference: Any) -> Snapshot:
        """The version that a reference names."""
        from tiltyard.dataset.reading import open_reference

        held = self._handle._snapshot
        if reference is None:
            return held
        return open_reference(self._root, held, reference)


class Branches(Named):
    """Lines of versions beside the main one. They are read and removed here, not made."""

    def __init__(self, handle: Handle) -> None:
        self._root = handle._root

    def list(self) -> dict[str, TagDict]:
        """All branches: name to parent branch (None: main), parent version, time of creation, manifest size
        (bytes) and metadata.
        """
        return {branch.name: _branch_dict(branch) for branch in refs.every_branch(self._root)}

    def list_ordered(self, order: str | None = None) -> TagList:
        """All branches by the version that they start from: `desc` (the default) newest first, or `asc`."""
        return _ordered(self.list(), "parent_version", order)

    def delete(self, branch: str) -> None:
        """Remove a branch with its versions and files. Raises `BranchNotFound`, and `CleanupRefused` while a
        tag names one of its versions or another branch starts from it.
        """
        branching.delete_branch(self._root, arguments.text("branch", branch))


def _ordered(found: dict[str, TagDict], key: str, order: str | None) -> TagList:
    if order is not None:
        arguments.one_of("order", order, "asc", "desc")
    pairs = sorted(found.items(), key=lambda pair: (pair[1][key], pair[0]))
    return pairs if order == "asc" else pairs[::-1]


def _branch_dict(branch: Branch) -> TagDict:
    return {
        "parent_branch": branch.parent_branch,
        "branch_identifier": list(branch.identifier),
        "parent_version": branch.parent_version,
        "create_at": branch.created_at,
        "manifest_size": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }


def _tag_dict(tag: Tag) -> TagDict:
    return {
        "branch": tag.branch,
        "version": tag.version,
        "created_at": _time(tag.created_at),
        "updated_at": _time(tag.updated_at),
        "manifest_size": tag.manifest_size,
        "metadata": {key: value for key, value in tag.metadata.items() if key != tagging.NONCE_KEY},
    }


def _time(text: str | None) -> datetime | None:
    """RFC 3339 text with up to nine decimals; None for what cannot be read."""
    if text is None:
        return None
    body, point, rest = text.partition(".")
    if point:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = f"{body}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
