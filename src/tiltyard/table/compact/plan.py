"""Which fragments a compaction rewrites together (transactions, section 10). Choosing is pure;
`plan_compaction` brings the facts of a version to it.

1. In the order of ids, a fragment is a candidate *by itself* (too large a share of it is deleted), *with its
   neighbours* (it is small), or none.
2. Candidates that follow each other and are covered by the same indices make a bin; a small fragment alone
   makes none.
3. Bins are cut as soon as a part has the target's live rows, as long as the rest still has them, too.
4. The first tasks that stay within the bounds of one run are planned.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiltyard.errors import UnsupportedFeature
from tiltyard.file.writable import WRITTEN
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import Fragment
from tiltyard.format.version import FileVersion
from tiltyard.table.compact.coverage import Coverage
from tiltyard.table.compact.options import CompactionOptions
from tiltyard.table.row_counts import physical_rows

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """What is known of each fragment, in the order of ids: physical and deleted rows, bytes of its files, the
    indices that cover it (equal values: the same indices), and whether it may be rewritten at all.
    """

    ids: Numbers
    physical: Numbers
    deleted: Numbers
    nbytes: Numbers
    covered_by: Sequence[Hashable]
    free: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Task:
    """Fragments of one version that are rewritten together. It may be run in any process."""

    read_version: int
    fragments: tuple[Fragment, ...]
    options: CompactionOptions

    @property
    def live_rows(self) -> int:
        """Rows to rewrite."""
        return sum(fragment.num_rows for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class Held:
    """Fragments that are left as they are, for an index on them could not be carried over."""

    index: str
    kind: str
    fragments: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction of one version would do; `held`: what it would have rewritten, too."""

    read_version: int
    options: CompactionOptions
    tasks: tuple[Task, ...] = ()
    held: tuple[Held, ...] = ()


def plan_compaction(snapshot: Snapshot, options: CompactionOptions) -> CompactionPlan:
    """Plan on one version; reads at most a few file tails, writes nothing.

    Raises `UnsupportedFeature` for what could not be finished: deferred remapping with stable row ids (case
    D13), overlays, row lineage in data files, files of versions that are not written.
    """
    check_supported(snapshot, options)
    coverage = Coverage.of(snapshot, deferred=options.defer_index_remap)
    facts = facts_of(snapshot, coverage, with_bytes=options.max_source_bytes is not None)
    chosen = choose(facts, options)
    fragments = snapshot.fragments
    order = np.argsort(fragments.ids, kind="stable")
    tasks = tuple(
        Task(snapshot.version, tuple(fragments[int(order[at])] for at in task), options) for task in chosen
    )
    return CompactionPlan(snapshot.version, options, tasks, _held(facts, coverage, options))


def check_supported(snapshot: Snapshot, options: CompactionOptions) -> FileVersion:
    """The version that data files will have; raises `UnsupportedFeature` for tables that cannot be
    compacted.
    """
    manifest = snapshot.manifest
    if options.defer_index_remap and uses_stable_row_ids(manifest):
        raise UnsupportedFeature(
            "defer_index_remap=True is not supported for tables with stable row ids: their indices hold row "
            "ids, which a compaction does not change; compact without it"
        )
    if snapshot.fragments.any_spilled:
        raise UnsupportedFeature(
            f"{snapshot.store.uri} keeps row lineage in data files (config lance.row_lineage.spill), which "
            "this version cannot compact"
        )
    if snapshot.fragments.any_overlays:
        raise UnsupportedFeature(
            f"{snapshot.store.uri} has fragments with data overlays, which this version cannot compact"
        )
    asked = options.data_storage_version
    if asked is None:
        asked = "2.2" if manifest.data_format is None else manifest.data_format.version
    version = FileVersion.parse(asked)
    if version not in WRITTEN:
        raise UnsupportedFeature(
            f"data files of version {version.value} are not written: compact with "
            "data_storage_version='2.2' (or '2.1')"
        )
    for field in manifest.schema.walk():
        if field.is_blob:
            raise UnsupportedFeature(
                f"column {field.name!r} holds blobs, which this version does not write, so that the table "
                "cannot be compacted"
            )
    return version


