"""Writing data files: batches become fragments that nobody knows yet; a commit publishes them.

Files have random final names and are durable when this returns (decision D14, step 0). On failure the files
of this call are removed: nothing can reference them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tiltyard import runtime
from tiltyard.errors import ForkedHandle, InvalidInput, StoreError
from tiltyard.file.writer import FileWriter
from tiltyard.format.fragment import Fragment
from tiltyard.format.names import DATA_DIR, data_file_name, data_path
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.table.fit import Fit, check_version, fit

if TYPE_CHECKING:
    from tiltyard.format.fragment import DataFile
    from tiltyard.store import Store

MAX_ROWS_PER_FILE = 1024 * 1024
MAX_BYTES_PER_FILE = 90 * 1024**3
WRITE_ROWS = 1 << 16
"""Rows handed to the file writer at once where the file may end on its limit of bytes, so that it ends within
so many rows. Far from the limit a batch goes over whole: pages are then cut out of it without a copy.
"""


class Progress(Protocol):
    """Told about each file; `fragment.physical_rows` is 0 at its begin."""

    def begin(self, fragment: Fragment) -> None: ...

    def complete(self, fragment: Fragment) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Bounds of a file (rows, bytes) and its format version."""

    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    version: FileVersion = FileVersion.V2_2

    def check(self) -> None:
        """Raise `InvalidInput` for bounds that no file can keep."""
        for name in ("max_rows_per_file", "max_bytes_per_file"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidInput(f"{name} must be a positive number, found {value!r}")


@dataclass(frozen=True, slots=True)
class Target:
    """Where data files go: a base of the table, by its id, or (None) the table's own root."""

    store: Store
    base_id: int | None = None
    is_root: bool = True

    def path(self, name: str) -> str:
        """Where a data file of this name stands."""
        return data_path(name) if self.is_root else name


def write_fragments(
    store: Store,
    schema: Schema,
    batches: Iterable[Any],
    options: WriteOptions = WriteOptions(),
    *,
    arrow_schema: Any = None,
    progress: Progress | None = None,
    targets: Sequence[Target] = (),
) -> list[Fragment]:
    """Write `pa.RecordBatch`es into new data files; one uncommitted `Fragment` (id 0) per file, none without
    rows.

    `schema` is the table's: the data is fitted to it (see `fit`), columns that it lacks are left out of the
    files. `arrow_schema` is the data's schema, taken from the first batch when not given. `targets`: where
    the files go, one after the other in turns; to the table's root without any. Raises
    `SchemaMismatch`, `InvalidInput` and store errors; then no file of this call is left.
    """
    options.check()
    session = _FileSequence(store, schema, options, progress, tuple(targets) or (Target(store),))
    if arrow_schema is not None:
        session.fit_for(arrow_schema)
    try:
        for batch in batches:
            session.add(batch)
        return session.finish()
    except BaseException:
        session.discard()
        raise


def _key(arrow_schema: Any) -> Any:
    """What tells Arrow schemas apart: extension types that are made in Python have no hash."""
    bare = arrow_schema.remove_metadata()
    try:
        hash(bare)
    except TypeError:
        return bare.serialize().to_pybytes()
    return bare


def _fit(schema: Schema, arrow_schema: Any, version: FileVersion) -> Fit:
    fitted = fit(schema, arrow_schema)
    check_version(fitted.schema, version)
    return fitted


class _FileSequence:
    """The files of one call: the one being written, and those that are finished."""

    def __init__(
        self,
        store: Store,
        schema: Schema,
        options: WriteOptions,
        progress: Progress | None,
        targets: tuple[Target, ...],
    ) -> None:
        self._store = store
        self._schema = schema
        self._options = options
        self._progress = progress
        self._targets = targets
        self._target = targets[0]
        self._begun = 0
        self._done: list[Fragment] = []
        self._writer: FileWriter | None = None
        self._process = runtime.process_id()
        self._fits: dict[Any, Fit] = {}
        self._current: Fit | None = None

    def add(self, batch: Any) -> None:
        self._check_process()
        if batch.num_rows == 0:
            return
        fitted = self.fit_for(batch.schema)
        if self._current is not None and fitted.schema.fields != self._current.schema.fields:
            self._end_file()  # batches that bring other columns need a file of their own
        self._current = fitted
        whole = fitted.apply(batch)
        start = 0
        while start < whole.num_rows:
            start += self._write_some(whole, start, fitted)

    def fit_for(self, arrow_schema: Any) -> Fit:
        """How data of an Arrow schema fits; worked out once for each."""
        key = _key(arrow_schema)
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = _fit(self._schema, arrow_schema, self._options.version)
        return found

    def _write_some(self, batch: Any, start: int, fitted: Fit) -> int:
        if self._writer is None:
            self._begin_file(fitted.schema)
        writer = self._writer
        assert writer is not None
        rows = min(batch.num_rows - start, self._options.max_rows_per_file - writer.rows)
        # A dictionary counts as a whole with each slice of its indices; then steps are small, no more.
        if rows > WRITE_ROWS and writer.estimated_bytes + batch.nbytes >= self._options.max_bytes_per_file:
            rows = WRITE_ROWS
        writer.write(batch if rows == batch.num_rows else batch.slice(start, rows))
        if (
            writer.rows >= self._options.max_rows_per_file
            or writer.estimated_bytes >= self._options.max_bytes_per_file
        ):
            self._end_file()
        return rows

    def _begin_file(self, schema: Schema) -> None:
        self._target = self._targets[self._begun % len(self._targets)]
        self._begun += 1
        path = self._target.path(data_file_name(runtime.uuid4().bytes))
        self._writer = FileWriter(self._target.store, path, schema, version=self._options.version)
        if self._progress is not None:
            self._progress.begin(_fragment((), 0))

    def _end_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        rows = writer.rows
        try:
            file = writer.close()
        except BaseException:
            writer.abort()
            raise
        if file.path.startswith(f"{DATA_DIR}/"):
            file = replace(file, path=file.path[len(DATA_DIR) + 1 :])
        if self._target.base_id is not None:
            file = replace(file, base_id=self._target.base_id)
        fragment = _fragment((file,), rows)
        self._done.append(fragment)
        if self._progress is not None:
            self._progress.complete(fragment)

    def _check_process(self) -> None:
        if runtime.process_id() != self._process:
            raise ForkedHandle(
                f"the write to {self._store.uri} was begun in process {self._process}, which goes on with "
                f"it; its forked child {runtime.process_id()} cannot: write in the child from the beginning"
            )

    def finish(self) -> list[Fragment]:
        self._check_process()
        self._end_file()
        return self._done

    def discard(self) -> None:
        """Remove what this call wrote; the error that brought us here stays the one that is raised.

        In a forked child nothing is removed: the files are the parent's.
        """
        if runtime.process_id() != self._process:
            return
        if self._writer is not None:
            with suppress(StoreError):  # then the file is collected by age
                self._writer.abort()
        remove_files(self._store, self._done, self._targets)


def _fragment(files: tuple[DataFile, ...], rows: int) -> Fragment:
    return Fragment(0, files, rows)


def remove_files(store: Store, fragments: Iterable[Fragment], targets: Sequence[Target] = ()) -> None:
    """Delete data files that no version has ever named, not even for a moment (`files_referenced`).
    `targets`: what they were written with.

    Failures leave waste that is collected by age.
    """
    own = Target(store)
    places = {each.base_id: each for each in targets}
    paths: dict[int | None, list[str]] = {}
    for fragment in fragments:
        for file in fragment.files:
            place = places.get(file.base_id, own)
            paths.setdefault(place.base_id, []).append(place.path(file.path))
    for base_id, some in paths.items():
        places.get(base_id, own).store.delete_many(some)
