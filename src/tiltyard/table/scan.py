"""Scans: a plan made purely, then read as a stream of batches in bounded memory, as one table, or as a count.

Rows come in table order, always. Where an index knows which rows may pass the filter, only those are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import InvalidInput
from tiltyard.table.plan import (
    DEFAULT_BATCH_ROWS,
    STREAM_BYTES,
    Piece,
    Unit,
    estimated_row_bytes,
    plan_tasks,
    plan_units,
    sliced,
    stream_unit_rows,
)
from tiltyard.table.projection import (
    ROW_ADDRESS,
    ROW_ID,
    ROW_OFFSET,
    ColumnsLike,
    Projection,
    for_expression,
    project,
    readable_schema,
)
from tiltyard.table.removed import tells_removed
from tiltyard.table.row_counts import chosen_positions, live_rows, rows_of_fragments
from tiltyard.table.streaming import (
    count_units,
    is_far,
    offsets_of_units,
    read_ahead,
    read_apart,
    read_tasks,
    read_units,
    read_whole,
    rechunked,
    run_tasks,
)
from tiltyard.table.unit_reader import UnitReader

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.table.prefilter import Prefilter
    from tiltyard.table.snapshot import Snapshot

MAX_BATCH_ROWS = 1 << 31

READER_BYTES = 1024
"""What a kept reader is accounted as in the session's cache, and each of its columns (bytes)."""

FRAGMENT_BYTES = 256
"""The same for each fragment of the manifest that it needs (bytes)."""

PICKED_ROWS = 2048
"""Rows found by an index that one task reads at least."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What the caller wants. `fragments` are fragment ids, None for all; `batch_rows` bounds a batch of a
    stream.
    """

    columns: ColumnsLike = None
    where: Any = None
    limit: int | None = None
    offset: int = 0
    batch_rows: int = DEFAULT_BATCH_ROWS
    fragments: Sequence[int] | None = None
    row_id: bool = False
    row_address: bool = False
    full_batches: bool = False
    """Whether batches of a stream have exactly `batch_rows` rows (but the last), across fragments."""
    include_deleted: bool = False
    """Whether deleted rows come too, with null row id and address."""
    order_by: Sequence[tuple[str, bool, bool]] = field(default=())
    """(column, ascending, nulls first) in order of weight."""
    late: bool | Sequence[str] | None = None
    """Whether columns beside the filter's are read for the rows that pass alone (names: these are), or as
    whole ranges; None for what is cheaper, by how many rows of a range pass.
    """
    batch_bytes: int | None = None
    """About so many bytes at most in a batch of a stream."""
    use_index: bool = True
    """Whether an index may say which rows to read; the rows are the same."""


