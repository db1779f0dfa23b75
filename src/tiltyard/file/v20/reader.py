"""The reader of a data file of version 2.0, behind the same interface as those of later versions.

Such files are read for the tables that have them; nobody writes them anew. So what later versions are read
with beyond arrays of rows (tests of packed values, many files at once) is not here: callers decode and
compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, TypeVar

from tiltyard import runtime
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.file.column import Rows
from tiltyard.file.reader import MAX_PLANS, FileReader
from tiltyard.file.v20.columns import Column
from tiltyard.file.v20.tree import Node, Planner
from tiltyard.file.values import LeafReader
from tiltyard.format.container import FileTail
from tiltyard.format.schema import Field, column_type
from tiltyard.session import Session

T = TypeVar("T")

#: Bytes assumed per row and column, to tell whether columns are worth reading at once.
GUESSED_VALUE_BYTES = 16


class FileReader20(FileReader):
    """One data file of version 2.0. Safe to share among threads."""

    def __init__(self, buffer: Any, path: str, session: Session, tail: FileTail) -> None:
        super().__init__(buffer, path, session, tail)
        self._known: list[tuple[tuple[Field, ...], Any, list[Node]]] = []
        self._opened: dict[Any, Column] = {}

    def whole(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None
    ) -> tuple[LeafReader, ...] | None:
        """None: each file is read on its own."""
        return None

    def _unpacking(
        self, field: Field, columns: Mapping[int, int] | None, look: Callable[[LeafReader], T]
    ) -> T | None:
        """None: values are read and compared."""
        return None

    def _read(self, fields: Sequence[Field], columns: Mapping[int, int] | None, wanted: Rows) -> list[Any]:
        nodes = self._nodes(fields, columns)
        size = wanted.total * len(nodes) * GUESSED_VALUE_BYTES
        if len(nodes) > 1 and size >= self.session.limits.parallel_bytes:
            return runtime.parallel([partial(node, self.session, wanted) for node in nodes])
        return [node(self.session, wanted) for node in nodes]

    def _nodes(self, fields: Sequence[Field], columns: Mapping[int, int] | None) -> list[Node]:
        for known, where, nodes in self._known:
            if where is columns and len(known) == len(fields) and all(map(is_, known, fields)):
                return nodes
        planner = Planner(self._columns() if columns is None else columns, self._open_column)
        nodes = [planner.node(field, self.num_rows) for field in fields]
        self._known = [*self._known, (tuple(fields), columns, nodes)][-MAX_PLANS:]
        return nodes

    def _open_column(self, number: int, field: Field, kind: type[Column]) -> Column:
        key = (number, field.logical_type, kind)
        found = self._opened.get(key)
        if found is None or found.type != field.arrow_type:
            columns = self._tail.columns
            if not 0 <= number < len(columns):
                raise CorruptFile(f"field {field.name!r} is said to be in column {number} of {len(columns)}")
            self._check_owner(number, field)
            try:
                found = kind(self._source, columns[number], field.name, field.arrow_type)
            except UnsupportedFeature as error:
                raise UnsupportedFeature(f"column {field.name!r}: {error}") from error
            except (CorruptFile, ValueError) as error:
                raise CorruptFile(f"column {field.name!r}: {error}") from error
            self._opened[key] = found
        return found

    def _check_owner(self, number: int, field: Field) -> None:
        """Raise `CorruptFile` unless the file's own schema has the field's type in this column."""
        known = self.schema.columns(self.version)
        if len(known) != len(self._tail.columns):
            return
        held, wanted = _stored(known[number]), _stored(field)
        if held != wanted:
            raise CorruptFile(
                f"column {field.name!r} is {' of '.join(held)} in the file, {' of '.join(wanted)} in the "
                "table"
            )


def _stored(field: Field) -> tuple[str, ...]:
    """The logical types in a column: of a field with columns below it, its own."""
    return column_type(field) if field.is_leaf else (field.logical_type,)
