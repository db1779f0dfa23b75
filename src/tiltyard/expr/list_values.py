"""Lists made of lists' elements: longer, shorter, in another order, as sets; and numbers of them.

A null element equals a null element in sets, positions and replacements, and is kept by `array_remove`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.arrays import valid_of
from tiltyard.expr.ragged import (
    MAX_ELEMENTS,
    Ragged,
    check_elements,
    chosen,
    codes,
    is_list,
    lists_of,
    ragged,
    spans,
    starts,
)
from tiltyard.expr.signatures import Run, array_of


@dataclass(frozen=True, slots=True)
class ListFunction:
    """`roles` has a letter per argument: a list `l`, one of floats `f`, one of anything `z`, an element `x`,
    a whole number `n`, a text `t`; the last one repeats where `most` allows more."""

    roles: str
    least: int
    most: int | None
    run: Run


def _numbers(arg: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    array = array_of(arg, rows).cast(pa.int64())
    known = valid_of(array)
    return array.fill_null(0).to_numpy(zero_copy_only=False), (
        np.ones(rows, np.bool_) if known is None else known
    )


# -- longer and shorter -----------------------------------------------------------------------------------


def _append(lists: Any, element: Any, rows: int, is_first: bool) -> pa.Array:
    given = ragged(lists, rows)
    values = array_of(element, rows)
    count = given.count + 1
    edge = starts(count)[:-1] if is_first else starts(count)[1:] - 1
    places = np.empty(int(count.sum()), np.int64)
    others = np.ones(len(places), np.bool_)
    others[edge] = False
    places[edge] = len(given.flat) + np.arange(rows)
    places[others] = given.places()
    flat = pa.concat_arrays([given.flat, values.cast(given.flat.type)])
    return lists_of(flat, places, count, np.ones(rows, np.bool_))


def _concat(args: Sequence[Any], rows: int) -> pa.Array:
    parts = [ragged(arg, rows) for arg in args]
    before = starts(np.array([len(part.flat) for part in parts]))[:-1]
    count = np.sum([part.count for part in parts], axis=0)
    places = np.empty(int(count.sum()), np.int64)
    at = starts(count)[:-1].copy()
    for part, shift in zip(parts, before, strict=True):
        places[spans(at, part.count)] = part.places() + shift
        at += part.count
    valid = np.logical_or.reduce([part.valid for part in parts])
    return lists_of(pa.concat_arrays([part.flat for part in parts]), places, count, valid)


def _slice(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    (start, start_known), (end, end_known) = _numbers(args[1], rows), _numbers(args[2], rows)
    step, step_known = (
        _numbers(args[3], rows) if len(args) > 3 else (np.ones(rows, np.int64), np.ones(rows, np.bool_))
    )
    if bool((step_known & (step == 0)).any()):
        raise pa.ArrowInvalid("the stride of a slice must not be zero")
    step = np.where(step == 0, 1, step)
    size = given.count
    low = np.where(start < 0, np.maximum(start + size, 0), np.maximum(start - 1, 0))
    high = np.where(end < 0, end + size, np.minimum(end, size) - 1)
    inside = (low < size) & (high >= 0) & (start_known & end_known & step_known)
    length = np.where(step > 0, (high - low) // step, (low - high) // -step) + 1
    count = np.where(inside, np.maximum(length, 0), 0)
    return lists_of(
        given.flat,
        spans(given.first + low, count, step),
        count,
        given.valid & start_known & end_known & step_known,
    )


def _shorter(at_front: bool) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = ragged(args[0], rows)
        count = np.maximum(given.count - 1, 0)
        return lists_of(given.flat, spans(given.first + int(at_front), count), count, given.valid)

    return run


def _reverse(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    places = spans(given.first + given.count - 1, given.count, -1)
    return lists_of(given.flat, places, given.count, given.valid)


def _resize(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    wanted, known = _numbers(args[1], rows)
    if bool((wanted < 0).any()):
        raise pa.ArrowInvalid("the length of a list cannot be negative")
    filler = array_of(args[2], rows) if len(args) > 2 else pa.nulls(rows, given.flat.type)
    valid = given.valid & known
    wanted = np.where(valid, wanted, 0)
    check_elements(wanted)
    kept = np.minimum(given.count, wanted)
    places = np.repeat(len(given.flat) + np.arange(rows), wanted)
    places[spans(starts(wanted)[:-1], kept)] = spans(given.first, kept)
    flat = pa.concat_arrays([given.flat, filler.cast(given.flat.type)])
    return lists_of(flat, places, wanted, valid)


def _repeat(args: Sequence[Any], rows: int) -> pa.Array:
    given, known = _numbers(args[1], rows)
    times = np.maximum(np.where(known, given, 0), 0)
    check_elements(times)
    return lists_of(array_of(args[0], rows), np.repeat(np.arange(rows), times), times, known)


def _flatten(args: Sequence[Any], rows: int) -> pa.Array:
    outer = ragged(args[0], rows)
    if not is_list(outer.flat.type):
        return array_of(args[0], rows)
    inner = ragged(outer.flat, len(outer.flat))
    places = outer.places()
    count = np.bincount(outer.owners(), weights=inner.count[places], minlength=rows).astype(np.int64)
    return lists_of(inner.flat, spans(inner.first[places], inner.count[places]), count, outer.valid)


def _compact(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    known = valid_of(given.flat)
    return array_of(args[0], rows) if known is None else chosen(given, known[given.places()])


# -- elements that equal something ------------------------------------------------------------------------


def _matches(given: Ragged, element: Any) -> tuple[np.ndarray, np.ndarray]:
    """bool over the elements: whether each equals the element of its row (null equals null); and bool[rows]:
    whether that element is null."""
    wanted = array_of(element, given.rows)
    flat, other = codes([given.flat, wanted.cast(given.flat.type)])
    return flat[given.places()] == other[given.owners()], other < 0


def _upto(given: Ragged, hits: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Of the hits, the first `limit` of each row."""
    seen = np.cumsum(hits) - np.repeat(_before(given, hits), given.count)
    return hits & (seen <= np.repeat(limit, given.count))


