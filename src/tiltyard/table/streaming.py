"""Running a plan: whole tables in parallel, streams read ahead by a few tasks, batches cut to size.

A stream decodes `runtime.cores()` tasks of about `STREAM_BYTES` each while the one before them is being
consumed, and holds no more than these (D46). Of mapped files it keeps in the process's page table what it is
reading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import BatchTooLarge, ForkedHandle
from tiltyard.table.dictionaries import united
from tiltyard.table.fetching import FetchAhead
from tiltyard.table.gather import is_fixed
from tiltyard.table.plan import (
    DEFAULT_BATCH_ROWS,
    FITS,
    PIECE_BYTES,
    Piece,
    Unit,
    cut,
    cut_tasks,
    estimated_row_bytes,
    fitting_rows,
    plan_tasks,
    probe,
    task_rows,
)
from tiltyard.table.unit_reader import UnitReader, batch_of

if TYPE_CHECKING:
    from tiltyard.session import Session

Read = Callable[[UnitReader, Sequence[Piece]], list[Any]]

PARALLEL_UNIT_BYTES = 64 << 10
"""Decoded bytes per fragment below which fragments are read on one thread: opening a small file is Python,
and threads that take turns at the interpreter are slower than one.
"""


ALWAYS_PARALLEL = 1 << 62
"""Bytes of a row of tasks that are no small ones."""


def run_tasks(session: Session, work: Sequence[Callable[[], Any]], row_bytes: int) -> list[Any]:
    """Results of the tasks in order; on the calling thread alone where they are small."""
    if len(work) * row_bytes * DEFAULT_BATCH_ROWS < session.limits.parallel_bytes:
        return [each() for each in work]
    return runtime.parallel(work)


def read_units(reader: UnitReader, units: Sequence[Piece]) -> list[Any]:
    return reader.read_all(units)


def read_apart(reader: UnitReader, units: Sequence[Piece]) -> list[Any]:
    """The same for units without a predicate, but no batch holds rows of two of them."""
    ends = list(accumulate(unit.rows for unit in units))
    found: list[Any] = []
    first = 0
    for batch in reader.read_all(units):
        start, last = first, first + batch.num_rows
        for end in ends[bisect_right(ends, first) :]:
            found.append(batch.slice(start - first, min(end, last) - start))
            start = end
            if end >= last:
                break
        first = last
    return found


def count_units(reader: UnitReader, units: list[Piece]) -> int:
    if len(units) == 1:
        return reader.count(units[0])
    return sum(len(offsets) for _, offsets in reader.offsets_all(units))


def offsets_of_units(reader: UnitReader, units: list[Piece]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    return reader.offsets_all(units)


def read_tasks(
    reader: UnitReader, tasks: Sequence[Sequence[Piece]], row_bytes: int = ALWAYS_PARALLEL
) -> list[Any]:
    """The batches of all tasks in order, several tasks at a time; see `run_tasks`."""

    def read(task: Sequence[Piece]) -> list[Any]:
        found = reader.read_all(task)
        fetching.passed(task_rows(task))
        return found

    with fetched_ahead(reader, tasks) as fetching:
        found = run_tasks(reader.snapshot.session, [partial(read, task) for task in tasks], row_bytes)
    return [batch for part in found for batch in part]


def read_whole(reader: UnitReader, units: list[Unit], row_bytes: int) -> list[Any]:
    """Whole fragments, in parallel: by fragment where there are many; else by fragment and column, or by rows
    where a column's output cannot be filled by several tasks at once.
    """
    rows = sum(unit.rows for unit in units)
    fields = len(reader.projection.fields)
    nbytes = rows * row_bytes
    if nbytes < max(reader.snapshot.session.limits.parallel_bytes, len(units) * PARALLEL_UNIT_BYTES):
        return read_units(reader, units)
    cores = runtime.cores()
    if len(units) >= 4 * cores or not fields:
        per_task = max(rows // (8 * cores), 1)
        return read_tasks(reader, plan_tasks(units, per_task))
    if not all(map(is_fixed, reader.projection.fields)):
        pieces = min(2 * cores, max(rows * row_bytes // PIECE_BYTES, cores))
        # Of files that are far away parts of columns are more requests than columns.
        return read_tasks(reader, [[unit] for unit in (units if is_far(reader) else cut(units, pieces))])

    def read(unit: Unit, field: int) -> Any:
        found = reader.read_field(unit, field)
        if field == fields - 1 and unit is not units[0]:
            fetching.passed(unit.rows)
        return found

    work = [partial(read, unit, field) for unit in units for field in range(fields)]
    try:
        with fetched_ahead(reader, [units[1:]]) as fetching:
            arrays = runtime.parallel(work)
    except BatchTooLarge:
        return read_units(reader, units)
    return [
        reader.assemble(unit, arrays[at : at + fields])
        for unit, at in zip(units, range(0, len(arrays), fields), strict=True)
    ]


def is_far(reader: UnitReader) -> bool:
    """Whether the table's files are fetched by ranges."""
    return getattr(reader.snapshot.store, "ranged", False)


