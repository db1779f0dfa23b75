"""One data file read on its own: rows in batches, and what its tail says about columns, pages and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.data_files import file_place
from tiltyard.dataset.handle import refuse
from tiltyard.errors import BatchTooLarge, InvalidInput, RowOutOfRange
from tiltyard.file.reader import read_file
from tiltyard.format.container import TABLE_ENTRY_BYTES
from tiltyard.session import default_session
from tiltyard.table.blob_scan import cuts
from tiltyard.table.blobs import Convert, FileBlobs, converter, with_bytes
from tiltyard.table.plan import estimated_row_bytes, stream_unit_rows

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.store import Store

BATCH_ROWS = 1024
READAHEAD = 16


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """Where a buffer stands in a file, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """A page of a column; `encoding` tells its layout as text."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """A column's pages, and the buffers that belong to no page."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceFileMetadata:
    """What the tail of a file says; the version as its footer has it, sizes in bytes."""

    schema: Any
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """Pages of a column and bytes of their buffers."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """Statistics of each column, in file order."""

    columns: list[LanceColumnStatistics]


class ReaderResults:
    """Rows of a file, not read yet; they are read once."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def to_batches(self) -> Any:
        """A `pa.RecordBatchReader`."""
        return self.reader

    def to_table(self) -> Any:
        """A `pa.Table`."""
        return self.reader.read_all()


