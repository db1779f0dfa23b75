"""The pseudo columns: row ids, row addresses, offsets and row versions (table format, section 13).

All are uint64. Without stable row ids a row's id is its address and both version columns read 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import UnsupportedFeature
from tiltyard.format.fragment import Fragment
from tiltyard.format.row_ids import decode_row_ids, decode_versions
from tiltyard.table.projection import CREATED_AT, ROW_ADDRESS, ROW_ID, ROW_OFFSET

if TYPE_CHECKING:
    from tiltyard.table.fragment_columns import Rows
    from tiltyard.table.snapshot import Snapshot

FRAGMENT_SHIFT = 32
FIRST_VERSION = 1
U64 = npt.NDArray[np.uint64]


def system_column(
    snapshot: Snapshot, fragment: Fragment, name: str, rows: Rows, first_position: U64 | int
) -> Any:
    """The pseudo column `name` of the rows at these physical offsets, as a `pa.Array` of uint64.

    `first_position` is the row's position in the table's scan order: of the first row when the rows are
    consecutive in it, else one position per row.
    """
    offsets = (
        np.arange(rows.start, rows.stop, dtype=np.uint64)
        if isinstance(rows, slice)
        else rows.astype(np.uint64)
    )
    if name == ROW_ADDRESS:
        return _array(_addresses(fragment, offsets))
    if name == ROW_ID:
        ids = row_ids(snapshot, fragment)
        return _array(_addresses(fragment, offsets) if ids is None else ids[offsets.astype(np.int64)])
    if name == ROW_OFFSET:
        if isinstance(first_position, int):
            return _array(np.arange(first_position, first_position + len(offsets), dtype=np.uint64))
        return _array(first_position)
    versions = _versions(snapshot, fragment, name)
    if versions is None:
        return _array(np.full(len(offsets), FIRST_VERSION, dtype=np.uint64))
    return _array(versions[offsets.astype(np.int64)])


def row_ids(snapshot: Snapshot, fragment: Fragment) -> U64 | None:
    """Stable ids of all physical rows of the fragment; None where ids are addresses.

    Raises `UnsupportedFeature` for ids that are spilled into a data file.
    """
    if fragment.spilled_row_ids:
        raise _spilled(fragment, "row ids")
    data = fragment.row_ids
    if data is None:
        return None
    key = (snapshot.store.identity, data, "row_ids", fragment.physical_rows)

    def make() -> tuple[U64, int]:
        ids = decode_row_ids(data, fragment.physical_rows, snapshot.location.path)
        return ids, ids.nbytes + len(data)

    found: U64 = snapshot.session.cache.get_or(key, make)
    return found


def _versions(snapshot: Snapshot, fragment: Fragment, name: str) -> U64 | None:
    created = name == CREATED_AT
    if fragment.spilled_created if created else fragment.spilled_last_updated:
        raise _spilled(fragment, name)
    data = fragment.created_versions if created else fragment.last_updated_versions
    return None if data is None else decode_versions(data, fragment.physical_rows, snapshot.location.path)


def _spilled(fragment: Fragment, what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"fragment {fragment.id} keeps its {what} in a data file (config lance.row_lineage.spill), which "
        "this version does not read; leave the pseudo column out"
    )


def _addresses(fragment: Fragment, offsets: U64) -> U64:
    return offsets | np.uint64(fragment.id << FRAGMENT_SHIFT)


def _array(values: U64) -> Any:
    return pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
