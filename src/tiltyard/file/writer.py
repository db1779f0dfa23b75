"""The writer of data files of versions 2.1 and 2.2 (file-format.md 1, 9).

Rows come in batches; each top-level column gathers them until there is enough for a page, which is encoded
and written. Several pages are encoded at a time; at most `WriteLimits.pages_in_flight` exist besides what
each column gathers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import TracebackType
from typing import Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.encoding.levels.ravel import ravel, without_null_items
from tiltyard.encoding.write.leaf import encode_leaf
from tiltyard.encoding.write.options import MAX_NUMBER, Options, options_of
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.errors import InvalidInput
from tiltyard.file.checksums import checksum, encode_checksums
from tiltyard.file.index_room import IndexRoom
from tiltyard.file.writable import check_batch, check_schema, check_version
from tiltyard.format.concatenated import concatenated
from tiltyard.format.container import PageEntry, build_tail, encode_column, padding
from tiltyard.format.fragment import DataFile
from tiltyard.format.schema import Field, Schema
from tiltyard.format.version import FileVersion
from tiltyard.store.protocol import ObjectWriter, Store

MIB = 1 << 20
OPTIONS_KEPT = 64
ROW_STEP = 4096
"""Pages cut out of a larger batch hold a multiple of so many rows, so that chunks come out even."""


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Bounds on what a writer holds: bytes of Arrow data that a top-level column gathers for a page, bytes of
    an array that becomes one page where it comes at once (None: the same), pages encoded at a time, bytes
    handed to the store in one write, bytes of Arrow data below which no other thread is asked.
    """

    page_bytes: int = 8 * MIB
    whole_bytes: int | None = None
    pages_in_flight: int = 8
    write_bytes: int = 4 * MIB
    parallel_bytes: int = 1 * MIB


@dataclass(slots=True)
class _Column:
    """One leaf column of the file: its pages so far and the checksums of their buffers."""

    options: Options
    room: IndexRoom | None
    entries: list[PageEntry] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    rows: int = 0


@dataclass(slots=True)
class _Top:
    """One top-level column: what it has gathered, and its leaf columns."""

    root: Field
    leaves: list[_Column]
    arrays: list[Any] = field(default_factory=list)
    nbytes: int = 0
    pages: int = 0


_Page = tuple[_Top, Any, int, bool]
"""Rows of a top-level column that make a page, their Arrow bytes, and whether the column has other pages."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Pages of every leaf below a top-level column for some rows, with the checksum of every buffer."""

    top: _Top
    pages: list[list[EncodedPage]]
    sums: list[list[int]]