class LanceFileReader:
    """Reads one data file at a path or URI; columns of blobs in the file itself give their bytes.

    The file is looked at when this is made; it is read in the state of that time.
    """

    def __init__(
        self,
        path: Any,
        storage_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        namespace_client: Any = None,
        table_id: Any = None,
    ) -> None:
        """`columns`: names and dotted paths to read, all without it. Raises `ObjectNotFound`, `CorruptFile`,
        `FieldNotFound`.
        """
        refuse(namespace_client=namespace_client, table_id=table_id)
        store, name = file_place(path, storage_options)
        self._open(store, name, columns)

    @classmethod
    def _of(cls, store: Store, path: str, columns: Sequence[str] | None) -> LanceFileReader:
        made = cls.__new__(cls)
        made._open(store, path, columns)
        return made

    def _open(self, store: Store, path: str, columns: Sequence[str] | None) -> None:
        self._store = store
        self._file = read_file(store.map(path), path, default_session())
        own = self._file.schema
        wanted = own.described
        if columns is not None:
            names = arguments.texts("columns", columns)
            if not names:
                raise InvalidInput("columns names no column: name at least one, or leave it out")
            wanted = wanted.project(names)
        self._fields = wanted.fields
        self._converters = [converter(own, field, self._bytes_of) for field in self._fields]
        shown = [with_bytes(own, field, self._bytes_of).arrow_field for field in self._fields]
        self._arrow = pa.schema(shown, own.metadata or None)

    def _bytes_of(self, field: Field) -> Convert | None:
        """What reads the blobs of a column; None for those whose descriptors only a table can follow."""
        if field.is_packed:  # of version 2
            return None
        return FileBlobs(self._store, self._file.path, self._file.size, field.name).array

    # -- rows ------------------------------------------------------------------------------------

    def read_all(self, *, batch_size: int = BATCH_ROWS, batch_readahead: int = READAHEAD) -> ReaderResults:
        """All rows, in batches of so many, or fewer where their blobs are large; `batch_readahead` has no
        effect.
        """
        return self._results(slice(0, self._file.num_rows), batch_size, batch_readahead)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = BATCH_ROWS, batch_readahead: int = READAHEAD
    ) -> ReaderResults:
        """So many rows from one on. Raises `RowOutOfRange`."""
        start, count = arguments.whole("start", start), arguments.whole("num_rows", num_rows)
        if start + count > self._file.num_rows:
            raise RowOutOfRange(
                f"{self._file.path}: rows {start} to {start + count} of a file of {self._file.num_rows} rows"
            )
        return self._results(slice(start, start + count), batch_size, batch_readahead)

    def take_rows(
        self, indices: Any, *, batch_size: int = BATCH_ROWS, batch_readahead: int = READAHEAD
    ) -> ReaderResults:
        """The rows of these numbers, which ascend. Raises `RowOutOfRange`, `InvalidInput`."""
        if isinstance(indices, (pa.Array, pa.ChunkedArray, np.ndarray)):
            indices = indices.tolist()
        wanted = np.array(arguments.wholes("indices", indices), np.uint64)
        falls = np.flatnonzero(wanted[1:] < wanted[:-1])
        if len(falls):
            at = int(falls[0])
            raise InvalidInput(
                f"Indices must be sorted in ascending order for the file API, found {wanted[at]} before "
                f"{wanted[at + 1]}"
            )
        if len(wanted) and int(wanted[-1]) >= self._file.num_rows:
            raise RowOutOfRange(
                f"{self._file.path}: row {int(wanted[-1])} of a file of {self._file.num_rows} rows"
            )
        return self._results(wanted.astype(np.int64), batch_size, batch_readahead)

    def num_rows(self) -> int:
        """Rows of the file."""
        return self._file.num_rows

    def _results(self, rows: Any, batch_size: int, batch_readahead: int) -> ReaderResults:
        size = arguments.whole("batch_size", batch_size, 1, arguments.MAX_U32)
        arguments.whole("batch_readahead", batch_readahead)
        batches = self._batches(rows, size)
        return ReaderResults(pa.RecordBatchReader.from_batches(self._arrow, batches))

    def _batches(self, rows: Any, size: int) -> Iterator[Any]:
        first, total = (rows.start, rows.stop - rows.start) if isinstance(rows, slice) else (0, len(rows))
        step = stream_unit_rows(estimated_row_bytes(self._fields), size)
        for start in range(0, total, step):
            low, high = first + start, first + min(start + step, total)
            part = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            for batch in self._read(part):
                for at in range(0, batch.num_rows, size):
                    yield batch.slice(at, size)

    def _read(self, rows: Any) -> Iterator[Any]:
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        try:
            arrays = self._file.read(self._fields, None, rows)
        except BatchTooLarge:
            if count < 2:
                raise
            middle = count // 2
            if isinstance(rows, slice):
                halves: list[Any] = [
                    slice(rows.start, rows.start + middle),
                    slice(rows.start + middle, rows.stop),
                ]
            else:
                halves = [rows[:middle], rows[middle:]]
            for half in halves:
                yield from self._read(half)
            return
        pairs = list(zip(arrays, self._converters, strict=True))
        blobs = [array for array, convert in pairs if convert is not None]
        for low, high in pairwise(cuts(blobs, count)):
            parts = [(array.slice(low, high - low), convert) for array, convert in pairs]
            shown = [array if convert is None else convert(array, None) for array, convert in parts]
            yield pa.RecordBatch.from_arrays(shown, schema=self._arrow)

    # -- the tail --------------------------------------------------------------------------------

    def metadata(self) -> LanceFileMetadata:
        """What the tail of the file says."""
        tail = self._file.tail
        start, end = tail.metadata_span
        total = sum(size for _, size in tail.global_buffers)
        major, minor = tail.version.footer
        return LanceFileMetadata(
            tail.schema.arrow,
            tail.length,
            start - total,
            end - start + TABLE_ENTRY_BYTES * len(tail.columns),
            total,
            [LanceBufferDescriptor(*each) for each in tail.global_buffers],
            [_column(pages) for pages in tail.columns],
            major,
            minor,
        )

    def file_statistics(self) -> LanceFileStatistics:
        """Pages and bytes of each column."""
        columns = self._file.tail.columns
        return LanceFileStatistics(
            [LanceColumnStatistics(len(pages), int(pages.sizes.sum())) for pages in columns]
        )

    def read_global_buffer(self, index: int) -> bytes:
        """The bytes of a global buffer; the first is the schema."""
        found = self._file.tail.global_buffers
        index = arguments.whole("index", index)
        if index >= len(found):
            raise InvalidInput(
                f"{self._file.path} has global buffers 0 to {len(found) - 1}; there is none of number {index}"
            )
        position, size = found[index]
        return bytes(memoryview(self._store.read(self._file.path, position, size)))


def _column(pages: Any) -> LanceColumnMetadata:
    own = zip(pages.column_offsets, pages.column_sizes, strict=True)
    return LanceColumnMetadata(
        [LanceBufferDescriptor(*each) for each in own],
        [
            LancePageMetadata(
                [LanceBufferDescriptor(*each) for each in pages.buffers(page)], repr(pages.layout(page))
            )
            for page in range(len(pages))
        ],
    )
