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
from tiltyard.file.column import Rows
from tiltyard.file.reader import MAX_PLANS, FileReader
from tiltyard.file.v20.columns import Column
from tiltyard.file.v20.tree import Node, Planner
from tiltyard.file.values import LeafReader
from tiltyard.format.container import ColumnPages, FileTail
from tiltyard.format.schema import Field
from tiltyard.session import Session

T = TypeVar("T")

#: Bytes assumed per row and column, to tell whether columns are worth reading at once.
GUESSED_VALUE_BYTES = 16


class FileReader20(FileReader):
    """One data file of version 2.0. Safe to share among threads."""

    def __init__(self, buffer: Any, path: str, session: Session, tail: FileTail) -> None:
        super().__init__(buffer, path, session, tail)
        self._known: list[tuple[tuple[Field, ...], Any, list[Node]]] = []
        self._columns_open: dict[Any, Column] = {}

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
        found = self._columns_open.get(key)
        if found is None or found.type != field.arrow_type:

            def column(pages: ColumnPages) -> Column:
                return kind(self._source, pages, field.name, field.arrow_type)

            found = self._columns_open[key] = self._opened(number, field, column)
        return found
