"""Runs a task: the live rows of its fragments, in order, into new data files, which are read back before
anybody may commit them.

Memory is bounded by the stream of the scan and the pages of the writer, whatever the size of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, RetryableConflict, VersionNotFound
from tiltyard.file.reader import open_file
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import Fragment
from tiltyard.format.names import data_path
from tiltyard.format.row_ids import encode_row_ids, encode_versions
from tiltyard.table.compact.plan import Task, check_supported
from tiltyard.table.compact.results import Rewritten
from tiltyard.table.deletions import load_deletions, rows_to_read
from tiltyard.table.gather import is_fixed
from tiltyard.table.plan import UNIT_BYTES, estimated_row_bytes
from tiltyard.table.projection import CREATED_AT, ROW_ID, UPDATED_AT
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.system_columns import system_column
from tiltyard.table.write import MAX_BYTES_PER_FILE, WriteOptions, remove_files, write_fragments

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.table.snapshot import Snapshot

Progress = Callable[[int], None]
"""Told the rows that were read since it was last told."""

MAX_BATCH_ROWS = 1 << 16
"""Rows of a batch of narrow rows."""

MIN_BYTES_PER_FILE = 8 << 20
"""A file holds at least a page of so many bytes, as with the official writer; a lower limit would make files
of single batches.
"""

U64 = npt.NDArray[np.uint64]


def execute(snapshot: Snapshot, task: Task, *, progress: Progress | None = None) -> Rewritten:
    """Rewrite a task's fragments; the new ones have id 0 and are not committed. On failure nothing is left.

    `snapshot` is any version of the table; the rows are read at the task's. Raises `RetryableConflict` when
    that version was removed, `CorruptFile` when the new files do not give back what was written, and what
    scans and writes raise.
    """
    read = _at(snapshot, task)
    fragments = _fragments(read, task)
    options = task.options
    version = check_supported(read, options)
    lineage = _lineage(read, fragments) if uses_stable_row_ids(read.manifest) else None
    batch_rows = options.batch_size or _batch_rows(read)
    request = ScanRequest(fragments=[each.id for each in fragments], batch_rows=batch_rows)
    max_bytes = max(options.max_bytes_per_file or MAX_BYTES_PER_FILE, MIN_BYTES_PER_FILE)
    scan = Scan(read, request)
    rows = scan.count()
    seen = _Seen(len(read.schema.fields), progress)
    stream = _Stream(seen.batches(scan.batches()))
    new: list[Fragment] = []
    try:
        for count, size in file_rows(rows, options.target_rows_per_fragment):
            new += write_fragments(
                read.store,
                read.schema,
                stream.take(count * size),
                WriteOptions(size, max_bytes, version),
                arrow_schema=read.schema.arrow,
            )
        _check(read, rows, new, seen)
    except BaseException:
        remove_files(read.store, new)
        raise
    if lineage is not None:
        new = _with_lineage(new, lineage)
    return Rewritten(read.version, fragments, tuple(new))


def _batch_rows(read: Snapshot) -> int:
    """So many rows that a batch is a unit of the stream, which need not be cut."""
    return max(1, min(MAX_BATCH_ROWS, UNIT_BYTES // estimated_row_bytes(read.schema.fields)))


def file_rows(rows: int, target: int) -> list[tuple[int, int]]:
    """How rows are spread over files of at least the target: pairs of (files, rows of each). Pure.

    The files differ by one row at most, the larger ones first, so that no small fragment is left over.
    """
    files = max(1, rows // target)
    size, larger = divmod(rows, files)
    spread = [(larger, size + 1), (files - larger, size)]
    return [(count, size) for count, size in spread if count and size]


def _at(snapshot: Snapshot, task: Task) -> Snapshot:
    if snapshot.version == task.read_version:
        return snapshot
    try:
        return open_snapshot(snapshot.store, snapshot.session, version=task.read_version)
    except VersionNotFound as error:
        raise RetryableConflict(
            f"version {task.read_version} of {snapshot.store.uri}, which the compaction was planned on, was "
            "removed; plan it again"
        ) from error


def _fragments(read: Snapshot, task: Task) -> tuple[Fragment, ...]:
    """The task's fragments as its version has them: a task that came from afar may know less of them."""
    found = read.fragments.by_ids([each.id for each in task.fragments])
    gone = [each.id for each, now in zip(task.fragments, found, strict=True) if now is None]
    if gone:
        raise RetryableConflict(
            f"version {read.version} of {read.store.uri} has no fragment {gone[0]}: the task is of another "
            "table, or of one that stood at this place before; plan the compaction again"
        )
    return tuple(each for each in found if each is not None)


