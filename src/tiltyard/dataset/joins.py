"""Joins with other datasets, which Arrow computes in memory; what is wrong with a request is told before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.errors import FieldNotFound, InvalidInput, nearest

JOINS = (
    *("left semi", "right semi", "left anti", "right anti"),
    *("inner", "left outer", "right outer", "full outer"),
)


def join(
    left: Any,
    right: Any,
    keys: Any,
    right_keys: Any,
    join_type: Any,
    suffixes: tuple[Any, Any],
    coalesce_keys: Any,
    use_threads: Any,
) -> Any:
    """The join of two Arrow datasets, as `pyarrow.dataset.Dataset.join` defines it."""
    ours, theirs = _paired("keys", left, keys, "right_keys", right, right_keys)
    if not ours:
        raise InvalidInput("keys must name at least one column")
    names = ("left_suffix", "right_suffix")
    left_suffix, right_suffix = (
        None if each is None else arguments.text(name, each)
        for name, each in zip(names, suffixes, strict=True)
    )
    kind = arguments.one_of("join_type", join_type, *JOINS)
    coalesces = arguments.flag("coalesce_keys", coalesce_keys)
    threads = arguments.flag("use_threads", use_threads)
    found = _computed(
        lambda: left.join(
            right,
            ours,
            right_keys=theirs,
            join_type=kind,
            left_suffix=left_suffix,
            right_suffix=right_suffix,
            coalesce_keys=coalesces,
            use_threads=threads,
        )
    )
    columns = found.schema.names
    doubled = next((name for name in columns if columns.count(name) > 1), None)
    if doubled is not None:
        raise InvalidInput(
            f"both sides of the join have a column {doubled!r}: give left_suffix or right_suffix, or "
            "leave it out of one side"
        )
    return found


def join_asof(left: Any, right: Any, on: Any, by: Any, tolerance: Any, right_on: Any, right_by: Any) -> Any:
    """The join with the nearest row, as `pyarrow.dataset.Dataset.join_asof` defines it."""
    (at,), (right_at,) = _paired("on", left, arguments.text("on", on), "right_on", right, right_on)
    ours, theirs = _paired("by", left, by, "right_by", right, right_by)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int):
        raise arguments.wrong("tolerance", "a whole number, in units of the column", tolerance)
    both = {*left.schema.names} & ({*right.schema.names} - {right_at, *theirs})
    if both:
        raise InvalidInput(
            f"both sides of the join have a column {min(both)!r}, which this join cannot tell apart: "
            "leave it out of one side"
        )
    return _computed(lambda: left.join_asof(right, at, ours, tolerance, right_on=right_at, right_by=theirs))


def _paired(
    name: str, left: Any, given: Any, right_name: str, right: Any, right_given: Any
) -> tuple[list[str], list[str]]:
    """The columns of both sides that are compared. Raises `FieldNotFound`, `InvalidInput`."""
    ours = _columns(name, given, left.schema)
    if right_given is None:
        theirs = _columns(name, given, right.schema)
    else:
        theirs = _columns(right_name, right_given, right.schema)
    if len(ours) != len(theirs):
        raise InvalidInput(
            f"{name} and {right_name} must name as many columns, found {len(ours)} and {len(theirs)}"
        )
    for one, other in zip(ours, theirs, strict=True):
        kinds = left.schema.field(one).type, right.schema.field(other).type
        if kinds[0] != kinds[1] and not any(map(pa.types.is_dictionary, kinds)):
            raise InvalidInput(
                f"column {one!r} is {kinds[0]}, and {other!r} of the other side {kinds[1]}: cast one of them"
            )
    return ours, theirs


def _columns(name: str, given: Any, schema: Any) -> list[str]:
    named: Sequence[str] = [given] if isinstance(given, str) else arguments.items(name, given, str)
    for each in named:
        count = schema.names.count(each)
        if count != 1:
            raise FieldNotFound(
                f"{name}: there is no column {each!r}; {nearest(each, schema.names)}"
                if not count
                else f"{name}: there are {count} columns {each!r}"
            )
    if len(set(named)) < len(named):
        raise InvalidInput(f"{name} names a column twice: {', '.join(named)}")
    return list(named)


def _computed(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(f"the join cannot be computed: {error}") from error
