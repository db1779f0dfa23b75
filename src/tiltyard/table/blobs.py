"""The bytes of blobs: from descriptors of rows to places in files, and reading those (table format 12).

A descriptor says where a value is; which file that means is said by the fragment that the row lies in. What
damaged descriptors name is refused before it is read. URIs outside the table are followed only where the
caller allows it: a table from elsewhere must not make its reader open any file of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import BatchTooLarge, CorruptFile, InvalidInput, ObjectNotFound, UnsupportedFeature
from tiltyard.file.reader import open_file
from tiltyard.format.blobs import BlobKind, as_bytes, is_version_2
from tiltyard.format.names import sidecar_path
from tiltyard.store import open_store
from tiltyard.table.bases import STORE_BYTES, base_place, data_place
from tiltyard.table.projection import ROW_ADDRESS, project
from tiltyard.table.system_columns import FRAGMENT_SHIFT
from tiltyard.table.take import Taker

if TYPE_CHECKING:
    from tiltyard.format.fragment import DataFile
    from tiltyard.format.schema import Field, Path, Schema
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

READ_BYTES = 64 << 20
"""Bytes of blobs that one read of a file asks for; a greater blob is a read of its own."""

MAX_POSITION = 1 << 62
"""Bytes of no file."""

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Where the bytes of one blob are."""

    store: Store
    path: str
    start: int
    size: int

    def read(self, offset: int = 0, length: int | None = None) -> Any:
        """Bytes of the blob as a buffer: `length` of them, or all from `offset` on. Raises `CorruptFile`."""
        count = self.size - offset if length is None else length
        return _read(self.store, self.path, [(self.start + offset, count)])[0] if count else b""


