"""Makes bound nodes: operands agree on types, constants are folded, what has no meaning is a `Mismatch`.

Both readers of expressions (SQL text, Arrow expressions) build their trees here and nowhere else, so that
the rules hold for both. `Mismatch` carries no place; the reader adds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import InvalidExpression
from tiltyard.expr import compare as compare_rules
from tiltyard.expr import functions, intervals
from tiltyard.expr.arrays import dtype_of, plain, plain_type
from tiltyard.expr.arrow_names import arrow_name, arrow_type
from tiltyard.expr.coerce import Kind, Mismatch, exact, kind_of, read_text
from tiltyard.expr.decimal_literals import decimal_literal, least_decimal, written_decimal
from tiltyard.expr.eval import cast_array, operand, scalar_of
from tiltyard.expr.lists import LIST_FUNCTIONS, list_function
from tiltyard.expr.nested import nested_test
from tiltyard.expr.pairs import pair_test
from tiltyard.expr.signatures import Run, check_count
from tiltyard.expr.types import (
    BOOL,
    MAX_HEIGHT,
    NULL,
    And,
    Case,
    Cast,
    Column,
    Compare,
    Function,
    In,
    Interval,
    IsNull,
    IsTruth,
    Literal,
    Node,
    Not,
    Or,
    Values,
)

MANY_EQUALITIES = 8
"""From this many `column = literal` in one OR on, they become one IN: one search instead of as many
comparisons."""

UNKNOWN = Literal(None, BOOL)
ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], [""])


def height_over(*nodes: Node) -> int:
    """The height of a node over others; `Mismatch` where it is too great."""
    height = 1 + max((node.height for node in nodes), default=0)
    if height > MAX_HEIGHT:
        raise Mismatch(f"the expression is nested deeper than {MAX_HEIGHT} levels")
    return height


def literal_from(scalar: pa.Scalar) -> Literal:
    """An Arrow scalar as a literal in physical units; `Mismatch` for nested values."""
    arrow = scalar.type
    if isinstance(scalar, pa.DictionaryScalar):
        return literal_from(scalar.value) if scalar.is_valid else Literal(None, arrow.value_type)
    kind = kind_of(arrow)
    if kind is Kind.OTHER:
        raise Mismatch(f"a constant of type {arrow} has no place in an expression")
    if not scalar.is_valid:
        return Literal(None, arrow)
    if kind in (Kind.INSTANT, Kind.TIME, Kind.DURATION):
        return Literal(int(scalar.value), arrow)
    value = scalar.as_py()
    if kind is Kind.INTERVAL:
        return Literal(Interval(*value), arrow)
    return Literal(float(value) if kind is Kind.FLOAT else value, arrow)


def _value_of(node: Node) -> pa.Scalar:
    try:
        found = operand(node, ONE_ROW)
    except (InvalidExpression, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Mismatch(str(error)) from error
    return found if isinstance(found, pa.Scalar) else found[0]


def _folded(node: Node) -> Literal:
    return literal_from(_value_of(node))


def number(text: str) -> Literal:
    """A number as written: whole numbers in the smallest of int64, uint64 and decimal, others as float64 that
    remembers its exact `Decimal`."""
    if not text.isdecimal():
        try:
            return Literal(Decimal(text), pa.float64())
        except InvalidOperation as error:
            raise Mismatch("a number with an exponent of more than 18 digits") from error
    whole = int(text) if len(text) <= 76 else None
    if whole is None:
        raise Mismatch("a whole number of more than 76 digits")
    return whole_number(whole)


def whole_number(value: int) -> Literal:
    """An integer literal in the smallest of int64, uint64 and decimal."""
    if -(2**63) <= value < 2**63:
        return Literal(value, pa.int64())
    if 0 <= value < 2**64:
        return Literal(value, pa.uint64())
    digits = len(str(abs(value)))
    return Literal(value, pa.decimal128(digits, 0) if digits <= 38 else pa.decimal256(digits, 0))


# -- predicates ---------------------------------------------------------------------------------------


def require_boolean(node: Node) -> Node:
    """The node itself if it can be a predicate; null may. `regexp_match` is: whether there is a match."""
    if isinstance(node, Function) and node.name == "regexp_match":
        return is_truth(call("regexp_like", node.args), True)
    if node.type != BOOL and node.type != NULL:
        raise Mismatch(
            f"a predicate must be boolean; this does not return a boolean but {node.type}: compare it with "
            "something"
        )
    return UNKNOWN if isinstance(node, Literal) and node.value is None else node


def compare(op: str, left: Node, right: Node) -> Node:
    """`left op right` for `op` of `= != < <= > >=`."""
    left, right = _as_duration(left, right), _as_duration(right, left)
    for side in (left, right):
        if side.type == NULL or (isinstance(side, Literal) and side.value is None):
            return UNKNOWN
    if isinstance(left, Literal) and (
        not isinstance(right, Literal) or (isinstance(left.value, str) and not isinstance(right.value, str))
    ):
        left, right, op = right, left, compare_rules.FLIPPED[op]
    if not isinstance(right, Literal):
        is_nested = kind_of(left.type) is kind_of(right.type) is Kind.OTHER
        pair = (nested_test if is_nested else pair_test)(op, left.type, right.type)
        return Compare(op, left, right, pair=pair, height=height_over(left, right))
    if isinstance(right.value, str) and kind_of(left.type) is not Kind.TEXT:
        right = read_text(right.value, left.type)
    test = compare_rules.literal_test(op, left.type, right)
    node = Compare(op, left, right, test=test, height=height_over(left))
    return _folded(node) if isinstance(left, Literal) else node


def _as_duration(node: Node, other: Node) -> Node:
    """An interval beside a duration or another interval as a duration."""
    if not (isinstance(node, Literal) and isinstance(node.value, Interval)):
        return node
    return intervals.as_duration(node) if kind_of(other.type) in (Kind.DURATION, Kind.INTERVAL) else node


def _flat(kind: type[And] | type[Or], items: Sequence[Node]) -> list[Node]:
    flat: list[Node] = []
    for item in items:
        item = require_boolean(item)
        if isinstance(item, kind):
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat


def and_(items: Sequence[Node]) -> Node:
    """All of `items`; chains become one node."""
    flat = _flat(And, items)
    return And(tuple(flat), height=height_over(*flat))


def or_(items: Sequence[Node]) -> Node:
    """Any of `items`; chains become one node."""
    flat = _flat(Or, items)
    if len(flat) == 1:
        return flat[0]
    return Or(tuple(flat), height=height_over(*flat))


def not_(item: Node) -> Node:
    """Logical negation; unknown stays unknown."""
    item = require_boolean(item)
    if isinstance(item, Not):
        return item.item
    if isinstance(item, Literal):
        return UNKNOWN if item.value is None else Literal(not item.value, BOOL)
    return Not(item, height=height_over(item))


def in_(item: Node, members: Sequence[Node]) -> Node:
    """`item IN (members)`; members that are no constants become comparisons."""
    if not members:
        raise Mismatch("IN needs at least one value")
    constants = [member for member in members if isinstance(member, Literal)]
    others = [member for member in members if not isinstance(member, Literal)]
    if others or isinstance(item, Literal):
        rest: list[Node] = [compare("=", item, member) for member in others]
        if isinstance(item, Literal):
            rest += [compare("=", item, member) for member in constants]
        elif constants:
            rest.append(in_(item, constants))
        return rest[0] if len(rest) == 1 else or_(rest)
    if item.type == NULL:
        return UNKNOWN
    known = [constant for constant in constants if constant.value is not None]
    values, test = compare_rules.membership(item.type, known)
    return In(item, values, len(known) < len(constants), test=test, height=height_over(item))


def in_plain(item: Node, members: list[int] | list[str]) -> Node:
    """`in_` for a long list of integers or of texts, without a literal for each."""
    kind = kind_of(item.type)
    is_dictionary = pa.types.is_dictionary(item.type)
    if isinstance(item, Literal) or is_dictionary or kind not in (Kind.INT, Kind.TEXT):
        return in_(
            item, [Literal(m, pa.string()) if isinstance(m, str) else whole_number(m) for m in members]
        )
    first = members[0]
    if kind is Kind.INT and isinstance(first, int):
        values, test = compare_rules.integer_membership(item.type, members)  # type: ignore[arg-type]
    elif kind is Kind.TEXT and isinstance(first, str):
        values, test = compare_rules.text_membership(members)  # type: ignore[arg-type]
    else:
        return in_(
            item, [Literal(m, pa.string()) if isinstance(m, str) else whole_number(m) for m in members]
        )
    return In(item, values, False, test=test, height=height_over(item))


def with_equalities(items: list[Node], column: Node, values: list[int] | list[str]) -> list[Node]:
    """Alternatives and `column = value` for many more values, all integers or all texts."""
    wanted = Kind.INT if isinstance(values[0], int) else Kind.TEXT
    if kind_of(column.type) is not wanted:
        made = (
            Literal(each, pa.string()) if isinstance(each, str) else whole_number(each) for each in values
        )
        return [*items, *(compare("=", column, value) for value in made)]
    last = items[-1]
    if isinstance(last, Compare) and last.op == "=" and last.left == column:
        found = last.right.value if isinstance(last.right, Literal) else None
        if type(found) is type(values[0]):
            return [*items[:-1], in_plain(column, [found, *values])]
    return [*items, in_plain(column, values)]


def is_null(item: Node) -> Node:
    if isinstance(item, Literal):
        return Literal(item.value is None, BOOL)
    return IsNull(item, height=height_over(item))


def is_truth(item: Node, value: bool) -> Node:
    item = require_boolean(item)
    if isinstance(item, Literal):
        return Literal(item.value is value, BOOL)
    return IsTruth(item, value, height=height_over(item))


def is_distinct(left: Node, right: Node) -> Node:
    """`left IS DISTINCT FROM right`: a comparison to which null equals null; never unknown."""
    same = is_truth(compare("=", left, right), True)
    return not_(or_([same, and_([is_null(left), is_null(right)])]))


def gathered(node: Node) -> Node:
    """The tree with long ORs of equalities on one column turned into IN; same meaning, null for null."""
    if isinstance(node, Column | Literal | In):
        return node
    if isinstance(node, Or) and len(node.items) >= MANY_EQUALITIES:
        return _gathered_or(node)
    if isinstance(node, And | Or):
        items = tuple(gathered(item) for item in node.items)
        return type(node)(items, height=node.height)
    if isinstance(node, Not):
        return Not(gathered(node.item), height=node.height)
    return node


def _path(node: Node) -> tuple[str, ...] | None:
    return node.path if isinstance(node, Column) else None


def _gathered_or(node: Or) -> Node:
    groups: dict[tuple[str, ...], list[Compare]] = {}
    for item in node.items:
        path = _path(item.left) if isinstance(item, Compare) and item.op == "=" and item.test else None
        if path is not None:
            assert isinstance(item, Compare)
            groups.setdefault(path, []).append(item)
    many = {path: found for path, found in groups.items() if len(found) >= MANY_EQUALITIES}
    if not many:
        return Or(tuple(gathered(item) for item in node.items), height=node.height)
    items = [in_(found[0].left, [item.right for item in found]) for found in many.values()]
    for item in node.items:
        is_taken = isinstance(item, Compare) and item.op == "=" and _path(item.left) in many and item.test
        if not is_taken:
            items.append(gathered(item))
    return items[0] if len(items) == 1 else Or(tuple(items), height=node.height)


# -- values -------------------------------------------------------------------------------------------


def cast(item: Node, target: pa.DataType, lenient: bool = False) -> Node:
    """`CAST(item AS target)`, or TRY_CAST where `lenient`."""
    if item.type == target and not (isinstance(item, Literal) and isinstance(item.value, Decimal)):
        return item
    if isinstance(item, Literal):
        if item.value is None:
            return Literal(None, target)
        if isinstance(item.value, Decimal | int) and kind_of(target) is Kind.DECIMAL and item.type != BOOL:
            return decimal_literal(Decimal(item.value), target, lenient)
        if isinstance(item.value, Decimal) and target == pa.float64():
            return Literal(float(item.value), target)
    node = Cast(item, target, lenient, height=height_over(item))
    if pa.types.is_integer(plain_type(item.type)) and (
        pa.types.is_time(target) or pa.types.is_date64(target)
    ):
        # Arrow would take any number, also one that is no time or no whole day
        raise Mismatch(f"there is no cast from {item.type} to {target}")
    if isinstance(item, Literal):
        return _folded(node)
    try:
        cast_array(pa.nulls(1, item.type), node)  # of no row at all, Arrow casts any map to any list
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, InvalidExpression) as error:
        raise Mismatch(f"there is no cast from {item.type} to {target}") from error
    return node


def literal_as(literal: Literal, target: pa.DataType) -> Literal | None:
    """The literal as one of type `target` if it has the same value there, else None."""
    value: Values = literal.value
    if value is None or literal.type == target:
        return Literal(value, target)
    kind = kind_of(target)
    try:
        if isinstance(value, str) and kind is not Kind.TEXT:
            return literal_as(read_text(value, target), target)
        if kind is Kind.FLOAT and kind_of(literal.type).is_number:
            assert isinstance(value, int | float | Decimal)
            return Literal(float(value), target)
        if kind is Kind.TEXT and isinstance(value, str):
            return Literal(value, target)
        if kind in (Kind.INT, Kind.DECIMAL, Kind.INSTANT, Kind.TIME, Kind.DURATION):
            floor, is_exact = exact(literal, target)
            if not is_exact or not isinstance(floor, int):
                return None
            if kind is Kind.DECIMAL:
                if abs(floor) >= 10**target.precision:
                    return None
                digits = tuple(map(int, str(abs(floor))))
                return Literal(Decimal((int(floor < 0), digits, -target.scale)), target)
            info = np.iinfo(dtype_of(target))
            return Literal(floor, target) if info.min <= floor <= info.max else None
    except Mismatch:
        return None
    return None


def function_of(name: str, args: Sequence[Node], run: Run) -> Node:
    """A call whose type is that of its result for one row of nulls; a constant where all arguments are."""
    samples = [scalar_of(arg) if isinstance(arg, Literal) else pa.nulls(1, arg.type) for arg in args]
    if all(isinstance(arg, Literal) for arg in args) and name not in functions.VOLATILE:
        found = Function(name, tuple(args), NULL, run, height=height_over(*args))
        folded = _value_of(found)
        if kind_of(folded.type) is not Kind.OTHER:
            return literal_from(folded)
        return Function(name, tuple(args), folded.type, run, height=found.height)
    bare = [_plain_sample(sample) for sample in samples]
    try:
        arrow = run(bare, 1).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Mismatch(
            f"{name} is not defined for ({', '.join(str(arg.type) for arg in args)}): {error}"
        ) from error
    return Function(name, tuple(args), arrow, run, height=height_over(*args))


def _plain_sample(sample: Any) -> Any:
    """A sample without dictionary wrapping, as evaluation hands it to kernels."""
    return plain(sample) if isinstance(sample, pa.Array) else sample


def _number_beside(literal: Node, other: Node) -> Node:
    """A number literal in an operation takes the type of the column beside it where that has its value."""
    if not isinstance(literal, Literal) or isinstance(other, Literal):
        return literal
    if isinstance(literal.value, str) and kind_of(other.type) is not Kind.TEXT:
        literal = read_text(literal.value, other.type)
    if not (kind_of(literal.type).is_number and kind_of(other.type).is_number):
        return literal
    if isinstance(literal.value, Decimal) and kind_of(other.type) is Kind.INT:
        return literal
    fitted = literal_as(literal, plain_type(other.type))
    if fitted is None and isinstance(literal.value, Decimal) and kind_of(other.type) is Kind.DECIMAL:
        fitted = written_decimal(literal.value)
    return literal if fitted is None else fitted


def arithmetic(op: str, left: Node, right: Node) -> Node:
    """`left op right` for `op` of `+ - * / % << >>`."""
    found = _with_interval(op, left, right)
    if found is not None:
        return found
    sides = (_number_beside(left, right), _number_beside(right, left))
    if NULL in (sides[0].type, sides[1].type):
        known = sides[1].type if sides[0].type == NULL else sides[0].type
        sides = (cast(sides[0], known), cast(sides[1], known))
    try:
        return _computed(op, *sides)
    except Mismatch:
        least = (least_decimal(left, sides[0]), least_decimal(right, sides[1]))
        if least == sides:
            raise
        return _computed(op, *least)


def _computed(op: str, left: Node, right: Node) -> Node:
    return function_of(
        op, (left, right), functions.arithmetic(op, plain_type(left.type), plain_type(right.type))
    )


def _with_interval(op: str, left: Node, right: Node) -> Node | None:
    """Arithmetic of which one side is an interval; None for any other."""
    sides = [node for node in (left, right) if kind_of(node.type) is Kind.INTERVAL]
    if not sides:
        return None
    constants = [node for node in sides if isinstance(node, Literal) and isinstance(node.value, Interval)]
    if len(constants) < len(sides):
        raise Mismatch("an interval is a constant")
    if len(sides) == 2 and op in ("+", "-"):
        return intervals.plus(constants[0], constants[1], 1 if op == "+" else -1)
    other = left if sides[0] is right else right
    if op == "*" and isinstance(other, Literal) and isinstance(other.value, int):
        return intervals.times(constants[0], other.value)
    if op not in ("+", "-") or (op == "-" and other is right):
        raise Mismatch(f"{left.type} {op} {right.type} is not defined")
    if kind_of(other.type) is Kind.DURATION:
        return arithmetic(
            op,
            *((intervals.as_duration(constants[0]) if each is sides[0] else each) for each in (left, right)),
        )
    if other.type == NULL:
        return other
    by = constants[0] if op == "+" else intervals.times(constants[0], -1)
    assert isinstance(by.value, Interval)
    return function_of("+", (other, by), intervals.shift(plain_type(other.type), by.value))


def negate(item: Node) -> Node:
    """Unary minus."""
    if isinstance(item, Literal) and isinstance(item.value, Interval):
        return intervals.times(item, -1)
    if isinstance(item, Literal) and isinstance(item.value, int | Decimal) and kind_of(item.type).is_number:
        if isinstance(item.value, int):
            return whole_number(-item.value)
        if item.value or not pa.types.is_floating(item.type):
            return Literal(item.value.copy_negate(), item.type)  # `-` rounds to 28 digits
        return Literal(-0.0, item.type)
    if item.type == NULL:
        return item
    return function_of("neg", (item,), functions.negation(plain_type(item.type)))


def plus(item: Node) -> Node:
    """Unary plus: the number itself."""
    if not kind_of(item.type).is_number:
        raise Mismatch(f"+({item.type}) is not defined")
    return item


def agreed(nodes: Sequence[Node]) -> tuple[pa.DataType, list[Node]]:
    """Bring operands to one type: that of the columns where all constants fit it, else a wider number
    type."""
    found: pa.DataType = NULL
    for node in sorted(nodes, key=lambda node: isinstance(node, Literal)):
        if plain_type(node.type) in (NULL, found) or (
            isinstance(node, Literal) and node.value is None and found != NULL
        ):
            continue
        if found == NULL:
            found = plain_type(node.type)
        elif isinstance(node, Literal) and literal_as(node, found) is not None:
            continue
        elif kind_of(found).is_number and kind_of(node.type).is_number:
            found = functions.common_number(found, node.type)
        elif kind_of(found) is kind_of(node.type) is Kind.TEXT:
            found = pa.large_string()
        else:
            raise Mismatch(f"{found} and {node.type} have no common type: write CAST(... AS ...)")
    adapted: list[Node] = []
    for node in nodes:
        fitted = literal_as(node, found) if isinstance(node, Literal) else None
        adapted.append(cast(node, found) if fitted is None else fitted)
    return found, adapted


def case(whens: Sequence[tuple[Node, Node]], otherwise: Node | None) -> Node:
    """`CASE WHEN condition THEN value ... ELSE otherwise END`."""
    values = [value for _, value in whens] + [Literal(None, NULL) if otherwise is None else otherwise]
    arrow, values = agreed(values)
    conditions = [require_boolean(condition) for condition, _ in whens]
    pairs = tuple(zip(conditions, values[:-1], strict=True))
    return Case(pairs, values[-1], arrow, height=height_over(*conditions, *values))


def _special(name: str, args: Sequence[Node]) -> Node:
    if name in ("arrow_cast", "arrow_try_cast"):
        if len(args) != 2 or not isinstance(args[1], Literal) or not isinstance(args[1].value, str):
            raise Mismatch(f"{name} takes a value and the name of a type as a text constant")
        return cast(args[0], arrow_type(args[1].value), name == "arrow_try_cast")
    if name in ("cast_to_type", "try_cast_to_type"):
        if len(args) != 2:
            raise Mismatch(f"{name} takes a value and another one of the type that is wanted")
        return cast(args[0], plain_type(args[1].type), name == "try_cast_to_type")
    if name == "arrow_typeof":
        if len(args) != 1:
            raise Mismatch("arrow_typeof takes 1 argument")
        return Literal(arrow_name(args[0].type), pa.string())
    if name == "nvl2":
        if len(args) != 3:
            raise Mismatch("nvl2 takes 3 arguments")
        return case([(not_(is_null(args[0])), args[1])], args[2])
    if name == "nullif":
        if len(args) != 2:
            raise Mismatch("nullif takes 2 arguments")
        return case([(is_truth(compare("=", *args), True), Literal(None, args[0].type))], args[0])
    if not args:
        raise Mismatch(f"{name} takes at least 1 argument")
    _, args = agreed(args)
    result = args[-1] if name == "coalesce" else args[0]
    for arg in reversed(args[:-1]) if name == "coalesce" else args[1:]:
        if name == "coalesce":
            result = case([(not_(is_null(arg)), arg)], result)
        else:
            # a null argument never wins: it is taken only while there is nothing else
            wins = compare(">" if name == "greatest" else "<", arg, result)
            result = case([(or_([is_truth(wins, True), is_null(result)]), arg)], result)
    return result


_NULL_TYPES = (
    (Kind.TEXT, pa.string()),
    (Kind.INT, pa.int64()),
    (Kind.INSTANT, pa.timestamp("us")),
    (Kind.BINARY, pa.binary()),
)
"""The type that a plain NULL takes among the kinds that a function accepts."""

_WRITTEN = frozenset({Kind.INT, Kind.FLOAT, Kind.DECIMAL, Kind.BOOL, Kind.INSTANT, Kind.TIME})
"""Kinds that functions of texts take as their text where they say so."""


def call(name: str, args: Sequence[Node]) -> Node:
    """A call of a function of `functions.SIGNATURES`, an alias or one of the special ones, all in small
    letters."""
    name = functions.ALIASES.get(name, name)
    if name in functions.SPECIAL_FUNCTIONS:
        return _special(name, args)
    if name in LIST_FUNCTIONS:
        return list_function(name, args)
    signature = functions.SIGNATURES[name]
    check_count(name, args, signature.least, signature.most)
    adapted: list[Node] = []
    for index, arg in enumerate(args):
        kinds = signature.kinds[min(index, len(signature.kinds) - 1)]
        if index in signature.constants and not isinstance(arg, Literal):
            raise Mismatch(f"argument {index + 1} of {name} must be a constant")
        if (
            Kind.INSTANT in kinds
            and Kind.TEXT not in kinds
            and isinstance(arg, Literal)
            and isinstance(arg.value, str)
        ):
            arg = read_text(arg.value, pa.timestamp("ns"))
        if signature.as_text and kind_of(arg.type) in _WRITTEN:
            arg = cast(arg, pa.string())
        if arg.type == NULL:
            arg = Literal(None, next((arrow for kind, arrow in _NULL_TYPES if kind in kinds), pa.int64()))
        elif kind_of(arg.type) not in kinds:
            wanted = " or ".join(sorted(kind.value for kind in kinds))
            raise Mismatch(
                f"argument {index + 1} of {name} must be {wanted}, not {arg.type}: write CAST(... AS ...)"
            )
        adapted.append(arg)
    return function_of(name, adapted, signature.run)
