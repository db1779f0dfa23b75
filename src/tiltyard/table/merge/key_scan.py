"""Keys of whole numbers, looked up while their column is unpacked.

Most rows of a table have none of the keys of a merge. Their keys are never laid out in memory: a table of
bytes that stays in the cache throws them out block by block, and the few that pass are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.table.deletions import load_deletions, without_deleted
from tiltyard.table.gather import Gather
from tiltyard.table.merge.join import Ints, KeyIndex
from tiltyard.table.merge.keys import Key
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

MIN_FRAGMENT_ROWS = 1 << 14
"""Mean rows of a fragment below which several are read together instead, which takes fewer calls."""


def found_unpacking(
    snapshot: Snapshot, key: Key, keys: KeyIndex, fragments: Sequence[int] | None
) -> tuple[npt.NDArray[np.uint64], Ints, list[int]] | None:
    """Addresses of the live rows with one of the keys and the codes of these, in the order of the fragments;
    and the ids of the fragments whose keys must be compared in another way, as those with nulls among them.

    None where that holds for all. `fragments`: ids to look in, all for None.
    """
    known = keys.words
    if known is None or len(key.fields) != 1 or len(key.paths[0]) != 1:
        return None
    field = key.fields[0]
    kind = field.arrow_type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)) or pa.types.is_interval(kind):
        return None
    ids = [int(id) for id in snapshot.fragments.ids] if fragments is None else list(fragments)
    chosen = [each for each in map(snapshot.fragment, ids) if each is not None]
    if sum(each.physical_rows for each in chosen) < MIN_FRAGMENT_ROWS * len(ids) or len(chosen) < len(ids):
        return None
    words = known.filter()
    if words is None:
        return None
    is_signed = not pa.types.is_unsigned_integer(kind)
    reader = Gather(snapshot, (field,))
    addresses, codes, rest = [np.empty(0, np.uint64)], [known.codes[:0]], []
    for fragment in chosen:
        whole = reader.whole(fragment)
        found = None
        if whole is not None:
            file, part = whole
            found = file.among(part.fields[0], part.columns, words, is_signed=is_signed)
        if found is None:
            rest.append(fragment.id)
            continue
        offsets, values = found
        deleted = load_deletions(snapshot, fragment)
        if deleted is not None and len(offsets):
            live = without_deleted(deleted, offsets)
            offsets, values = offsets[live], values[live]
        hit, which = known.decide(values)
        addresses.append(offsets[hit].astype(np.uint64) | np.uint64(fragment.id << FRAGMENT_SHIFT))
        codes.append(which)
    return np.concatenate(addresses), np.concatenate(codes), rest
