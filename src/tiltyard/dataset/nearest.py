"""The arguments of a vector search, in the words of the official package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, WrongType, nearest
from tiltyard.table.nearest.query import DEFAULT_K, MAX_K, Nearest

_HINTS = ("nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef")
"""Hints for a vector index, with the least value of each; a search without one is exact and needs none."""
_LEAST = {"nprobes": 1, "minimum_nprobes": 0, "maximum_nprobes": 0, "refine_factor": 1, "ef": 1}
_KEYS = (
    "column",
    "q",
    "k",
    "metric",
    *_HINTS,
    "use_index",
    "query_parallelism",
    "approx_mode",
    "distance_range",
    "search_effort",
)
MIN_PARALLELISM = -1  # all processors


def nearest_from(value: Any) -> Nearest:
    """The search that a map describes: `column`, `q`, and what else a search takes."""
    given = arguments.mapping("nearest", value)
    for key in given:
        if key not in _KEYS:
            raise WrongType(f"nearest has no key {key!r}; {nearest(key, list(_KEYS))}")
    for key in ("column", "q"):
        if given.get(key) is None:
            raise WrongType(f"nearest needs {key!r}: {{'column': name, 'q': query vector}}")
    return nearest_of(**given)


def nearest_of(
    column: Any,
    q: Any,
    k: Any = None,
    metric: Any = None,
    use_index: Any = True,
    query_parallelism: Any = None,
    approx_mode: Any = "normal",
    distance_range: Any = None,
    search_effort: Any = None,
    **hints: Any,
) -> Nearest:
    """The search that these arguments describe, checked one by one. Hints have no effect on an exact
    search.
    """
    for name in _HINTS:
        arguments.maybe_whole(name, hints.get(name), _LEAST[name])
    low, high = hints.get("minimum_nprobes"), hints.get("maximum_nprobes")
    if low is not None and high is not None and low > high:
        raise InvalidInput(f"minimum_nprobes must be at most maximum_nprobes, found {low} and {high}")
    arguments.flag("use_index", use_index)
    arguments.maybe_whole("query_parallelism", query_parallelism, MIN_PARALLELISM)
    arguments.one_of("approx_mode", approx_mode, "fast", "normal", "accurate")
    effort = _number("search_effort", search_effort)
    if effort is not None and not 0 <= effort <= 1:
        raise InvalidInput(f"search_effort must be from 0 to 1, found {search_effort}")
    return Nearest(
        column=arguments.text("column", column),
        vectors=q,
        k=DEFAULT_K if k is None else arguments.whole("k", k, 1, MAX_K),
        metric=arguments.maybe_text("metric", metric),
        **_range(distance_range),
    )


def _range(given: Any) -> dict[str, float | None]:
    if given is None:
        return {}
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__len__") or len(given) != 2:
        raise arguments.wrong("distance_range", "a pair (from, to) of numbers or None", given)
    low, high = (_number(f"distance_range[{at}]", each) for at, each in enumerate(given))
    return {"low": low, "high": high}


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise arguments.wrong(name, "a number", value)
    number = float(value)
    if math.isnan(number):
        raise InvalidInput(f"{name} must be a number, found NaN")
    return number
