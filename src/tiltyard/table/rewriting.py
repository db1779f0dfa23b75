"""Changed columns of a fragment written anew beside the others: when that pays, and where new values go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput
from tiltyard.table.dictionaries import encoded
from tiltyard.table.plan import estimated_row_bytes

if TYPE_CHECKING:
    from tiltyard.format.fragment import Fragment
    from tiltyard.format.schema import Field
    from tiltyard.table.snapshot import Snapshot
    from tiltyard.table.touched_rows import TouchedRows

COLUMN_REWRITE_SHARE = 0.5
"""Least share of the rows of every touched fragment that must change for it."""

COLUMN_REWRITE_GAIN = 2
"""How many times less it must write."""

Offsets = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]


def writes_less(snapshot: Snapshot, places: Mapping[int, Offsets], columns: Sequence[Field]) -> bool:
    """Whether these columns of all rows of the fragments are much less to write than the changed rows whole:
    where most rows of each fragment change, and rows are wide.

    `places`: physical offsets (uint32) of the changed rows by fragment id.
    """
    rows = 0
    for id, offsets in places.items():
        fragment = snapshot.fragment(id)
        if fragment is None or len(offsets) < COLUMN_REWRITE_SHARE * fragment.physical_rows:
            return False
        rows += fragment.physical_rows
    moved = sum(map(len, places.values())) * estimated_row_bytes(snapshot.schema.fields)
    return COLUMN_REWRITE_GAIN * rows * estimated_row_bytes(columns) <= moved


def every_row(fragment: Fragment) -> dict[int, Offsets]:
    """All physical rows of a fragment, for `read_touched`."""
    return {fragment.id: np.arange(fragment.physical_rows, dtype=np.uint32)}


def among(rows: TouchedRows, offsets: Offsets) -> tuple[slice, Positions]:
    """Which of `offsets` (ascending) are in a piece of `every_row`, and at which positions of its batch."""
    first, last = np.searchsorted(offsets, (int(rows.offsets[0]), int(rows.offsets[-1]) + 1))
    chosen = slice(int(first), int(last))
    return chosen, offsets[chosen].astype(np.int64) - int(rows.offsets[0])


def scattered(before: Any, at: Positions, values: Any) -> Any:
    """The array `before` with `values` at the positions `at` (ascending), whatever its type.

    Raises `InvalidInput` for a dictionary whose indices cannot tell so many values apart.
    """
    if len(at) == 0:
        return before
    if len(at) == len(before):
        return values
    if pa.types.is_dictionary(before.type):
        # Brought together first, the two dictionaries may have more values than the rows that are left.
        mixed = scattered(before.dictionary_decode(), at, values.dictionary_decode())
        try:
            return encoded(mixed, before.type)
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{len(mixed)} rows with the new values in place have more values than a {before.type} can "
                f"number ({error}); change fewer rows at a time, or give the column a wider index type"
            ) from error
    source = np.arange(len(before), dtype=np.int64)
    source[at] = np.arange(len(before), len(before) + len(at))
    return pa.concat_arrays([before, values]).take(pa.array(source))
