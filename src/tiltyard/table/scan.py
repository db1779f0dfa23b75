"""Scans: a plan made purely, then read as a stream of batches in bounded memory, as one table, or as a count.

A stream decodes one window of tasks while the window before it is being consumed; it holds at most two
windows of `runtime.cores()` tasks of about `UNIT_BYTES` each (D46). Rows come in table order, always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import BatchTooLarge, CorruptFile, ForkedHandle, InvalidInput
from tiltyard.table.deletions import load_deletions
from tiltyard.table.dictionaries import united
from tiltyard.table.gather import is_fixed
from tiltyard.table.plan import (
    DEFAULT_BATCH_ROWS,
    PIECE_BYTES,
    Unit,
    cut,
    estimated_row_bytes,
    plan_tasks,
    plan_units,
    stream_unit_rows,
)
from tiltyard.table.projection import (
    ROW_ADDRESS,
    ROW_ID,
    ColumnsLike,
    Projection,
    project,
    readable_schema,
)
from tiltyard.table.unit_reader import UnitReader, batch_of

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.table.snapshot import Snapshot

MAX_BATCH_ROWS = 1 << 31
BELIEVED_ROWS = 1 << 24
"""A fragment that is said to have more rows is compared with its file before anything is planned by its size.
"""

PARALLEL_UNIT_BYTES = 64 << 10
"""Decoded bytes per fragment below which fragments are read on one thread: opening a small file is Python,
and threads that take turns at the interpreter are slower than one.
"""


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


class Scan:
    """A request bound to a snapshot. Raises on construction what is wrong with the request; reads nothing."""

    def __init__(self, snapshot: Snapshot, request: ScanRequest = ScanRequest()) -> None:
        _check(request)
        self.snapshot = snapshot
        self.request = request
        self.predicate = _predicate(snapshot, request.where)
        self.projection = project(
            snapshot.schema, request.columns, row_id=request.row_id, row_address=request.row_address
        )
        if request.include_deleted and not {ROW_ID, ROW_ADDRESS} & set(self.projection.system):
            raise InvalidInput(
                "include_deleted_rows needs the row id in the result: ask for it with with_row_id=True"
            )

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self.projection.schema

    # -- results ---------------------------------------------------------------------------------

    def table(self) -> Any:
        """All rows as one `pa.Table`; chunks lie within fragments, or hold several whole ones."""
        if self.request.order_by:
            return self._sorted()
        if self.predicate is not None and (self.request.limit is not None or self.request.offset):
            return pa.Table.from_batches(list(self._stream()), self.schema)
        reader = self._reader()
        row_bytes = estimated_row_bytes(self.projection.fields)
        if self.predicate is None:
            units = self._units(None, self.request.offset, self.request.limit)
            batches = _read_whole(reader, units, row_bytes)
        else:
            task_rows = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)
            tasks = plan_tasks(self._units(task_rows), task_rows)
            found = self._run([partial(_read_units, reader, task) for task in tasks], row_bytes)
            batches = [batch for part in found for batch in part]
        return pa.Table.from_batches(batches, self.schema)

    def batches(self) -> Iterator[Any]:
        """Rows as `pa.RecordBatch`es in order, never empty, at most `batch_rows` rows each."""
        if self.request.order_by:
            yield from self._sorted().to_batches(max_chunksize=self.request.batch_rows)
            return
        rows = self.request.batch_rows
        stream = self._stream()
        if self.request.full_batches:
            yield from _rechunked(stream, rows, self.schema)
            return
        for batch in stream:
            if batch.num_rows <= rows:
                yield batch
            else:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    def count(self) -> int:
        """How many rows the scan gives."""
        if self.predicate is None:
            units = self._units(None, self.request.offset, self.request.limit)
            return sum(unit.rows for unit in units)
        reader = self._reader()
        row_bytes = estimated_row_bytes(self._tested_fields())
        task_rows = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)
        tasks = plan_tasks(self._units(task_rows), task_rows)
        found = sum(self._run([partial(_count_units, reader, task) for task in tasks], row_bytes))
        found = max(0, found - self.request.offset)
        return found if self.request.limit is None else min(found, self.request.limit)

    def offsets(self) -> dict[int, npt.NDArray[np.uint32]]:
        """Physical offsets of the rows that pass, sorted, by fragment id; fragments without any are
        left out.
        """
        reader = self._reader()
        row_bytes = estimated_row_bytes(self._tested_fields())
        task_rows = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)
        tasks = plan_tasks(self._units(task_rows), task_rows)
        parts: dict[int, list[npt.NDArray[np.uint32]]] = {}
        ids = self.snapshot.fragments.ids
        for task in self._run([partial(_offsets_of_units, reader, task) for task in tasks], row_bytes):
            for position, offsets in task:
                if len(offsets):
                    parts.setdefault(int(ids[position]), []).append(offsets.astype(np.uint32))
        return {id: np.concatenate(each) if len(each) > 1 else each[0] for id, each in parts.items()}

    # -- inside ----------------------------------------------------------------------------------

    def _reader(self) -> UnitReader:
        return UnitReader(
            self.snapshot, self.projection, self.predicate, include_deleted=self.request.include_deleted
        )

    def _tested_fields(self) -> Any:
        if self.predicate is None:
            return self.projection.fields
        from tiltyard.table.projection import for_expression

        return for_expression(self.snapshot.schema, self.predicate).fields

    def _units(self, unit_rows: int | None, offset: int = 0, limit: int | None = None) -> list[Unit]:
        return plan_units(
            _rows_of_fragments(self.snapshot, self.request.include_deleted),
            unit_rows=unit_rows,
            offset=offset,
            limit=limit,
            chosen=_positions(self.snapshot, self.request.fragments),
        )

    def _run(self, work: list[Callable[[], Any]], row_bytes: int) -> list[Any]:
        if len(work) * row_bytes * DEFAULT_BATCH_ROWS < self.snapshot.session.limits.parallel_bytes:
            return [each() for each in work]
        return runtime.parallel(work)

    def _stream(self) -> Iterator[Any]:
        """Batches of the size of units, limit and offset applied."""
        request = self.request
        fields = {each.id: each for each in (*self.projection.fields, *self._tested_fields())}
        unit_rows = stream_unit_rows(estimated_row_bytes(fields.values()), request.batch_rows)
        reader = self._reader()
        if self.predicate is None:
            units = self._units(unit_rows, request.offset, request.limit)
            yield from _read_ahead(reader, plan_tasks(units, unit_rows))
            return
        skip, left = request.offset, request.limit
        if left == 0:
            return
        for batch in _read_ahead(reader, plan_tasks(self._units(unit_rows), unit_rows)):
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

    def _sorted(self) -> Any:
        import pyarrow.compute as pc

        request = self.request
        inner = ScanRequest(
            columns=request.columns,
            where=request.where,
            fragments=request.fragments,
            row_id=request.row_id,
            row_address=request.row_address,
            include_deleted=request.include_deleted,
        )
        table = united(Scan(self.snapshot, inner).table())
        order = np.arange(table.num_rows, dtype=np.int64)
        by = Scan(
            self.snapshot,
            ScanRequest(
                columns=[name for name, _, _ in request.order_by],
                where=request.where,
                fragments=request.fragments,
            ),
        )
        keys = united(by.table())
        # Least weighty key first; each pass keeps the order of the one before.
        for name, ascending, nulls_first in reversed(request.order_by):
            column = keys[name].take(pa.array(order))
            picked = pc.array_sort_indices(
                column,
                order="ascending" if ascending else "descending",
                null_placement="at_start" if nulls_first else "at_end",
            )
            order = order[picked.to_numpy()]
        stop = None if request.limit is None else request.offset + request.limit
        return table.take(pa.array(order[request.offset : stop]))


def _check(request: ScanRequest) -> None:
    if request.limit is not None and request.limit < 0:
        raise InvalidInput(f"limit must be non-negative, found {request.limit}")
    if request.offset < 0:
        raise InvalidInput(f"offset must be non-negative, found {request.offset}")
    if not 0 < request.batch_rows < MAX_BATCH_ROWS:
        raise InvalidInput(
            f"batch_size must be between 1 and {MAX_BATCH_ROWS - 1} rows, found {request.batch_rows}"
        )


def _predicate(snapshot: Snapshot, where: Any) -> Expr | None:
    """`where` as SQL text or as an Arrow expression."""
    if where is None:
        return None
    from tiltyard.expr import bind_predicate

    return bind_predicate(where, readable_schema(snapshot.schema, str(where)))


def live_rows(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """Live rows of each fragment, in the order of the version's list (int64)."""
    return _rows_of_fragments(snapshot, False)


