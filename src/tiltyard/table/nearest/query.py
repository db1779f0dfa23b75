"""What is searched for: the caller's words, and the same bound to a table's schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, UnsupportedFeature, WrongType

if TYPE_CHECKING:
    from tiltyard.format.schema import Schema

DISTANCE = "_distance"
"""Name of the result column with the distances (float32)."""
QUERY_NUMBER = "query_index"
"""Name of the first result column of a search for several vectors: which of them (int32)."""

DEFAULT_K = 10
MAKE_VECTORS = (
    "Lists whose lengths may differ are no vectors: write them with schema=pa.schema([("
    "'name', pa.list_(pa.float32(), dimension)), ...]), or give the column as a 2-D array"
)
"""Advice for a column of lists."""
MAX_QUERIES = 4096
"""Vectors of one search."""
MAX_K = (1 << 31) - 1

METRICS = {
    "l2": "l2",
    "euclidean": "l2",
    "cosine": "cosine",
    "dot": "dot",
    "hamming": "hamming",
}
_DTYPES: dict[Any, type[np.generic]] = {
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.uint8(): np.uint8,
}


@dataclass(frozen=True, slots=True)
class Nearest:
    """The caller's words. `vectors`: one query vector, or several (anything that is an array of numbers of
    one or two dimensions). Distances of the result lie from `low` (inclusive) to `high` (exclusive).
    """

    column: str
    vectors: Any
    k: int = DEFAULT_K
    metric: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A search that fits the table. `vectors` is (queries, dimension) in the column's own number type."""

    column: str
    vectors: npt.NDArray[Any]
    k: int
    metric: str
    low: float
    high: float
    is_batch: bool

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self.vectors.shape[1])


def bind(schema: Schema, asked: Nearest) -> VectorQuery:
    """Check a search against a schema.

    Raises `FieldNotFound`; `WrongType` for a column that holds no vectors and for query vectors that are no
    numbers; `UnsupportedFeature` for vectors of other types and for several vectors a row; `InvalidInput`
    for a metric that is unknown or does not fit, a wrong dimension, `k` below 1, and query vectors with NaN
    or infinite numbers or, under cosine, without direction.
    """
    field = schema.field(asked.column)
    kind = field.arrow_type
    if not pa.types.is_fixed_size_list(kind):
        if pa.types.is_list(kind) and pa.types.is_fixed_size_list(kind.value_type):
            raise UnsupportedFeature(
                f"column {asked.column!r} holds several vectors a row ({kind}); this version searches "
                "columns of one vector a row"
            )
        raise WrongType(
            f"a search needs a column of vectors (fixed-size lists of numbers); {asked.column!r} is {kind}"
            + (f". {MAKE_VECTORS}" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else "")
        )
    item = kind.value_type
    dtype = _DTYPES.get(item)
    if dtype is None:
        raise UnsupportedFeature(
            f"column {asked.column!r} holds vectors of {item}; those of float16, float32, float64 and uint8 "
            "are searched"
        )
    if not 1 <= asked.k <= MAX_K:
        raise InvalidInput(f"k must be between 1 and {MAX_K} rows, found {asked.k}")
    metric = _metric(asked, dtype)
    low, high = _span(asked.low, asked.high)
    given = _numbers(asked.vectors)
    is_batch = given.ndim == 2
    if given.shape[-1] != kind.list_size:
        raise InvalidInput(
            f"the query vector has {given.shape[-1]} dimensions, the vectors of column {asked.column!r} have "
            f"{kind.list_size}"
        )
    if is_batch and not 1 <= len(given) <= MAX_QUERIES:
        raise InvalidInput(f"a search takes 1 to {MAX_QUERIES} query vectors, found {len(given)}")
    if is_batch and schema.has_column(QUERY_NUMBER):
        raise InvalidInput(
            f"a search for several vectors gives a column {QUERY_NUMBER!r}, which the table has already; "
            "search for one vector at a time"
        )
    if schema.has_column(DISTANCE):
        raise InvalidInput(f"a search gives a column {DISTANCE!r}, which the table has already")
    vectors = _converted(given.reshape(-1, given.shape[-1]), dtype)
    if metric == "cosine" and not np.any(vectors, axis=1).all():
        raise InvalidInput(
            "a query vector of zeros has no direction: cosine distances from it are not defined"
        )
    return VectorQuery(asked.column, vectors, asked.k, metric, low, high, is_batch)


def _metric(asked: Nearest, dtype: type[np.generic]) -> str:
    is_bits = dtype is np.uint8
    if asked.metric is None:
        return "hamming" if is_bits else "l2"
    metric = METRICS.get(asked.metric.lower())
    if metric is None:
        raise InvalidInput(
            f"metric {asked.metric!r} is unknown; there are l2 (or euclidean), cosine, dot and hamming"
        )
    if (metric == "hamming") is not is_bits:
        held = "uint8" if is_bits else np.dtype(dtype).name
        fits = "hamming" if is_bits else "l2, cosine or dot"
        raise InvalidInput(
            f"metric {metric} does not fit the {held} vectors of column {asked.column!r}; use {fits}"
        )
    return metric


def _span(low: float | None, high: float | None) -> tuple[float, float]:
    # Distances are float32, and so are the numbers that they are compared with.
    with np.errstate(over="ignore"):
        span = (
            -np.inf if low is None else float(np.float32(low)),
            np.inf if high is None else float(np.float32(high)),
        )
    if np.isnan(span).any():
        raise InvalidInput(f"distance_range must be two numbers or None, found {low} and {high}")
    return span


def _numbers(given: Any) -> npt.NDArray[Any]:
    """The query vectors as an array of one or two dimensions."""
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.to_pylist() if pa.types.is_nested(given.type) else _flat(given)
    elif isinstance(given, (str, bytes)) or not (isinstance(given, Iterable) or hasattr(given, "__array__")):
        raise WrongType(f"a query vector is a list of numbers, found a value of type {type(given).__name__}")
    if not isinstance(given, np.ndarray):
        given = list(given) if not hasattr(given, "__array__") else given
    if isinstance(given, list) and any(isinstance(each, (pa.Array, pa.Scalar)) for each in given):
        given = [each.to_pylist() if isinstance(each, pa.Array) else each.as_py() for each in given]
    try:
        found = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"query vectors must be lists of numbers of one length: {error}") from error
    if found.dtype.kind not in "fiu":
        raise WrongType(f"a query vector is a list of numbers, found {found.dtype} values")
    if found.ndim not in (1, 2):
        raise InvalidInput(f"query vectors have one or two dimensions, found {found.ndim}")
    return found


def _flat(given: Any) -> Any:
    if given.null_count:
        raise InvalidInput("a query vector must not contain null")
    return given.to_numpy() if isinstance(given, pa.ChunkedArray) else given.to_numpy(zero_copy_only=False)


def _converted(given: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The vectors in the column's number type; as the official package does, rounded to it."""
    if dtype is np.uint8:
        with np.errstate(invalid="ignore"):
            found = given.astype(np.uint8)
        if not (found == given).all():
            raise InvalidInput("a query vector for uint8 vectors must hold whole numbers from 0 to 255")
        return found
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(given, dtype=dtype)
    if not np.isfinite(found).all():
        raise InvalidInput(
            f"a query vector must hold finite numbers of {np.dtype(dtype).name}; NaN or infinity was found"
        )
    return found