class Blobs:
    """The values of one blob column of a snapshot."""

    def __init__(self, snapshot: Snapshot, column: Path, *, allow_external: bool = False) -> None:
        """`allow_external`: whether URIs in the table that lie outside it are followed. Raises
        `FieldNotFound`; `InvalidInput` for a column that holds no blobs.
        """
        field = snapshot.schema.field(column)
        if not field.is_blob:
            raise InvalidInput(f"the column {column!r} is not a blob column; read it with take or a scan")
        self._snapshot = snapshot
        self._field: Field = field
        self._allow_external = allow_external
        self._path = column
        self._files: dict[int, DataFile] = {}

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, by: str, rows: Any) -> tuple[Addresses, Any]:
        """Addresses and descriptors of rows given `by` their `indices`, `ids` or `addresses`, in this order.

        Raises `RowOutOfRange`; `UnsupportedFeature` for a row that is deleted.
        """
        assert isinstance(self._path, str)
        projection = project(self._snapshot.schema, [self._path, ROW_ADDRESS])
        taker = Taker(self._snapshot, projection=projection)
        if by == "indices":
            table = taker.rows_at(rows)
        else:
            found = taker.rows_with_ids if by == "ids" else taker.rows_at_addresses
            table = found(rows)
            if table.num_rows != len(rows):
                raise UnsupportedFeature(
                    f"{len(rows) - table.num_rows} of {len(rows)} rows are deleted, or were never there. A "
                    "take operation that includes row addresses must not target deleted rows; leave them out"
                )
        whole = table.combine_chunks()
        if not whole.num_rows:
            return np.empty(0, np.uint64), pa.array([], table.schema.field(0).type)
        return whole.column(1).to_numpy(), whole.column(0).chunk(0)

    # -- places ----------------------------------------------------------------------------------

    def places(self, addresses: Addresses, descriptors: Any) -> list[BlobPlace | None]:
        """Where the blobs of rows are; None for a null one. Raises `CorruptFile` for a descriptor that names
        no place, `UnsupportedFeature` for one that is not followed.
        """
        found: list[BlobPlace | None] = [None] * len(addresses)
        position, size = _numbers(descriptors, "position"), _numbers(descriptors, "size")
        there = np.asarray(descriptors.is_valid())
        if is_version_2(self._field):
            kind, number = _numbers(descriptors, "kind"), _numbers(descriptors, "blob_id")
            uris = descriptors.field("blob_uri")
        else:
            there &= (size != 0) | (position == 0)  # files of version 2.0 say null so
            kind = number = np.zeros(len(addresses), np.uint8)
            uris = None
        fragments = (addresses >> np.uint64(FRAGMENT_SHIFT)).astype(np.int64)
        for row in np.flatnonzero(there).tolist():
            file = self._file(int(fragments[row]))
            start, count = int(position[row]), int(size[row])
            if start + count > MAX_POSITION:
                raise self._damaged(self._place(file)[1], f"a blob of {count} bytes at byte {start}")
            if kind[row] == BlobKind.EXTERNAL:
                try:
                    uri = uris[row].as_py()
                except UnicodeDecodeError as error:
                    raise self._damaged(self._place(file)[1], f"the URI of a blob: {error}") from error
                found[row] = self._external(uri, int(number[row]), start, count)
            else:
                found[row] = self._within(file, int(kind[row]), int(number[row]), start, count)
        return found

    def _within(self, file: DataFile, kind: int, number: int, start: int, size: int) -> BlobPlace:
        """The place of a blob in a data file or beside it."""
        store, path = self._place(file)
        if kind == BlobKind.INLINE:
            whole = open_file(store, path, size=file.size or None, session=self._snapshot.session).size
            if size and (start > whole or size > whole - start):
                raise self._damaged(
                    path, f"a blob of {size} bytes at byte {start} of a file of {whole} bytes"
                )
            return BlobPlace(store, path, start, size)
        if kind in (BlobKind.PACKED, BlobKind.DEDICATED):
            if not number:
                raise self._damaged(path, "a blob of file 0; such files are numbered from 1")
            begin = start if kind == BlobKind.PACKED else 0
            return self._beside(store, sidecar_path(path, number), begin, size)
        if kind == BlobKind.MANAGED:
            raise UnsupportedFeature(f"column {self._field.name!r}: managed blobs are not supported")
        raise self._damaged(path, f"a blob of the unknown kind {kind}")

    def _external(self, uri: str, base_id: int, start: int, size: int) -> BlobPlace:
        snapshot = self._snapshot
        if base_id:
            what = f"a blob of column {self._field.name!r}"
            store, _ = base_place(snapshot.store, snapshot.session, snapshot.manifest, base_id, what)
            path = uri
        elif not self._allow_external:
            raise UnsupportedFeature(
                f"column {self._field.name!r}: a blob lies outside the table, at {uri}; if the table is to "
                "be trusted with what it has you open, say allow_external=True (of a scan: "
                "allow_external_blobs=True)"
            )
        else:
            parent, _, path = uri.rpartition("/")
            if not path or not (parent.startswith("/") or "://" in parent):
                raise self._damaged(uri, "the URI of a blob names no file")
            key = (parent, "blobs outside")
            try:
                store = snapshot.session.cache.get_or(key, lambda: (open_store(parent), STORE_BYTES))
            except InvalidInput as error:
                raise self._damaged(uri, f"the URI of a blob names no file: {error}") from error
        if not size:
            whole = self._bytes_of(store, path)
            if start > whole:
                raise self._damaged(uri, f"a blob begins at byte {start} of a file of {whole} bytes")
            size = whole - start
        return self._beside(store, path, start, size)

    def _beside(self, store: Store, path: str, start: int, size: int) -> BlobPlace:
        """A place in a file that is no data file: of large blobs it is asked before memory is made for them,
        of others when they are read.
        """
        if size > READ_BYTES and start + size > self._bytes_of(store, path):
            raise self._damaged(path, f"a blob of {size} bytes at byte {start} ends behind the file")
        return BlobPlace(store, path, start, size)

    def _bytes_of(self, store: Store, path: str) -> int:
        try:
            return store.stat(path).size
        except ObjectNotFound as error:
            raise self._damaged(path, "the file of a blob is missing") from error

    def _file(self, fragment_id: int) -> DataFile:
        """The data file of a fragment that holds the column."""
        found = self._files.get(fragment_id)
        if found is None:
            fragment = self._snapshot.fragment(fragment_id)
            assert fragment is not None  # its rows were just read, and not all of them are null
            found = next(file for file in fragment.files if self._field.id in file.fields)
            self._files[fragment_id] = found
        return found

    def _place(self, file: DataFile) -> tuple[Store, str]:
        snapshot = self._snapshot
        return data_place(snapshot.store, snapshot.session, snapshot.manifest, file)

    def _damaged(self, path: str, what: str) -> CorruptFile:
        return CorruptFile(f"column {self._field.name!r}: {what}", path)

    def array(self, descriptors: Any, addresses: Addresses) -> Any:
        """The blobs of rows as one large binary array."""
        return binary_array(self.places(addresses, descriptors))


