"""How many rows fragments have, live and physical, and which fragments a caller's choice of ids means.

A manifest says so; where it does not, or says what is hard to believe, the files are asked before anything is
made of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.table.deletions import load_deletions

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

BELIEVED_ROWS = 1 << 24
"""A fragment that is said to have more rows is compared with its file before anything is planned by its size.
"""


def live_rows(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """Live rows of each fragment, in the order of the version's list (int64)."""
    return rows_of_fragments(snapshot, include_deleted=False)


def live_rows_by_id(snapshot: Snapshot) -> dict[int, int]:
    """Live rows of each fragment by its id, in the order of the version's list."""
    return dict(zip(snapshot.fragments.ids.tolist(), live_rows(snapshot).tolist(), strict=True))


def physical_rows(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """Rows of each fragment, deleted ones too, in the order of the version's list (int64)."""
    return rows_of_fragments(snapshot, include_deleted=True)


def rows_of_fragments(snapshot: Snapshot, *, include_deleted: bool) -> npt.NDArray[np.int64]:
    """Live rows of each fragment or, with `include_deleted`, all of its rows (int64).

    Raises `CorruptFile` where manifest, files and deletion files disagree.
    """
    fragments = snapshot.fragments
    rows = np.asarray(fragments.physical_rows).astype(np.int64)
    if len(rows) and not rows.all():
        for position in np.flatnonzero(rows == 0):
            rows[position] = _counted_rows(snapshot, int(position))
    for position in np.flatnonzero(rows > BELIEVED_ROWS):
        _counted_rows(snapshot, int(position))
    if include_deleted:
        return rows
    live = rows - np.asarray(fragments.deleted_rows).astype(np.int64)
    if fragments.any_deletions:
        for position in np.flatnonzero((live <= 0) & (rows > 0)):
            _check_all_deleted(snapshot, int(position), int(live[position]))
    return live


def _check_all_deleted(snapshot: Snapshot, position: int, live: int) -> None:
    """A fragment that is said to have no row left is not read: then its deletion file must say so, too."""
    fragment = snapshot.fragments[position]
    if live < 0:
        raise CorruptFile(
            f"fragment {fragment.id} has {-live} rows less than the manifest says are deleted",
            path=snapshot.location.path,
        )
    load_deletions(snapshot, fragment)


def _counted_rows(snapshot: Snapshot, position: int) -> int:
    """Rows of a fragment as its file says: very old manifests do not. Raises `CorruptFile` where they do and
    disagree.
    """
    from tiltyard.table.fragment_columns import FragmentColumns

    fragment = snapshot.fragments[position]
    if not fragment.files:
        return 0
    return FragmentColumns(snapshot, ()).open(fragment, fragment.files[0]).num_rows


def chosen_positions(snapshot: Snapshot, ids: Sequence[int] | None) -> list[int] | None:
    """Positions in the version's list of the fragments with these ids, in this order; None for all.

    Raises `InvalidInput` for an id that the version does not have.
    """
    if ids is None:
        return None
    known = {int(id): position for position, id in enumerate(snapshot.fragments.ids)}
    for id in ids:
        if id not in known:
            raise InvalidInput(f"version {snapshot.version} of {snapshot.store.uri} has no fragment {id}")
    return [known[id] for id in ids]
