"""Rows of a table by number in plain words, and the blobs in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.lake.words import plain

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.dataset.blob_file import BlobFile


class Taking:
    """What looks at chosen rows."""

    _ds: LanceDataset

    def take(self, rows: Any, columns: Any = None) -> Any:
        """Rows by number, in the order given, as a `pa.Table`: a list, an array, a range or a slice."""
        return self._ds.take(rows, columns)

    @plain
    def blobs(self, column: str, rows: Any, *, allow_external: bool = False) -> list[BlobFile | None]:
        """The blobs of some rows, given by number, as files to read from; None for a null one. Nothing is
        read before you do. `allow_external`: whether to open blobs that the table keeps at URIs outside it.
        """
        return self._ds.take_blobs(column, indices=rows, allow_external=allow_external)

    @plain
    def read_blobs(self, column: str, rows: Any, *, allow_external: bool = False) -> list[bytes | None]:
        """The whole blobs of some rows, given by number, with few reads; None for a null one. See `blobs`."""
        found = self._ds.read_blobs(column, indices=rows, allow_external=allow_external)
        return [blob for _, blob in found]
