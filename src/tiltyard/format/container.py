"""The container of a data file: footer, tables of offsets, column metadata (file format, sections 1 and 2).

Reading is lazy: `parse_tail` looks at the footer and the two tables; the schema and each column's page table
are decoded when first asked for, so that one column of a file with 5,000 costs one column. A page table is a
handful of NumPy arrays (D42), never an object per page.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain
from operator import add, or_
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format import wire
from tiltyard.format.layouts import PageLayout, decode_layout, encode_layout
from tiltyard.format.protos import file_pb2
from tiltyard.format.schema import Schema, decode_schema
from tiltyard.format.version import READ_VERSIONS, SUPPORTED, FileVersion

__all__ = ["ColumnPages", "FileTail", "FileVersion", "PageEntry", "build_tail", "encode_column", "parse_tail"]

MAGIC = b"LANC"
FOOTER_BYTES = 40
ALIGNMENT = 64
"""Bytes: page buffers and global buffers start at multiples of it."""
TABLE_ENTRY_BYTES = 16
FEW_ENTRIES = 32
"""Entries of a table for which a loop costs less than arrays."""

_FOOTER = struct.Struct("<QQQIIHH4s")
_MAX_ROWS = 2**62

# What every ordinary column says about itself: `values` with nothing inside.
_COLUMN_ENCODING = file_pb2.TypedBytes(type_url="/lance.encodings.ColumnEncoding", value=b"\n\x00")
_COLUMN_ENCODING_BYTES = _COLUMN_ENCODING.SerializeToString()


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The page table of one column.

    Page `p` holds rows `first_row[p]` to `first_row[p] + rows[p]` and owns the buffers
    `buffer_start[p]:buffer_start[p + 1]` of `offsets` and `sizes` (bytes, absolute in the file, checked
    against its size); its layout is `layouts[layout_index[p]]`: a `PageLayout`, in files of version 2.0 an
    `ArrayEncoding`. All arrays are int64.
    """

    num_rows: int
    first_row: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    buffer_start: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    layout_index: npt.NDArray[np.int64]
    layouts: tuple[Any, ...]
    column_offsets: tuple[int, ...] = ()
    column_sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def layout(self, page: int) -> Any:
        """The layout of a page."""
        return self.layouts[self.layout_index[page]]

    def buffers(self, page: int) -> list[tuple[int, int]]:
        """Offset and size in bytes of each buffer of a page, in layout order."""
        span = slice(int(self.buffer_start[page]), int(self.buffer_start[page + 1]))
        return list(zip(self.offsets[span].tolist(), self.sizes[span].tolist(), strict=True))


class Columns(Sequence[ColumnPages]):
    """The columns of a file; each page table is parsed when first asked for. Safe to share among threads."""

    __slots__ = ("_parsed", "_tail")

    def __init__(self, tail: FileTail, count: int) -> None:
        self._tail = tail
        self._parsed: list[ColumnPages | None] = [None] * count

    def __len__(self) -> int:
        return len(self._parsed)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        found = self._parsed[index]
        if found is None:
            found = self._parsed[index] = self._tail.parse_column(range(len(self))[index])
        return found

    def __iter__(self) -> Iterator[ColumnPages]:
        return (self[i] for i in range(len(self)))


