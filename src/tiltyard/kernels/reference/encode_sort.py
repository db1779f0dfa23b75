"""NumPy reference of sorting pairs of keys and row ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]


def sort_pairs(keys: U64, ids: U64, key_room: Any, id_room: Any) -> None:
    """Sort `keys` ascending and `ids` (both uint64[n]) along with them, in place; equals stay in the order
    they came in.

    `key_room` and `id_room` (uint64[n]) are working memory; what is in them afterwards has no meaning. Raises
    `ValueError` unless all four have one length.
    """
    if not len(keys) == len(ids) == len(key_room) == len(id_room):
        raise ValueError("four arrays of one length")
    order = np.argsort(keys, kind="stable")
    keys[:] = keys[order]
    ids[:] = ids[order]
