"""Row ids and row versions of tables with stable row ids (table format, section 13.3).

Rules: new rows take the next ids and the new version; a moved row keeps its id and the version that created
it; a row rewritten in place changes only its version of last update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.fragment import DataOverlay, Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import Update
from tiltyard.format.roaring import decode_roaring
from tiltyard.format.row_ids import (
    append_row_id_range,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_constant_version,
    encode_row_id_range,
    encode_versions,
)
from tiltyard.kernels.distinct import distinct

FIRST_VERSION = 1
"""Version of rows in fragments that record none."""


def stamp_new(
    fragments: Sequence[Fragment], next_row_id: int, version: int
) -> tuple[tuple[Fragment, ...], int]:
    """New fragments with ids for the rows that have none yet, and versions; also the next free row id.

    A fragment may carry ids of moved rows, which come first; the rest of its rows are inserted ones.
    """
    stamped: list[Fragment] = []
    for fragment in fragments:
        rows = fragment.physical_rows
        if fragment.spilled_row_ids:
            stamped.append(fragment)  # the writer carried the whole lineage in a column
            continue
        carried = 0 if fragment.row_ids is None else count_row_ids(fragment.row_ids)
        if carried > rows:
            raise InvalidInput(f"a new fragment of {rows} rows carries {carried} row ids")
        added = rows - carried
        if fragment.row_ids is None:
            row_ids = encode_row_id_range(next_row_id, rows)
        else:
            row_ids = append_row_id_range(fragment.row_ids, next_row_id, added)
        next_row_id += added
        stamped.append(
            replace(
                fragment,
                row_ids=row_ids,
                created_versions=_created(fragment, carried, version),
                last_updated_versions=fragment.last_updated_versions
                if fragment.spilled_last_updated
                else encode_constant_version(version, rows),
            )
        )
    return tuple(stamped), next_row_id


def _created(fragment: Fragment, carried: int, version: int) -> bytes | None:
    """Created versions: what was carried for moved rows (the first `carried`), the new version for the
    others.
    """
    rows = fragment.physical_rows
    if fragment.spilled_created:
        return None
    if carried == 0 or fragment.created_versions is None:
        return encode_constant_version(version, rows)
    known = decode_versions(fragment.created_versions)
    if len(known) > rows:
        raise InvalidInput(f"a new fragment of {rows} rows carries {len(known)} created versions")
    return encode_versions(np.concatenate([known, np.full(rows - len(known), version, np.uint64)]))


def carry_created(new: Sequence[Fragment], previous: Manifest, touched: Iterable[int]) -> list[Fragment]:
    """New fragments whose moved rows know the version that created them, looked up in the fragments they
    left.

    `touched`: ids of the fragments that rows were moved out of.
    """
    if not any(fragment.row_ids is not None and fragment.created_versions is None for fragment in new):
        return list(new)
    ids, versions = _created_by_id(previous, touched)
    carried: list[Fragment] = []
    for fragment in new:
        if fragment.row_ids is None or fragment.created_versions is not None or fragment.spilled_created:
            carried.append(fragment)
            continue
        moved = decode_row_ids(fragment.row_ids)
        at = np.minimum(np.searchsorted(ids, moved), max(len(ids) - 1, 0))
        found = ids[at] == moved if len(ids) else np.zeros(len(moved), bool)
        created = np.full(len(moved), FIRST_VERSION, np.uint64)
        created[found] = versions[at[found]]
        carried.append(replace(fragment, created_versions=encode_versions(created)))
    return carried


def _created_by_id(previous: Manifest, touched: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    """Row ids of some fragments, ascending, and the version that created each."""
    ids: list[np.ndarray] = [np.empty(0, np.uint64)]
    versions: list[np.ndarray] = [np.empty(0, np.uint64)]
    for fragment_id in touched:
        fragment = previous.fragments.by_id(fragment_id)
        if fragment is None:
            continue
        if fragment.row_ids is None or fragment.spilled_created:
            raise UnsupportedFeature(
                f"fragment {fragment_id} keeps its row lineage in a data file; the created versions of moved "
                "rows must then be in the transaction"
            )
        ids.append(decode_row_ids(fragment.row_ids, fragment.physical_rows))
        versions.append(_known_versions(fragment.created_versions, fragment.physical_rows))
    all_ids, all_versions = np.concatenate(ids), np.concatenate(versions)
    order = np.argsort(all_ids, kind="stable")
    return all_ids[order], all_versions[order]


def _known_versions(data: bytes | None, rows: int) -> np.ndarray:
    return np.full(rows, FIRST_VERSION, np.uint64) if data is None else decode_versions(data, rows)


def stamp_all(fragment: Fragment, version: int) -> Fragment:
    """The fragment with every row last updated by `version`."""
    constant = encode_constant_version(version, fragment.physical_rows)
    return replace(fragment, last_updated_versions=constant, spilled_last_updated=False)


def stamp_offsets(fragment: Fragment, offsets: np.ndarray, version: int) -> Fragment:
    """The fragment with the rows at some physical offsets (uint32) last updated by `version`."""
    if not len(offsets):
        return fragment
    if fragment.spilled_last_updated:
        raise UnsupportedFeature(
            f"fragment {fragment.id} keeps the versions of its rows in a data file, where they cannot be "
            "changed"
        )
    if int(offsets.max()) >= fragment.physical_rows:
        raise InvalidInput(
            f"offset {int(offsets.max())} is outside fragment {fragment.id} of {fragment.physical_rows} rows"
        )
    versions = _known_versions(fragment.last_updated_versions, fragment.physical_rows)
    versions[offsets] = version
    return replace(fragment, last_updated_versions=encode_versions(versions))


def rewritten_offsets(operation: Update, fragment_id: int) -> np.ndarray:
    """Physical offsets (uint32) of one fragment that an update rewrote in place."""
    bitmap = operation.updated_fragment_offset_bitmaps.get(fragment_id)
    if bitmap is not None:
        return decode_roaring(bitmap, f"the set of rewritten rows of fragment {fragment_id}")
    return np.array(operation.updated_fragment_offsets.get(fragment_id, ()), np.uint32)


def covered_offsets(overlays: Iterable[DataOverlay]) -> np.ndarray:
    """Physical offsets (uint32) that any of the overlays covers."""
    parts = [np.empty(0, np.uint32)]
    for overlay in overlays:
        bitmaps = (overlay.shared_offsets,) if overlay.shared_offsets else overlay.field_coverage or ()
        what = f"the coverage of overlay {overlay.data_file.path}"
        parts.extend(decode_roaring(bitmap, what) for bitmap in bitmaps)
    return distinct(np.concatenate(parts))
