"""A text and a schema to a bound expression; what has been bound before is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.expr import build
from tiltyard.expr.equals_number import equals_number
from tiltyard.expr.parse import PRESENT, Parser
from tiltyard.expr.types import Column, Compare, Expr, Literal, expr_of

MAX_TEXT_BYTES = 64 << 20
"""Characters of an expression's text, at most."""

CACHED_EXPRESSIONS = 512
"""How many bound expressions are kept."""

CACHED_CHARACTERS = 1 << 14
"""Longer texts are bound anew each time: they would hold much memory, and binding them dwarfs the look-up."""

_HAS_PRESENT = re.compile("|".join(PRESENT), re.IGNORECASE)


class _SchemaKey:
    """A schema as a cache key: equal in names and types; hashing it costs its names only."""

    __slots__ = ("_hash", "schema")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._hash = hash(tuple(schema.names))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SchemaKey) and (
            self.schema is other.schema or bool(self.schema.equals(other.schema))
        )


_last_key: list[_SchemaKey] = []
"""That of the schema that was bound to last, which the next one mostly is."""


def _key_of(schema: pa.Schema) -> _SchemaKey:
    for last in _last_key:
        if last.schema is schema:
            return last
    made = _SchemaKey(schema)
    _last_key[:] = [made]
    return made


def _bind(text: str, key: _SchemaKey, wants_predicate: bool) -> Expr:
    like = equals_number(text)
    if like is not None and like[1] and (found := _like_another(*like, key)) is not None:
        return found
    parser = Parser(text, key.schema)
    node = parser.whole()
    if wants_predicate:
        node = parser.made(0, build.require_boolean, node)
    return expr_of(build.gathered(node))


_bind_cached = lru_cache(CACHED_EXPRESSIONS)(_bind)


def _like_another(name: str, number: int, key: _SchemaKey) -> Expr | None:
    """`name = number`, as lookups ask it, made of the same with 0; None where it must be read."""
    try:
        known = _bind_cached(f"{name} = 0", key, True).node
    except InvalidInput:
        return None
    if isinstance(known, Compare) and isinstance(known.left, Column) and known.left.type == known.right.type:
        return expr_of(build.compare("=", known.left, Literal(number, known.right.type)))
    return None


def _parse(text: str, schema: pa.Schema, wants_predicate: bool) -> Expr:
    if not isinstance(text, str):
        raise InvalidInput(f"an expression is a text, not {type(text).__name__}")
    if len(text) > MAX_TEXT_BYTES:
        raise InvalidInput(f"an expression of {len(text):,} characters; at most {MAX_TEXT_BYTES:,} are read")
    is_kept = len(text) <= CACHED_CHARACTERS and _HAS_PRESENT.search(text) is None  # its meaning changes
    bind = _bind_cached if is_kept else _bind
    return bind(text, _key_of(schema), wants_predicate)


def parse_predicate(text: str, schema: pa.Schema) -> Expr:
    """A boolean expression (a filter) bound to the columns of `schema`.

    Raises `InvalidExpression` for text that is no expression, is not allowed or is not boolean (with its
    place), `FieldNotFound` for an unknown column. Results are cached by text and schema.
    """
    return _parse(text, schema, True)


def parse_expression(text: str, schema: pa.Schema) -> Expr:
    """An expression of any type (a computed column) bound to the columns of `schema`; raises as
    `parse_predicate` does."""
    return _parse(text, schema, False)


def cached_expressions() -> Sequence[int]:
    """(hits, misses) of the cache, for tests and statistics."""
    info = _bind_cached.cache_info()
    return info.hits, info.misses
