"""Keeping indices up with the table: fragments that no segment answers for are indexed, segments are merged.

What an old segment says of rows that are deleted or were moved is left out of the new one, so that upserts do
not make an index grow for ever. An old segment that is damaged is built anew from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, UnsupportedFeature
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.index.btree.written import DEFAULT_LIMITS, BuildLimits, Kept, merge
from tiltyard.table.deletions import deleted_addresses, without_deleted
from tiltyard.table.index_segments import Segment, covered_now, is_usable, segment_of
from tiltyard.table.indexing.create import build_entry, entries_named
from tiltyard.table.indexing.facts import type_name
from tiltyard.table.indexing.source import (
    address_version,
    column_entries,
    commit_indices,
    discard_segments,
    new_entry,
    written_segments,
)
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

DEFAULT_MERGE = 1
"""Segments that new rows are merged with, the newest first."""

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Optimized:
    """The version after an upkeep of indices (the one before, where there was nothing to do), the names of
    those that were brought up to date, and of those of other kinds, which were left as they are."""

    snapshot: Snapshot
    updated: tuple[str, ...]
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """One index: segments to merge, and fragments to read from the table."""

    name: str
    field: Field
    old: tuple[IndexMetadata, ...]
    fragments: tuple[int, ...]


def optimize_indices(
    store: Store,
    session: Session,
    *,
    names: Iterable[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
    limits: BuildLimits = DEFAULT_LIMITS,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
) -> Optimized:
    """`optimize_once` on the newest version, planned again where other writers changed what it read."""
    wanted = None if names is None else tuple(names)
    return replanned(
        lambda snapshot: optimize_once(
            snapshot,
            names=wanted,
            num_indices_to_merge=num_indices_to_merge,
            retrain=retrain,
            limits=limits,
        ),
        store,
        session,
        what="upkeep of indices",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def optimize_once(
    snapshot: Snapshot,
    *,
    names: Iterable[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
    limits: BuildLimits = DEFAULT_LIMITS,
) -> Optimized:
    """Index the fragments of a version that its B-tree indices do not answer for yet, in one commit.

    `names`: of the indices, all by default. `num_indices_to_merge`: how many of the newest segments become
    one with the new rows: None for one, and only where there are new rows; 0 leaves all as they are beside a
    new segment; more than one also without new rows. `retrain`: every index is built anew from the data.

    Raises `IndexNotFound`, `UnsupportedFeature` for a named index of another kind, `InvalidInput`, and what a
    commit raises. Then nothing is left.
    """
    _check_count(num_indices_to_merge)
    plans, passed_over = _plans(snapshot, names, num_indices_to_merge, retrain)
    if not plans:
        return Optimized(snapshot, (), passed_over)
    with written_segments(snapshot.store) as written:
        new = [_built(snapshot, plan, written, limits) for plan in plans]
        removed = [entry for plan in plans for entry in plan.old]
        after = commit_indices(snapshot, new, removed)
    return Optimized(after, tuple(plan.name for plan in plans), passed_over)


def _check_count(count: object) -> None:
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise InvalidInput(f"num_indices_to_merge must be None or a number of at least 0, found {count!r}")


def _plans(
    snapshot: Snapshot, names: Iterable[str] | None, merged: int | None, retrain: bool
) -> tuple[list[_Plan], tuple[str, ...]]:
    entries = [entry for entry in snapshot.manifest.indices if not entry.is_system]
    every = sorted({entry.name for entry in entries})
    chosen = every if names is None else list(dict.fromkeys(names))
    plans: list[_Plan] = []
    passed_over: list[str] = []
    for name in chosen:
        segments = entries_named(snapshot, name)
        if not all(map(is_usable, segments)):
            if names is not None:
                raise UnsupportedFeature(
                    f"index {name!r} is of type {type_name(segments[0])}, which this version of tiltyard "
                    "keeps as it is: it cannot bring it up to date"
                )
            passed_over.append(name)
            continue
        plan = _plan(snapshot, name, segments, merged, retrain)
        if plan is not None:
            plans.append(plan)
    return plans, tuple(passed_over)


def _plan(
    snapshot: Snapshot, name: str, segments: Sequence[IndexMetadata], merged: int | None, retrain: bool
) -> _Plan | None:
    field = snapshot.schema.by_id(segments[0].fields[0])
    every = frozenset(int(id) for id in snapshot.fragments.ids)
    if retrain:
        return _Plan(name, field, tuple(segments), tuple(sorted(every)))
    proven = [frozenset(segment_of(snapshot, entry).fragments.tolist()) for entry in segments]
    fresh = every - frozenset[int]().union(*proven)
    count = DEFAULT_MERGE if merged is None else merged
    first = len(segments) - count
    # A segment that claims more than it holds is always replaced: no other may answer for the same rows.
    old = tuple(
        entry
        for at, (entry, fragments) in enumerate(zip(segments, proven, strict=True))
        if at >= first or fragments != covered_now(snapshot, entry) & every
    )
    if not fresh and len(old) < 2:
        return None
    return _Plan(name, field, old, tuple(sorted(fresh)))


def _built(snapshot: Snapshot, plan: _Plan, written: list[str], limits: BuildLimits) -> IndexMetadata:
    segments = [segment_of(snapshot, entry) for entry in plan.old]
    kept = frozenset(int(id) for segment in segments for id in segment.fragments)
    whole = frozenset(plan.fragments)
    if not segments or kept <= whole:
        return build_entry(snapshot, plan.field, plan.name, whole, written, limits)
    uuid = str(runtime.uuid4())
    written.append(uuid)
    try:
        built = merge(
            snapshot.store,
            index_directory(uuid),
            [(each.tree(), _taken_over(snapshot, each)) for each in segments],
            column_entries(snapshot, plan.field, plan.fragments),
            plan.field.arrow_type,
            index_version=address_version(snapshot),
            limits=limits,
        )
    except (CorruptFile, ObjectNotFound):
        # The data has it all, and says so if it is what is damaged.
        discard_segments(snapshot.store, [uuid])
        return build_entry(snapshot, plan.field, plan.name, whole | kept, written, limits)
    version = min(entry.dataset_version for entry in plan.old)
    return new_entry(snapshot, uuid, plan.field.id, plan.name, built, whole | kept, dataset_version=version)


def _taken_over(snapshot: Snapshot, segment: Segment) -> Kept:
    """Which rows of an old segment a new one takes over, and their addresses."""
    deleted = deleted_addresses(snapshot, segment.fragments.tolist())

    def kept(ids: Addresses) -> tuple[npt.NDArray[np.bool_] | None, Addresses]:
        keep, now = segment.located(ids)
        live = without_deleted(deleted, now)
        keep[np.flatnonzero(keep)[~live]] = False
        return (None if keep.all() else keep), now[live]

    return kept
