"""Filters given as `pyarrow.compute.Expression`, read into the same tree as SQL text.

Arrow pickles an expression as an IPC file: the tree stands in the schema's metadata as a row of keys in
prefix order (`call` .. `end`, `field_ref`, `nested_field_ref`, `literal`, `options`), the constants in
columns of one row (Arrow's C++ source, `arrow/compute/expression.cc`, Serialize). That form keeps what the
Substrait form loses (zoned timestamps, half floats, options, casts). Since `Schema.metadata` is a
dictionary and drops repeated keys, the row of keys is taken from the schema's flatbuffer (format: Arrow's
`Schema.fbs` and `Message.fbs`).

The meaning is that of the SQL text, also where Arrow's own kernels differ: `isin` is IN (null is unknown,
also when the list names it), NaN equals NaN, -0.0 equals 0.0, overflow is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import InvalidExpression, InvalidInput, nearest
from tiltyard.expr import build, patterns
from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.names import find_column
from tiltyard.expr.ragged import is_list
from tiltyard.expr.types import And, Compare, Expr, In, IsNull, Literal, Node, Not, Or, expr_of

SHOWN_CHARACTERS = 200
"""How many characters of an expression an error message shows."""

MAX_SEEN_DEPTH = 4
"""How deep a condition is looked into for what it does with nulls."""

_COMPARISONS = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_ARITHMETIC = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "shift_left": "<<",
    "shift_right": ">>",
}
_SAME_FUNCTIONS = {
    "abs": "abs",
    "abs_checked": "abs",
    "floor": "floor",
    "ceil": "ceil",
    "is_nan": "isnan",
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
    "utf8_reverse": "reverse",
    "binary_length": "octet_length",
    "list_value_length": "array_length",
    "ascii_lower": "lower",
    "ascii_upper": "upper",
    "sign": "signum",
    "power": "power",
    "power_checked": "power",
    "max_element_wise": "greatest",
    "min_element_wise": "least",
    **{
        name: name
        for name in (
            "sqrt",
            "exp",
            "ln",
            "log10",
            "log2",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "trunc",
        )
    },
}
_PATTERNS = {
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "match_substring": "contains",
    "match_substring_regex": "regexp_like",
}
_DATE_PARTS = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "day_of_year": "doy",
    "iso_week": "week",
    "iso_year": "isoyear",
}


def is_arrow_expression(value: object) -> bool:
    """Whether a value is an Arrow expression; imports nothing to find out."""
    kind = type(value)
    return kind.__name__ == "Expression" and kind.__module__.startswith("pyarrow")


# -- Arrow's own form -------------------------------------------------------------------------------------


class _Table:
    """A table of a flatbuffer: `field(n)` is the place of its n-th field, 0 where absent."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self._slots = at - struct.unpack_from("<i", data, at)[0]
        self._size = struct.unpack_from("<H", data, self._slots)[0]

    def field(self, number: int) -> int:
        slot = 4 + 2 * number
        offset = struct.unpack_from("<H", self.data, self._slots + slot)[0] if slot < self._size else 0
        return self.at + offset if offset else 0

    def follow(self, number: int) -> int:
        """The place that an offset field points to."""
        at = self.field(number)
        return at + int(struct.unpack_from("<I", self.data, at)[0]) if at else 0

    def text(self, number: int) -> str:
        at = self.follow(number)
        length = struct.unpack_from("<I", self.data, at)[0]
        return self.data[at + 4 : at + 4 + length].decode()


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """The key-value metadata of a schema in order and with repeated keys."""
    message = bytes(schema.serialize())[8:]  # behind the continuation mark and the length
    root = _Table(message, struct.unpack_from("<I", message)[0])
    header = _Table(message, root.follow(2))
    vector = header.follow(2)
    if not vector:
        return []
    pairs = []
    for index in range(struct.unpack_from("<I", message, vector)[0]):
        at = vector + 4 + 4 * index
        pair = _Table(message, at + struct.unpack_from("<I", message, at)[0])
        pairs.append((pair.text(0), pair.text(1)))
    return pairs


@dataclass(slots=True)
class _Call:
    name: str
    args: list[Node] = field(default_factory=list)
    options: dict[str, pa.Scalar] = field(default_factory=dict)


# -- to our tree --------------------------------------------------------------------------------------------


