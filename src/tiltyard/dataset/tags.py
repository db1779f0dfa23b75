"""The tags of a table, as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.not_yet import Named
from tiltyard.table import refs

if TYPE_CHECKING:
    from tiltyard.format.refs import Tag
    from tiltyard.store import Store

    TagDict = dict[str, Any]
    TagList = list[tuple[str, TagDict]]


class Tags(Named):
    """Names for versions; they live beside the table, not in a version."""

    def __init__(self, root: Store) -> None:
        self._root = root

    def list(self) -> dict[str, TagDict]:
        """All tags: name to branch (None: main), version, times, manifest size (bytes) and metadata."""
        return {name: _tag_dict(tag) for name, tag in refs.list_tags(self._root).items()}

    def list_ordered(self, order: str | None = None) -> TagList:
        """All tags by version: `desc` (the default) newest first, or `asc`."""
        if order is not None:
            arguments.one_of("order", order, "asc", "desc")
        found = sorted(self.list().items(), key=lambda pair: (pair[1]["version"], pair[0]))
        return found if order == "asc" else found[::-1]

    def get_version(self, tag: str) -> int:
        """The version that a tag names. Raises `TagNotFound`."""
        return refs.read_tag(self._root, arguments.text("tag", tag)).version


def _tag_dict(tag: Tag) -> TagDict:
    return {
        "branch": tag.branch,
        "version": tag.version,
        "created_at": _time(tag.created_at),
        "updated_at": _time(tag.updated_at),
        "manifest_size": tag.manifest_size,
        "metadata": dict(tag.metadata),
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
