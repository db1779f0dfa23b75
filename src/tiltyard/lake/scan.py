"""Some rows and columns of a table in plain words, not yet read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.packages import polars_of
from tiltyard.dataset.scanner import ColumnOrdering
from tiltyard.errors import InvalidInput
from tiltyard.lake.words import plain
from tiltyard.table.nearest.query import MAKE_VECTORS

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset

DIRECTIONS = {"asc": True, "desc": False}


class Scan:
    """Some rows and columns of a table at one version, not yet read. It may be pickled, and read repeatedly;
    iterating it gives its batches.
    """

    @plain
    def __init__(self, ds: LanceDataset, asked: Mapping[str, Any]) -> None:
        """`asked`: arguments of `LanceDataset.scanner`; those that are None are left out."""
        self._ds = ds._pinned(ds._snapshot)
        self._asked = {name: value for name, value in asked.items() if value is not None}
        options = dict(self._asked)
        if "order_by" in options:
            options["order_by"] = orderings(options["order_by"])
        self._scanner = self._ds.scanner(options.pop("columns", None), options.pop("where", None), **options)

    def __repr__(self) -> str:
        told = [f"{name}={value!r}" for name, value in self._asked.items() if name != "nearest"]
        if "nearest" in self._asked:
            near = self._asked["nearest"]
            told.append(f"nearest={near['k']} in {near['column']!r}")
        return f"Scan({', '.join([repr(self._ds.uri), f'version={self._ds.version}', *told])})"

    def __reduce__(self) -> Any:
        return Scan, (self._ds, self._asked)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._scanner.projected_schema

    @plain
    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return self._scanner.to_table()

    @plain
    def to_pandas(self) -> Any:
        """Everything, as a `pandas.DataFrame`."""
        return self._scanner.to_pandas()

    def to_polars(self) -> Any:
        """Everything, as a `polars.DataFrame`."""
        return polars_of(self.to_arrow())

    def batches(self) -> Iterator[Any]:
        """`pa.RecordBatch`es one after another, in bounded memory."""
        return self._scanner.to_batches()

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    @plain
    def count(self) -> int:
        """How many rows."""
        return self._scanner.count_rows()

    @plain
    def explain(self) -> str:
        """What will be read, in which order, and which index helps, as text."""
        return self._scanner.explain_plan()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scanner.__arrow_c_stream__(requested_schema)


def vector_column(schema: Any, uri: str) -> str:
    """The only column of vectors of a `pa.Schema`. Raises `InvalidInput` for none or several."""
    found = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if len(found) != 1:
        there = ", ".join(found) or "none"
        lists = [field.name for field in schema if pa.types.is_list(field.type)]
        hint = "" if found or not lists else f". {', '.join(lists)}: {MAKE_VECTORS}"
        raise InvalidInput(f"name the column to search; columns of vectors in {uri}: {there}{hint}")
    return found[0]


def orderings(given: Any) -> list[ColumnOrdering]:
    """The keys of an ordering: a name, a pair of a name and `asc` or `desc`, or a list of them."""
    keys = [given] if isinstance(given, (str, tuple, ColumnOrdering)) else given
    if isinstance(keys, Mapping) or not hasattr(keys, "__iter__"):
        raise arguments.wrong("order_by", "a column name, (name, 'desc'), or a list of them", given)
    return [_ordering(f"order_by[{at}]", key) for at, key in enumerate(keys)]


def _ordering(name: str, key: Any) -> ColumnOrdering:
    if isinstance(key, ColumnOrdering):
        return key
    if isinstance(key, str):
        return ColumnOrdering(key)
    if not isinstance(key, tuple) or len(key) != 2:
        raise arguments.wrong(name, "a column name or (name, 'desc')", key)
    direction = arguments.one_of(f"the direction of {name}", key[1], *DIRECTIONS)
    return ColumnOrdering(arguments.text(name, key[0]), DIRECTIONS[direction])
