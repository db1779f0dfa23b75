"""Functions over list columns: membership of constants and length.

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
from tiltyard.expr.types import BOOL, NULL, Function, Literal, Node, Test


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


def list_function(name: str, args: Sequence[Node]) -> Node:
    """A bound list function; the constants follow the list as further arguments."""
    wanted = 1 if name == "array_length" else None
    if not args or (wanted and len(args) != wanted) or (name == "array_has" and len(args) != 2):
        raise Mismatch(f"{name} takes {1 if name == 'array_length' else 2} arguments")
    lists, *members = args
    if isinstance(lists, Literal) or not _is_list(lists.type):
        raise Mismatch(f"argument 1 of {name} must be a list column, not {lists.type}")
    height = 1 + max(arg.height for arg in args)
    if name == "array_length":
        return Function(name, (lists,), pa.uint64(), array_length, height=height)
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
