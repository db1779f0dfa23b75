"""Indices as a pre-filter: which rows may pass a predicate, and which fragments no index knows.

The answer of a scan is that of the full scan, always: fragments that an index does not cover are scanned, the
rows that it finds are tested again unless the question asked of it is the whole predicate, and an index that
cannot be read is left out with a warning.

Invariant P1: a live row that passes the predicate is among `rows`, or its fragment is in `unindexed`; where
`is_exact`, no other row is among `rows` (test_prefilter.py, over random predicates and histories).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature
from tiltyard.expr.index_query import AllOf, AnyOf, ColumnQuery, IndexQuery, asked, index_query
from tiltyard.kernels.distinct import distinct
from tiltyard.table.deletions import load_deletions, without_deleted
from tiltyard.table.index_segments import Segment, btree_segments
from tiltyard.table.plan import Picked, Piece, Unit
from tiltyard.table.row_counts import chosen_positions, live_rows
from tiltyard.table.system_columns import FRAGMENT_SHIFT
from tiltyard.table.wording import counted as number_of

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.table.snapshot import Snapshot

SELECTIVE_SHARE = 0.02
"""Of more than this part of the live rows that an index covers, all are scanned instead. Measured: to look up
and order that many addresses costs as much as to test a column of numbers of all rows.
"""

SELECTIVE_ROWS = 1 << 14
"""So few rows are always looked up by the index."""

COMBINED_SHARE = 8
"""Of several conditions that must all hold, one that leaves more than so many times the rows of the best is
tested on the rows found, rather than looked up.
"""

PICKED_PIECE_ROWS = 1 << 14
"""Rows found by an index that are read at once."""

Addresses = npt.NDArray[np.uint64]
Path = tuple[str, ...]
_UNREADABLE = (CorruptFile, ObjectNotFound, UnsupportedFeature)
_SHIFT = np.uint64(FRAGMENT_SHIFT)


@dataclass(frozen=True, slots=True)
class Prefilter:
    """`rows`: physical offsets (uint32, ascending) of live rows by fragment id; a covered fragment without
    any is left out. `unindexed`: ids of fragments that must be scanned. `is_exact`: whether all of `rows`
    pass the predicate. `names`: the indices that were used.
    """

    rows: Mapping[int, npt.NDArray[np.uint32]]
    unindexed: frozenset[int]
    is_exact: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A question with the columns that will be looked up; `fragments` (uint32, ascending) are those that
    their indices all cover; None for all of them.
    """

    query: IndexQuery
    columns: Mapping[Path, list[Segment]]
    fragments: npt.NDArray[np.uint32] | None
    estimate: int


def prefilter(
    snapshot: Snapshot, predicate: Expr, fragments: Sequence[int] | None = None
) -> Prefilter | None:
    """Rows that may pass, as the indices of the version say; None where there is no usable index or it
    would leave too much. `fragments`: ids of those that are asked about, None for all.
    """
    try:
        plan = _plan(snapshot, predicate)
        if plan is None or not _is_selective(snapshot, plan):
            return None
        found = _search(plan.query, plan)
    except _UNREADABLE as error:
        _warn(error)
        return None
    return _located(snapshot, plan, found, fragments)


def counted(snapshot: Snapshot, predicate: Expr, fragments: Sequence[int] | None = None) -> int | None:
    """How many live rows pass, where an index knows without looking at any of them: one question about one
    column, answered by segments that know every row of the version once, and nothing is deleted.
    """
    if fragments is not None or snapshot.fragments.any_deletions:
        return None
    columns = _indexed(snapshot, predicate)
    query = index_query(predicate, columns) if columns else None
    if not isinstance(query, ColumnQuery) or not query.is_exact:
        return None
    segments = columns[query.path]
    covered = np.concatenate([segment.fragments for segment in segments])
    if len(covered) != len(snapshot.fragments) or len(np.unique(covered)) != len(covered):
        return None
    try:
        trees = [segment.tree() for segment in segments]
        if sum(tree.rows for tree in trees) != snapshot.fragments.num_rows:
            return None
        return sum(tree.count(query) for tree in trees)
    except _UNREADABLE as error:
        _warn(error)
        return None