def from_arrow(expression: Any, schema: pa.Schema) -> Expr:
    """An Arrow expression, of any type, bound to the columns of `schema`.

    Raises `InvalidExpression` naming a function, option or reference that has no counterpart here,
    `FieldNotFound` for an unknown column.
    """
    shown = str(expression)
    if len(shown) > SHOWN_CHARACTERS:
        shown = shown[:SHOWN_CHARACTERS] + "..."
    try:
        serialized = expression.__reduce__()[1][0]
        reader = pa.ipc.open_file(serialized)
        pairs, batch = _metadata_pairs(reader.schema), reader.get_batch(0)
    except pa.ArrowNotImplementedError as error:
        raise InvalidExpression(f"{shown}: {error}; refer to columns by name", shown) from error
    except (pa.ArrowInvalid, struct.error, IndexError, UnicodeDecodeError, AttributeError) as error:
        problem = f"{shown}: its form is not known ({error}): write it as SQL text"
        raise InvalidExpression(problem, shown) from error
    try:
        return expr_of(build.gathered(_read(pairs, batch, schema)))
    except Mismatch as error:
        raise InvalidExpression(f"{error} (in the Arrow expression {shown})", shown) from error


def predicate_from_arrow(expression: Any, schema: pa.Schema) -> Expr:
    """`from_arrow` for a filter: raises `InvalidExpression` unless the expression is boolean."""
    found = from_arrow(expression, schema)
    try:
        return expr_of(build.require_boolean(found.node))
    except Mismatch as error:
        raise InvalidExpression(f"{error} (in the Arrow expression {expression})") from error


def _read(pairs: Sequence[tuple[str, str]], batch: pa.RecordBatch, schema: pa.Schema) -> Node:
    """Build the tree of a row of keys, on a stack of its own: expressions may be deep."""
    calls = [_Call("")]
    steps: list[tuple[str, bool]] = []
    pending = 0
    for key, value in pairs:
        top = calls[-1]
        if key == "nested_field_ref":
            pending = int(value)
        elif key == "field_ref":
            steps.append((value, True))
            pending = max(0, pending - 1)
            if not pending:
                top.args.append(find_column(schema, steps))
                steps = []
        elif key == "literal":
            top.args.append(_constant(batch.column(int(value))[0]))
        elif key == "call":
            calls.append(_Call(value))
        elif key == "options":
            scalar = batch.column(int(value))[0]
            top.options = {name: scalar[name] for name in (child.name for child in scalar.type)}
        elif key == "end":
            calls.pop()
            calls[-1].args.append(_called(top))
        else:
            raise Mismatch(f"{key!r} is not part of Arrow expressions as known here")
    if len(calls) != 1 or len(calls[0].args) != 1:
        raise InvalidInput("an Arrow expression that is not one tree")
    return calls[0].args[0]


def _constant(scalar: pa.Scalar) -> Node:
    """A constant of any type; lists and structs are made of their parts."""
    arrow = scalar.type
    if not is_list(arrow) and not pa.types.is_struct(arrow):
        return _literal(scalar)
    if not scalar.is_valid:
        return Literal(None, pa.null())
    if pa.types.is_struct(arrow):
        parts = [(arrow.field(at).name, scalar[at]) for at in range(arrow.num_fields)]
        named = [each for name, part in parts for each in (Literal(name, pa.string()), _constant(part))]
        return build.call("named_struct", named)
    return build.call("make_array", [_constant(each) for each in scalar.values])


def _literal(scalar: pa.Scalar) -> Literal:
    literal = build.literal_from(scalar)
    value = literal.value
    if isinstance(value, float) and value == value and value not in (float("inf"), float("-inf")):
        # as if written down: Arrow, too, rounds a Python float to the column beside it
        return Literal(Decimal(repr(value)), pa.float64())
    return literal


def _option(call: _Call, name: str) -> Any:
    found = call.options.get(name)
    return None if found is None else found.as_py()


def _refuse_option(call: _Call, name: str, allowed: Any) -> None:
    if _option(call, name) not in (None, allowed):
        raise Mismatch(f"{call.name} with {name}={_option(call, name)} is not supported")