class FileTail:
    """What the end of a data file says: version, schema, row count, columns, global buffers."""

    __slots__ = (
        "_descriptor",
        "_entries",
        "_start",
        "_view",
        "columns",
        "file_size",
        "global_buffers",
        "metadata_span",
        "nbytes",
        "path",
        "version",
    )

    def __init__(self, view: memoryview, start: int, footer: Footer, file_size: int, path: str) -> None:
        self.path = path
        self.file_size = file_size
        self.version = footer.version
        self._view = view
        self._start = start
        self._entries = footer.column_entries(view, start)
        self._descriptor: tuple[Schema, int] | None = None
        self.global_buffers: tuple[tuple[int, int], ...] = footer.global_entries(view, start)
        """Position and size in bytes of each global buffer; the first is the schema."""
        self.metadata_span = (footer.metadata, footer.metadata_end)
        """Where the column metadata stands: position and end in bytes."""
        self.columns = Columns(self, footer.num_columns)
        self.nbytes = file_size - self.global_buffers[0][0]
        """Bytes from the schema to the end of the file: about what a cached tail costs."""

    def bytes_at(self, position: int, size: int) -> bytes:
        """Bytes at an absolute position; all from the schema to the end of the file is at hand."""
        begin = position - self._start
        return bytes(self._view[begin : begin + size])

    @property
    def schema(self) -> Schema:
        """The file's own schema."""
        return self._parse_descriptor()[0]

    @property
    def length(self) -> int:
        """Rows, as the file descriptor says."""
        return self._parse_descriptor()[1]

    def _parse_descriptor(self) -> tuple[Schema, int]:
        if self._descriptor is None:
            position, size = self.global_buffers[0]
            data = self.bytes_at(position, size)
            message = wire.parse(file_pb2.FileDescriptor, data, self.path, "the file's schema")
            if message.length > _MAX_ROWS:
                raise CorruptFile(f"the file descriptor says {message.length} rows", self.path)
            schema = decode_schema(message.schema.SerializeToString(deterministic=True), self.path)
            self._descriptor = schema, message.length
        return self._descriptor

    def parse_column(self, index: int) -> ColumnPages:
        """Decode the page table of one column. Raises `CorruptFile` naming the file and the column."""
        position, size = int(self._entries[index, 0]), int(self._entries[index, 1])
        what = f"metadata of column {index}"
        message = wire.parse(file_pb2.ColumnMetadata, self.bytes_at(position, size), self.path, what)
        try:
            self._check_column_encoding(message.encoding)
            is_old = self.version is FileVersion.V2_0
            return _page_table(message, self._page_limit(), not is_old, _decoder(is_old))
        except CorruptFile as error:
            raise CorruptFile(f"column {index}: {error}", self.path) from error
        except UnsupportedFeature as error:
            raise UnsupportedFeature(f"{self.path}: column {index}: {error}") from error

    def _page_limit(self) -> int:
        return self.file_size - FOOTER_BYTES

    def _check_column_encoding(self, encoding: Any) -> None:
        data = _direct(encoding, "column encoding")
        if data == _COLUMN_ENCODING_BYTES:
            return
        typed = wire.parse(file_pb2.TypedBytes, data, "", "column encoding")
        if typed.type_url.rpartition("/")[2] != "lance.encodings.ColumnEncoding" or "/" not in typed.type_url:
            raise UnsupportedFeature(f"column encoding {typed.type_url!r} is not known to this version")
        found = wire.parse(file_pb2.ColumnEncoding, typed.value, "", "column encoding")
        kind = found.WhichOneof("column")
        if kind == "blob" and self.version is FileVersion.V2_0:
            # Its pages hold descriptors of blobs.
            kind = found.blob.inner.WhichOneof("column") if found.blob.HasField("inner") else None
        if kind != "values":
            raise UnsupportedFeature(f"column encoding {kind or 'of an unknown kind'} is not supported")


