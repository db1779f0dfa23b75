"""A blob as a file to read from, opened by nobody until it is read."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput

if TYPE_CHECKING:
    from tiltyard.table.blobs import BlobPlace

DEFAULT_BUFFER_BYTES = 512 << 10
"""What a sequential read fetches ahead."""


class _RawBlob(io.RawIOBase):
    """The bytes of a blob without a buffer: every read is one of the store."""

    def __init__(self, place: BlobPlace) -> None:
        super().__init__()
        self.place = place
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.place.size}.get(whence)
        if begin is None:
            raise InvalidInput(f"whence must be 0, 1 or 2, found {arguments.shown(whence)}")
        if begin + offset < 0:
            raise InvalidInput(f"a blob is read from byte 0 on; {begin + offset} lies before it")
        self._position = begin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self.place.size - self._position))
        if count:
            view[:count] = memoryview(self.place.read(self._position, count)).cast("B")
            self._position += count
        return count

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidInput("the blob is closed")


class BlobFile(io.BufferedReader):
    """A blob as a binary file: `read`, `seek`, `tell`, lines, a `with` block. `LanceDataset.take_blobs` gives
    it.

    Bytes are fetched when they are read. `read_range` and `read_ranges` leave the position as it is.
    """

    def __init__(self, inner: BlobPlace, buffer_size: int = DEFAULT_BUFFER_BYTES) -> None:
        size = arguments.whole("buffer_size", buffer_size)
        self._blob = _RawBlob(inner)
        super().__init__(self._blob, max(1, min(size, inner.size)))

    def size(self) -> int:
        """Bytes of the blob."""
        return self._blob.place.size

    def readall(self) -> bytes:
        """All bytes from the position on."""
        return self.read()

    def read_range(self, offset: int, length: int) -> bytes:
        """So many bytes from a byte of the blob on."""
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of (offset, length) ranges, in this order, with few reads."""
        from tiltyard.table.blobs import read_blobs

        self._blob._check_open()
        place = self._blob.place
        wanted = [(place, *blob_range(place.size, offset, length, "a range")) for offset, length in ranges]
        return [bytes(memoryview(each)) for each in read_blobs(wanted)]

    def __repr__(self) -> str:
        return f"<BlobFile size={self.size()}>"

    def __reduce__(self) -> Any:
        raise InvalidInput("a blob is not pickled: send its bytes, or the dataset and the row")


class BlobColumn:
    """Binary values that are in memory already, each as a file; None for a null one."""

    def __init__(self, blob_column: Any) -> None:
        if not isinstance(blob_column, (pa.Array, pa.ChunkedArray)):
            raise InvalidInput(
                f"Expected a pyarrow.Array or pyarrow.ChunkedArray, found {arguments.shown(blob_column)}"
            )
        kind = blob_column.type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise InvalidInput(f"Expected a binary array, found {kind}")
        self.blob_column = blob_column

    def __iter__(self) -> Iterator[io.BytesIO | None]:
        for value in self.blob_column:
            yield io.BytesIO(value.as_py()) if value.is_valid else None


def blob_range(size: int, offset: Any, length: Any, what: str) -> tuple[int, int]:
    """Offset and length within a blob of `size` bytes. Raises `InvalidInput` where it reaches past them."""
    offset, length = arguments.whole("offset", offset), arguments.whole("length", length)
    if offset + length > size:
        raise InvalidInput(f"{what}: byte {offset + length} lies past the end of a blob of {size} bytes")
    return offset, length