class _Seen:
    """Counts what goes by on its way into the new files."""

    def __init__(self, columns: int, progress: Progress | None) -> None:
        self.rows = 0
        self.nulls = np.zeros(columns, np.int64)
        self._progress = progress

    def batches(self, stream: Iterator[Any]) -> Iterator[Any]:
        for batch in stream:
            self.count(batch.columns)
            self.rows += batch.num_rows
            if self._progress is not None:
                self._progress(batch.num_rows)
            yield batch

    def count(self, columns: Sequence[Any]) -> None:
        self.nulls += [each.null_count for each in columns]


class _Stream:
    """A stream of batches that is taken in parts of so many rows."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None

    def take(self, rows: int) -> Iterator[Any]:
        """The next `rows` rows, or all that are left."""
        while rows > 0:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            if batch.num_rows > rows:
                self._rest = batch.slice(rows)
                batch = batch.slice(0, rows)
            rows -= batch.num_rows
            yield batch


def _check(read: Snapshot, rows: int, new: Sequence[Fragment], seen: _Seen) -> None:
    """Compare what the new files hold with what was to be written: rows, checksums of all bytes, nulls.

    The rows written are those that the manifest says are live; the bytes are read back from the store;
    narrow columns of fixed width, and all that have nulls, are decoded again for them.
    """
    if seen.rows != rows:
        raise CorruptFile(
            f"{seen.rows} rows were read where version {read.version} of {read.store.uri} says that there "
            f"are {rows}; nothing was changed",
            path=read.location.path,
        )
    back = _Seen(len(read.schema.fields), None)
    known = np.zeros(len(read.schema.fields), np.bool_)
    for fragment in new:
        for file in fragment.files:
            path = data_path(file.path)
            reader = open_file(read.store, path, size=file.size, session=read.session)
            if reader.num_rows != fragment.physical_rows:
                raise CorruptFile(
                    f"{reader.num_rows} rows where {fragment.physical_rows} were written; nothing was "
                    "changed",
                    path=path,
                )
            reader.verify()
            back.rows += reader.num_rows
            columns = dict(zip(file.fields, file.column_indices, strict=True))
            for at, field in enumerate(read.schema.fields):
                if not (seen.nulls[at] or _is_narrow(field)):
                    continue  # decoding texts and vectors would cost more than the rest of the check
                known[at] = True
                for start in range(0, reader.num_rows, CHECKED_ROWS):
                    piece = slice(start, min(start + CHECKED_ROWS, reader.num_rows))
                    back.nulls[at] += reader.read((field,), columns, piece)[0].null_count
    if back.rows != seen.rows or not np.array_equal(back.nulls[known], seen.nulls[known]):
        raise CorruptFile(
            f"the new data files of {read.store.uri} give {back.rows} rows and {back.nulls.tolist()} nulls "
            f"in each column, but {seen.rows} rows and {seen.nulls.tolist()} nulls were written; nothing was "
            "changed"
        )


def _is_narrow(field: Field) -> bool:
    return is_fixed(field) and estimated_row_bytes([field]) <= NARROW_BYTES


NARROW_BYTES = 8
"""Columns of at most so many bytes a row are decoded again in any case."""

CHECKED_ROWS = 1 << 18
"""Rows that are decoded at once when new files are read back."""


# -- row lineage -------------------------------------------------------------------------------------


def _lineage(read: Snapshot, fragments: Sequence[Fragment]) -> tuple[U64, U64, U64]:
    """Row id, version that created it and version of its last update, of every live row in order."""
    parts: list[list[U64]] = [[], [], []]
    for fragment in fragments:
        rows = rows_to_read(load_deletions(read, fragment), 0, fragment.num_rows)
        for part, name in zip(parts, (ROW_ID, CREATED_AT, UPDATED_AT), strict=True):
            part.append(system_column(read, fragment, name, rows, 0).to_numpy())
    ids, created, updated = (np.concatenate(part) for part in parts)
    return ids, created, updated


def _with_lineage(new: Sequence[Fragment], lineage: tuple[U64, U64, U64]) -> list[Fragment]:
    ids, created, updated = lineage
    carried: list[Fragment] = []
    start = 0
    for fragment in new:
        stop = start + fragment.physical_rows
        carried.append(
            replace(
                fragment,
                row_ids=encode_row_ids(ids[start:stop]),
                created_versions=encode_versions(created[start:stop]),
                last_updated_versions=encode_versions(updated[start:stop]),
            )
        )
        start = stop
    return carried
