"""Data files below tables: written on their own, to be taken into a table later by a commit.

Reading such a file on its own is not here yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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


def stable_version() -> str:
    """The version of data files that `data_storage_version="stable"` means."""
    return FileVersion.parse("stable").value


class LanceFileWriter:
    """Writes one data file at a path or URI: batches, then `close`. Use it as a context manager.

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
        """`schema`: a `pa.Schema`; without one the first batch decides. `data_cache_bytes`,
        `keep_original_array` and `max_page_bytes` have no effect.
        """
        refuse(namespace_client=namespace_client, table_id=table_id)
        for name, hint in (("data_cache_bytes", data_cache_bytes), ("max_page_bytes", max_page_bytes)):
            arguments.maybe_whole(name, hint)
        arguments.maybe_flag("keep_original_array", keep_original_array)
        located = os.fspath(path) if isinstance(path, os.PathLike) else path
        above, _, name = arguments.text("path", located).rpartition("/")
        if not name:
            raise InvalidUri(f"the path of a data file must end with its name, found {located!r}")
        self._store = open_root(above or ("/" if located.startswith("/") else "."), storage_options)
        self._name = name
        self._version = FileVersion.parse("stable" if version is None else arguments.text("version", version))
        self._metadata: dict[str, str] = {}
        self._writer: FileWriter | None = None
        self._closed = False
        if schema is not None:
            self._schema: Any = arguments.instance("schema", schema, pa.Schema)
            Schema.from_arrow(self._schema)  # what has no place in the format is refused at once
        else:
            self._schema = None

    def write_batch(self, batch: Any) -> None:
        """Append the rows of a `pa.RecordBatch` or `pa.Table`."""
        if self._closed:
            raise InvalidInput(f"the writer of {self._name} is closed")
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise arguments.wrong("batch", "a pyarrow RecordBatch or Table", batch)
        writer = self._opened(batch.schema)
        for each in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            writer.write(each)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add to the schema's metadata in the file; before the first batch."""
        if self._writer is not None:
            raise InvalidInput("schema metadata is added before the first batch is written")
        self._metadata[arguments.text("key", key)] = arguments.text("value", value)

    def close(self) -> int | None:
        """End the file; gives the rows in it. A second time gives None."""
        if self._closed:
            return None
        if self._writer is None and self._schema is None:
            raise NothingToWrite(f"{self._name} would have no columns: give a schema, or write a batch")
        writer = self._opened(self._schema)
        self._closed = True
        try:
            writer.close()
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
        self._closed = True
        if self._writer is not None:
            self._writer.abort()

    def _opened(self, arrow: Any) -> FileWriter:
        if self._writer is None:
            from tiltyard.file.writer import FileWriter

            if self._schema is None:
                self._schema = arrow
            metadata = {**(self._schema.metadata or {}), **self._metadata}
            schema = Schema.from_arrow(self._schema.with_metadata(metadata or None))
            self._writer = FileWriter(self._store, self._name, schema, version=self._version)
        return self._writer


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
