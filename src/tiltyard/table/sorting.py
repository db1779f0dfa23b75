"""The order of rows by the values of columns, as a scan's `order_by` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def sort_order(keys: Any, order_by: Sequence[tuple[str, bool, bool]]) -> npt.NDArray[np.int64]:
    """Row numbers of a `pa.Table` in the order of its columns; rows that are alike keep theirs.

    `order_by`: (column, ascending, nulls first) in order of weight.
    """
    import pyarrow.compute as pc

    order = np.arange(keys.num_rows, dtype=np.int64)
    # Least weighty key first; each pass keeps the order of the one before.
    for name, ascending, nulls_first in reversed(order_by):
        column = keys[name].take(pa.array(order))
        picked = pc.array_sort_indices(
            column,
            order="ascending" if ascending else "descending",
            null_placement="at_start" if nulls_first else "at_end",
        )
        order = order[picked.to_numpy()]
    return order