def _before(given: Ragged, hits: np.ndarray) -> np.ndarray:
    return starts(hits)[starts(given.count)[:-1]]


def _limit(args: Sequence[Any], at: int | None, rows: int, all_of_them: bool) -> np.ndarray:
    if at is None:
        return np.full(rows, MAX_ELEMENTS if all_of_them else 1)
    return _numbers(args[at], rows)[0]


def _remove(counts: int | None, all_of_them: bool = False) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = ragged(args[0], rows)
        hits, is_null = _matches(given, args[1])
        drop = _upto(given, hits, _limit(args, counts, rows, all_of_them))
        found = chosen(given, ~drop)
        if not is_null.any():
            return found
        keep = pa.array(np.where(is_null, -1, np.arange(rows)), pa.int64(), mask=is_null)
        return found.take(keep)

    return run


def _replace(counts: int | None, all_of_them: bool = False) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = ragged(args[0], rows)
        hits, _ = _matches(given, args[1])
        taken = _upto(given, hits, _limit(args, counts, rows, all_of_them))
        flat = pa.concat_arrays([given.flat, array_of(args[2], rows).cast(given.flat.type)])
        places = np.where(taken, len(given.flat) + given.owners(), given.places())
        return lists_of(flat, places, given.count, given.valid)

    return run


