"""Columns that no file holds: arrays of nulls, bounded, for their size is whatever a schema says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.errors import BatchTooLarge, UnsupportedFeature

if TYPE_CHECKING:
    from tiltyard.session import Session

OFFSET_BYTES = 4
LARGE_OFFSET_BYTES = 8


def null_array(session: Session, length: int, kind: Any, name: str) -> Any:
    """A `pa.Array` of `length` nulls of type `kind`; `name` names the column in messages.

    Raises `BatchTooLarge` where the array would take more than the session's `null_bytes`,
    `UnsupportedFeature` where one row would.
    """
    if kind.num_fields or pa.types.is_fixed_size_binary(kind):
        row, most = null_bytes(kind), session.limits.null_bytes
        if row > most:
            raise UnsupportedFeature(
                f"column {name!r} stands in no data file, and one null of its type {kind} takes {row} bytes, "
                f"more than the limit of {most}; leave the column out"
            )
        if row * length > most:
            raise BatchTooLarge(
                f"{length} nulls of column {name!r} take {row * length} bytes, more than {most}: read fewer "
                "rows at a time"
            )
    return pa.nulls(length, kind)


def null_bytes(kind: Any) -> int:
    """Bytes that a null of a type takes in an array, validity left out."""
    types = pa.types
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * null_bytes(kind.value_type)
    if types.is_fixed_size_binary(kind):
        return int(kind.byte_width)  # Arrow's number of bits overflows
    if types.is_struct(kind):
        return sum(null_bytes(child.type) for child in kind)
    if types.is_large_list(kind):
        return LARGE_OFFSET_BYTES
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:  # of varying width: an offset
        return (
            LARGE_OFFSET_BYTES if types.is_large_string(kind) or types.is_large_binary(kind) else OFFSET_BYTES
        )