class FileWriter:
    """Writes one data file. `write` batches, then `close`; `abort`, or leaving the block by an error,
    removes it.

    Nothing is created before the first bytes are written, so a schema that is refused leaves no trace.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        schema: Schema,
        *,
        version: FileVersion = FileVersion.V2_2,
        limits: WriteLimits | None = None,
        compression: str | None = None,
        distinct: Collection[str] = (),
    ) -> None:
        """`compression`: that of columns whose metadata asks for none: as in that metadata, or automatic.
        `distinct`: top-level columns that hardly hold a value twice, for which no dictionary is looked for.
        """
        check_version(version)
        check_schema(schema, version)
        self.path = path
        self.schema = schema
        self.version = version
        self.rows = 0
        self._store = store
        self._limits = limits or WriteLimits()
        self._tops = [_top(each, compression, each.name in distinct) for each in schema.fields]
        self._columns = [leaf for top in self._tops for leaf in top.leaves]
        self._out: ObjectWriter | None = None
        self._position = 0
        self._waiting: list[partial[_Encoded]] = []
        self._waiting_bytes = 0
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._checked: tuple[Any, list[int]] | None = None
        self._globals: list[tuple[int, int]] = []
        self._closed = False

    @property
    def estimated_bytes(self) -> int:
        """Bytes written, and the Arrow bytes still gathered or waiting to be encoded."""
        return self._position + self._waiting_bytes + sum(top.nbytes for top in self._tops)

    def write(self, batch: Any) -> None:
        """Append the rows of a `pa.RecordBatch` (columns by name, any order).

        Raises `SchemaMismatch` when it does not fit the schema; nothing happened then. `InvalidInput` for a
        null where none may be, or a failure of the store, may come with a later page and makes the writer
        unusable: `abort` it.
        """
        if self._closed:
            raise InvalidInput(f"the writer of {self.path} is closed")
        if self._checked is None or not self._checked[0].equals(batch.schema):
            self._checked = batch.schema, check_batch(self.schema, batch.schema)
        if batch.num_rows == 0:
            return
        positions = self._checked[1]
        columns = [batch.column(position) for position in positions]
        self.rows += batch.num_rows
        self._take(self._full_pages(columns))

    def add_global_buffer(self, data: bytes) -> int:
        """Put bytes into the file that belong to no column; their number among its global buffers, from 1."""
        if self._closed:
            raise InvalidInput(f"the writer of {self.path} is closed")
        self._encode()
        self._globals.append(self._put_aligned(data))
        return len(self._globals)

    def close(self) -> DataFile:
        """Write what is left and the file's tail; the file is whole and durable when this returns."""
        if self._closed:
            raise InvalidInput(f"the writer of {self.path} is closed")
        self._take(self._last_pages())
        self._encode()
        self._closed = True
        columns = [encode_column(column.entries) for column in self._columns]
        sums = [each for column in self._columns for each in column.sums]
        checksums = encode_checksums(sums, columns)
        extra: list[bytes | tuple[int, int]] = [*self._globals, checksums]
        tail = build_tail(self._position, self.version, self.schema, self.rows, columns, extra)
        self._put([tail], len(tail))
        self._flush()
        assert self._out is not None
        size = self._out.commit()
        leaves = self.schema.leaves()
        major, minor = self.version.manifest
        return DataFile(
            self.path.rpartition("/")[2],
            tuple(leaf.id for leaf in leaves),
            tuple(range(len(leaves))),
            major,
            minor,
            size,
        )

    def abort(self) -> None:
        """Remove what was written. Nothing happens after `close` or a second time."""
        if not self._closed:
            self._closed = True
            if self._out is not None:
                self._out.abort()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    # -- pages -----------------------------------------------------------------------------------

    def _full_pages(self, columns: list[Any]) -> Iterator[_Page]:
        """Gather a batch; yield every page that is full."""
        most = max(self._limits.page_bytes, self._limits.whole_bytes or 0)
        for top, array in zip(self._tops, columns, strict=True):
            for piece, nbytes in _pieces(array, most):
                top.arrays.append(piece)
                top.nbytes += nbytes
                if top.nbytes >= self._limits.page_bytes:
                    yield from self._joined(top, more=True)

    def _last_pages(self) -> Iterator[_Page]:
        for top in self._tops:
            if top.arrays:
                yield from self._joined(top, more=False)

    def _joined(self, top: _Top, *, more: bool) -> Iterator[_Page]:
        """The gathered arrays as one; apart where one array cannot hold them (offsets or dictionary keys
        overflow).
        """
        arrays, nbytes = top.arrays, top.nbytes
        top.arrays, top.nbytes = [], 0
        if len(arrays) > 1:
            # Arrow does not unite dictionaries with nulls among their items.
            arrays = [
                without_null_items(each)
                if isinstance(each, pa.DictionaryArray) and each.dictionary.null_count
                else each
                for each in arrays
            ]
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                arrays = [concatenated(arrays)]
        for array in arrays:
            top.pages += 1
            yield top, array, nbytes // len(arrays), more or top.pages > 1 or len(arrays) > 1

    def _take(self, pages: Iterator[_Page]) -> None:
        """Have pages encoded, a few at a time: those that do not make a full group wait for the next ones."""
        for top, array, nbytes, more in pages:
            self._waiting.append(partial(_encode_page, top, array, self.version, more))
            self._waiting_bytes += nbytes
            if len(self._waiting) >= self._limits.pages_in_flight:
                self._encode()

    def _encode(self) -> None:
        """Encode what waits and put it down in order. A hand-over to another thread costs more than the work
        on a few rows (decision D47).
        """
        waiting, nbytes = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        alone = nbytes < self._limits.parallel_bytes
        for encoded in (encode() for encode in waiting) if alone else runtime.parallel(waiting):
            for column, pages, sums in zip(encoded.top.leaves, encoded.pages, encoded.sums, strict=True):
                column.sums.extend(sums)
                for page in pages:
                    if page.items is not None and column.room is not None:
                        column.room.add(page.items)
                    self._place(column, page)

    def _place(self, column: _Column, page: EncodedPage) -> None:
        offsets, sizes = [], []
        for buffer in page.buffers:
            position, size = self._put_aligned(buffer)
            offsets.append(position)
            sizes.append(size)
        column.entries.append(PageEntry(page.layout, offsets, sizes, page.rows, column.rows))
        column.rows += page.rows

    # -- bytes -----------------------------------------------------------------------------------

    def _put_aligned(self, buffer: Any) -> tuple[int, int]:
        """Where the buffer stands in the file, and its bytes."""
        size = len(buffer)
        gap = padding(self._position)
        self._put([bytes(gap), buffer] if gap else [buffer], gap + size)
        return self._position - size, size

    def _put(self, buffers: list[Any], size: int) -> None:
        self._gathered += buffers
        self._gathered_bytes += size
        self._position += size
        if self._gathered_bytes >= self._limits.write_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._out is None:
            self._out = self._store.writer(self.path)
        self._out.write(self._gathered)
        self._gathered, self._gathered_bytes = [], 0