def _position(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    hits, _ = _matches(given, args[1])
    inside = spans(np.zeros(rows, np.int64), given.count) + 1
    if len(args) > 2:
        start, known = _numbers(args[2], rows)
        if bool((known & given.valid & ((start < 1) | (start > np.maximum(given.count, 1)))).any()):
            raise pa.ArrowInvalid("the place at which a search in a list begins lies outside of it")
        hits &= inside >= np.repeat(start, given.count)
    first = _upto(given, hits, np.ones(rows, np.int64))
    found = np.zeros(rows, np.uint64)
    found[given.owners()[first]] = inside[first]
    return pa.array(found, mask=found == 0)


def _positions(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    hits, _ = _matches(given, args[1])
    inside = pa.array((spans(np.zeros(rows, np.int64), given.count) + 1).astype(np.uint64))
    count = np.bincount(given.owners()[hits], minlength=rows)
    return lists_of(inside, np.flatnonzero(hits), count, given.valid)


# -- sets and order ---------------------------------------------------------------------------------------


def _first_of_each(owners: np.ndarray, coded: np.ndarray) -> np.ndarray:
    """bool over elements: the first in its row with its code."""
    order = np.lexsort((np.arange(len(coded)), coded, owners))
    same = (np.diff(owners[order]) == 0) & (np.diff(coded[order]) == 0)
    fresh = np.ones(len(coded), np.bool_)
    fresh[order[1:]] = ~same
    return fresh


def _distinct(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    coded = codes([given.flat])[0][given.places()]
    return chosen(given, _first_of_each(given.owners(), coded))


def _union(args: Sequence[Any], rows: int) -> pa.Array:
    valid = np.logical_and.reduce([ragged(arg, rows).valid for arg in args])
    found = _distinct([_concat(args, rows)], rows)
    return found.take(pa.array(np.arange(rows), mask=~valid))


def among(left: Ragged, right: Ragged) -> np.ndarray:
    """bool over the elements of `left`: whether the list of the same row of `right` has it."""
    first, second = codes([left.flat, right.flat.cast(left.flat.type)])
    width = 1 + max(first.max(initial=0), second.max(initial=0)) + 1
    one = left.owners() * width + first[left.places()] + 1
    other = right.owners() * width + second[right.places()] + 1
    return np.isin(one, other)


def _compared_sets(keeps_common: bool) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        left, right = ragged(args[0], rows), ragged(args[1], rows)
        coded = codes([left.flat])[0][left.places()]
        kept = (among(left, right) == keeps_common) & _first_of_each(left.owners(), coded)
        found = chosen(left, kept)
        if right.valid.all():
            return found
        return found.take(pa.array(np.arange(rows), mask=~right.valid))

    return run


def _sort(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    words = [str(arg.as_py()).upper() if isinstance(arg, pa.Scalar) else "" for arg in args[1:]]
    if any(word not in choices for word, choices in zip(words, _SORT_WORDS, strict=False)):
        raise pa.ArrowInvalid("array_sort takes 'ASC' or 'DESC', then 'NULLS FIRST' or 'NULLS LAST'")
    places = given.places()
    key = codes([given.flat])[0][places]
    is_null = key < 0
    if words and words[0] == "DESC":
        key = -key
    key[is_null] = len(key) + 1 if len(words) > 1 and words[1] == "NULLS LAST" else -len(given.flat) - 2
    order = np.lexsort((key, given.owners()))
    return lists_of(given.flat, places[order], given.count, given.valid)


_SORT_WORDS = (("ASC", "DESC"), ("NULLS FIRST", "NULLS LAST"))


def _extreme(greatest: bool) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        given = ragged(args[0], rows)
        places, owners = given.places(), given.owners()
        key = codes([given.flat])[0][places]
        known = key >= 0
        places, owners, key = places[known], owners[known], key[known]
        order = np.lexsort((-key if greatest else key, owners))
        return _taken(given, places[order], owners[order])

    return run


def _taken(given: Ragged, places: np.ndarray, owners: np.ndarray) -> pa.Array:
    """The first of the places of each row, null for rows without one; owners ascend."""
    rows, first = np.unique(owners, return_index=True)
    at = np.full(given.rows, -1, np.int64)
    at[rows] = places[first]
    return given.flat.take(pa.array(at, mask=at < 0))


def _any_value(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    places, owners = given.places(), given.owners()
    known = valid_of(given.flat)
    if known is not None:
        kept = known[places]
        places, owners = places[kept], owners[kept]
    return _taken(given, places, owners)


# -- numbers of lists -------------------------------------------------------------------------------------


def _empty(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    return pa.array(given.count == 0, mask=~given.valid)


def _lengths(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    if len(args) == 1:
        return pa.array(given.count.astype(np.uint64), mask=~given.valid)
    depth = args[1].as_py() if isinstance(args[1], pa.Scalar) else None
    if depth is None or depth < 1:
        raise pa.ArrowInvalid("the dimension of array_length is a whole constant, 1 for the list itself")
    levels = _levels(given, depth)
    if len(levels) < depth:
        return pa.nulls(rows, pa.uint64())
    count, valid = levels[depth - 1]
    return pa.array(count.astype(np.uint64), mask=~valid)


def _levels(given: Ragged, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Length and validity of a list, of its first element, of that one's first element, and so on."""
    levels = [(given.count, given.valid)]
    array: pa.Array = given.flat
    first, alive = given.first, given.valid & (given.count > 0)
    while len(levels) < most and is_list(array.type):
        inner = ragged(array, len(array))
        at = np.where(alive, first, 0)
        count = inner.count[at] if len(array) else np.zeros(given.rows, np.int64)
        known = alive & (inner.valid[at] if len(array) else False)
        levels.append((np.where(known, count, 0), known))
        first = inner.first[at] if len(array) else first
        alive = known & (count > 0)
        array = inner.flat
    return levels


_MAX_DIMENSIONS = 64


def _dims(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    levels = _levels(given, _MAX_DIMENSIONS)
    flat = pa.array(np.stack([count for count, _ in levels], axis=1).reshape(-1).astype(np.uint64))
    count = np.sum([valid for _, valid in levels], axis=0)
    valid = given.count > 0
    return lists_of(
        flat,
        spans(np.arange(rows) * len(levels), np.where(valid, count, 0)),
        np.where(valid, count, 0),
        valid,
    )


def _ndims(args: Sequence[Any], rows: int) -> pa.Array:
    given = ragged(args[0], rows)
    return pa.array(np.full(rows, len(_levels(given, _MAX_DIMENSIONS)), np.uint64), mask=~given.valid)


def _vectors(args: Sequence[Any], rows: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Elements of two lists of floats side by side, the row of each, and which rows are known."""
    sides = [ragged(arg, rows) for arg in args]
    valid = np.logical_and.reduce([side.valid for side in sides])
    if len(sides) == 2 and bool((valid & (sides[0].count != sides[1].count)).any()):
        raise pa.ArrowInvalid("both lists must have the same length")
    sides = [Ragged(side.flat, side.first, np.where(valid, side.count, 0), valid) for side in sides]
    values = []
    for side in sides:
        known = valid_of(side.flat)
        numbers = side.flat.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        values.append(numbers[side.places()])
        if known is not None:
            valid = valid & ~np.isin(np.arange(rows), side.owners()[~known[side.places()]])
    return values, sides[0].owners(), valid


def _distance(of: Callable[..., np.ndarray]) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        (first, second), owners, valid = _vectors(args, rows)

        def total(values: np.ndarray) -> np.ndarray:
            return np.bincount(owners, weights=values, minlength=rows)

        with np.errstate(all="ignore"):
            found = of(first, second, total)
        known = valid & ~np.isnan(found)
        return pa.array(found, pa.float64(), mask=~known)

    return run


def _cosine(a: np.ndarray, b: np.ndarray, total: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return 1 - total(a * b) / np.sqrt(total(a * a) * total(b * b))


def _normalize(args: Sequence[Any], rows: int) -> pa.Array:
    (values,), owners, valid = _vectors(args, rows)
    length = np.sqrt(np.bincount(owners, weights=values * values, minlength=rows))
    valid = valid & (length > 0)
    with np.errstate(all="ignore"):
        scaled = pa.array(values / length[owners])
    kept = valid[owners]
    return lists_of(scaled, np.flatnonzero(kept), np.bincount(owners[kept], minlength=rows), valid)


# -- texts and numbers to lists and back --------------------------------------------------------------------


def _to_string(args: Sequence[Any], rows: int) -> pa.Array:
    import pyarrow.compute as pc

    given = array_of(args[0], rows)
    while is_list(given.type.value_type):
        given = _flatten([given], rows)
    parts = ragged(given, rows)
    texts = pc.cast(parts.flat, pa.string()).take(pa.array(parts.places()))
    owners = parts.owners()
    if len(args) > 2:
        texts = pc.coalesce(texts, array_of(args[2], rows).cast(pa.string()).take(pa.array(owners)))
    known = valid_of(texts)
    kept = np.ones(len(texts), np.bool_) if known is None else known
    lists = lists_of(texts, np.flatnonzero(kept), np.bincount(owners[kept], minlength=rows), parts.valid)
    return pc.binary_join(lists, args[1])


def _from_string(args: Sequence[Any], rows: int) -> pa.Array:
    import pyarrow.compute as pc

    texts = array_of(args[0], rows)
    separator = args[1].as_py() if isinstance(args[1], pa.Scalar) else None
    if not isinstance(args[1], pa.Scalar):
        raise pa.ArrowNotImplementedError("the separator of string_to_array must be a constant")
    if separator:
        found = pc.split_pattern(texts, separator)
    elif separator is None:
        made = [None if text is None else list(text) for text in texts.to_pylist()]
        found = pa.array(made, pa.list_(texts.type))
    else:
        found = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), texts, mask=texts.is_null())
    found = pc.if_else(pc.equal(texts, ""), pa.scalar([], found.type), found)
    if len(args) < 3:
        return found
    parts = ragged(found, rows)
    flat = parts.flat.take(pa.array(parts.places()))
    null = pc.equal(flat, array_of(args[2], rows).take(pa.array(parts.owners()))).fill_null(False)
    flat = pc.if_else(null, pa.scalar(None, flat.type), flat)
    return lists_of(flat, np.arange(len(flat)), parts.count, parts.valid)


def _series(includes_end: bool) -> Run:
    def run(args: Sequence[Any], rows: int) -> pa.Array:
        numbers = [_numbers(arg, rows) for arg in args]
        valid = np.logical_and.reduce([known for _, known in numbers])
        values = [number for number, _ in numbers]
        start = values[0] if len(values) > 1 else np.zeros(rows, np.int64)
        end = values[1] if len(values) > 1 else values[0]
        step = values[2] if len(values) > 2 else np.ones(rows, np.int64)
        if bool((valid & (step == 0)).any()):
            raise pa.ArrowInvalid("the step of a series must not be zero")
        step = np.where(step == 0, 1, step)
        forward = step > 0
        # unsigned, since the ends may lie further apart than 63 bits tell
        distance = np.where(forward, end - start, start - end).view(np.uint64)
        size = np.where(forward, step, -step).view(np.uint64)
        ahead = np.where(forward, start < end, start > end) | (includes_end & (start == end))
        steps = (distance - np.uint64(not includes_end)) // size
        count = np.where(valid & ahead, np.minimum(steps, MAX_ELEMENTS) + 1, 0).astype(np.int64)
        check_elements(count)
        flat = pa.array(spans(start, count, step), pa.int64())
        return lists_of(flat, np.arange(len(flat)), count, valid)

    return run


def _zip(args: Sequence[Any], rows: int) -> pa.Array:
    parts = [ragged(arg, rows) for arg in args]
    count = np.max([part.count for part in parts], axis=0)
    columns = []
    for part in parts:
        places = np.full(int(count.sum()), -1, np.int64)
        places[spans(starts(count)[:-1], part.count)] = part.places()
        columns.append(part.flat.take(pa.array(places, mask=places < 0)))
    flat = pa.StructArray.from_arrays(columns, [str(at) for at in range(1, len(parts) + 1)])
    valid = np.logical_or.reduce([part.valid for part in parts])
    return lists_of(flat, np.arange(len(flat)), count, valid)


LIST_VALUES: dict[str, ListFunction] = {
    "array_append": ListFunction("lx", 2, 2, lambda args, rows: _append(args[0], args[1], rows, False)),
    "array_prepend": ListFunction("xl", 2, 2, lambda args, rows: _append(args[1], args[0], rows, True)),
    "array_concat": ListFunction("l", 1, None, _concat),
    "array_slice": ListFunction("lnnn", 3, 4, _slice),
    "array_pop_back": ListFunction("l", 1, 1, _shorter(False)),
    "array_pop_front": ListFunction("l", 1, 1, _shorter(True)),
    "array_reverse": ListFunction("l", 1, 1, _reverse),
    "array_resize": ListFunction("lnx", 2, 3, _resize),
    "array_repeat": ListFunction("xn", 2, 2, _repeat),
    "flatten": ListFunction("l", 1, 1, _flatten),
    "array_remove": ListFunction("lx", 2, 2, _remove(None)),
    "array_remove_all": ListFunction("lx", 2, 2, _remove(None, True)),
    "array_remove_n": ListFunction("lxn", 3, 3, _remove(2)),
    "array_replace": ListFunction("lxx", 3, 3, _replace(None)),
    "array_replace_all": ListFunction("lxx", 3, 3, _replace(None, True)),
    "array_replace_n": ListFunction("lxxn", 4, 4, _replace(3)),
    "array_position": ListFunction("lxn", 2, 3, _position),
    "array_positions": ListFunction("lx", 2, 2, _positions),
    "array_compact": ListFunction("l", 1, 1, _compact),
    "array_distinct": ListFunction("l", 1, 1, _distinct),
    "array_union": ListFunction("l", 2, 2, _union),
    "array_intersect": ListFunction("l", 2, 2, _compared_sets(True)),
    "array_except": ListFunction("l", 2, 2, _compared_sets(False)),
    "array_sort": ListFunction("ltt", 1, 3, _sort),
    "array_max": ListFunction("l", 1, 1, _extreme(True)),
    "array_min": ListFunction("l", 1, 1, _extreme(False)),
    "array_any_value": ListFunction("l", 1, 1, _any_value),
    "empty": ListFunction("l", 1, 1, _empty),
    "array_length": ListFunction("ln", 1, 2, _lengths),
    "array_dims": ListFunction("l", 1, 1, _dims),
    "array_ndims": ListFunction("l", 1, 1, _ndims),
    "array_distance": ListFunction("ff", 2, 2, _distance(lambda a, b, total: np.sqrt(total((a - b) ** 2)))),
    "inner_product": ListFunction("ff", 2, 2, _distance(lambda a, b, total: total(a * b))),
    "cosine_distance": ListFunction("ff", 2, 2, _distance(_cosine)),
    "array_normalize": ListFunction("f", 1, 1, _normalize),
    "array_to_string": ListFunction("ltt", 2, 3, _to_string),
    "string_to_array": ListFunction("ttt", 2, 3, _from_string),
    "generate_series": ListFunction("nnn", 1, 3, _series(True)),
    "range": ListFunction("nnn", 1, 3, _series(False)),
    "arrays_zip": ListFunction("z", 1, None, _zip),
}

LIST_ALIASES = {
    **{f"list_{name.removeprefix('array_')}": name for name in LIST_VALUES if name.startswith("array_")},
    "array_push_back": "array_append",
    "list_push_back": "array_append",
    "array_push_front": "array_prepend",
    "list_push_front": "array_prepend",
    "array_cat": "array_concat",
    "list_cat": "array_concat",
    "array_indexof": "array_position",
    "list_indexof": "array_position",
    "array_join": "array_to_string",
    "list_join": "array_to_string",
    "string_to_list": "string_to_array",
    "array_empty": "empty",
    "list_empty": "empty",
    "list_zip": "arrays_zip",
    "dot_product": "inner_product",
    "cardinality": "array_length",
    "make_list": "make_array",
    "element_at": "map_extract",
    "row": "struct",
}
