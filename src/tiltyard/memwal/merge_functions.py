"""The merge functions of a streamed table: for each column outside the key, what becomes of its value when a
row comes for a key that has one (docs/design/011-merge-functions.md).

They are settled when the table's MemWAL begins, and stand among its writers' defaults by field id, so that a
renamed column keeps its own. A column that was added later goes by `last`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import types

from tiltyard.errors import CorruptFile, InvalidInput, UnsupportedFeature, nearest
from tiltyard.expr.arrays import plain_type
from tiltyard.format.field import Field
from tiltyard.format.mem_wal import ShardingField, ShardingSpec
from tiltyard.format.schema import Schema

LAST, FIRST, SUM, MIN, MAX, KEEP = "last", "first", "sum", "min", "max", "keep_non_null"
NAMES = (LAST, FIRST, SUM, MIN, MAX, KEEP)

SETTING = "tiltyard.merge"
"""Writer default: the functions, as `id:name` with commas between them."""

CLOSED = "tiltyard.merge"
"""Transform of a sharding spec that no row goes by. A table with merge functions has one beside its own:
other programs, which would replace what is to be merged, refuse to write into a table with two (decision D4).
"""


@dataclass(frozen=True, slots=True)
class Functions:
    """`by_id`: function by the id of its column."""

    by_id: Mapping[int, str]

    def of(self, field: Field) -> str:
        """The function of a top-level column; `last` for the key and for columns that were added later."""
        return self.by_id.get(field.id, LAST)

    def encode(self) -> str:
        """The functions as the table keeps them."""
        return ",".join(f"{id}:{name}" for id, name in sorted(self.by_id.items()))

    def named(self, schema: Schema) -> dict[str, str]:
        """The functions by the names that the columns have now."""
        key = {each.id for each in schema.primary_key}
        return {each.name: self.of(each) for each in schema.fields if each.id not in key}


def functions_of(defaults: Mapping[str, str]) -> Functions | None:
    """The functions among a table's writer defaults; None for a table without.

    Raises `UnsupportedFeature` for a function of a newer version, `CorruptFile`.
    """
    text = defaults.get(SETTING)
    if text is None:
        return None
    found = {}
    for part in text.split(","):
        id, colon, name = part.partition(":")
        if not (colon and id.isascii() and id.isdigit()):
            raise CorruptFile(
                f"the table's setting {SETTING} should read like 1:sum,2:last, found {text!r}: the functions "
                "of its columns cannot be told"
            )
        if name not in NAMES:
            raise UnsupportedFeature(
                f"the table merges a column by {name!r}, which this version does not know (it knows "
                f"{', '.join(NAMES)}): read it with a newer one"
            )
        found[int(id)] = name
    return Functions(found)


def checked(given: Mapping[str, str], schema: Schema) -> Functions:
    """Functions as a caller names them: one for each top-level column outside the key.

    Raises `InvalidInput`.
    """
    key = [each.name for each in schema.primary_key]
    if not key:
        raise InvalidInput(
            "merge functions need a primary key, since rows of one key are merged; the table has none"
        )
    fields = {each.name: each for each in schema.fields}
    if len(fields) == len(key):
        raise InvalidInput("the table has no column outside its key to merge")
    for name, function in given.items():
        if name not in fields:
            raise InvalidInput(f"the table has no column {name!r} to merge; {nearest(name, list(fields))}")
        if name in key:
            raise InvalidInput(f"column {name!r} is of the key, which says what is merged: leave it out")
        if function not in NAMES:
            raise InvalidInput(
                f"column {name!r} cannot be merged by {function!r}: there are {', '.join(NAMES)}"
            )
        _check_type(fields[name], function)
    lacking = [name for name in fields if name not in given and name not in key]
    if lacking:
        raise InvalidInput(
            f"columns without a merge function: {', '.join(lacking)}. Name one for each, {LAST!r} where the "
            "newest row's value counts"
        )
    return Functions({fields[name].id: function for name, function in given.items()})


def _check_type(field: Field, function: str) -> None:
    takes = {SUM: can_be_summed, MIN: can_be_ordered, MAX: can_be_ordered}.get(function)
    if takes is not None and not takes(field):
        raise InvalidInput(
            f"column {field.name!r} is {field.extension_name or field.arrow_type}, which cannot be merged by "
            f"{function!r}: "
            + ("integers, floats and decimals can" if function == SUM else "its values have no order")
        )


def can_be_summed(field: Field) -> bool:
    """Whether `sum` takes the column."""
    return not field.extension_name and _any_of(
        field.arrow_type, types.is_integer, types.is_floating, types.is_decimal128, types.is_decimal256
    )


def can_be_ordered(field: Field) -> bool:
    """Whether `min` and `max` take the column."""
    return not field.extension_name and _any_of(
        plain_type(field.arrow_type),
        types.is_integer,
        types.is_floating,
        types.is_decimal128,
        types.is_decimal256,
        types.is_boolean,
        types.is_temporal,
        types.is_string,
        types.is_large_string,
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
    )


def _any_of(kind: Any, *tests: Callable[[Any], bool]) -> bool:
    return any(test(kind) for test in tests)


# -- sharding specs -----------------------------------------------------------------------------


def closing_spec(spec_id: int) -> ShardingSpec:
    """A spec that stands beside the table's own and closes it to other programs' writers."""
    return ShardingSpec(spec_id, (ShardingField("merge", (), CLOSED, None, "int32"),))


def is_closing(spec: ShardingSpec) -> bool:
    """Whether a spec is there only to close the table."""
    return any(each.transform == CLOSED for each in spec.fields)