def _top(top: Field, compression: str | None, is_distinct: bool) -> _Top:
    leaves = top.leaves()
    return _Top(top, [_Column(_options(leaf, top, compression, is_distinct), _room(leaf)) for leaf in leaves])


def _options(leaf: Field, top: Field, compression: str | None, is_distinct: bool) -> Options:
    asked = options_of(leaf, top, leaf.name)
    if asked.compression is not None:
        compression = None
    return _with(asked, compression, is_distinct) if compression or is_distinct else asked


@lru_cache(maxsize=OPTIONS_KEPT)
def _with(asked: Options, compression: str | None, is_distinct: bool) -> Options:
    if compression is not None:
        asked = replace(asked, compression=compression)
    return replace(asked, dictionary_divisor=MAX_NUMBER) if is_distinct else asked


def _room(leaf: Field) -> IndexRoom | None:
    """None where the column is no dictionary."""
    if not leaf.logical_type.startswith("dict:"):
        return None
    return IndexRoom(leaf.name, leaf.arrow_type.index_type)


def _encode_page(top: _Top, array: Any, version: FileVersion, more_pages: bool) -> _Encoded:
    leaves = ravel(array, top.root, more_pages=more_pages)
    pages = [
        encode_leaf(leaf, column.options, version) for leaf, column in zip(leaves, top.leaves, strict=True)
    ]
    sums = [[checksum(buffer) for page in each for buffer in page.buffers] for each in pages]
    return _Encoded(top, pages, sums)


def _nbytes(array: Any) -> int:
    """Arrow bytes of the rows; of a dictionary the indices alone, for batches share their dictionary."""
    if isinstance(array, pa.DictionaryArray):
        return int(array.indices.nbytes)
    return int(array.nbytes)


def _pieces(array: Any, page_bytes: int) -> Iterator[tuple[Any, int]]:
    """A large array cut into pages of at least `page_bytes`, the rest last; with the bytes of each."""
    nbytes = _nbytes(array)
    if nbytes <= page_bytes:
        yield array, nbytes
        return
    rows = -(-len(array) * page_bytes // nbytes)
    if rows > ROW_STEP:
        rows = -(-rows // ROW_STEP) * ROW_STEP
    for start in range(0, len(array), max(1, rows)):
        piece = array.slice(start, rows)
        yield piece, _nbytes(piece)
