"""Expressions: SQL predicates and computed columns over Arrow record batches.

`parse_predicate` and `parse_expression` bind a text to a schema, `bind_predicate` also takes an Arrow
expression; `mask` and `evaluate` run the result over a batch. The tree behind an `Expr` (`types.py`) is
what planners look at; this layer knows no index and no file.

Reading and running expressions is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.expr.bind import parse_expression, parse_predicate
    from tiltyard.expr.eval import evaluate, mask
    from tiltyard.expr.from_arrow import is_arrow_expression
    from tiltyard.expr.types import Expr

__all__ = [
    "Expr",
    "bind_predicate",
    "evaluate",
    "is_arrow_expression",
    "mask",
    "parse_expression",
    "parse_predicate",
]

_HOMES = {
    "Expr": "types",
    "evaluate": "eval",
    "is_arrow_expression": "from_arrow",
    "mask": "eval",
    "parse_expression": "bind",
    "parse_predicate": "bind",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def bind_predicate(where: Any, schema: pa.Schema) -> Expr:
    """A filter as callers give it: SQL text, or a `pyarrow.compute.Expression`; raises as
    `parse_predicate`."""
    from tiltyard.errors import InvalidInput
    from tiltyard.expr.bind import parse_predicate
    from tiltyard.expr.from_arrow import is_arrow_expression, predicate_from_arrow

    if isinstance(where, str):
        return parse_predicate(where, schema)
    if is_arrow_expression(where):
        return predicate_from_arrow(where, schema)
    raise InvalidInput(f"a filter is SQL text or an Arrow expression, found {type(where).__name__}")