def _rows_of_fragments(snapshot: Snapshot, include_deleted: bool) -> npt.NDArray[np.int64]:
    fragments = snapshot.fragments
    rows = np.asarray(fragments.physical_rows).astype(np.int64)
    if len(rows) and not rows.all():
        for position in np.flatnonzero(rows == 0):
            rows[position] = _counted_rows(snapshot, int(position))
    for position in np.flatnonzero(rows > BELIEVED_ROWS):
        _counted_rows(snapshot, int(position))
    if include_deleted:
        return rows
    live = rows - np.asarray(fragments.deleted_rows).astype(np.int64)
    if fragments.any_deletions:
        for position in np.flatnonzero((live <= 0) & (rows > 0)):
            _check_all_deleted(snapshot, int(position), int(live[position]))
    return live


def _check_all_deleted(snapshot: Snapshot, position: int, live: int) -> None:
    """A fragment that is said to have no row left is not read: then its deletion file must say so, too."""
    fragment = snapshot.fragments[position]
    if live < 0:
        raise CorruptFile(
            f"fragment {fragment.id} has {-live} rows less than the manifest says are deleted",
            path=snapshot.location.path,
        )
    load_deletions(snapshot, fragment)


def _counted_rows(snapshot: Snapshot, position: int) -> int:
    """Rows of a fragment as its file says: very old manifests do not. Raises `CorruptFile` where they do and
    disagree.
    """
    from tiltyard.table.fragment_columns import FragmentColumns

    fragment = snapshot.fragments[position]
    if not fragment.files:
        return 0
    return FragmentColumns(snapshot, ()).open(fragment, fragment.files[0]).num_rows


