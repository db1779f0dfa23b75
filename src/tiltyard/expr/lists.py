"""Functions over list columns: membership of constants, length, one element; and a field of a struct.

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
from tiltyard.expr.coerce import Mismatch
from tiltyard.expr.compare import literal_test, membership
from tiltyard.expr.functions import Run, array_length, list_bounds
from tiltyard.expr.pairs import pair_test
from tiltyard.expr.types import BOOL, NULL, Column, Function, Literal, Node, Test

MAX_ELEMENT = 1 << 62
"""No list has more elements; a greater number of an element means none of them, as this one does."""


def _is_list(arrow: pa.DataType) -> bool:
    return pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)


def _counts(lists: pa.Array, test: Test) -> np.ndarray:
    """int64[rows]: how many non-null elements of each list pass a test."""
    flat, first, end = list_bounds(lists)
    hits = test(flat)
    valid = valid_of(flat)
    if valid is not None:
        hits = hits & valid
    upto = np.concatenate(([0], np.cumsum(hits, dtype=np.int64)))
    return upto[end] - upto[first]


def _answer(lists: pa.Array, found: np.ndarray) -> pa.Array:
    return boolean_array(truth(found, valid_of(lists)))


def _has_any(test: Test) -> Run:
    return lambda args, rows: _answer(args[0], _counts(args[0], test) > 0)


def _has_all(tests: Sequence[Test]) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        found = np.ones(len(args[0]), np.bool_)
        for test in tests:
            found &= _counts(args[0], test) > 0
        return _answer(args[0], found)

    return run


def _has_column(pair: Callable[[pa.Array, pa.Array], np.ndarray]) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        lists, wanted = args
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


def _element_at(number: int) -> Run:
    """The element of each list with this number: 1 is the first, -1 the last; null where there is none."""

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        flat, first, end = list_bounds(args[0])
        at = first + number - 1 if number > 0 else end + number
        known = (at >= first) & (at < end) & (number != 0)
        valid = valid_of(args[0])
        if valid is not None:
            known &= valid
        return flat.take(pa.array(at, mask=~known))

    return run


def _element(lists: Node, number: Node, height: int) -> Node:
    if not isinstance(number, Literal) or type(number.value) is not int:
        raise Mismatch("the number of an element must be a whole constant; 1 is the first")
    return Function(
        "array_element",
        (lists, number),
        lists.type.value_type,
        _element_at(max(-MAX_ELEMENT, min(MAX_ELEMENT, number.value))),
        height=height,
    )


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
        return args[0].flatten()[at]  # null where the struct is

    return Function("get_field", (struct, name), arrow, run, height=1 + struct.height)


def _array(items: Sequence[Node]) -> Node:
    """A list of constants, the same in every row."""
    if not items or not all(isinstance(item, Literal) for item in items):
        raise Mismatch("a list in brackets holds constants, at least one")
    from tiltyard.expr.build import agreed

    element, items = agreed(items)
    arrow = pa.list_(element)

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        return pa.repeat(pa.scalar([arg.as_py() for arg in args], arrow), rows)

    return Function("make_array", tuple(items), arrow, run, height=1 + max(item.height for item in items))


def list_function(name: str, args: Sequence[Node]) -> Node:
    """A bound list function; the constants follow the list as further arguments."""
    if name == "get_field":
        if len(args) != 2:
            raise Mismatch("get_field takes 2 arguments")
        return struct_field(*args)
    if name == "make_array":
        return _array(args)
    wanted = 1 if name == "array_length" else None
    if (
        not args
        or (wanted and len(args) != wanted)
        or (name in ("array_has", "array_element") and len(args) != 2)
    ):
        raise Mismatch(f"{name} takes {1 if name == 'array_length' else 2} arguments")
    lists, *members = args
    if isinstance(lists, Literal) or not _is_list(lists.type):
        raise Mismatch(f"argument 1 of {name} must be a list column, not {lists.type}")
    height = 1 + max(arg.height for arg in args)
    if name == "array_length":
        return Function(name, (lists,), pa.uint64(), array_length, height=height)
    if name == "array_element":
        return _element(lists, members[0], height)
    element = lists.type.value_type
    if name == "array_has" and not isinstance(members[0], Literal):
        if members[0].type == NULL:
            return Literal(None, BOOL)
        pair = pair_test("=", element, members[0].type)
        return Function(name, tuple(args), BOOL, _has_column(pair), height=height)
    constants = [member for member in members if isinstance(member, Literal)]
    if len(constants) != len(members):
        raise Mismatch(f"the list given to {name} must hold constants only")
    if any(constant.value is None for constant in constants):
        if name == "array_has":
            return Literal(None, BOOL)
        raise Mismatch(f"the list given to {name} must not hold null")
    if name == "array_has_all":
        run = _has_all([literal_test("=", element, constant) for constant in constants])
    else:
        run = _has_any(membership(element, constants)[1])
    return Function(name, tuple(args), BOOL, run, height=height)