class Scan:
    """A request bound to a snapshot. Raises on construction what is wrong with the request; reads nothing."""

    def __init__(self, snapshot: Snapshot, request: ScanRequest = ScanRequest()) -> None:
        check_request(request)
        self.snapshot = snapshot
        self.request = request
        self.predicate = _predicate(snapshot, request.where)
        self._plain = _plain_reader(snapshot, request)
        self.projection = self._plain.projection
        if request.include_deleted and not {ROW_ID, ROW_ADDRESS} & set(self.projection.system):
            raise InvalidInput(
                "include_deleted_rows needs the row id in the result, but with_row_id is false; set it"
            )
        if request.order_by:
            from tiltyard.table.sorted_scan import check_order

            check_order(self)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self.projection.schema

    # -- results ---------------------------------------------------------------------------------

    @tells_removed
    def table(self) -> Any:
        """All rows as one `pa.Table`; chunks lie within fragments, or hold several whole ones."""
        if self.request.order_by:
            from tiltyard.table.sorted_scan import sorted_rows

            return pa.concat_tables([self.schema.empty_table(), *sorted_rows(self)])
        row_bytes = estimated_row_bytes(self.projection.fields)
        if self.predicate is None:
            units = self._units(None, self.request.offset, self.request.limit)
            batches = read_whole(self._reader(), units, row_bytes)
        else:
            # Of files that are far away every piece costs a request for each column of the filter.
            looked_at = estimated_row_bytes(self._tested_fields()) if is_far(self._plain) else row_bytes
            task_rows = stream_unit_rows(looked_at, DEFAULT_BATCH_ROWS)
            pieces, is_settled = self._pieces(task_rows)
            if not is_settled and self._is_cut:
                return pa.Table.from_batches(list(self._stream()), self.schema)
            batches = self._read(self._reader(is_settled), pieces, task_rows, row_bytes)
        return pa.Table.from_batches(batches, self.schema)

    @tells_removed
    def batches(self, *, apart: bool = False) -> Iterator[Any]:
        """Rows as `pa.RecordBatch`es in order, never empty, at most `batch_rows` rows each.

        Small fragments share a batch, unless they are to be kept apart.
        """
        rows = self.request.batch_rows
        if self.request.order_by:
            from tiltyard.table.sorted_scan import sorted_rows

            pieces = (batch for table in sorted_rows(self) for batch in table.to_batches(max_chunksize=rows))
            yield from self._cut(rechunked(pieces, rows, self.schema))
            return
        stream = self._stream(apart and not self.request.full_batches)
        yield from rechunked(stream, rows, self.schema) if self.request.full_batches else self._cut(stream)

    @tells_removed
    def read(self, pieces: Sequence[Piece]) -> list[Any]:
        """The rows of these pieces that pass, as batches in order; limit and offset do not count."""
        row_bytes = estimated_row_bytes(self.projection.fields)
        return self._read(self._reader(), pieces, stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS), row_bytes)

    def units(self) -> Iterator[Any]:
        """Rows in order as `pa.RecordBatch`es of the size in which they are read."""
        return self._stream()

    def _cut(self, stream: Iterator[Any]) -> Iterator[Any]:
        """The same rows in batches of at most so many rows, and about so many bytes, as are asked for."""
        most, nbytes = self.request.batch_rows, self.request.batch_bytes
        for batch in stream:
            rows = most
            if nbytes is not None:
                rows = max(1, min(most, batch.num_rows * nbytes // max(1, batch.nbytes)))
            if batch.num_rows <= rows:
                yield batch
            else:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    @tells_removed
    def count(self) -> int:
        """How many rows the scan gives."""
        if self.predicate is None:
            return sum(unit.rows for unit in self._units(None, self.request.offset, self.request.limit))
        found = self._counted()
        found = max(0, found - self.request.offset)
        return found if self.request.limit is None else min(found, self.request.limit)

    @tells_removed
    def offsets(self) -> dict[int, npt.NDArray[np.uint32]]:
        """Physical offsets of the rows that pass, sorted, by fragment id; fragments without any are
        left out. Limit and offset of the request do not count here.
        """
        row_bytes = estimated_row_bytes(self._tested_fields())
        task_rows = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)
        pieces, is_settled = self._pieces(task_rows, cut=False)
        reader = self._reader(is_settled)
        tasks = plan_tasks(pieces, task_rows)
        parts: dict[int, list[npt.NDArray[np.uint32]]] = {}
        ids = self.snapshot.fragments.ids
        work = [partial(offsets_of_units, reader, task) for task in tasks]
        for task in run_tasks(self.snapshot.session, work, row_bytes):
            for position, offsets in task:
                if len(offsets):
                    parts.setdefault(int(ids[position]), []).append(offsets.astype(np.uint32))
        return {id: np.concatenate(each) if len(each) > 1 else each[0] for id, each in parts.items()}

    def limited(self, rows: int) -> Scan:
        """The same scan with at most so many rows."""
        return Scan(self.snapshot, replace(self.request, limit=rows))

    def plan(self) -> list[str]:
        """How the rows that pass the filter are found, a line each."""
        if self.predicate is None:
            return []
        from tiltyard.table.prefilter import explain

        told = explain(self.snapshot, self.predicate, self.request.fragments) if self._may_use_index else []
        return [*told, f"filter first, then gather: {self.request.where}"]

    @property
    def columns_read(self) -> list[str]:
        """Names of the columns that are read, those of the filter first; in parentheses those that may be
        read for the rows that pass alone.
        """
        tested = dict.fromkeys(each.name for each in self._tested_fields())
        others = dict.fromkeys(each.name for each in self.projection.fields if each.name not in tested)
        late = self.request.late
        if late is None or isinstance(late, bool):
            late = [] if late is False else list(others)
        return [*tested, *(f"({name})" if name in late else name for name in others)]

    def rows_looked_at(self) -> int:
        """How many rows are read for the filter, or all that are given where there is none."""
        if self.predicate is None:
            return self.count()
        return sum(piece.rows for piece in self._pieces(DEFAULT_BATCH_ROWS, cut=False)[0])

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _is_cut(self) -> bool:
        return self.request.limit is not None or self.request.offset > 0

    @property
    def _may_use_index(self) -> bool:
        return (
            self.request.use_index
            and self.predicate is not None
            and bool(self.snapshot.manifest.indices)
            and not self.request.include_deleted
        )

    def _reader(self, is_settled: bool = False) -> UnitReader:
        """Reads pieces and tests them, unless it is settled that all of their rows pass."""
        if (self.predicate is None or is_settled) and not self.request.include_deleted:
            return self._plain
        return UnitReader(
            self.snapshot,
            self.projection,
            self.predicate,
            include_deleted=self.request.include_deleted,
            late=self.request.late,
        )

    def _tested_fields(self) -> Any:
        if self.predicate is None:
            return self.projection.fields
        return for_expression(self.snapshot.schema, self.predicate).fields

    def _units(self, unit_rows: int | None, offset: int = 0, limit: int | None = None) -> list[Unit]:
        return plan_units(
            rows_of_fragments(self.snapshot, include_deleted=self.request.include_deleted),
            unit_rows=unit_rows,
            offset=offset,
            limit=limit,
            chosen=chosen_positions(self.snapshot, self.request.fragments),
        )

    def _pieces(self, unit_rows: int, *, cut: bool = True) -> tuple[Sequence[Piece], bool]:
        """What to read for the filter, and whether every row of it is known to pass; only then limit and
        offset are applied (where `cut`).
        """
        found = self._prefilter()
        if found is None:
            return self._units(unit_rows), False
        pieces = self._found_pieces(found, unit_rows)
        if not found.is_exact or found.unindexed:
            return pieces, False
        if cut and self._is_cut:
            return sliced(pieces, self.request.offset, self.request.limit), True
        return pieces, True

    def _prefilter(self) -> Prefilter | None:
        if not self._may_use_index:
            return None
        from tiltyard.table.prefilter import prefilter

        assert self.predicate is not None
        return prefilter(self.snapshot, self.predicate, self.request.fragments)

    def _found_pieces(self, found: Prefilter, unit_rows: int) -> list[Piece]:
        from tiltyard.table.prefilter import plan_found

        assert self.predicate is not None
        numbered = ROW_OFFSET in self.projection.system or (ROW_OFFSET,) in self.predicate.paths
        return plan_found(self.snapshot, found, self.request.fragments, unit_rows, numbered=numbered)

    def _counted(self) -> int:
        if self._may_use_index:
            from tiltyard.table.prefilter import counted

            assert self.predicate is not None
            known = counted(self.snapshot, self.predicate, self.request.fragments)
            if known is not None:
                return known
        row_bytes = estimated_row_bytes(self._tested_fields())
        task_rows = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)
        pieces, is_settled = self._pieces(task_rows, cut=False)
        if is_settled:
            return sum(piece.rows for piece in pieces)
        reader = self._reader()
        work = [partial(count_units, reader, task) for task in plan_tasks(pieces, task_rows)]
        return sum(run_tasks(self.snapshot.session, work, row_bytes))

    def _read(self, reader: UnitReader, pieces: Sequence[Piece], task_rows: int, row_bytes: int) -> list[Any]:
        rows = sum(piece.rows for piece in pieces)
        if rows <= PICKED_ROWS:
            return reader.read_all(pieces)
        if not all(isinstance(piece, Unit) for piece in pieces):
            # Rows far apart cost more than their bytes say.
            task_rows = min(task_rows, max(PICKED_ROWS, rows // (2 * runtime.cores())))
            work = [partial(read_units, reader, task) for task in plan_tasks(pieces, task_rows)]
            return [batch for part in runtime.parallel(work) for batch in part]
        return read_tasks(reader, plan_tasks(pieces, task_rows), row_bytes)

    def _stream(self, apart: bool = False) -> Iterator[Any]:
        """Batches of the size of units, limit and offset applied."""
        request = self.request
        fields = {each.id: each for each in (*self.projection.fields, *self._tested_fields())}
        row_bytes = estimated_row_bytes(fields.values())
        unit_rows = stream_unit_rows(row_bytes, request.batch_rows, STREAM_BYTES)
        if self.predicate is None:
            units = self._units(unit_rows, request.offset, request.limit)
            read = read_apart if apart else read_units
            yield from read_ahead(self._reader(), plan_tasks(units, unit_rows), read, request.batch_rows)
            return
        skip, left = request.offset, request.limit
        if left == 0:
            return
        pieces, is_settled = self._pieces(unit_rows)
        tasks = plan_tasks(pieces, unit_rows)
        stream = read_ahead(self._reader(is_settled), tasks, batch_rows=request.batch_rows)
        if is_settled:
            yield from stream
            return
        for batch in stream:
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            rest = batch.slice(skip) if skip else batch
            skip = 0
            if left is not None:
                rest = rest.slice(0, left) if rest.num_rows > left else rest
                left -= rest.num_rows
            yield rest
            if left == 0:
                return


def check_request(request: ScanRequest) -> None:
    """Raise `InvalidInput` for numbers that are out of range, and for what does not go together."""
    if request.batch_bytes is not None and request.full_batches:
        raise InvalidInput(
            "batch_size_bytes cannot be combined with strict_batch_size, which wants batches of exactly so "
            "many rows: leave one out"
        )
    if request.limit is not None and request.limit < 0:
        raise InvalidInput(f"limit must be non-negative, found {request.limit}")
    if request.offset < 0:
        raise InvalidInput(f"offset must be non-negative, found {request.offset}")
    if not 0 < request.batch_rows < MAX_BATCH_ROWS:
        raise InvalidInput(
            f"batch_size must be between 1 and {MAX_BATCH_ROWS - 1} rows, found {request.batch_rows}"
        )


def _plain_reader(snapshot: Snapshot, request: ScanRequest) -> UnitReader:
    """A reader of the columns that are asked for, without filter: kept, for making it costs more than reading
    a row, but only that of the last version read, so that no old manifest stays for it. Raises what is wrong
    with the columns.
    """

    def made() -> UnitReader:
        projection = project(snapshot.schema, columns, row_id=request.row_id, row_address=request.row_address)
        return UnitReader(snapshot, projection)

    columns = request.columns
    asked: Any = None
    if columns is not None:
        asked = tuple(columns.items() if isinstance(columns, Mapping) else columns)
        if not all(isinstance(each, (str, tuple)) for each in asked):
            return made()
    choice = (isinstance(columns, Mapping), asked, request.row_id, request.row_address)
    key = (snapshot.store.identity, "reader", choice)
    found: UnitReader | None = snapshot.session.cache.get(key)
    if found is None or found.snapshot.manifest is not snapshot.manifest:
        found = made()
        held = READER_BYTES * (1 + len(found.projection.outputs)) + FRAGMENT_BYTES * len(snapshot.fragments)
        snapshot.session.cache.put(key, found, held)
    return found


def _predicate(snapshot: Snapshot, where: Any) -> Expr | None:
    """`where` as SQL text or as an Arrow expression."""
    if where is None:
        return None
    from tiltyard.expr import bind_predicate

    return bind_predicate(where, readable_schema(snapshot.schema, str(where)))


__all__ = ["Projection", "Scan", "ScanRequest", "check_request", "live_rows"]