def _called(call: _Call) -> Node:
    """The node of one call whose arguments have been read."""
    name, args = call.name, call.args
    plain = name.removesuffix("_checked")
    if name in _COMPARISONS:
        return build.compare(_COMPARISONS[name], *args)
    if plain in _ARITHMETIC:
        return build.arithmetic(_ARITHMETIC[plain], *args)
    if name in _SAME_FUNCTIONS:
        _refuse_option(call, "skip_nulls", True)
        return build.call(_SAME_FUNCTIONS[name], args)
    if name in _PATTERNS:
        if name == "match_substring_regex" and _option(call, "ignore_case"):
            return patterns.matches(args[0], Literal(_option(call, "pattern"), pa.string()), True)
        _refuse_option(call, "ignore_case", False)
        return build.call(_PATTERNS[name], [*args, Literal(_option(call, "pattern"), pa.string())])
    if name in _DATE_PARTS:
        return build.call("date_part", [Literal(_DATE_PARTS[name], pa.string()), *args])
    reader = _READERS.get(plain)
    if reader is None:
        known = {*_COMPARISONS, *_ARITHMETIC, *_SAME_FUNCTIONS, *_PATTERNS, *_DATE_PARTS, *_READERS}
        near = nearest(name, sorted(known))
        raise Mismatch(f"the function {name} is not supported ({near}): write the filter as SQL text")
    return reader(call)


def _is_null(call: _Call) -> Node:
    found = build.is_null(call.args[0])
    if _option(call, "nan_is_null") and kind_of(call.args[0].type) is Kind.FLOAT:
        found = build.or_([found, build.is_truth(build.call("isnan", call.args), True)])
    return found


def _is_in(call: _Call) -> Node:
    values = call.options["value_set"].values
    if values is not None and len(values) and not values.null_count:
        if types.is_integer(values.type):  # engines push down lists of any length: not a node for each value
            return build.in_plain(call.args[0], values.to_numpy(zero_copy_only=False).tolist())
        if types.is_string(values.type) or types.is_large_string(values.type):
            return build.in_plain(call.args[0], values.to_pylist())
    constants: list[Node] = [] if values is None else [_literal(value) for value in values]
    if constants:
        return build.in_(call.args[0], constants)
    return build.and_([build.compare("!=", call.args[0], call.args[0])])


def _cast(call: _Call) -> Node:
    return build.cast(call.args[0], call.options["to_type"].type)


def _like(call: _Call) -> Node:
    pattern = Literal(_option(call, "pattern"), pa.string())
    return patterns.like(call.args[0], pattern, "\\", bool(_option(call, "ignore_case")))


def _is_unknown_with(node: Node, item: Node, depth: int = MAX_SEEN_DEPTH) -> bool:
    """Whether a condition is known to be null where `item` is."""
    match node:
        case In():
            return node.item == item
        case Compare():
            return item in (node.left, node.right)
        case And() | Or() if depth:
            return all(_is_unknown_with(each, item, depth - 1) for each in node.items)
        case _:
            return False


def _list_element(call: _Call) -> Node:
    lists, number = call.args
    if not isinstance(number, Literal) or not isinstance(number.value, int) or number.value < 0:
        raise Mismatch("list_element takes a constant number of an element, 0 for the first")
    return build.call("array_element", [lists, build.whole_number(number.value + 1)])


def _if_else(call: _Call) -> Node:
    condition, then, otherwise = call.args
    if isinstance(otherwise, Literal) and otherwise.value is None and isinstance(condition, Not):
        # as DuckDB has IN mean what it means here in any case: an index answers what stands within
        tested = condition.item
        if isinstance(tested, IsNull) and _is_unknown_with(then, tested.item):
            return then
    # Arrow gives null where the condition is null
    nothing = Literal(None, pa.null())
    return build.case([(condition, then), (build.is_null(condition), nothing)], otherwise)


_READERS: dict[str, Callable[[_Call], Node]] = {
    "and_kleene": lambda call: build.and_(call.args),
    "or_kleene": lambda call: build.or_(call.args),
    "invert": lambda call: build.not_(call.args[0]),
    "is_null": _is_null,
    "is_valid": lambda call: build.not_(build.is_null(call.args[0])),
    "is_in": _is_in,
    "cast": _cast,
    "match_like": _like,
    "if_else": _if_else,
    "coalesce": lambda call: build.call("coalesce", call.args),
    "list_element": _list_element,
    "negate": lambda call: build.negate(call.args[0]),
}
