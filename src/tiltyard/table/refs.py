"""Reading tags (table format, section 5). A tag names a branch and a version; it never falls back to the
latest.
"""

from __future__ import annotations

from tiltyard.errors import ObjectNotFound, TagNotFound
from tiltyard.format import names
from tiltyard.format.refs import Tag, decode_tag
from tiltyard.store import Store

MAX_TAGS_SHOWN = 20


def read_tag(root: Store, name: str) -> Tag:
    """The tag of this name under the table's root. Raises TagNotFound, which lists those there are."""
    if not isinstance(name, str) or not names.is_tag_name(name):
        raise _unknown(root, name)
    path = names.tag_path(name)
    try:
        data = root.read(path)
    except ObjectNotFound:
        raise _unknown(root, name) from None
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


def _unknown(root: Store, name: str) -> TagNotFound:
    known = sorted(list_tags(root))
    shown = ", ".join(known[:MAX_TAGS_SHOWN]) or "none"
    more = f" and {len(known) - MAX_TAGS_SHOWN} more" if len(known) > MAX_TAGS_SHOWN else ""
    return TagNotFound(f"no tag {name!r} in {root.uri}; there are: {shown}{more}")
