"""Expressions: SQL predicates and computed columns over Arrow record batches.

`parse_predicate` and `parse_expression` bind a text to a schema; `mask` and `evaluate` run it over a batch.
The tree behind an `Expr` (`types.py`) is what planners look at; this layer knows no index and no file.
"""

from __future__ import annotations

from tiltyard.expr.eval import evaluate, mask
from tiltyard.expr.parse import parse_expression, parse_predicate
from tiltyard.expr.types import Expr

__all__ = ["Expr", "evaluate", "mask", "parse_expression", "parse_predicate"]
