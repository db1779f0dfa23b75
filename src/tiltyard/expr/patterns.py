"""Predicates that hold a text against a pattern: LIKE, SIMILAR TO, regular expressions."""

from __future__ import annotations

import re

import pyarrow as pa

from tiltyard.expr.build import ONE_ROW, UNKNOWN, call, function_of, height_over
from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.eval import truth_at
from tiltyard.expr.signatures import by_pattern
from tiltyard.expr.types import BOOL, NULL, Like, Literal, Node

MAX_WILDCARDS = 256
"""Separate `%` of a pattern: the time for a text grows with its length times their number."""


def like_pattern(pattern: str, escape: str | None) -> str:
    """A LIKE pattern with its own escape character as one with backslashes; None means there is no escape."""
    parts: list[str] = []
    wildcards = 0
    characters = iter(pattern)
    for character in characters:
        if character == "%" and escape != "%":
            if parts and parts[-1] == "%":
                continue  # two of them mean no more than one
            wildcards += 1
            if wildcards > MAX_WILDCARDS:
                raise Mismatch(f"a pattern of LIKE with more than {MAX_WILDCARDS} separate %")
        if character == escape:
            taken = next(characters, None)
            if taken is None:
                raise Mismatch(f"the pattern ends with its escape character {escape!r}")
            parts.append("\\" + taken if taken in "%_\\" else taken)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


def like(item: Node, pattern: Node, escape: str | None, ignore_case: bool) -> Node:
    """`item [I]LIKE pattern`."""
    if not isinstance(pattern, Literal):
        return _like_column(item, pattern, escape, ignore_case)
    if pattern.value is None or item.type == NULL or (isinstance(item, Literal) and item.value is None):
        return UNKNOWN
    if not isinstance(pattern.value, str):
        raise Mismatch("the pattern of LIKE must be a text literal")
    if kind_of(item.type) is not Kind.TEXT:
        raise Mismatch(f"LIKE takes text; this is {item.type}: write CAST(... AS string)")
    node = Like(item, like_pattern(pattern.value, escape), ignore_case, height=height_over(item))
    if isinstance(item, Literal):
        found = truth_at(node, ONE_ROW)
        return Literal(bool(found.true[0]), BOOL)
    return node


def _like_column(item: Node, pattern: Node, escape: str | None, ignore_case: bool) -> Node:
    if kind_of(pattern.type) is not Kind.TEXT or kind_of(item.type) is not Kind.TEXT:
        raise Mismatch(f"LIKE takes texts, not {item.type} and {pattern.type}: write CAST(... AS string)")

    def matched(column: pa.Array, text: str) -> pa.Array:
        import pyarrow.compute as pc

        try:
            return pc.match_like(column, like_pattern(text, escape), ignore_case=ignore_case)
        except Mismatch as error:
            raise pa.ArrowInvalid(str(error)) from error

    word = "ILIKE" if ignore_case else "LIKE"
    name = word if escape == "\\" else f"{word} ESCAPE {escape or ''}"
    return function_of(name, (item, pattern), by_pattern(matched, BOOL))


def matches(item: Node, pattern: Node, ignore_case: bool) -> Node:
    """`item ~ pattern` and `item ~* pattern`: whether a regular expression is found."""
    flags = [Literal("i", pa.string())] if ignore_case else []
    return call("regexp_like", [item, pattern, *flags])


def similar(item: Node, pattern: Node, escape: str | None) -> Node:
    """`item SIMILAR TO pattern`, the pattern a constant text: all of the item matches."""
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str | None):
        raise Mismatch("the pattern of SIMILAR TO must be a text literal")
    if pattern.value is None:
        return UNKNOWN
    return call("regexp_like", [item, Literal(similar_pattern(pattern.value, escape), pa.string())])


def similar_pattern(pattern: str, escape: str | None) -> str:
    """A pattern of SIMILAR TO as a regular expression: `%` and `_` as in LIKE, `|*+?{}()[]` as there."""
    parts: list[str] = []
    in_class = False
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            taken = next(characters, None)
            if taken is None:
                raise Mismatch(f"the pattern ends with its escape character {escape!r}")
            parts.append(re.escape(taken))
        elif in_class:
            in_class = character != "]"
            parts.append("\\" + character if character == "\\" else character)
        elif character in "%_":
            parts.append("(?s:.*)" if character == "%" else "(?s:.)")
        elif character in ".^$\\":
            parts.append("\\" + character)
        else:
            in_class = character == "["
            parts.append(character)
    return f"^(?:{''.join(parts)})$"
