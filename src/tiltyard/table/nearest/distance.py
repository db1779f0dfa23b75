"""Distances of vectors from queries: cheap bounds from matrix products, and exact values in double precision.

Bounds. A product of two vectors of n numbers in a float type with unit roundoff u is off by at most
g |x| |q| with g = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), in
whatever order the sum is made; the same holds for squared lengths. Hence, with X = |x|^2 and Q = |q|^2:

    l2      |x - q|^2  lies within  X + Q - 2 x.q   +- 2 (g + 4u) (X + Q)
    dot     1 - x.q    lies within  1 - x.q         +- (g + 4u) (X + Q + 1)
    cosine  1 - x.q / (|x||q|)      lies within     +- 4 (g + 4u)

and the value given, which is rounded to float32, within 2^-23 of that.

Invariant N1: the exact distance lies within the bounds, so a row whose lower bound is above the k-th upper
bound is not among the k nearest (test_nearest_distance.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[Any]
"""A matrix of float16, float32, float64 or uint8."""

PART_BYTES = 1 << 20
"""Bytes of vectors that are converted or compared at once where the product cannot run on them as they are.
"""

FEW_QUERIES = 8
"""Query vectors that are multiplied one after another; more of them are a product of matrices."""

SMALLEST_NORM = 1e-25
LARGEST_NORM = 1e35
"""Squared lengths outside these say nothing reliable in float32: such rows are always computed exactly."""

HALF_EXPONENT = 0x7C00
"""Bits of the exponent of a number of half precision; all are set in NaN and infinities."""
HALF_BITS = np.int32(-0x70002000)
"""The sign, and where exponent and fraction of a half stand in a single."""
HALF_BIAS = np.float32(2.0**112)
"""Between the biases of the exponents, 15 and 127."""

ROUNDING = 2.0**-23
"""Relative distance between a value and its rounding to float32, at most."""

MAX_ERROR = 0.1
"""Beyond this relative error of a product its bounds are not worth having."""

UNDERFLOW = 1e-30
"""What products of tiny numbers may lose altogether, generously."""


def products(block: Vectors, queries: Vectors) -> npt.NDArray[np.floating]:
    """x.q of every vector (rows, n) and query (m, n): (rows, m); meaningless for vectors that are not
    finite.
    """
    if block.dtype != np.float16:
        return _products(block, queries)
    found = np.empty((len(block), len(queries)), dtype=np.float32)
    wide = queries.astype(np.float32)
    for part in _parts(block):
        found[part] = _products(_widened(block[part]), wide)
    return found


def _products(block: Vectors, queries: Vectors) -> npt.NDArray[np.floating]:
    with np.errstate(all="ignore"):
        if len(queries) > FEW_QUERIES:
            return block @ queries.T
        # Not by BLAS, whose threads wait for each other: as fast on an idle machine, many times faster on a
        # busy one.
        return np.stack([np.einsum("ij,j->i", block, query) for query in queries], axis=1)


def _widened(halves: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """Half precision as single, exact for finite numbers; NaN and infinities become other numbers.

    Sign and exponent are moved to their places and the exponent's bias is made up by a multiplication: four
    passes that the processor runs over many numbers at once, where NumPy's own conversion takes each alone.
    """
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= HALF_BITS
    wide = bits.view(np.float32)
    wide *= HALF_BIAS
    return wide


def squared_norms(block: Vectors) -> npt.NDArray[np.floating]:
    """|x|^2 of every vector (rows, n), in float32 or wider."""
    with np.errstate(all="ignore"):
        if block.dtype != np.float16:
            return np.einsum("ij,ij->i", block, block)
        found = np.empty(len(block), dtype=np.float32)
        for part in _parts(block):
            halves = block[part]
            is_finite = int((halves.view(np.uint16) & HALF_EXPONENT).max(initial=0)) < HALF_EXPONENT
            wide = _widened(halves) if is_finite else halves.astype(np.float32)
            found[part] = np.einsum("ij,ij->i", wide, wide)
    return found


def bounds(
    metric: str, dots: npt.NDArray[np.floating], norms: npt.NDArray[np.floating], query: float, dimension: int
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Lower and upper bound of each distance from one query of squared length `query`.

    `dots` and `norms` (squared lengths) are per row. NaN for a row whose norm is NaN; minus and plus infinity
    for one of which nothing reliable is known.
    """
    unit = float(np.finfo(norms.dtype).eps) / 2
    middle: Any
    slack: Any
    with np.errstate(all="ignore"):
        share = dimension * unit / (1 - dimension * unit) + 4 * unit
        match metric:
            case "l2":
                total = norms + norms.dtype.type(query)
                middle = total - 2 * dots
                slack = total * (2 * share) + UNDERFLOW
            case "dot":
                middle = 1 - dots
                slack = (norms + norms.dtype.type(query + 1)) * share + UNDERFLOW
            case _:
                middle = 1 - dots / (np.sqrt(norms) * norms.dtype.type(query**0.5))
                slack = norms.dtype.type(4 * share)
        slack = slack + np.abs(middle) * middle.dtype.type(ROUNDING)
        lower, upper = middle - slack, middle + slack
        vague = (norms > LARGEST_NORM) | ((norms < SMALLEST_NORM) if metric == "cosine" else False)
        if (
            query > LARGEST_NORM
            or dimension * unit > MAX_ERROR
            or (metric == "cosine" and query < SMALLEST_NORM)
        ):
            vague = ~np.isnan(norms)
        if vague.any():
            lower[vague], upper[vague] = -np.inf, np.inf
    return lower, upper


def hamming(block: npt.NDArray[np.uint8], query: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Bits in which each vector (rows, n) differs from the query (n)."""
    found = np.empty(len(block), dtype=np.float32)
    for part in _parts(block):
        apart = block[part] ^ query
        if apart.shape[1] % 8 == 0 and apart.shape[1]:
            apart = apart.view(np.uint64)
        found[part] = np.bitwise_count(apart).sum(axis=1, dtype=np.uint32)
    return found


def exact(metric: str, block: Vectors, query: Vectors) -> Floats:
    """The distance of each vector (rows, n) from the query (n), computed in double precision and rounded to
    float32; NaN where it is not defined.
    """
    found = np.empty(len(block), dtype=np.float64)
    if metric == "hamming":
        found[:] = hamming(block, query)
        return found
    wide_query = query.astype(np.float64)
    with np.errstate(all="ignore"):
        for part in _parts(block):
            wide = block[part].astype(np.float64)
            if metric == "l2":
                wide -= wide_query
                found[part] = np.einsum("ij,ij->i", wide, wide)
            elif metric == "dot":
                found[part] = 1 - _dots(wide, wide_query)
            else:
                length = np.sqrt(np.einsum("ij,ij->i", wide, wide)) * np.sqrt(wide_query @ wide_query)
                found[part] = 1 - _dots(wide, wide_query) / length
        rounded: Floats = found.astype(np.float32).astype(np.float64)
    return rounded


def _dots(vectors: Floats, query: Floats) -> Floats:
    """x.q row by row in one order of summation: equal rows have equal distances."""
    found: Floats = np.einsum("ij,j->i", vectors, query)
    return found


def _parts(block: Vectors) -> list[slice]:
    step = max(1, PART_BYTES // max(1, block.shape[1] * block.dtype.itemsize))
    return [slice(start, start + step) for start in range(0, len(block), step)]
