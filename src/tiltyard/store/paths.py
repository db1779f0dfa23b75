"""Paths of objects: checked once, at the door of every store."""

from __future__ import annotations

from functools import lru_cache

from tiltyard.errors import InvalidInput

_NOT_A_PART = frozenset(("", ".", ".."))

KNOWN_PATHS = 4096
"""How many answers are kept: readers ask about the same few paths again and again."""


@lru_cache(KNOWN_PATHS)
def is_path(path: str) -> bool:
    """Whether `path` names an object below a root."""
    return "\0" not in path and _NOT_A_PART.isdisjoint(path.split("/"))


def checked(path: str) -> str:
    """`path` itself if it names an object below a root; InvalidInput otherwise."""
    if not is_path(path):
        raise InvalidInput(
            f"{path!r} is not a path within a store: expected names joined by '/', without empty, '.' or "
            "'..' parts, a leading or trailing '/' or NUL characters"
        )
    return path


def checked_dir(path: str) -> str:
    """`path` itself if it names a directory below a root; '' is the root. One trailing '/' is taken off."""
    if path.endswith("/"):
        path = path[:-1]
    return checked(path) if path else path


def parent_of(path: str) -> str:
    """The directory of a path; '' is the root."""
    return path.rpartition("/")[0]


def joined(prefix: str, path: str) -> str:
    """`path` below `prefix`; either may be ''."""
    return f"{prefix}/{path}" if prefix and path else prefix or path
