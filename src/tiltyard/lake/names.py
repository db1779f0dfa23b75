"""Names of the plain face: `ops.flights` is table `flights` of namespace `ops`.

A part that has a dot (or a quote) itself stands in double quotes, a quote in it doubled, as in SQL: the root
table `v1.2` is `'"v1.2"'`. So does a last part `lance`, which would look like the suffix of a directory. A
name may also be given as a list of its parts. What is listed can be opened by the text that is listed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tiltyard.catalog.names import SUFFIX, Id, checked_id
from tiltyard.errors import InvalidName, WrongType

_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]*)')
"""A part of a name, in quotes or without."""


def id_of(name: Any, what: str = "a table") -> Id:
    """The id of a dotted name or of a list of parts. Raises `InvalidName`, `WrongType`."""
    if isinstance(name, str):
        return _parsed(name, what)
    if isinstance(name, Sequence):
        return checked_id(name, f"the name of {what}")
    raise WrongType(f"the name of {what} is text such as 'ops.flights', or a list of parts, found {name!r}")


def namespace_of(name: Any) -> Id:
    """The id of a namespace; None is the root."""
    return () if name is None else id_of(name, "a namespace")


def _parsed(name: str, what: str) -> Id:
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(name, at)
        assert found is not None  # the pattern matches nothing, too
        parts.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        at = found.end()
        if at == len(name):
            break
        if name[at] != ".":
            raise InvalidName(
                f"{name!r} cannot be the name of {what}: a part in double quotes ends before a dot or at the "
                "end"
            )
        at += 1
    if "/" in name and not all(parts):
        raise InvalidName(
            f"{name!r} is a path and cannot be the name of {what}: a name is dotted, such as 'ops.flights'. "
            "open_table(path) opens a table by its path"
        )
    if not all(parts):
        raise InvalidName(f"{name!r} cannot be the name of {what}: a part of it is empty")
    if name.endswith(SUFFIX) and len(parts) > 1:
        raise InvalidName(
            f"a table's name has no suffix here: give {name.removesuffix(SUFFIX)!r} instead of {name!r}"
        )
    return checked_id(parts, f"the name of {what}")


def text_of(id: Id) -> str:
    """The dotted name of an id, which `id_of` reads again."""
    texts = [_quoted(part) if not part or "." in part or '"' in part else part for part in id]
    if len(texts) > 1 and texts[-1] == SUFFIX[1:]:
        texts[-1] = _quoted(texts[-1])
    return ".".join(texts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'
