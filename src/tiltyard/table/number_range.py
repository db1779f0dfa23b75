"""Predicates that are one range of one column of whole numbers: they are tested while the column is unpacked.

Most conditions by which rows are found, deleted or updated are of this kind. The column is then never laid
out in memory: eight bytes a row that are written once and read once cost more than all the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.table.projection import Projection


def arc_of(predicate: Expr, test: Projection) -> tuple[int, int] | None:
    """The least value that passes, as an unsigned word of the column's width, and how many more do after it.

    None where the predicate is not exactly one such range that some but not all values lie in. `test`: the
    columns that it reads.
    """
    if len(test.fields) != 1 or test.system or len(predicate.paths) != 1 or len(predicate.paths[0]) != 1:
        return None
    arrow = test.fields[0].arrow_type
    if not (pa.types.is_integer(arrow) or pa.types.is_temporal(arrow)) or pa.types.is_interval(arrow):
        return None
    from tiltyard.expr.index_query import ColumnQuery, index_query

    query = index_query(predicate, predicate.paths)
    if not isinstance(query, ColumnQuery) or not query.is_exact or query.nulls:
        return None
    if len(query.ranges) + len(query.values) != 1:
        return None
    least, most = _limits(arrow)
    if query.values:
        low = high = query.values[0]
    else:
        one = query.ranges[0]
        low = least if one.low is None else one.low
        high = most if one.high is None else one.high
        if not isinstance(low, int) or not isinstance(high, int):
            return None
        low += one.low is not None and not one.has_low
        high -= one.high is not None and not one.has_high
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    low, high = max(low, least), min(high, most)
    if low > high or (low, high) == (least, most):
        return None
    return low & ((1 << arrow.bit_width) - 1), high - low


def _limits(arrow: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of a type of whole numbers."""
    bits = arrow.bit_width
    if pa.types.is_unsigned_integer(arrow):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