@dataclass(frozen=True, slots=True)
class FileBlobs:
    """The values of a column of blobs of version 1 in one file of `size` bytes, outside of any table."""

    store: Store
    path: str
    size: int
    column: str

    def array(self, descriptors: Any, _: Any) -> Any:
        """The blobs of rows as one large binary array. Raises `CorruptFile`."""
        position, size = _numbers(descriptors, "position"), _numbers(descriptors, "size")
        there = np.asarray(descriptors.is_valid()) & ((size != 0) | (position == 0))
        places: list[BlobPlace | None] = [None] * len(there)
        for row in np.flatnonzero(there).tolist():
            start, count = int(position[row]), int(size[row])
            if start + count > self.size:
                raise CorruptFile(
                    f"column {self.column!r}: a blob of {count} bytes at byte {start} of a file of "
                    f"{self.size} bytes",
                    self.path,
                )
            places[row] = BlobPlace(self.store, self.path, start, count)
        return binary_array(places)


def binary_array(places: Sequence[BlobPlace | None]) -> Any:
    """The bytes at places as one large binary array."""
    sizes = np.array([0 if place is None else place.size for place in places], np.int64)
    offsets = np.zeros(len(places) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    try:
        data = np.empty(int(offsets[-1]), np.uint8)
    except MemoryError as error:
        raise BatchTooLarge(f"{len(places)} blobs hold {int(offsets[-1])} bytes: read fewer") from error
    for row, part in enumerate(read_blobs([(each, 0, None) for each in places])):
        if part is not None and sizes[row]:
            data[offsets[row] : offsets[row + 1]] = np.frombuffer(part, np.uint8)
    mask = pa.array([place is not None for place in places], pa.bool_())
    buffers = [mask.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(places), buffers)


Convert = Callable[[Any, Any], Any]
"""An array with descriptors, and what tells its rows, to one with bytes."""


def converter(schema: Schema, field: Field, of: Callable[[Field], Convert | None]) -> Convert | None:
    """What makes an array of a field with bytes from one with descriptors; None where nothing in it changes.

    `of`: what does so with a blob column; None leaves it. Raises `UnsupportedFeature` for lists.
    """
    if field.is_blob:
        return of(field)
    below = [converter(schema, child, of) for child in field.children]
    if not any(below):
        return None
    if field.logical_type != "struct":
        raise UnsupportedFeature(
            f"column {field.name!r}: the bytes of blobs in a {field.logical_type} are not read; leave the "
            "column out, or scan it with blob_handling='blobs_descriptions'"
        )
    arrow = with_bytes(schema, field, of).arrow_type

    def convert(array: Any, rows: Any) -> Any:
        parts = [
            array.field(at) if each is None else each(array.field(at), rows) for at, each in enumerate(below)
        ]
        missing = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=missing)

    return convert


def with_bytes(schema: Schema, field: Field, of: Callable[[Field], Convert | None]) -> Field:
    """A field of a projection of a schema, with bytes where `converter` makes some."""
    if field.is_blob:
        return field if of(field) is None else as_bytes(schema.by_id(field.id))
    if not field.children:
        return field
    return replace(field, children=tuple([with_bytes(schema, child, of) for child in field.children]))


def read_blobs(wanted: Sequence[tuple[BlobPlace | None, int, int | None]]) -> list[Any]:
    """Bytes of blobs as buffers, in the order of `wanted`: (place, offset in the blob, bytes or None for the
    rest of it); None where there is no place.

    Reads of one file are asked for together. Raises `CorruptFile` naming the file.
    """
    found: list[Any] = [None] * len(wanted)
    files: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    stores: dict[str, Store] = {}
    for at, (place, offset, length) in enumerate(wanted):
        if place is None:
            continue
        count = place.size - offset if length is None else length
        if not count:
            found[at] = b""
            continue
        stores[place.store.identity] = place.store
        files.setdefault((place.store.identity, place.path), []).append((place.start + offset, count, at))
    for (identity, path), ranges in files.items():
        ranges.sort()
        part: list[tuple[int, int, int]] = []
        total = 0
        for each in ranges:
            if part and total + each[1] > READ_BYTES:
                _fill(found, stores[identity], path, part)
                part, total = [], 0
            part.append(each)
            total += each[1]
        _fill(found, stores[identity], path, part)
    return found


def _fill(found: list[Any], store: Store, path: str, ranges: list[tuple[int, int, int]]) -> None:
    read = _read(store, path, [(start, count) for start, count, _ in ranges])
    for buffer, (_, _, at) in zip(read, ranges, strict=True):
        found[at] = buffer


def _read(store: Store, path: str, ranges: list[tuple[int, int]]) -> list[Any]:
    try:
        return list(store.read_ranges(path, ranges))
    except ObjectNotFound as error:
        raise CorruptFile("the file of a blob is missing", path) from error


def _numbers(descriptors: Any, name: str) -> npt.NDArray[Any]:
    """One part of descriptors; 0 where they are null."""
    part = descriptors.field(name)
    return np.asarray(part.fill_null(0) if part.null_count else part)