@dataclass(frozen=True, slots=True)
class Footer:
    """The last 40 bytes of a data file, checked against its size."""

    version: FileVersion
    metadata: int
    column_table: int
    global_table: int
    num_globals: int
    num_columns: int
    file_size: int
    path: str

    @property
    def metadata_end(self) -> int:
        return min(self.column_table, self.global_table)

    def column_entries(self, view: memoryview, start: int) -> npt.NDArray[np.uint64]:
        """Position and length of each column's metadata, checked."""
        entries = self._table(view, start, self.column_table, self.num_columns)
        if len(entries) and not _all_inside(entries, self.metadata, self.file_size - FOOTER_BYTES):
            raise CorruptFile(
                f"the table of columns points outside the column metadata (bytes {self.metadata} to "
                f"{self.file_size - FOOTER_BYTES})",
                self.path,
            )
        return entries

    def global_entries(self, view: memoryview, start: int) -> tuple[tuple[int, int], ...]:
        """Position and size of each global buffer, checked."""
        entries = self._table(view, start, self.global_table, self.num_globals)
        if not _all_inside(entries, 0, self.file_size - FOOTER_BYTES):
            raise CorruptFile(f"a global buffer lies outside the file's {self.file_size} bytes", self.path)
        found: list[tuple[int, int]] = [(int(a), int(b)) for a, b in entries.tolist()]
        if self.version is not FileVersion.V2_0:
            for index, (position, _) in enumerate(found):
                if position % ALIGNMENT:
                    raise CorruptFile(
                        f"global buffer {index} starts at byte {position}, "
                        f"expected a multiple of {ALIGNMENT}",
                        self.path,
                    )
        if sum(found[0]) > self.metadata:
            raise CorruptFile(
                f"the schema (bytes {found[0][0]} to {sum(found[0])}) must end before the column metadata "
                f"(byte {self.metadata})",
                self.path,
            )
        return tuple(found)

    def _table(self, view: memoryview, start: int, position: int, count: int) -> npt.NDArray[np.uint64]:
        table = np.frombuffer(view, "<u8", 2 * count, position - start) if count else np.empty(0, np.uint64)
        return table.reshape(count, 2)


def _all_inside(entries: npt.NDArray[np.uint64], low: int, high: int) -> bool:
    if len(entries) <= FEW_ENTRIES:
        return all(low <= at <= high and size <= high - at for at, size in entries.tolist())
    positions, sizes = entries[:, 0], entries[:, 1]
    return bool(
        (positions >= np.uint64(low)).all()
        and (positions <= np.uint64(high)).all()
        and (sizes <= np.uint64(high) - positions).all()
    )


def parse_footer(view: memoryview, file_size: int, path: str) -> Footer:
    """Check and decode the footer at the end of `view`. Raises `CorruptFile` or `UnsupportedFeature`."""
    if file_size < FOOTER_BYTES or len(view) < FOOTER_BYTES:
        raise CorruptFile(
            f"the file has {file_size} bytes; a data file has at least the {FOOTER_BYTES} of its footer", path
        )
    metadata, column_table, global_table, num_globals, num_columns, major, minor, magic = _FOOTER.unpack(
        view[-FOOTER_BYTES:]
    )
    if magic != MAGIC:
        raise CorruptFile(_wrong_magic(view, magic), path)
    version = FileVersion.of_footer(major, minor)
    if version not in READ_VERSIONS:
        shown = version.value if version else f"{major}.{minor}"
        raise UnsupportedFeature(f"{path}: data file version {shown} is not supported: {SUPPORTED}")
    footer = Footer(version, metadata, column_table, global_table, num_globals, num_columns, file_size, path)
    limit = file_size - FOOTER_BYTES
    if num_globals == 0:
        raise CorruptFile("the file has no global buffer; the first must hold its schema", path)
    for what, position, size in (
        ("column metadata", metadata, 0),
        ("table of columns", column_table, num_columns * TABLE_ENTRY_BYTES),
        ("table of global buffers", global_table, num_globals * TABLE_ENTRY_BYTES),
    ):
        if position + size > limit:
            raise CorruptFile(
                f"the {what} (byte {position}, {size} bytes) reaches into the footer at byte {limit}",
                path,
            )
    return footer


def _wrong_magic(view: memoryview, magic: bytes) -> str:
    at = bytes(view[-4096:]).rfind(MAGIC)
    trailing = min(len(view), 4096) - at - len(MAGIC)
    hint = f"; a footer ends {trailing} bytes earlier: bytes were added after it" if at >= 0 else ""
    return f"expected {MAGIC!r} at the end of a data file, found {bytes(magic)!r}{hint}"


