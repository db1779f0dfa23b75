"""Vectors of Python or NumPy as a table with a column of fixed-size lists, the form that a search takes."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput


def vec_to_table(data: Any, names: Any = None, ndim: int | None = None, check_ndim: bool = True) -> Any:
    """A `pa.Table` of vectors as float32 fixed-size lists, all of the length of the first.

    `data`: a map from ids to vectors (columns `id` and `vector`), a list of vectors, or a two-dimensional
    NumPy array (column `vector`). `names` renames the columns. `ndim` is the length that the vectors must
    have. Raises `InvalidInput` for vectors of another length and for values that are no numbers.
    """
    arguments.flag("check_ndim", check_ndim)
    wanted = arguments.maybe_whole("ndim", ndim, 1, arguments.MAX_U32)
    columns: list[Any] = []
    if isinstance(data, Mapping):
        columns.append(pa.array(list(data)))
        vectors: list[Any] = list(data.values())
    elif isinstance(data, (list, np.ndarray)):
        vectors = list(data)
    else:
        raise arguments.wrong("data", "a map from ids to vectors, a list of vectors or a NumPy array", data)
    if not vectors:
        raise InvalidInput("there are no vectors, so that their length is not known")
    columns.append(_column(vectors, wanted if check_ndim else None))
    return pa.table(columns, names=_names(names, len(columns)))


def _column(vectors: list[Any], wanted: int | None) -> Any:
    lengths = []
    for number, vector in enumerate(vectors):
        if isinstance(vector, (str, bytes)) or not isinstance(vector, Sized):
            raise arguments.wrong(f"vector {number}", "a list of numbers", vector)
        lengths.append(len(vector))
    length = lengths[0] if wanted is None else wanted
    for number, found in enumerate(lengths):
        if found != length:
            raise InvalidInput(f"vector {number} has {found} dimensions, expected {length}")
    try:
        values = np.asarray(vectors, dtype=np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the vectors are no numbers: {error}") from error
    return pa.FixedSizeListArray.from_arrays(pa.array(values), length)


def _names(names: Any, count: int) -> list[str]:
    if names is None:
        return ["vector"] if count == 1 else ["id", "vector"]
    given = arguments.texts("names", [names] if isinstance(names, str) else names)
    if len(given) != count:
        raise InvalidInput(f"names must name {count} columns, found {len(given)}")
    return given
