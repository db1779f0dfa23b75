"""Data files below tables: written on their own, to be taken into a table later by a commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.handle import open_root, refuse
from tiltyard.dataset.metadata import DataFile, FragmentMetadata
from tiltyard.errors import CorruptFile, InvalidInput, InvalidUri, NothingToWrite, SchemaMismatch
from tiltyard.format.fragment import DataFile as FileFact
from tiltyard.format.names import data_path
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion

if TYPE_CHECKING:
    from tiltyard.dataset.lance_dataset import LanceDataset
    from tiltyard.file.writer import FileWriter
    from tiltyard.store import Store

PAGE_BYTES = 8 << 20
"""Arrow bytes that a column gathers for a page."""
WHOLE_BYTES = 32 << 20
"""Arrow bytes of a batch's column that stay one page."""


def stable_version() -> str:
    """The version of data files that `data_storage_version="stable"` means."""
    return FileVersion.parse("stable").value


class LanceFileWriter:
    """Writes one data file at a path or URI: batches, then `close`. Use it as a context manager, from any
    number of threads.

    The file is whole and durable when `close` returns; a block left by an error removes it. An existing file
    is never written over.
    """

    def __init__(
        self,
        path: Any,
        schema: Any = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        namespace_client: Any = None,
        table_id: Any = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> None:
        """`schema`: a `pa.Schema`; without one the first batch decides. `data_cache_bytes`: Arrow bytes that
        all columns together gather before pages are written. `keep_original_array` and `max_page_bytes` have
        no effect.
        """
        refuse(namespace_client=namespace_client, table_id=table_id)
        store, name = file_place(path, storage_options)
        self._open(store, name, schema, data_cache_bytes, version, keep_original_array, max_page_bytes)

    @classmethod
    def _of(cls, store: Store, name: str, schema: Any, **options: Any) -> LanceFileWriter:
        """A writer of a file directly at the place of a store; the options are those of the class."""
        made = cls.__new__(cls)
        made._open(store, name, schema, **options)
        return made

    def _open(
        self,
        store: Store,
        name: str,
        schema: Any,
        data_cache_bytes: int | None,
        version: str | None,
        keep_original_array: bool | None,
        max_page_bytes: int | None,
    ) -> None:
        self._store, self._name = store, name
        self._cache_bytes = arguments.maybe_whole("data_cache_bytes", data_cache_bytes)
        arguments.maybe_whole("max_page_bytes", max_page_bytes)
        arguments.maybe_flag("keep_original_array", keep_original_array)
        self._version = FileVersion.parse("stable" if version is None else arguments.text("version", version))
        self._metadata: dict[str, str] = {}
        self._writer: FileWriter | None = None
        self._lock = runtime.lock()
        self.closed = False
        self.size_bytes: int | None = None
        """Bytes of the file, known when it is closed."""
        if schema is not None:
            self._schema: Any = arguments.instance("schema", schema, pa.Schema)
            Schema.from_arrow(self._schema)  # what has no place in the format is refused at once
        else:
            self._schema = None

    def write_batch(self, batch: Any) -> None:
        """Append the rows of a `pa.RecordBatch` or `pa.Table`."""
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise arguments.wrong("batch", "a pyarrow RecordBatch or Table", batch)
        with self._lock:
            self._check_open()
            writer = self._opened(batch.schema)
            for each in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
                writer.write(each)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the schema's metadata in the file; before it is closed."""
        with self._lock:
            self._check_open()
            self._metadata[arguments.text("key", key)] = arguments.text("value", value)

    def add_global_buffer(self, data: Any) -> int:
        """Put bytes of no column into the file; their number, from 1, for `read_global_buffer`."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise arguments.wrong("data", "bytes", data)
        with self._lock:
            self._check_open()
            if self._schema is None:
                raise InvalidInput("a global buffer comes after the first batch, or where a schema is given")
            return self._opened(self._schema).add_global_buffer(bytes(data))

    def close(self) -> int | None:
        """End the file; gives the rows in it. A second time gives None."""
        with self._lock:
            if self.closed:
                return None
            if self._writer is None and self._schema is None:
                raise NothingToWrite(
                    f"Schema is unknown and file cannot be created: {self._name} would have no columns; give "
                    "a schema, or write a batch"
                )
            writer = self._opened(self._schema)
            if self._metadata:
                added = {key: value.encode() for key, value in self._metadata.items()}
                writer.schema = Schema(writer.schema.fields, {**writer.schema.metadata, **added})
            self.closed = True
            try:
                self.size_bytes = writer.close().size
            except BaseException:
                writer.abort()
                raise
            return writer.rows

    def __enter__(self) -> LanceFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self.closed = True
        if self._writer is not None:
            self._writer.abort()

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidInput(f"the writer of {self._name} is closed")

    def _opened(self, arrow: Any) -> FileWriter:
        if self._writer is None:
            from tiltyard.file.writer import FileWriter, WriteLimits

            if self._schema is None:
                self._schema = arrow
            schema = Schema.from_arrow(self._schema)
            columns = max(1, len(schema.fields))
            gathered = PAGE_BYTES if self._cache_bytes is None else max(1, self._cache_bytes // columns)
            limits = WriteLimits(page_bytes=gathered, whole_bytes=WHOLE_BYTES)
            self._writer = FileWriter(self._store, self._name, schema, version=self._version, limits=limits)
        return self._writer


def file_place(path: Any, storage_options: Mapping[str, Any] | None) -> tuple[Store, str]:
    """The store of the directory that a file lies in, and its name there. Raises `InvalidUri`."""
    located = os.fspath(path) if isinstance(path, os.PathLike) else path
    above, _, name = arguments.text("path", located).rpartition("/")
    if not name:
        raise InvalidUri(f"the path of a data file must end with its name, found {located!r}")
    return open_root(above or ("/" if located.startswith("/") else "."), storage_options), name


def fragment_of_file(filename: str, dataset: LanceDataset, fragment_id: int) -> FragmentMetadata:
    """A fragment, not committed, of a data file that lies in the dataset's `data` directory.

    Its columns are matched with the dataset's fields by name and type. Raises `ObjectNotFound`,
    `CorruptFile`, and `SchemaMismatch` where the columns do not fit.
    """
    from tiltyard.file.reader import open_file

    held = dataset._held
    path = data_path(arguments.text("filename", filename))
    reader = open_file(held.store, path, session=held.session)
    fields: list[int] = []
    for own in reader.schema.columns(reader.version):
        steps = (*(each.name for each in reader.schema.ancestors(own.id)), own.name)
        field = held.schema.field(steps)
        if field.logical_type != own.logical_type:
            raise SchemaMismatch(
                f"column {'.'.join(steps)!r} of {path} is of type {own.logical_type}, the table's field of "
                f"type {field.logical_type}"
            )
        fields.append(field.id)
    missing = [
        each.name
        for each in held.schema.fields
        if not each.nullable and not reader.schema.has_column(each.name)
    ]
    if missing:
        raise SchemaMismatch(f"{path} lacks columns that may not be null: {', '.join(missing)}")
    if not reader.num_rows:
        raise CorruptFile("the file has no rows, so that there is no fragment to make of it", path=path)
    major, minor = reader.version.manifest
    size = held.store.stat(path).size
    fact = FileFact(filename, tuple(fields), tuple(range(len(fields))), major, minor, size)
    return FragmentMetadata(fragment_id, [DataFile.from_fact(fact)], reader.num_rows)