def facts_of(snapshot: Snapshot, coverage: Coverage, *, with_bytes: bool) -> FragmentFacts:
    """The facts of a version's fragments, in the order of ids."""
    fragments = snapshot.fragments
    order = np.argsort(fragments.ids, kind="stable")
    ids = np.asarray(fragments.ids)[order]
    sizes = np.zeros(len(ids), np.int64)
    if with_bytes:
        sizes[:] = [_bytes(fragments[int(at)]) for at in order]
    covered_by: list[Hashable] = [()] * len(ids)
    if coverage.covering:
        covered_by = [coverage.key(id) for id in ids.tolist()]
    free = np.ones(len(ids), np.bool_)
    if coverage.holding:
        free[:] = [not coverage.holds(id) for id in ids.tolist()]
    return FragmentFacts(
        ids,
        physical_rows(snapshot)[order],
        np.asarray(fragments.deleted_rows)[order].astype(np.int64),
        sizes,
        covered_by,
        free,
    )


def _bytes(fragment: Fragment) -> int:
    return sum(file.size for file in fragment.files) + sum(
        overlay.data_file.size for overlay in fragment.overlays
    )


def choose(facts: FragmentFacts, options: CompactionOptions) -> list[list[int]]:
    """Positions of the fragments of each task, in order. Pure."""
    live = facts.physical - facts.deleted
    alone, candidate = _candidates(facts, options)
    tasks: list[list[int]] = []
    for bin in _bins(facts, candidate & facts.free):
        if len(bin) > 1 or alone[bin[0]]:
            tasks += _cut(bin, live, options.target_rows_per_fragment)
    return _bounded(tasks, facts, live, options)


def _candidates(
    facts: FragmentFacts, options: CompactionOptions
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which fragments are candidates by themselves, and which in any way."""
    alone = np.zeros(len(facts.ids), np.bool_)
    if options.materialize_deletions:
        share = facts.deleted / np.maximum(facts.physical, 1)
        alone = share > options.materialize_deletions_threshold
    small = facts.physical < options.target_rows_per_fragment
    allowed = ~np.isin(facts.ids, np.array(options.excluded_fragment_ids, np.uint64).astype(np.int64))
    return alone & allowed, (alone | small) & allowed


def _bins(facts: FragmentFacts, candidate: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Runs of candidates that the same indices cover."""
    bins: list[list[int]] = []
    last = -2
    for at in np.flatnonzero(candidate).tolist():
        if at == last + 1 and facts.covered_by[at] == facts.covered_by[last]:
            bins[-1].append(at)
        else:
            bins.append([at])
        last = at
    return bins


def _cut(bin: list[int], live: Numbers, target: int) -> list[list[int]]:
    """The bin in parts of at least `target` live rows; what is left stays with the last one."""
    parts: list[list[int]] = []
    left = int(live[bin].sum())
    start = rows = 0
    for at, position in enumerate(bin):
        rows += int(live[position])
        if rows < target:
            continue
        left -= rows
        if left < target:
            break
        parts.append(bin[start : at + 1])
        start, rows = at + 1, 0
    parts.append(bin[start:])
    return parts


def _bounded(
    tasks: list[list[int]], facts: FragmentFacts, live: Numbers, options: CompactionOptions
) -> list[list[int]]:
    """The first tasks that together stay within the bounds of one run."""
    bounds = (options.max_source_fragments, options.max_source_rows, options.max_source_bytes)
    total = [0, 0, 0]
    for number, task in enumerate(tasks):
        for i, more in enumerate((len(task), int(live[task].sum()), int(facts.nbytes[task].sum()))):
            total[i] += more
            bound = bounds[i]
            if bound is not None and total[i] > bound:
                return tasks[:number]
    return tasks


def _held(facts: FragmentFacts, coverage: Coverage, options: CompactionOptions) -> tuple[Held, ...]:
    """How many candidates each index holds back."""
    held: list[Held] = []
    _, candidate = _candidates(facts, options)
    waiting = frozenset(facts.ids[candidate & ~facts.free].tolist())
    for index, kind, covered in coverage.holding:
        count = len(waiting & covered)
        if count > 1:
            held.append(Held(index, kind, count))
    return tuple(held)
