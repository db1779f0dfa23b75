"""A search as a scan: the filter before or after it, the columns asked for, the rows in order of distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.table.dictionaries import united
from tiltyard.table.nearest.query import DISTANCE, QUERY_NUMBER, Nearest, bind
from tiltyard.table.nearest.search import Found, search
from tiltyard.table.nearest.vectors import VectorColumn
from tiltyard.table.projection import (
    ROW_ADDRESS,
    ROW_ID,
    SYSTEM_FIELDS,
    Output,
    Projection,
    for_expression,
    project,
    readable_schema,
)
from tiltyard.table.row_counts import chosen_positions, physical_rows
from tiltyard.table.scan import Scan, ScanRequest, check_request
from tiltyard.table.take import Taker
from tiltyard.table.unit_reader import batch_of, output_column

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

PSEUDO = {**SYSTEM_FIELDS, DISTANCE: pa.field(DISTANCE, pa.float32())}
NUMBER_FIELD = pa.field(QUERY_NUMBER, pa.int32(), nullable=False)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the result: where they are, how far, and for which query vector."""

    positions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]
    numbers: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, chosen: Any) -> _Rows:
        return _Rows(
            self.positions[chosen], self.offsets[chosen], self.distances[chosen], self.numbers[chosen]
        )


class NearestScan:
    """A search bound to a snapshot. Raises on construction what is wrong with it; reads nothing.

    The filter of the request says which rows are searched where `prefilter` is set; otherwise it picks among
    the k nearest, of which fewer may be left, and may name `_distance`. The result has the columns asked for,
    then `_distance` unless they name it; for several query vectors `query_index` comes first.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        request: ScanRequest,
        asked: Nearest,
        *,
        prefilter: bool = False,
        adds_distance: bool = True,
    ) -> None:
        """`adds_distance`: whether the result has `_distance` where the columns asked for do not name it."""
        check_request(request)
        if request.include_deleted:
            raise InvalidInput("include_deleted_rows cannot be combined with a search: leave one of them out")
        if request.order_by:
            raise InvalidInput("a search gives rows by distance: leave order_by out, or sort the result")
        self.snapshot = snapshot
        self.request = request
        self.prefilter = prefilter
        self._adds_distance = adds_distance
        self.query = bind(snapshot.schema, asked)
        self._asked = asked
        self.predicate = self._predicate()
        self.projection = self._projected()
        fields = list(self.projection.schema)
        if self.query.is_batch:
            fields.insert(0, NUMBER_FIELD)
        self._schema = pa.schema(fields, self.projection.schema.metadata)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._schema

    def table(self) -> Any:
        """The rows as one `pa.Table`, for each query vector nearest first; equal distances in table order."""
        rows = self._sliced(self._rows())
        return self._read(rows)

    def batches(self, *, apart: bool = False) -> Iterator[Any]:
        """The rows as `pa.RecordBatch`es, never empty, at most `batch_rows` rows each."""
        for batch in self.table().combine_chunks().to_batches(max_chunksize=self.request.batch_rows):
            if batch.num_rows:
                yield batch

    def count(self) -> int:
        """How many rows the search gives."""
        return len(self._sliced(self._rows()))

    def limited(self, rows: int) -> NearestScan:
        """The same search with at most so many rows of its result."""
        request = replace(self.request, limit=rows)
        return NearestScan(
            self.snapshot,
            request,
            self._asked,
            prefilter=self.prefilter,
            adds_distance=self._adds_distance,
        )

    def plan(self) -> list[str]:
        """What the search does, a line each."""
        query = self.query
        many = f", {len(query.vectors)} query vectors" if query.is_batch else ""
        lines = [
            f"nearest: {query.k} by {query.metric} in {query.column}{many}, exact, without a vector index"
        ]
        if np.isfinite(query.low) or np.isfinite(query.high):
            lines.append(f"distances: from {query.low} to below {query.high}")
        if self.predicate is not None:
            when = "before" if self.prefilter else "after"
            lines.append(f"filter {when} the search: {self.request.where}")
        if self.predicate is not None and self.prefilter:
            lines += Scan(self.snapshot, self._filtering()).plan()[:-1]
        return lines

    @property
    def columns_read(self) -> list[str]:
        """Names of the columns that are read, those of the search and the filter included."""
        first = self.query.column.split(".")[0]
        tested: list[str] = []
        if self.predicate is not None:
            fields = for_expression(self.snapshot.schema, self.predicate, PSEUDO).fields
            tested = [each.name for each in fields]
        return list(dict.fromkeys([first, *tested, *[each.name for each in self.projection.fields]]))

    def rows_looked_at(self) -> int:
        """How many vectors are compared."""
        if self.predicate is not None and self.prefilter:
            return sum(len(offsets) for offsets in self._allowed().values())
        inner = ScanRequest(columns=[], fragments=self.request.fragments)
        return Scan(self.snapshot, inner).count()

    # -- inside ----------------------------------------------------------------------------------

    def _predicate(self) -> Any:
        where = self.request.where
        if where is None:
            return None
        from tiltyard.expr import bind_predicate

        schema = self.snapshot.schema
        pseudo = SYSTEM_FIELDS if self.prefilter else PSEUDO
        return bind_predicate(where, readable_schema(schema, str(where), pseudo))

    def _projected(self) -> Projection:
        """The columns asked for and `_distance`; row id and address come last."""
        request, schema = self.request, self.snapshot.schema
        asked: Any = schema.names if request.columns is None else request.columns
        ends = ((ROW_ID, request.row_id), (ROW_ADDRESS, request.row_address))
        last = [name for name, is_asked in ends if is_asked]
        columns: Any
        if isinstance(asked, Mapping):
            columns = {name: sql for name, sql in asked.items() if name not in last}
            if self._adds_distance:
                columns.setdefault(DISTANCE, DISTANCE)
        else:
            columns = [name for name in asked if name not in last]
            if self._adds_distance and DISTANCE not in columns:
                columns.append(DISTANCE)
        return project(schema, columns, row_id=request.row_id, row_address=request.row_address, found=PSEUDO)

    def _rows(self) -> _Rows:
        snapshot = self.snapshot
        allowed = self._allowed() if self.predicate is not None and self.prefilter else None
        column = VectorColumn(snapshot, self.query, allowed)
        chosen = chosen_positions(snapshot, self.request.fragments)
        positions = list(range(len(snapshot.fragments))) if chosen is None else chosen
        found = search(column, self.query, positions, physical_rows(snapshot))
        rows = _gathered(found)
        if self.predicate is None or self.prefilter or not len(rows):
            return rows
        from tiltyard.expr import mask

        tested = for_expression(snapshot.schema, self.predicate, PSEUDO)
        scope = self._scope(tested, rows)
        columns = [output_column(each, *scope, None) for each in tested.outputs]
        return rows.at(mask(self.predicate, batch_of(columns, tested.schema, len(rows))))

    def _allowed(self) -> dict[int, npt.NDArray[np.uint32]]:
        """Physical offsets of the live rows that pass the filter, by fragment id."""
        return Scan(self.snapshot, self._filtering()).offsets()

    def _filtering(self) -> ScanRequest:
        """The scan that finds the rows to search."""
        request = self.request
        return ScanRequest(
            columns=[], where=request.where, fragments=request.fragments, use_index=request.use_index
        )

    def _sliced(self, rows: _Rows) -> _Rows:
        request = self.request
        stop = None if request.limit is None else request.offset + request.limit
        return rows.at(slice(request.offset, stop))

    def _read(self, rows: _Rows) -> Any:
        arrays, system = self._scope(self.projection, rows)
        scope = None
        if self.projection.has_expressions:
            fields = [field.arrow_field for field in self.projection.fields]
            fields += [PSEUDO[name] for name in system]
            scope = batch_of([*arrays, *system.values()], pa.schema(fields), len(rows))
        columns = [output_column(each, arrays, system, scope) for each in self.projection.outputs]
        if self.query.is_batch:
            columns.insert(0, pa.array(rows.numbers))
        return pa.Table.from_batches([batch_of(columns, self._schema, len(rows))], self._schema)

    def _scope(self, projection: Projection, rows: _Rows) -> tuple[list[Any], dict[str, Any]]:
        """The fields and pseudo columns that a projection reads, of these rows."""
        system = [name for name in projection.system if name != DISTANCE]
        outputs = [Output(each.name, each.arrow_field, field=i) for i, each in enumerate(projection.fields)]
        outputs += [Output(name, SYSTEM_FIELDS[name], system=name) for name in system]
        schema = pa.schema([each.arrow_field for each in outputs])
        plain = replace(
            projection, system=tuple(system), outputs=tuple(outputs), schema=schema, direct=not system
        )
        arrays = [pa.array([], field.type) for field in schema]
        if len(rows) and outputs:
            table = Taker(self.snapshot, projection=plain).rows_at_offsets(rows.positions, rows.offsets)
            joined = united(table).combine_chunks()
            arrays = [column.chunk(0) for column in joined.columns]
        fields = len(projection.fields)
        pseudo = dict(zip(system, arrays[fields:], strict=True))
        pseudo[DISTANCE] = pa.array(rows.distances)
        return arrays[:fields], pseudo


def _gathered(found: list[Found]) -> _Rows:
    numbers = [np.full(len(each.positions), i, dtype=np.int32) for i, each in enumerate(found)]
    return _Rows(
        np.concatenate([each.positions for each in found]),
        np.concatenate([each.offsets for each in found]),
        np.concatenate([each.distances for each in found]),
        np.concatenate(numbers),
    )