def tail_start(buffer: Any, file_size: int, path: str) -> int:
    """The position from which `parse_tail` needs the file, judging by its last bytes in `buffer`.

    When it lies before the start of `buffer`, read from there to the end of the file and ask again: the
    answer may be lower once, because the position of the schema stands in a table.
    """
    view = memoryview(buffer)
    footer = parse_footer(view, file_size, path)
    start = file_size - len(view)
    need = min(footer.metadata, footer.column_table, footer.global_table)
    if footer.global_table >= start:
        need = min(need, footer.global_entries(view, start)[0][0])
    return need


def parse_tail(buffer: Any, file_size: int, path: str) -> FileTail:
    """Decode the end of a data file. `buffer` holds its last bytes (or all), from `tail_start` on at least.

    `path` names the file in messages. Raises `CorruptFile` for damage and `UnsupportedFeature` for versions
    that are not read; columns and schema raise the same when first asked for.
    """
    view = memoryview(buffer)
    start = file_size - len(view)
    footer = parse_footer(view, file_size, path)
    if start > 0 and tail_start(view, file_size, path) < start:
        raise CorruptFile(
            f"the end of the file was read from byte {start}, its metadata starts earlier", path
        )
    return FileTail(view, start, footer, file_size, path)


def _direct(encoding: Any, what: str) -> bytes:
    location = encoding.WhichOneof("location")
    if location != "direct":
        raise CorruptFile(f"{what} must stand in place, found {location or 'none'}")
    data: bytes = encoding.direct.encoding
    return data


def _decoder(is_old: bool) -> Callable[[bytes], Any]:
    """What decodes the layouts of pages: those of version 2.0 are array encodings."""
    if not is_old:
        return decode_layout
    from tiltyard.format.array_encodings import decode_array_encoding  # few tables have such files

    return decode_array_encoding


def _page_table(message: Any, limit: int, aligned: bool, decode: Callable[[bytes], Any]) -> ColumnPages:
    pages = message.pages
    if len(pages) == 1:
        return _lone_page(message, pages[0], limit, aligned, decode)
    rows = [page.length for page in pages]
    offset_lists = [page.buffer_offsets for page in pages]
    size_lists = [page.buffer_sizes for page in pages]
    counts = [len(each) for each in offset_lists]
    if counts != [len(each) for each in size_lists]:
        raise CorruptFile("a page has different numbers of buffer offsets and sizes")
    offsets = list(chain.from_iterable(offset_lists))
    sizes = list(chain.from_iterable(size_lists))
    _check_buffers(offsets, sizes, limit, aligned)
    if sum(rows) > _MAX_ROWS:
        raise CorruptFile(f"its pages claim {sum(rows)} rows")
    numbers: dict[bytes, int] = {}
    index = [numbers.setdefault(_direct(page.encoding, "page encoding"), len(numbers)) for page in pages]
    # One array, cut into views: for a file of many columns the arrays themselves would be the cost.
    count, total = len(rows), len(offsets)
    first_rows = accumulate(rows, initial=0)
    table = np.array([*rows, *index, *accumulate(counts, initial=0), *offsets, *sizes, *first_rows], np.int64)
    at = 3 * count + 1
    return ColumnPages(
        sum(rows),
        table[at + 2 * total : at + 2 * total + count],
        table[:count],
        table[2 * count : at],
        table[at : at + total],
        table[at + total : at + 2 * total],
        table[count : 2 * count],
        tuple(map(decode, numbers)),
        tuple(message.buffer_offsets),
        tuple(message.buffer_sizes),
    )


_ZERO = np.zeros(1, np.int64)