def _positions(snapshot: Snapshot, ids: Sequence[int] | None) -> list[int] | None:
    if ids is None:
        return None
    known = {int(id): position for position, id in enumerate(snapshot.fragments.ids)}
    for id in ids:
        if id not in known:
            raise InvalidInput(f"version {snapshot.version} of {snapshot.store.uri} has no fragment {id}")
    return [known[id] for id in ids]


def _read_units(reader: UnitReader, units: list[Unit]) -> list[Any]:
    return reader.read_all(units)


def _count_units(reader: UnitReader, units: list[Unit]) -> int:
    return sum(reader.count(unit) for unit in units)


def _offsets_of_units(reader: UnitReader, units: list[Unit]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    return [(unit.fragment, reader.offsets(unit)) for unit in units]


def _read_whole(reader: UnitReader, units: list[Unit], row_bytes: int) -> list[Any]:
    """Whole fragments, in parallel: by fragment where there are many; else by fragment and column, or by rows
    where a column's output cannot be filled by several tasks at once.
    """
    rows = sum(unit.rows for unit in units)
    fields = len(reader.projection.fields)
    nbytes = rows * row_bytes
    if nbytes < max(reader.snapshot.session.limits.parallel_bytes, len(units) * PARALLEL_UNIT_BYTES):
        return _read_units(reader, units)
    cores = runtime.cores()
    if len(units) >= 4 * cores or not fields:
        per_task = max(rows // (8 * cores), 1)
        tasks = plan_tasks(units, per_task)
        found = runtime.parallel([partial(_read_units, reader, task) for task in tasks])
        return [batch for part in found for batch in part]
    if not all(map(is_fixed, reader.projection.fields)):
        pieces = min(2 * cores, max(rows * row_bytes // PIECE_BYTES, cores))
        found = runtime.parallel([partial(reader.read, unit) for unit in cut(units, pieces)])
        return [batch for part in found for batch in part]
    work = [partial(reader.read_field, unit, i) for unit in units for i in range(fields)]
    try:
        arrays = runtime.parallel(work)
    except BatchTooLarge:
        return _read_units(reader, units)
    return [
        reader.assemble(unit, arrays[at : at + fields])
        for unit, at in zip(units, range(0, len(arrays), fields), strict=True)
    ]


def _read_ahead(reader: UnitReader, tasks: list[list[Unit]]) -> Iterator[Any]:
    """The batches of all tasks in order; the next window is decoded while this one is consumed."""
    width = runtime.cores()
    windows = [tasks[i : i + width] for i in range(0, len(tasks), width)]

    def run(window: list[list[Unit]]) -> list[list[Any]]:
        return runtime.parallel([partial(_read_units, reader, task) for task in window])

    process = runtime.process_id()
    ready = run(windows[0]) if windows else []
    for number in range(1, len(windows) + 1):
        ahead = runtime.spawn(run, windows[number]) if number < len(windows) else None
        for part in ready:
            yield from part
        if ahead is not None:
            if runtime.process_id() != process:
                raise ForkedHandle(
                    "this stream of batches was begun in the parent process; scan again in the child"
                )
            ready = ahead.join()


def _rechunked(stream: Iterator[Any], rows: int, schema: Any) -> Iterator[Any]:
    """Batches of exactly `rows` rows, but the last."""
    held: list[Any] = []
    count = 0
    for batch in stream:
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            whole = _joined(held, schema)
            yield whole.slice(0, rows)
            count -= rows
            held = [whole.slice(rows)] if count else []
    if count:
        yield _joined(held, schema)


def _joined(batches: list[Any], schema: Any) -> Any:
    if len(batches) == 1:
        return batches[0]
    if not len(schema):
        return batch_of([], schema, sum(each.num_rows for each in batches))
    table = united(pa.Table.from_batches(batches, schema)).combine_chunks()
    return batch_of([column.chunk(0) for column in table.columns], schema, table.num_rows)


__all__ = ["Projection", "Scan", "ScanRequest", "live_rows"]
