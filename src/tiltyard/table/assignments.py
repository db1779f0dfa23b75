"""`SET column = expression`: bound to a schema once, then applied to batches of rows.

A value takes the type of its column as CAST does: fractions are cut off, a number or text that does not fit
is an error that names the column. A target may be a field of a struct (`point.x`); the other fields stay, and
a struct that is null stays null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.errors import FieldNotFound, InvalidExpression, InvalidInput, UnsupportedFeature
from tiltyard.expr import Expr, evaluate, parse_expression
from tiltyard.expr.build import cast, literal_as, whole_number
from tiltyard.expr.coerce import Mismatch
from tiltyard.expr.types import Literal, expr_of
from tiltyard.table.dictionaries import encoded
from tiltyard.table.fit import alike, convert, refuse_nulls

if TYPE_CHECKING:
    from tiltyard.format.schema import Field, Schema

MAX_DIGITS = 38
"""A constant of more digits fits no integer column, and is not written out to find that."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One field and the expression that it takes its value from."""

    path: tuple[str, ...]
    """Names from the top-level column down to the field."""
    field: Field
    expression: Expr

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def value(self, scope: Any) -> Any:
        """The value for each row of `scope`, a `pa.Array` of the field's type."""
        node, wanted = self.expression.node, self.field.arrow_type
        if isinstance(node, Literal) and node.value is None:
            found = pa.nulls(scope.num_rows, wanted)
        else:
            try:
                found = evaluate(self.expression, scope)
            except InvalidExpression as error:
                raise InvalidExpression(f"column {self.name!r} cannot be set: {error}") from error
            try:
                found = _as_type(found, wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InvalidExpression(f"column {self.name!r} cannot be set: {error}") from error
        refuse_nulls(found, self.field, self.name)
        return found


@dataclass(frozen=True, slots=True)
class Assignments:
    """What an update sets, in the order given."""

    schema: Schema
    items: tuple[Assignment, ...]

    @property
    def columns(self) -> tuple[Field, ...]:
        """The top-level columns that change, in the table's order."""
        changed = {each.path[0] for each in self.items}
        return tuple(field for field in self.schema.fields if field.name in changed)

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Ids of the fields that are set, those below them included."""
        return tuple(dict.fromkeys(field.id for each in self.items for field in each.field.walk()))

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Columns that the expressions read."""
        return tuple(dict.fromkeys(path for each in self.items for path in each.expression.paths))

    def apply(self, before: Mapping[str, Any], scope: Any) -> dict[str, Any]:
        """The changed top-level columns by name, as `pa.Array`s.

        `scope`: the batch that the expressions read, all of them before any is set. `before`: the columns as
        they are, needed only where a field within them is set.
        """
        changed: dict[str, Any] = {}
        for each in self.items:
            top = each.path[0]
            value = each.value(scope)
            if len(each.path) > 1:
                value = _with_child(changed.get(top, before.get(top)), each.path[1:], value)
            changed[top] = value
        return changed


def bind(schema: Schema, updates: Mapping[str, str], scope: Any = None) -> Assignments:
    """The assignments `{column or path: SQL expression}` against a schema, checked as far as they can be
    without rows.

    `scope`: the `pa.Schema` that expressions may name, the table's own by default. Raises `FieldNotFound` and
    `InvalidExpression`, which name the column, and `InvalidInput` for no assignment or two to one field.
    """
    if not updates:
        raise InvalidInput("No updates provided: say which columns to set, as in {'price': 'price * 2'}")
    names = schema.arrow if scope is None else scope
    items = tuple(_bound(schema, path, sql, names) for path, sql in updates.items())
    for at, each in enumerate(items):
        for other in items[:at]:
            shorter, longer = sorted((each.path, other.path), key=len)
            if longer[: len(shorter)] == shorter:
                raise InvalidInput(f"{other.name!r} and {each.name!r} set the same field; set it once")
    return Assignments(schema, items)


def _bound(schema: Schema, path: str, sql: str, scope: Any) -> Assignment:
    try:
        field = schema.field(path)
    except FieldNotFound as error:
        raise FieldNotFound(f"updates sets {path!r}: {error}") from error
    above = schema.ancestors(field.id)
    for each in above:
        if each.logical_type != "struct" or each.is_packed:
            raise UnsupportedFeature(
                f"column {path!r} lies inside the {each.logical_type} column {each.name!r}; set that one "
                "whole"
            )
    if any(each.is_blob or each.logical_type == "json" for each in field.walk()):
        raise UnsupportedFeature(
            f"column {path!r} is a {field.logical_type} column, which no SQL expression gives a value for; "
            "merge new rows instead"
        )
    name = ".".join(each.name for each in (*above, field))
    try:
        expression = _fitted(parse_expression(sql, scope), field)
    except Mismatch as error:
        raise InvalidExpression(f"column {name!r} is {field.arrow_type}: {error}", sql) from error
    except InvalidExpression as error:
        raise type(error)(f"column {name!r} cannot be set: {error}") from error
    if not field.nullable and isinstance(expression.node, Literal) and expression.node.value is None:
        raise InvalidInput(f"column {name!r} is not nullable and cannot be set to NULL")
    return Assignment(tuple(each.name for each in (*above, field)), field, expression)


def _fitted(expression: Expr, field: Field) -> Expr:
    """The expression with its value brought to the field's type; `Mismatch` where nothing does that."""
    wanted = field.arrow_type
    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    node = expression.node
    if (
        isinstance(node, Literal)
        and isinstance(node.value, float | Decimal)
        and _truncates(node.type, wanted)
    ):
        number = Decimal(node.value)
        if not number.is_finite() or number.adjusted() > MAX_DIGITS:
            raise Mismatch(f"{number} does not fit {wanted}")
        node = whole_number(int(number))
        expression = expr_of(node)
    if alike(expression.type, wanted) or _truncates(expression.type, wanted):
        return expression
    fitted = literal_as(node, wanted) if isinstance(node, Literal) else None
    return expr_of(cast(node, wanted) if fitted is None else fitted)


def _truncates(given: Any, wanted: Any) -> bool:
    return bool(pa.types.is_floating(given) and pa.types.is_integer(wanted))


def _as_type(array: Any, wanted: Any) -> Any:
    """The array as a type that it is like; also floating numbers as integers, which Arrow casts unchecked or
    not at all where they have fractions.
    """
    if _truncates(array.type, wanted):
        import pyarrow.compute as pc

        return pc.trunc(array.cast(pa.float64())).cast(wanted)
    if pa.types.is_dictionary(wanted):
        return array if array.type.equals(wanted) else encoded(array, wanted)
    return array if array.type.equals(wanted) else convert(array, wanted)


def _with_child(struct: Any, steps: tuple[str, ...], value: Any) -> Any:
    """The struct array with the field at `steps` replaced; null structs stay null."""
    at = struct.type.get_field_index(steps[0])
    child = value if len(steps) == 1 else _with_child(struct.field(at), steps[1:], value)
    children = [child if i == at else struct.field(i) for i in range(struct.type.num_fields)]
    mask = struct.is_null() if struct.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(struct.type), mask=mask)
