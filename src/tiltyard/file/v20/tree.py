"""From columns to fields: a file of version 2.0 has a column for every field, also for lists and structs
(file format 4.1).

Structs are never null; what stands for them in the file is empty. A leaf without a column is null, and so is
a struct, or a list, without any below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.file.column import Rows
from tiltyard.file.nulls import null_array
from tiltyard.file.v20.columns import Column, Lists, Values
from tiltyard.format.blobs import check_described
from tiltyard.format.schema import Field
from tiltyard.session import Session

Node = Callable[[Session, Rows], Any]
OpenColumn = Callable[[int, Field, type[Column]], Any]


class Planner:
    """Makes a function that reads a field. `open_column(number, field, kind)` gives a column of the file."""

    def __init__(self, columns: Mapping[int, int], open_column: OpenColumn) -> None:
        self._columns = columns
        self._open_column = open_column

    def node(self, field: Field, rows: int) -> Node:
        """How to read a field of which the file must hold `rows` entries."""
        check_described(field)
        arrow = field.arrow_type
        if not any(leaf.id in self._columns for leaf in field.leaves()):
            return lambda session, wanted: null_array(session, wanted.total, arrow, field.name)
        if not field.is_leaf:
            return self._nested(field, arrow, rows)
        if types.is_struct(arrow) and not field.children:
            return lambda session, wanted: pa.Array.from_buffers(arrow, wanted.total, [None], 0, children=[])
        if field.children and not types.is_struct(arrow):
            raise UnsupportedFeature(f"column {field.name!r}: packed rows of {arrow} are not supported")
        column: Values = self._column(field, Values, rows)
        return column.read

    def _nested(self, field: Field, arrow: Any, rows: int) -> Node:
        if types.is_struct(arrow):
            children = [self.node(child, rows) for child in field.children]

            def struct(session: Session, wanted: Rows) -> Any:
                parts = [child(session, wanted) for child in children]
                return pa.Array.from_buffers(arrow, wanted.total, [None], 0, children=parts)

            return struct
        if not (types.is_list(arrow) or types.is_large_list(arrow)):
            raise UnsupportedFeature(
                f"column {field.name!r}: files of version 2.0 hold no {arrow} that any reader can read"
            )
        column: Lists = self._column(field, Lists, rows)
        item = self.node(field.children[0], column.num_items)
        large = bool(types.is_large_list(arrow))

        def lists(session: Session, wanted: Rows) -> Any:
            offsets, bitmap, items = column.read(session, wanted, large=large)
            below = item(session, items)
            return pa.Array.from_buffers(arrow, wanted.total, [bitmap, offsets], children=[below])

        return lists

    def _column(self, field: Field, kind: type[Column], rows: int) -> Any:
        number = self._columns.get(field.id)
        if number is None:
            raise CorruptFile(f"field {field.name!r} has no column, what is below it has")
        column = self._open_column(number, field, kind)
        if column.num_rows != rows:
            raise CorruptFile(f"column {field.name!r} has {column.num_rows} rows where {rows} are expected")
        return column