@contextmanager
def fetched_ahead(reader: UnitReader, tasks: Sequence[Sequence[Piece]]) -> Iterator[FetchAhead]:
    """Ask for what these tasks read, in order, where the table is far away."""
    pieces = [piece for task in tasks for piece in task] if is_far(reader) else []
    fetching = FetchAhead(reader, pieces, estimated_row_bytes(reader.projection.fields))
    try:
        fetching.begin()
        yield fetching
    finally:
        fetching.end()


def read_ahead(
    reader: UnitReader,
    tasks: list[list[Piece]],
    read: Read = read_units,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> Iterator[Any]:
    """The batches of all tasks in order; while those of one are consumed, the next are decoded, one a core.

    The first task is small: it gives the first batch soon, and tells how many bytes the others will come to.
    They are cut where that is more than was guessed, into whole batches of `batch_rows`.
    """
    width = runtime.cores()
    process = runtime.process_id()
    left = deque(tasks)
    most = max(map(task_rows, tasks), default=0)
    begun: deque[tuple[list[Piece], runtime.Task[list[Any]]]] = deque()

    def begin(count: int) -> None:
        while left and len(begun) < count:
            task = left.popleft()
            begun.append((task, runtime.spawn(read, reader, task)))

    if not left:
        return
    task, rest = probe(left.popleft(), batch_rows)
    if rest:
        left.appendleft(rest)
    with fetched_ahead(reader, tasks) as fetching:
        ready = read(reader, task)
        while True:
            fetching.passed(task_rows(task))
            rows = fitting_rows(task_rows(task), sum(batch.nbytes for batch in ready), batch_rows)
            if rows * FITS < most:
                left, most = deque(cut_tasks(left, rows)), rows
            begin(width)
            ready.reverse()
            while ready:
                yield ready.pop()  # nothing here refers to a batch that was given away
            reader.release(task)
            if not begun:
                return
            if runtime.process_id() != process:
                raise ForkedHandle(
                    "this stream of batches was begun in the parent process; scan again in the child"
                )
            task, running = begun.popleft()
            ready = running.join()


def rechunked(stream: Iterator[Any], rows: int, schema: Any) -> Iterator[Any]:
    """Batches of exactly `rows` rows, but the last."""
    held: list[Any] = []
    count = 0
    for batch in stream:
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            whole = joined(held, schema)
            yield whole.slice(0, rows)
            count -= rows
            held = [whole.slice(rows)] if count else []
    if count:
        yield joined(held, schema)


def joined(batches: list[Any], schema: Any) -> Any:
    """Batches as one."""
    if len(batches) == 1:
        return batches[0]
    if not len(schema):
        return batch_of([], schema, sum(each.num_rows for each in batches))
    table = united(pa.Table.from_batches(batches, schema)).combine_chunks()
    return batch_of([column.chunk(0) for column in table.columns], schema, table.num_rows)