def explain(snapshot: Snapshot, predicate: Expr, fragments: Sequence[int] | None = None) -> list[str]:
    """What `prefilter` would do, a line each, without looking anything up; nothing where no index helps."""
    try:
        plan = _plan(snapshot, predicate)
        if plan is None:
            return []
        selective = _is_selective(snapshot, plan)
    except _UNREADABLE as error:
        return [f"index left out: {error}"]
    names = ", ".join(_names(plan))
    if not names:
        return ["no row can pass: nothing is read"]
    covered = len(snapshot.fragments) if plan.fragments is None else len(plan.fragments)
    if not selective:
        return [f"index {names} left out: it may leave {number_of(plan.estimate, 'row')}, a scan is cheaper"]
    rows = number_of(plan.estimate, "row")
    lines = [f"index {names} (BTree): at most {rows} of {number_of(covered, 'fragment')}"]
    for query in _questions(plan.query):
        name = plan.columns[query.path][0].entry.name
        lines.append(f"  ScalarIndexQuery: query=[{asked(query)}]@{name}")
    rest = len(snapshot.fragments) - covered
    if rest:
        lines.append(f"fragments without index, scanned: {rest}")
    if not plan.query.is_exact:
        lines.append("rows found are tested again: the index answers a part of the filter")
    return lines


def plan_found(
    snapshot: Snapshot,
    found: Prefilter,
    fragments: Sequence[int] | None,
    unit_rows: int,
    *,
    numbered: bool,
) -> list[Piece]:
    """What to read, in scan order: the rows found, and whole fragments that no index knows, in pieces of at
    most `unit_rows` rows. `numbered`: whether positions in scan order are asked for.
    """
    ids = snapshot.fragments.ids
    chosen = chosen_positions(snapshot, fragments)
    if chosen is None and not found.unindexed:
        chosen = _positions(ids, list(found.rows))
    live = live_rows(snapshot) if numbered or found.unindexed else None
    firsts = None if live is None else np.cumsum(live) - live
    pieces: list[Piece] = []
    for position in range(len(ids)) if chosen is None else chosen:
        fragment_id = int(ids[position])
        if fragment_id in found.unindexed:
            assert live is not None
            assert firsts is not None
            rows, first = int(live[position]), int(firsts[position])
            pieces += [
                Unit(position, start, min(start + unit_rows, rows), first + start)
                for start in range(0, rows, unit_rows)
            ]
            continue
        offsets = found.rows.get(fragment_id)
        if offsets is None:
            continue
        wide = offsets.astype(np.int64)
        numbers = wide
        if numbered:
            assert firsts is not None
            deleted = load_deletions(snapshot, snapshot.fragments[position])
            numbers = wide + firsts[position]
            if deleted is not None:
                numbers -= np.searchsorted(deleted, offsets)
        whole = Picked(position, wide, numbers, found.is_exact)
        step = min(unit_rows, PICKED_PIECE_ROWS)
        if len(wide) <= step:
            pieces.append(whole)
        else:
            pieces += [whole.part(start, start + step) for start in range(0, len(wide), step)]
    return pieces


def _positions(ids: npt.NDArray[np.int64], wanted: list[int]) -> list[int]:
    """Where these fragments stand in the version's list, ascending."""
    if len(wanted) == 1:
        return [int((ids == wanted[0]).argmax())]
    return np.flatnonzero(np.isin(ids, wanted)).tolist()


# -- which indices, and how much they would leave ------------------------------------------------------


def _indexed(snapshot: Snapshot, predicate: Expr) -> dict[Path, list[Segment]]:
    """The columns of the predicate that have an index, with its segments."""
    held = {field_id for entry in snapshot.manifest.indices for field_id in entry.fields}
    found: dict[Path, list[Segment]] = {}
    for path in predicate.paths:
        if not snapshot.schema.has_column(path[0]):
            continue
        field = snapshot.schema.field(path)
        if field.id in held and (segments := btree_segments(snapshot, field.id)):
            found[path] = segments
    return found


def _plan(snapshot: Snapshot, predicate: Expr) -> _Plan | None:
    columns = _indexed(snapshot, predicate)
    query = index_query(predicate, columns) if columns else None
    if query is None:
        return None
    chosen = _cheapest(query, columns)
    fragments = _covered(chosen, columns)
    if fragments is not None and not len(fragments):
        return None
    return _Plan(chosen, columns, fragments, _estimate(chosen, columns))


def _cheapest(query: IndexQuery, columns: Mapping[Path, list[Segment]]) -> IndexQuery:
    """The question without the conditions that are better tested on the rows found."""
    if isinstance(query, AnyOf):
        items = tuple([_cheapest(item, columns) for item in query.items])
        return AnyOf(items, query.is_exact and all(item.is_exact for item in items))
    if isinstance(query, ColumnQuery):
        return query
    items = tuple([_cheapest(item, columns) for item in query.items])
    weights = [(_estimate(item, columns), number) for number, item in enumerate(items)]
    least = min(weights)[0]
    kept = [number for weight, number in weights if weight <= least * COMBINED_SHARE]
    is_exact = query.is_exact and len(kept) == len(items) and all(item.is_exact for item in items)
    if len(kept) == 1 and (items[kept[0]].is_exact is is_exact):
        return items[kept[0]]
    return AllOf(tuple([items[number] for number in kept]), is_exact)


