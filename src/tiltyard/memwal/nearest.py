"""Exact nearest neighbours in a streamed table: among the rows that count, of all levels (MemWAL, 6.4).

A row that was superseded is never a neighbour, nor does it take a place among the k. Vectors and keys are
read for all rows, other columns for the k that are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.scan import LsmScan
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.nearest.distance import exact
from tiltyard.table.nearest.query import DISTANCE, Nearest, VectorQuery, bind
from tiltyard.table.projection import ColumnsLike

if TYPE_CHECKING:
    from tiltyard.memwal.capture import Captured


def nearest_rows(captured: Captured, asked: Nearest, columns: ColumnsLike = None, where: Any = None) -> Any:
    """The k nearest rows that pass the filter, as a `pa.Table` with `_distance` (float32), nearest first.

    Raises what `table.nearest.query.bind` does, and `InvalidInput` for several query vectors.
    """
    query = _one_query(captured, asked)
    if not captured.schema.has_key:
        return _in_one_pass(captured, query, columns, where)
    key = list(captured.schema.key)
    best = _best(LsmScan(captured, [*dict.fromkeys((*key, query.column))], where), query, key)
    found = Lookup(captured, columns)
    asked_keys = [best.column(name).combine_chunks() for name in key]
    wanted = Lookup(captured, _with_keys(captured, columns, key)).find(asked_keys)
    wanted_keys = [wanted.column(_carried(name)).combine_chunks() for name in key]
    index = KeyIndex(asked_keys)
    rows, codes = index.find(wanted_keys)
    order = np.empty(len(codes), np.int64)
    order[index.first_rows()[codes]] = rows  # a key's code is its own, not its place
    table = wanted.take(pa.array(order)).select(found.schema.names)
    return table.append_column(pa.field(DISTANCE, pa.float32()), best.column(DISTANCE))


def result_schema(captured: Captured, columns: ColumnsLike = None, where: Any = None) -> Any:
    """The `pa.Schema` of `nearest_rows`."""
    return LsmScan(captured, columns, where).schema.append(pa.field(DISTANCE, pa.float32()))


class NearestScan:
    """`nearest_rows` that are not yet read. Raises on construction what is wrong with the request, and reads
    nothing; each reading gives the same rows.
    """

    def __init__(
        self, captured: Captured, asked: Nearest, columns: ColumnsLike = None, where: Any = None
    ) -> None:
        self.captured = captured
        self.schema: Any = result_schema(captured, columns, where)
        """The `pa.Schema` of the result."""
        _one_query(captured, asked)
        self._asked, self._columns, self._where = asked, columns, where

    def table(self) -> Any:
        """The rows as one `pa.Table`."""
        return nearest_rows(self.captured, self._asked, self._columns, self._where)

    def batches(self) -> Iterator[Any]:
        """The rows as `pa.RecordBatch`es, never empty."""
        return (batch for batch in self.table().to_batches() if batch.num_rows)

    def count(self) -> int:
        """How many rows."""
        return int(nearest_rows(self.captured, self._asked, [], self._where).num_rows)


def _one_query(captured: Captured, asked: Nearest) -> VectorQuery:
    query = bind(captured.base.schema, asked)
    if query.is_batch:
        raise InvalidInput("a streamed table is searched for one vector at a time")
    return query


def _carried(name: str) -> str:
    return f"_tiltyard_key_{name}"


def _with_keys(captured: Captured, columns: ColumnsLike, key: list[str]) -> dict[str, str]:
    """The columns asked for as a map, and the key's columns beside them under names of our own."""
    if columns is None:
        columns = captured.base.schema.names
    named = dict(columns) if isinstance(columns, dict) else {name: name for name in columns}
    return {**named, **{_carried(name): name for name in key}}


def _in_one_pass(captured: Captured, query: VectorQuery, columns: ColumnsLike, where: Any) -> Any:
    names = captured.base.schema.names if columns is None else list(columns)
    return _best(LsmScan(captured, [*dict.fromkeys((*names, query.column))], where), query, names)


def _best(scan: LsmScan, query: VectorQuery, names: list[str]) -> Any:
    """The k nearest rows of a scan with these columns and `_distance`, in order."""
    empty = scan.schema.empty_table().select(names)
    field = pa.field(DISTANCE, pa.float32())
    best = empty.append_column(field, pa.array([], pa.float32()))
    for batch in scan.batches():
        vectors, usable = _vectors(batch.column(query.column), query.dimension)
        distances = exact(query.metric, vectors, query.vectors[0])
        inside = usable & (distances >= query.low) & ((distances < query.high) | (query.high == np.inf))
        rows = np.flatnonzero(inside)
        order = rows[np.argsort(distances[rows], kind="stable")[: query.k]]
        if not len(order):
            continue
        part = pa.Table.from_batches([batch]).select(names).take(pa.array(order))
        measured = part.append_column(field, pa.array(distances[order].astype(np.float32)))
        together = pa.concat_tables([best, measured])
        values = np.asarray(together.column(DISTANCE))
        best = together.take(pa.array(np.argsort(values, kind="stable")[: query.k])).combine_chunks()
    return best


def _vectors(column: Any, dimension: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The vectors of a column as a matrix, and which rows have one."""
    values = column.values.slice(column.offset * dimension, len(column) * dimension)
    matrix = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), dimension)
    usable = np.ones(len(column), np.bool_)
    if column.null_count:
        usable = np.asarray(column.is_valid())
    if matrix.dtype.kind == "f":
        usable &= np.isfinite(matrix).all(axis=1)
    return matrix, usable
