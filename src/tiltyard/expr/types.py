"""The typed tree of an expression: what remains of its text once names are bound and types agreed.

Nodes are frozen and small. Every node carries the Arrow type of its value; a boolean node is a predicate with
three values (true, false, unknown). Long chains of AND and OR are one node with many items, never a deep
tree, and `MAX_HEIGHT` bounds the rest, so that walks may recurse.

A `Literal` holds its value in the physical unit of its type: days for dates, the type's unit since midnight
or since 1970 for times, timestamps and durations, `Decimal` for decimals. Literals written with a fraction
or an exponent keep their exact `Decimal` with the type `float64` until they meet an operand that says what
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

MAX_HEIGHT = 50
"""Levels of nesting of an expression, after chains of AND, OR and || are flattened."""

BOOL = pa.bool_()
NULL = pa.null()


class Interval(NamedTuple):
    """What is added to a date or a time: months, days and nanoseconds, each with its own sign."""

    months: int
    days: int
    nanos: int


Values = int | float | str | bytes | bool | Decimal | Interval | None
Test = Callable[[Any], np.ndarray]
"""Takes the Arrow array of an operand, gives bool[rows]; what it says at null rows has no meaning."""


class Truth(NamedTuple):
    """A three-valued column: bool[rows] that are true and bool[rows] that are false; the rest is unknown.

    `false` is None where nothing is unknown: false is then what is not true.
    """

    true: np.ndarray
    false: np.ndarray | None

    def negated(self) -> Truth:
        if self.false is None:
            return Truth(~self.true, None)
        return Truth(self.false, self.true)

    @property
    def known(self) -> np.ndarray | None:
        """bool[rows], None where all are known."""
        return None if self.false is None else self.true | self.false


@dataclass(frozen=True, slots=True)
class Column:
    """A column or, with more than one step in `path`, a field inside structs; names are exact."""

    path: tuple[str, ...]
    type: pa.DataType
    height: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; see the module's docstring for the form of `value`. None is null of any type."""

    value: Values
    type: pa.DataType
    height: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """`op` is one of `= != < <= > >=`. Where one side is a literal it is `right`, and `test` takes `left`
    alone.

    Otherwise `pair` takes both operands' arrays.
    """

    op: str
    left: Node
    right: Node
    test: Test | None = field(default=None, compare=False, repr=False)
    pair: Callable[[Any, Any], np.ndarray] | None = field(default=None, compare=False, repr=False)
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Node, ...]
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Node, ...]
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not:
    item: Node
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """Membership in a list of constants, in the form of literals of `item.type`; values that no item of that
    type can equal are left out. `has_null`: the list also names null, so a value not found is unknown."""

    item: Node
    values: tuple[Values, ...]
    has_null: bool
    test: Test | None = field(default=None, compare=False, repr=False)
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    item: Node
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsTruth:
    """`item IS TRUE` (`value` True) or `item IS FALSE`: never unknown."""

    item: Node
    value: bool
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Like:
    """`pattern` as Arrow takes it: `%`, `_`, and a backslash before each character that stands for itself."""

    item: Node
    pattern: str
    ignore_case: bool
    height: int = field(default=1, compare=False, repr=False)
    type: pa.DataType = field(default=BOOL, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """`lenient` is TRY_CAST: what does not fit becomes null."""

    item: Node
    type: pa.DataType
    lenient: bool
    height: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """`whens` are pairs (condition, value) tried in order; all values have been cast to `type`."""

    whens: tuple[tuple[Node, Node], ...]
    otherwise: Node
    type: pa.DataType
    height: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A named function of `functions.py` or an arithmetic operator (`+ - * / %`, `neg`)."""

    name: str
    args: tuple[Node, ...]
    type: pa.DataType
    run: Callable[[Sequence[Any], int], Any] = field(compare=False, repr=False)
    height: int = field(default=1, compare=False, repr=False)


Node = Column | Literal | Compare | And | Or | Not | In | IsNull | IsTruth | Like | Cast | Case | Function


@dataclass(frozen=True, slots=True)
class Expr:
    """A bound expression: evaluate it with `evaluate` or, when boolean, `mask`.

    `type` is the Arrow type of its value, `paths` the nested columns that it reads (each once, in order of
    appearance), `sql` a text that parses to the same tree against the same schema.
    """

    node: Node
    paths: tuple[tuple[str, ...], ...]

    @property
    def type(self) -> pa.DataType:
        return self.node.type

    @property
    def sql(self) -> str:
        from tiltyard.expr.text import sql_of

        return sql_of(self.node)


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, in the order in which the text names them."""
    match node:
        case Column() | Literal():
            return ()
        case Compare():
            return (node.left, node.right)
        case And() | Or():
            return node.items
        case Case():
            return (*(part for when in node.whens for part in when), node.otherwise)
        case Function():
            return node.args
        case _:
            return (node.item,)


def expr_of(node: Node) -> Expr:
    """Wrap a tree, collecting the columns that it reads."""
    paths: dict[tuple[str, ...], None] = {}
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, Column):
            paths[top.path] = None
        else:
            pending.extend(reversed(children(top)))
    return Expr(node, tuple(paths))
