"""Reading the rows that an operation changes: known places, whole or some columns, in bounded memory.

Places are physical offsets per fragment. A few batches are decoded at once, so at most
`runtime.cores()` batches of about `plan.UNIT_BYTES` are held (D46).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import BatchTooLarge, InvalidInput
from tiltyard.table.gather import Gather
from tiltyard.table.plan import DEFAULT_BATCH_ROWS, estimated_row_bytes, stream_unit_rows
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.table.snapshot import Snapshot

PARALLEL_BYTES = 1 << 20
"""Estimated bytes below which the rows are read by the caller alone."""

Offsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Rows of one fragment: their physical offsets (uint32, ascending) and a `pa.RecordBatch` of them."""

    fragment_id: int
    offsets: Offsets
    batch: Any

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """Row addresses, uint64."""
        return self.offsets.astype(np.uint64) | np.uint64(self.fragment_id << FRAGMENT_SHIFT)


def read_touched(
    snapshot: Snapshot, places: Mapping[int, Offsets], fields: tuple[Field, ...]
) -> Iterator[TouchedRows]:
    """The rows at these places, by fragment in the order given and ascending within.

    `places`: fragment id -> sorted physical offsets (uint32), deleted rows allowed. `fields`: top-level
    fields of the snapshot's schema, which become the columns. Batches are cut where memory or 32-bit offsets
    of strings ask for it, and never empty.
    """
    reader = Gather(snapshot, fields)
    schema = pa.schema([field.arrow_field for field in fields])
    row_bytes = estimated_row_bytes(fields)
    step = stream_unit_rows(row_bytes, DEFAULT_BATCH_ROWS)

    def read(fragment_id: int, offsets: Offsets) -> list[TouchedRows]:
        fragment = snapshot.fragment(fragment_id)
        if fragment is None:
            raise InvalidInput(
                f"version {snapshot.version} of {snapshot.store.uri} has no fragment {fragment_id}"
            )
        try:
            arrays = reader.read(fragment, _rows(offsets))
        except BatchTooLarge:
            if len(offsets) < 2:
                raise
            middle = len(offsets) // 2
            return read(fragment_id, offsets[:middle]) + read(fragment_id, offsets[middle:])
        return [TouchedRows(fragment_id, offsets, pa.RecordBatch.from_arrays(arrays, schema=schema))]

    pieces = [
        partial(read, id, offsets[start : start + step])
        for id, offsets in places.items()
        for start in range(0, len(offsets), step)
    ]
    if sum(map(len, places.values())) * row_bytes < PARALLEL_BYTES:
        for piece in pieces:
            yield from piece()
        return
    rest = iter(pieces)
    while window := list(islice(rest, runtime.cores())):
        for found in runtime.parallel(window):
            yield from found


def _rows(offsets: Offsets) -> slice | npt.NDArray[np.int64]:
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first == len(offsets) - 1:
        return slice(first, last + 1)
    return offsets.astype(np.int64)
