"""Paths to fields: how a dotted path is taken apart, which field a step names, and what a choice of paths
leaves of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tiltyard.errors import FieldNotFound, nearest
from tiltyard.format.field import Field


def is_repeated(each: Field) -> bool:
    """Whether it is a list or map: a path passes through it."""
    return len(each.children) == 1 and each.logical_type != "struct"


def child(among: Sequence[Field], steps: Sequence[str]) -> Field:
    """The field that the last step names."""
    *above, name = steps
    for each in among:
        if each.name == name:
            return each
    where = f"the struct {'.'.join(above)} has no field" if above else "there is no column"
    raise FieldNotFound(f"{where} {name!r}; {nearest(name, [each.name for each in among])}")


def split(path: str) -> tuple[str, ...]:
    """The names of a dotted path; a part in backticks may contain dots, and two backticks stand for one."""
    steps: list[str] = []
    rest = path
    while True:
        if rest.startswith("`"):
            end = 1
            while (end := rest.find("`", end)) >= 0 and rest[end + 1 : end + 2] == "`":
                end += 2
            if end < 0 or rest[end + 1 : end + 2] not in ("", "."):
                raise FieldNotFound(f"path {path!r} has an unclosed backtick")
            steps.append(rest[1:end].replace("``", "`"))
            rest = rest[end + 1 :]
        else:
            name, _, _ = rest.partition(".")
            steps.append(name)
            rest = rest[len(name) :]
        if not rest:
            return tuple(steps)
        rest = rest[1:]


def want(wanted: dict[int, dict[int, Any] | None], ids: list[int]) -> None:
    """Add a route of ids to the tree of wanted fields; `None` below an id means everything below it."""
    for id in ids[:-1]:
        below = wanted.setdefault(id, {})
        if below is None:
            return
        wanted = below
    wanted[ids[-1]] = None


def pruned(each: Field, below: dict[int, Any] | None) -> Field:
    """The field with only what is wanted below it."""
    if below is None or each.is_leaf:
        return each
    if each.logical_type == "map":
        return each  # a map without its keys, or with a part of its values, is no map
    return replace(
        each, children=tuple(pruned(child, below[child.id]) for child in each.children if child.id in below)
    )
