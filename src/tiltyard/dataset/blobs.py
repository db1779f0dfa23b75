"""The blob face of a dataset: values of blob columns as files, as bytes, and in ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.blob_file import DEFAULT_BUFFER_BYTES, BlobFile, blob_range
from tiltyard.dataset.handle import Handle
from tiltyard.errors import InvalidInput

if TYPE_CHECKING:
    from tiltyard.table.blobs import Blobs

SELECTORS = ("ids", "addresses", "indices")
MAX_RANGE = (1 << 64) - 1


class BlobFace(Handle):
    """What reads blobs."""

    def take_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        buffer_size: int = DEFAULT_BUFFER_BYTES,
        allow_external: bool = False,
    ) -> list[BlobFile | None]:
        """The blobs of some rows as files, of which nothing is read yet; None for a null one.

        Rows are given by exactly one of `ids` (`_rowid`), `addresses` (`_rowaddr`) and `indices` (numbers in
        scan order), in any order. `buffer_size`: bytes that a sequential read fetches ahead.
        `allow_external`: whether blobs at URIs outside the table are opened, too. Raises `RowOutOfRange`,
        `CorruptFile` for damaged descriptors, `UnsupportedFeature` for deleted rows and URIs outside.
        """
        blobs = self._blobs(blob_column, allow_external)
        size = arguments.whole("buffer_size", buffer_size)
        places = blobs.places(*blobs.rows(*_selection(ids, addresses, indices)))
        return [None if place is None else BlobFile(place, size) for place in places]

    def read_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
        allow_external: bool = False,
    ) -> list[tuple[int, bytes | None]]:
        """The whole blobs of some rows: (row address, bytes, or None for a null one), in the order of the
        rows; see `take_blobs`. `io_buffer_size` and `preserve_order` are hints without effect.
        """
        from tiltyard.table.blobs import read_blobs

        _check_hints(io_buffer_size, preserve_order)
        blobs = self._blobs(blob_column, allow_external)
        at, descriptors = blobs.rows(*_selection(ids, addresses, indices))
        read = read_blobs([(place, 0, None) for place in blobs.places(at, descriptors)])
        return list(zip(at.tolist(), map(_bytes, read), strict=True))

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Iterable[Sequence[int]],
        *,
        selector: str,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
        allow_external: bool = False,
    ) -> list[tuple[int, int, bytes | None]]:
        """Parts of the blobs of some rows. `requests`: (row, offset, length in bytes), with rows named as
        `selector` says: `ids`, `addresses` or `indices`. Gives (number of the request, row address, bytes, or
        None where the blob is null), in this order; see `read_blobs`.
        """
        from tiltyard.table.blobs import read_blobs

        _check_hints(io_buffer_size, preserve_order)
        blobs = self._blobs(blob_column, allow_external)
        by = arguments.one_of("selector", selector, *SELECTORS)
        asked = [
            _request(number, each)
            for number, each in enumerate(arguments.items("requests", requests, object))
        ]
        at, descriptors = blobs.rows(by, [row for row, _, _ in asked])
        wanted: list[Any] = []
        for number, (place, (_, offset, length)) in enumerate(
            zip(blobs.places(at, descriptors), asked, strict=True)
        ):
            if place is None:
                wanted.append((None, 0, 0))
            else:
                wanted.append((place, *blob_range(place.size, offset, length, f"requests[{number}]")))
        read = map(_bytes, read_blobs(wanted))
        return list(zip(range(len(asked)), at.tolist(), read, strict=True))

    def _blobs(self, blob_column: str, allow_external: bool) -> Blobs:
        from tiltyard.table.blobs import Blobs

        column = arguments.text("blob_column", blob_column)
        allowed = arguments.flag("allow_external", allow_external)
        return Blobs(self._snapshot, column, allow_external=allowed)


def _selection(ids: Any, addresses: Any, indices: Any) -> tuple[str, Any]:
    given = [
        (by, rows) for by, rows in zip(SELECTORS, (ids, addresses, indices), strict=True) if rows is not None
    ]
    if len(given) != 1:
        raise InvalidInput(
            "Exactly one of ids, indices, or addresses must be specified; given: "
            + (", ".join(by for by, _ in given) or "none")
        )
    by, rows = given[0]
    return by, rows if hasattr(rows, "__len__") else list(rows)


def _request(number: int, given: Any) -> tuple[int, int, int]:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) != 3:
        raise arguments.wrong(f"requests[{number}]", "(row, offset, length)", given)
    row, offset, length = (arguments.whole(f"requests[{number}]", each) for each in given)
    if offset + length > MAX_RANGE:
        raise InvalidInput(f"requests[{number}]: offset and length together exceed 64 bits")
    return row, offset, length


def _check_hints(io_buffer_size: int | None, preserve_order: bool | None) -> None:
    arguments.maybe_whole("io_buffer_size", io_buffer_size, 1)
    arguments.maybe_flag("preserve_order", preserve_order)


def _bytes(buffer: Any) -> bytes | None:
    return None if buffer is None else bytes(memoryview(buffer))