def _lone_page(
    message: Any, page: Any, limit: int, aligned: bool, decode: Callable[[bytes], Any]
) -> ColumnPages:
    """The table of a column of one page, which is what small files consist of."""
    offsets, sizes, rows = list(page.buffer_offsets), list(page.buffer_sizes), page.length
    count = len(offsets)
    if count != len(sizes):
        raise CorruptFile("a page has different numbers of buffer offsets and sizes")
    _check_buffers(offsets, sizes, limit, aligned)
    if rows > _MAX_ROWS:
        raise CorruptFile(f"its pages claim {rows} rows")
    table = np.array([rows, 0, count, *offsets, *sizes], np.int64)
    return ColumnPages(
        rows,
        _ZERO,
        table[:1],
        table[1:3],
        table[3 : 3 + count],
        table[3 + count :],
        _ZERO,
        (decode(_direct(page.encoding, "page encoding")),),
        tuple(message.buffer_offsets),
        tuple(message.buffer_sizes),
    )


def _check_buffers(offsets: list[int], sizes: list[int], limit: int, aligned: bool) -> None:
    if not offsets:
        return
    if max(map(add, offsets, sizes)) > limit:
        raise CorruptFile(f"a page buffer reaches past byte {limit}, where the footer starts")
    if aligned and reduce(or_, offsets) % ALIGNMENT:
        position = next(each for each in offsets if each % ALIGNMENT)
        raise CorruptFile(f"a page buffer starts at byte {position}, expected a multiple of {ALIGNMENT}")


# -- writing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One written page: where its buffers stand (bytes), its rows, its first row."""

    layout: PageLayout
    buffer_offsets: Sequence[int]
    buffer_sizes: Sequence[int]
    rows: int
    priority: int = 0


def encode_column(pages: Sequence[PageEntry]) -> bytes:
    """The metadata bytes of one column, as `build_tail` takes them."""
    message = file_pb2.ColumnMetadata()
    message.encoding.direct.encoding = _COLUMN_ENCODING_BYTES
    for page in pages:
        entry = message.pages.add()
        entry.buffer_offsets.extend(page.buffer_offsets)
        entry.buffer_sizes.extend(page.buffer_sizes)
        entry.length = page.rows
        entry.encoding.direct.encoding = encode_layout(page.layout)
        entry.priority = page.priority
    return message.SerializeToString()


def padding(position: int) -> int:
    """Bytes from `position` to the next multiple of 64."""
    return -position % ALIGNMENT


def build_tail(
    position: int,
    version: FileVersion,
    schema: Schema,
    rows: int,
    columns: Sequence[bytes],
    global_buffers: Sequence[bytes | tuple[int, int]] = (),
) -> bytes:
    """The bytes that finish a data file whose `position` bytes are already written.

    `columns` come from `encode_column`. `global_buffers` are the ones after the schema (which is number 0):
    bytes are placed here, before the schema; a pair (position, size) says where one already stands.
    """
    parts: list[bytes] = []
    at = position

    def place(data: bytes) -> tuple[int, int]:
        nonlocal at
        gap = padding(at)
        parts.extend((bytes(gap), data))
        at += gap + len(data)
        return at - len(data), len(data)

    extra = [each if isinstance(each, tuple) else place(bytes(each)) for each in global_buffers]
    descriptor = file_pb2.FileDescriptor(length=rows)
    descriptor.schema.ParseFromString(schema.encode())
    globals_ = [place(descriptor.SerializeToString(deterministic=True)), *extra]
    metadata = at
    entries = []
    for column in columns:
        entries.append((at, len(column)))
        at += len(column)
    parts.extend(columns)
    column_table = at
    global_table = at + TABLE_ENTRY_BYTES * len(entries)
    parts.append(np.array([*entries, *globals_], "<u8").tobytes())
    parts.append(
        _FOOTER.pack(
            metadata, column_table, global_table, len(globals_), len(entries), *version.footer, MAGIC
        )
    )
    return b"".join(parts)
