"""Functions over lists as the builder makes them: what their elements are decides what the constants mean.

A list is tested through its flat elements, all at once, so that the rules of `compare.py` (NaN, zeros, exact
numbers) hold inside lists too. A null list gives null; a null element equals nothing, and is not unknown:
whether a list holds a value is always known, as in the official implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import boolean_array, bools_of, truth, valid_of
from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.compare import literal_test, membership
from tiltyard.expr.list_values import LIST_VALUES, among
from tiltyard.expr.nested import MAP_FUNCTIONS, map_function, nested_test, struct_function
from tiltyard.expr.pairs import pair_test
from tiltyard.expr.ragged import is_list, list_bounds, lists_of, ragged, starts
from tiltyard.expr.signatures import Run, array_of, check_count
from tiltyard.expr.types import BOOL, NULL, Column, Function, Literal, Node, Test

LIST_FUNCTIONS = frozenset(
    {
        "array_has",
        "array_has_any",
        "array_has_all",
        "array_element",
        "get_field",
        "make_array",
        "struct",
        "named_struct",
        *LIST_VALUES,
        *MAP_FUNCTIONS,
    }
)
"""Functions that `list_function` makes, by their first names."""


def _counts(lists: pa.Array, test: Test) -> np.ndarray:
    """int64[rows]: how many non-null elements of each list pass a test."""
    flat, first, end = list_bounds(lists)
    hits = test(flat)
    valid = valid_of(flat)
    if valid is not None:
        hits = hits & valid
    upto = starts(hits)
    return upto[end] - upto[first]


def _answer(lists: pa.Array, found: np.ndarray) -> pa.Array:
    return boolean_array(truth(found, valid_of(lists)))


def _has_any(test: Test) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        lists = array_of(args[0], rows)
        return _answer(lists, _counts(lists, test) > 0)

    return run


def _has_all(tests: Sequence[Test]) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        lists = array_of(args[0], rows)
        found = np.ones(len(lists), np.bool_)
        for test in tests:
            found &= _counts(lists, test) > 0
        return _answer(lists, found)

    return run


def _has_column(pair: Callable[[pa.Array, pa.Array], np.ndarray]) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        lists, wanted = (array_of(arg, rows) for arg in args)
        _, first, end = list_bounds(lists)
        owners = np.repeat(np.arange(len(lists)), end - first)
        spread = wanted.take(pa.array(owners))
        found = _answer(lists, _counts(lists, lambda flat: pair(flat, spread)) > 0)
        valid = valid_of(wanted)
        if valid is None:
            return found
        known = valid if (other := valid_of(lists)) is None else valid & other
        return boolean_array(truth(bools_of(found), known))

    return run


def _has_list(needs_all: bool) -> Run:
    """Whether lists hold any or all elements of other lists; null equals null."""

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        lists, wanted = (ragged(arg, rows) for arg in args)
        hits = among(wanted, lists)
        owners = wanted.owners()
        if needs_all:
            found = np.bincount(owners[~hits], minlength=rows) == 0
        else:
            found = np.bincount(owners[hits], minlength=rows) > 0
        return boolean_array(truth(found, lists.valid & wanted.valid))

    return run


def _element_at(args: Sequence[Any], rows: int) -> pa.Array:
    """The element of each list with a number: 1 is the first, -1 the last; null where there is none."""
    given = ragged(args[0], rows)
    numbers = array_of(args[1], rows).cast(pa.int64())
    known = numbers.is_valid().to_numpy(zero_copy_only=False)
    number = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    inside = known & (number != 0) & (number <= given.count) & (number >= -given.count)
    place = np.where(number > 0, number - 1, given.count + number)
    at = np.where(inside, given.first + np.where(inside, place, 0), 0)
    return given.flat.take(pa.array(at, pa.int64(), mask=~inside))


def _element(lists: Node, number: Node, height: int) -> Node:
    if kind_of(number.type) is Kind.NULL:
        number = Literal(None, pa.int64())
    if kind_of(number.type) is not Kind.INT:
        raise Mismatch("the number of an element must be a whole number; 1 is the first")
    if isinstance(number, Literal) and isinstance(number.value, int) and abs(number.value) >= 1 << 62:
        number = Literal(1 << 62, pa.int64())  # no list has so many elements
    return Function("array_element", (lists, number), lists.type.value_type, _element_at, height=height)


def struct_field(struct: Node, name: Node) -> Node:
    """A field of a struct value, named by a constant text."""
    if not isinstance(name, Literal) or not isinstance(name.value, str):
        raise Mismatch("the name of a field must be a text constant")
    if not pa.types.is_struct(struct.type):
        raise Mismatch(f"only a struct has fields, and this is {struct.type}")
    at = struct.type.get_field_index(name.value)
    if at < 0:
        known = ", ".join(struct.type.field(i).name for i in range(struct.type.num_fields))
        raise Mismatch(f"the struct has no field {name.value!r}; there are: {known}")
    arrow = struct.type.field(at).type
    if isinstance(struct, Column):
        return Column((*struct.path, name.value), arrow, height=struct.height)

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        return array_of(args[0], rows).flatten()[at]  # null where the struct is

    return Function("get_field", (struct, name), arrow, run, height=1 + struct.height)


def _array(items: Sequence[Node]) -> Node:
    """A list of one value of each item."""
    from tiltyard.expr.build import agreed

    if not items:
        return Function("make_array", (), pa.list_(NULL), _no_elements)
    element, items = agreed(items)
    arrow = pa.list_(element)
    is_constant = all(isinstance(item, Literal) for item in items)

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        if is_constant:
            return pa.repeat(pa.array([[arg.as_py() for arg in args]], arrow)[0], rows)
        flat = pa.concat_arrays([array_of(arg, rows).cast(element) for arg in args])
        places = (np.arange(rows)[:, None] + np.arange(len(args))[None, :] * rows).reshape(-1)
        return lists_of(flat, places, np.full(rows, len(args)), np.ones(rows, np.bool_))

    return Function("make_array", tuple(items), arrow, run, height=1 + max(item.height for item in items))


def _no_elements(args: Sequence[Any], rows: int) -> pa.Array:
    return lists_of(pa.nulls(0), np.zeros(0, np.int64), np.zeros(rows, np.int64), np.ones(rows, np.bool_))


def _constants_of(node: Node) -> list[Literal] | None:
    """The items of a list of constants, None for any other node."""
    if not (isinstance(node, Function) and node.name == "make_array"):
        return None
    found = [item for item in node.args if isinstance(item, Literal)]
    return found if len(found) == len(node.args) else None


def _membership(name: str, args: Sequence[Node], height: int) -> Node:
    lists, *members = args
    element = lists.type.value_type
    if len(members) == 1 and (constants := _constants_of(members[0])) is not None:
        members = list(constants)
    elif len(members) == 1 and is_list(members[0].type):
        pair_test("=", element, members[0].type.value_type)
        return Function(name, (lists, members[0]), BOOL, _has_list(name == "array_has_all"), height=height)
    wanted = [member for member in members if isinstance(member, Literal)]
    if len(wanted) != len(members):
        raise Mismatch(f"argument 2 of {name} must be a list")
    if not wanted:
        return Literal(name == "array_has_all", BOOL)
    shown = (lists, *wanted)
    if any(constant.value is None for constant in wanted):
        values = _array(wanted)
        return Function(name, shown, BOOL, _beside_nulls(values, name == "array_has_all"), height=height)
    if name == "array_has_all":
        run = _has_all([literal_test("=", element, constant) for constant in wanted])
    else:
        run = _has_any(membership(element, wanted)[1])
    return Function(name, shown, BOOL, run, height=height)


def _beside_nulls(values: Node, needs_all: bool) -> Run:
    run = _has_list(needs_all)

    def compared(args: Sequence[Any], rows: int) -> pa.Array:
        assert isinstance(values, Function)
        lists = array_of(args[0], rows)
        return run([lists, values.run(args[1:], rows).cast(pa.list_(lists.type.value_type))], rows)

    return compared


def _has(lists: Node, wanted: Node, height: int) -> Node:
    element = lists.type.value_type
    if wanted.type == NULL or (isinstance(wanted, Literal) and wanted.value is None):
        return Literal(None, BOOL)
    args = (lists, wanted)
    if kind_of(element) is kind_of(wanted.type) is Kind.OTHER:
        return Function(
            "array_has", args, BOOL, _has_column(nested_test("=", element, wanted.type)), height=height
        )
    if isinstance(wanted, Literal):
        return Function("array_has", args, BOOL, _has_any(membership(element, [wanted])[1]), height=height)
    pair = pair_test("=", element, wanted.type)
    return Function("array_has", args, BOOL, _has_column(pair), height=height)


# -- functions of `list_values.py` --------------------------------------------------------------------------


def _element_type(args: Sequence[Node], roles: str) -> pa.DataType:
    """The type in which the elements of lists and the single ones meet."""
    from tiltyard.expr.build import agreed

    inside = [
        Column(("",), arg.type.value_type) for arg, role in zip(args, roles, strict=True) if role == "l"
    ]
    alone = [arg for arg, role in zip(args, roles, strict=True) if role == "x"]
    if len({each.type for each in (*inside, *alone)} - {NULL}) <= 1:
        return next((each.type for each in (*inside, *alone) if each.type != NULL), NULL)
    return agreed([*inside, *alone])[0]


def _adapted(name: str, at: int, arg: Node, role: str, element: pa.DataType) -> Node:
    from tiltyard.expr.build import cast, literal_as

    if role == "l":
        return arg if arg.type.value_type == element else cast(arg, pa.list_(element))
    if role == "x":
        fitted = literal_as(arg, element) if isinstance(arg, Literal) else None
        return cast(arg, element) if fitted is None else fitted
    if role == "f":
        return cast(arg, pa.list_(pa.float64()))
    wanted = Kind.INT if role == "n" else Kind.TEXT
    if role != "z" and kind_of(arg.type) is not wanted:
        if arg.type == NULL:
            return Literal(None, pa.int64() if role == "n" else pa.string())
        raise Mismatch(f"argument {at} of {name} must be {wanted.value}, not {arg.type}")
    return arg


def _of_lists(name: str, args: Sequence[Node]) -> Node:
    from tiltyard.expr.build import function_of

    known = LIST_VALUES[name]
    check_count(name, args, known.least, known.most)
    roles = known.roles + known.roles[-1] * (len(args) - len(known.roles))
    roles = roles[: len(args)]
    for at, (arg, role) in enumerate(zip(args, roles, strict=True), 1):
        if role in "lfz" and not is_list(arg.type):
            raise Mismatch(f"argument {at} of {name} must be a list, not {arg.type}")
    element = _element_type(args, roles)
    adapted = [
        _adapted(name, at, arg, role, element)
        for at, (arg, role) in enumerate(zip(args, roles, strict=True), 1)
    ]
    return function_of(name, adapted, known.run)


def list_function(name: str, args: Sequence[Node]) -> Node:
    """A bound function over lists, structs or maps."""
    if name == "get_field":
        if len(args) < 2:
            raise Mismatch("get_field takes 2 arguments")
        found = args[0]
        for step in args[1:]:
            found = struct_field(found, step)
        return found
    if name == "make_array":
        return _array(args)
    if name in ("struct", "named_struct"):
        return struct_function(name, args)
    if name in MAP_FUNCTIONS:
        return map_function(name, args)
    if name in LIST_VALUES:
        return _of_lists(name, args)
    if not args or (name in ("array_has", "array_element") and len(args) != 2):
        raise Mismatch(f"{name} takes 2 arguments")
    if not is_list(args[0].type):
        raise Mismatch(f"argument 1 of {name} must be a list, not {args[0].type}")
    height = 1 + max(arg.height for arg in args)
    if name == "array_element":
        return _element(args[0], args[1], height)
    if name == "array_has":
        return _has(args[0], args[1], height)
    if len(args) < 2:
        raise Mismatch(f"{name} takes 2 arguments")
    return _membership(name, args, height)
