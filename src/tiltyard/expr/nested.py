"""Lists, structs and maps as whole values: their order, and functions that make and open structs and maps.

Nested values compare element by element, field by field in the order of the type; inside of them null equals
null and is less than everything, so that a comparison of two that are not null is never unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import plain_type, valid_of
from tiltyard.expr.coerce import Kind, Mismatch, kind_of
from tiltyard.expr.compare import OPERATORS
from tiltyard.expr.pairs import pair_test
from tiltyard.expr.ragged import Ragged, is_list, lists_of, ragged, spans, starts
from tiltyard.expr.signatures import Run, array_of, check_count
from tiltyard.expr.types import NULL, Function, Literal, Node

Signs = np.ndarray[Any, np.dtype[np.int8]]
Order = Callable[[pa.Array, pa.Array], Signs]


def nested_test(op: str, left: pa.DataType, right: pa.DataType) -> Callable[[pa.Array, pa.Array], np.ndarray]:
    """The test `left op right` for two columns of lists or structs; `Mismatch` where they do not compare."""
    order = _order(left, right)
    compared = OPERATORS[op]
    return lambda a, b: compared(order(a, b), 0)


def _order(left: pa.DataType, right: pa.DataType) -> Order:
    """-1, 0 or 1 for each row; null is less than everything."""
    if pa.types.is_null(left) or pa.types.is_null(right):
        return _with_nulls(lambda a, b: np.zeros(len(a), np.int8))
    if is_list(left) and is_list(right):
        return _with_nulls(_list_order(_order(left.value_type, right.value_type)))
    if pa.types.is_struct(left) and pa.types.is_struct(right) and left.num_fields == right.num_fields:
        pairs = _field_pairs(left, right)
        orders = [_order(left.field(a).type, right.field(b).type) for a, b in pairs]
        return _with_nulls(_struct_order(pairs, orders))
    if Kind.OTHER in (kind_of(left), kind_of(right)):
        raise Mismatch(f"{left} does not compare with {right}")
    less, greater = pair_test("<", left, right), pair_test(">", left, right)
    return _with_nulls(lambda a, b: greater(a, b).astype(np.int8) - less(a, b).astype(np.int8))


def _field_pairs(left: pa.DataType, right: pa.DataType) -> list[tuple[int, int]]:
    """Fields by name where both have the same names, else by place."""
    names = [left.field(at).name for at in range(left.num_fields)]
    others = [right.field(at).name for at in range(right.num_fields)]
    if sorted(names) == sorted(others) and len(set(names)) == len(names):
        return [(at, others.index(name)) for at, name in enumerate(names)]
    return [(at, at) for at in range(len(names))]


def _with_nulls(order: Order) -> Order:
    def run(left: pa.Array, right: pa.Array) -> Signs:
        found = order(left, right)
        known, other = valid_of(left), valid_of(right)
        if known is None and other is None:
            return found
        here = np.ones(len(left), np.int8) if known is None else known.astype(np.int8)
        there = np.ones(len(left), np.int8) if other is None else other.astype(np.int8)
        return np.where((here & there).astype(np.bool_), found, here - there)

    return run


def _struct_order(pairs: list[tuple[int, int]], orders: list[Order]) -> Order:
    def run(left: pa.Array, right: pa.Array) -> Signs:
        first, second = left.flatten(), right.flatten()
        found = np.zeros(len(left), np.int8)
        for (a, b), order in zip(pairs, orders, strict=True):
            found = np.where(found == 0, order(first[a], second[b]), found)
        return found

    return run


def _list_order(order: Order) -> Order:
    def run(left: pa.Array, right: pa.Array) -> Signs:
        first, second = ragged(left, len(left)), ragged(right, len(right))
        shared = np.minimum(first.count, second.count)
        signs = order(
            first.flat.take(pa.array(spans(first.first, shared))),
            second.flat.take(pa.array(spans(second.first, shared))),
        )
        found = np.sign(first.count - second.count).astype(np.int8)
        decided = np.flatnonzero(signs)
        owners = np.repeat(np.arange(len(left)), shared)[decided]
        rows, at = np.unique(owners, return_index=True)
        found[rows] = signs[decided[at]]
        return found

    return run


# -- structs ------------------------------------------------------------------------------------------------


def struct_of(names: Sequence[str], values: Sequence[Node], function: str, args: Sequence[Node]) -> Node:
    """A struct of values under names; never null."""
    if not names or any(not name for name in names):
        raise Mismatch("a struct has at least one field, and each has a name")
    if len(set(names)) < len(names):
        raise Mismatch("the names of a struct's fields must differ")
    skip = len(args) - len(values)  # named_struct has a name before each value

    def run(given: Sequence[Any], rows: int) -> Any:
        kept = given[1::2] if skip else given
        return pa.StructArray.from_arrays([array_of(each, rows) for each in kept], list(names))

    arrow = pa.struct([(name, plain_type(value.type)) for name, value in zip(names, values, strict=True)])
    return Function(function, tuple(args), arrow, run, height=1 + max(arg.height for arg in args))


def struct_function(name: str, args: Sequence[Node]) -> Node:
    """`struct(a, b)`, whose fields are c0, c1, ..., and `named_struct('a', a, 'b', b)`."""
    if name == "struct":
        return struct_of([f"c{at}" for at in range(len(args))], args, name, args)
    if not args or len(args) % 2:
        raise Mismatch("named_struct takes names and values in turn")
    names = [arg.value if isinstance(arg, Literal) else None for arg in args[::2]]
    if not all(isinstance(each, str) for each in names):
        raise Mismatch("the names of a struct's fields are text constants")
    return struct_of([str(each) for each in names], args[1::2], name, args)


# -- maps ---------------------------------------------------------------------------------------------------


def _entries(array: pa.Array) -> Ragged:
    """A map array as the ragged list of its entries."""
    arrow = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
    offsets = array.offsets
    known = valid_of(array)
    flat = pa.StructArray.from_arrays([array.keys, array.items], fields=list(arrow.value_type))
    values = offsets.to_numpy().astype(np.int64) - (offsets[0].as_py() if len(offsets) else 0)
    valid = np.ones(len(array), np.bool_) if known is None else known
    return Ragged(flat, values[:-1], np.where(valid, np.diff(values), 0), valid)


def _map_part(part: str) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = _entries(array_of(args[0], rows))
        flat = given.flat if part == "entries" else given.flat.field("key" if part == "keys" else "value")
        return lists_of(flat, given.places(), given.count, given.valid)

    return run


def _map_extract(key: pa.DataType, wanted: pa.DataType) -> Run:
    same = pair_test("=", key, wanted)

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = _entries(array_of(args[0], rows))
        places = given.places()
        spread = array_of(args[1], rows).take(pa.array(given.owners()))
        hits = same(given.flat.field("key").take(pa.array(places)), spread)
        found = np.full(given.rows, -1, np.int64)
        found[given.owners()[hits]] = places[hits]
        kept = given.valid.astype(np.int64)
        return lists_of(given.flat.field("value"), found[given.valid], kept, given.valid)

    return run


MAP_FUNCTIONS = {"map_keys": 1, "map_values": 1, "map_entries": 1, "map_extract": 2, "map": 2}
"""Functions over maps and how many arguments they take."""


def _map_of(keys: Node, values: Node) -> Node:
    """A map of a list of keys and a list of as many values."""
    for arg in (keys, values):
        if not is_list(arg.type):
            raise Mismatch(f"map takes a list of keys and a list of values, not {arg.type}")
    arrow = pa.map_(keys.type.value_type, values.type.value_type)

    def run(args: Sequence[Any], rows: int) -> pa.Array:
        first, second = ragged(args[0], rows), ragged(args[1], rows)
        if bool((first.count != second.count).any()):
            raise pa.ArrowInvalid("a map has as many keys as values")
        names = first.flat.take(pa.array(first.places()))
        if names.null_count:
            raise pa.ArrowInvalid("the key of a map cannot be null")
        offsets = pa.array(starts(first.count), pa.int32())
        return pa.MapArray.from_arrays(
            offsets, names, second.flat.take(pa.array(second.places())), type=arrow
        )

    height = 1 + max(keys.height, values.height)
    return Function("map", (keys, values), arrow, run, height=height)


def map_function(name: str, args: Sequence[Node]) -> Node:
    """A bound function of a map column."""
    check_count(name, args, MAP_FUNCTIONS[name], MAP_FUNCTIONS[name])
    if name == "map":
        return _map_of(*args)
    arrow = args[0].type
    if not pa.types.is_map(arrow):
        raise Mismatch(f"argument 1 of {name} must be a map, not {arrow}")
    entry = pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])
    made = {"map_keys": arrow.key_type, "map_entries": entry}.get(name, arrow.item_type)
    height = 1 + max(arg.height for arg in args)
    if name != "map_extract":
        run = _map_part(name.removeprefix("map_"))
    else:
        if args[1].type == NULL:
            raise Mismatch("the key of map_extract must not be null")
        run = _map_extract(arrow.key_type, args[1].type)
    return Function(name, tuple(args), pa.list_(made), run, height=height)