def _covered(query: IndexQuery, columns: Mapping[Path, list[Segment]]) -> npt.NDArray[np.uint32] | None:
    """Fragments that the indices of all columns in the question cover, ascending; None: it has none."""
    if isinstance(query, ColumnQuery):
        segments = columns[query.path]
        if len(segments) == 1:
            return segments[0].fragments
        return np.unique(np.concatenate([each.fragments for each in segments]))
    covered = None
    for item in query.items:
        inner = _covered(item, columns)
        if inner is not None:
            covered = inner if covered is None else np.intersect1d(covered, inner, assume_unique=True)
    return covered


def _estimate(query: IndexQuery, columns: Mapping[Path, list[Segment]]) -> int:
    """An upper bound of the rows that answer the question, from what is in memory of the indices."""
    if isinstance(query, ColumnQuery):
        return sum(segment.estimate(query) for segment in columns[query.path])
    each = [_estimate(item, columns) for item in query.items]
    return sum(each) if isinstance(query, AnyOf) else min(each)


def _is_selective(snapshot: Snapshot, plan: _Plan) -> bool:
    if plan.estimate <= SELECTIVE_ROWS:
        return True
    rows = live_rows(snapshot)
    if plan.fragments is not None and len(plan.fragments) < len(rows):
        rows = rows[np.isin(snapshot.fragments.ids, plan.fragments)]
    return bool(plan.estimate <= SELECTIVE_SHARE * int(rows.sum()))


def _names(plan: _Plan) -> tuple[str, ...]:
    names = [segment.entry.name for path in _paths(plan.query) for segment in plan.columns[path]]
    return tuple(dict.fromkeys(names))


def _questions(query: IndexQuery) -> list[ColumnQuery]:
    return (
        [query] if isinstance(query, ColumnQuery) else [q for each in query.items for q in _questions(each)]
    )


def _paths(query: IndexQuery) -> list[Path]:
    return [each.path for each in _questions(query)]


# -- looking up ----------------------------------------------------------------------------------------


def _search(query: IndexQuery, plan: _Plan) -> Addresses:
    """Addresses (ascending, each once) of rows that answer the question; deleted ones may be among them."""
    if isinstance(query, ColumnQuery):
        parts = [segment.search(query) for segment in plan.columns[query.path]]
        return parts[0] if len(parts) == 1 else _united(parts)
    parts = [_search(item, plan) for item in query.items]
    if isinstance(query, AnyOf):
        return _united(parts)
    found = parts[0]
    for part in parts[1:]:
        found = np.intersect1d(found, part, assume_unique=True)
    return found


def _united(parts: list[Addresses]) -> Addresses:
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _located(
    snapshot: Snapshot, plan: _Plan, addresses: Addresses, fragments: Sequence[int] | None
) -> Prefilter:
    """The live rows at the addresses, by fragment; those of fragments that one of the indices does not cover
    are left out, for such fragments are scanned.
    """
    ids = snapshot.fragments.ids
    asked = None if fragments is None else frozenset(fragments)
    covered = plan.fragments
    unindexed: frozenset[int] = frozenset()
    if covered is not None and len(covered) < len(ids):
        unindexed = frozenset(np.setdiff1d(ids, covered).tolist())
        unindexed = unindexed if asked is None else unindexed & asked
    rows: dict[int, npt.NDArray[np.uint32]] = {}
    for owner, found in _by_fragment(addresses):
        if (asked is not None and owner not in asked) or owner in unindexed:
            continue
        fragment = snapshot.fragment(owner)
        if fragment is None:
            continue
        deleted = load_deletions(snapshot, fragment)
        offsets = found if deleted is None else found[without_deleted(deleted, found.astype(np.int64))]
        if len(offsets):
            rows[owner] = offsets
    return Prefilter(rows, unindexed, plan.query.is_exact, _names(plan))


def _by_fragment(addresses: Addresses) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """Fragment ids and the physical offsets in each, of ascending addresses."""
    if not len(addresses):
        return
    low, high = int(addresses[0]) >> FRAGMENT_SHIFT, int(addresses[-1]) >> FRAGMENT_SHIFT
    if low == high:
        yield low, addresses.astype(np.uint32)
        return
    owners = (addresses >> _SHIFT).astype(np.int64)
    bounds = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(addresses)]
    for start, stop in pairwise(bounds):
        yield int(owners[start]), addresses[start:stop].astype(np.uint32)


def _warn(error: Exception) -> None:
    """Say once that an index is left out, and which: its name and what to do are in the error."""
    warnings.warn(f"everything is scanned instead: {error}", RuntimeWarning, stacklevel=2)
