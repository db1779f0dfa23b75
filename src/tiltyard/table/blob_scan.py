"""A scan that gives the bytes of blobs in the place of their descriptors.

The rows are found and read as in any scan; then the bytes of each batch are fetched, of no more rows at once
than a budget of bytes holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.table.blobs import READ_BYTES, Blobs, Convert, converter, with_bytes
from tiltyard.table.projection import ROW_ADDRESS
from tiltyard.table.scan import Projection, Scan, ScanRequest

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the result: how its array comes from column `at` of the scan, None as it is."""

    at: int
    field: Any
    convert: Convert | None


class BlobScan:
    """A scan bound to a snapshot, whose blob columns are large binary. See `Scan` for what it raises."""

    def __init__(self, snapshot: Snapshot, request: ScanRequest, *, allow_external: bool = False) -> None:
        if request.include_deleted:
            raise InvalidInput(
                "include_deleted_rows cannot be combined with blob_handling='all_binary': leave one out"
            )
        self.snapshot = snapshot
        self.request = request
        self._allow_external = allow_external
        self._shown = Scan(snapshot, request)
        self._scan = Scan(snapshot, replace(request, row_address=True))
        self._columns = [self._column(output) for output in self._shown.projection.outputs]
        self._address = self._scan.schema.get_field_index(ROW_ADDRESS)
        self._schema = pa.schema([each.field for each in self._columns], self._shown.schema.metadata)

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._schema

    @property
    def projection(self) -> Projection:
        """What is read of the table, with descriptors where it has blobs."""
        return self._shown.projection

    def table(self) -> Any:
        """All rows as one `pa.Table`."""
        return pa.Table.from_batches(self._converted(self._scan.table().to_batches()), self._schema)

    def batches(self, *, apart: bool = False) -> Iterator[Any]:
        """Rows as `pa.RecordBatch`es in order, never empty; fewer in one where their blobs are large."""
        yield from self._converted(self._scan.batches(apart=apart))

    def count(self) -> int:
        """How many rows the scan gives."""
        return self._shown.count()

    def limited(self, rows: int) -> BlobScan:
        """The same scan with at most so many rows."""
        request = replace(self.request, limit=rows)
        return BlobScan(self.snapshot, request, allow_external=self._allow_external)

    def plan(self) -> list[str]:
        """How the rows are found, a line each."""
        return self._shown.plan()

    @property
    def columns_read(self) -> list[str]:
        """Names of the columns that are read, those of the filter included."""
        return self._shown.columns_read

    def rows_looked_at(self) -> int:
        """How many rows are read for the filter, or all that are given where there is none."""
        return self._shown.rows_looked_at()

    # -- inside ----------------------------------------------------------------------------------

    def _column(self, output: Any) -> _Column:
        at = self._scan.schema.get_field_index(output.name)  # row addresses may stand elsewhere there
        if output.field < 0:
            return _Column(at, output.arrow_field, None)
        field = self._shown.projection.fields[output.field]
        for step in output.steps:
            field = next(each for each in field.children if each.name == step)
        schema = self.snapshot.schema
        convert = converter(schema, field, self._bytes_of)
        if convert is None:
            return _Column(at, output.arrow_field, None)
        shown = with_bytes(schema, field, self._bytes_of).arrow_field
        field_shown = shown.with_name(output.name).with_nullable(output.arrow_field.nullable)
        return _Column(at, field_shown, convert)

    def _bytes_of(self, field: Field) -> Convert:
        path = tuple([each.name for each in (*self.snapshot.schema.ancestors(field.id), field)])
        return Blobs(self.snapshot, path, allow_external=self._allow_external).array

    def _converted(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            blobs = [batch.column(each.at) for each in self._columns if each.convert is not None]
            for low, high in pairwise(cuts(blobs, batch.num_rows)):
                yield self._convert(batch.slice(low, high - low))

    def _convert(self, batch: Any) -> Any:
        addresses = batch.column(self._address).to_numpy()
        arrays = [
            batch.column(each.at) if each.convert is None else each.convert(batch.column(each.at), addresses)
            for each in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def cuts(blobs: Iterable[Any], rows: int) -> list[int]:
    """Bounds of parts of some rows, by the descriptors in their arrays, so that no part of several rows holds
    much more than `READ_BYTES`.
    """
    sizes = np.zeros(rows, np.int64)
    for array in blobs:
        for part in _sizes(array):
            sizes += np.minimum(part, np.uint64(READ_BYTES)).astype(np.int64)
    parts = np.cumsum(sizes) // READ_BYTES
    return [0, *(np.flatnonzero(parts[1:] != parts[:-1]) + 1).tolist(), rows]


def _sizes(array: Any) -> Iterator[npt.NDArray[np.uint64]]:
    """The sizes in every blob column of an array."""
    if not pa.types.is_struct(array.type):
        return
    names = [field.name for field in array.type]
    if "position" in names and "size" in names:
        size = array.field("size")
        yield np.asarray(size.fill_null(0) if size.null_count else size).astype(np.uint64)
        return
    for at in range(array.type.num_fields):
        yield from _sizes(array.field(at))
