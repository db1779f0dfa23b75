"""A whole compaction: planned on the newest version, run, committed; what others took away is planned
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import RetryableConflict, TooMuchContention, VersionNotFound
from tiltyard.table.compact.commit import commit_rewrites
from tiltyard.table.compact.execute import execute
from tiltyard.table.compact.options import CompactionOptions
from tiltyard.table.compact.plan import CompactionPlan, Held, Task, plan_compaction
from tiltyard.table.compact.results import Metrics, Rewritten, remove_rewritten
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

MAX_PLANS = 5
"""How often what others rewrote or changed meanwhile is planned again."""


Progress = Callable[[int, int], None]
"""Told how many of the rows to rewrite are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The newest version after a compaction, what went and came, rows rewritten, fragments left for an
    index.
    """

    snapshot: Snapshot
    metrics: Metrics
    rows: int
    held: tuple[Held, ...] = ()


def compact(
    store: Store,
    session: Session,
    options: Mapping[str, Any] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Compacted:
    """Compact the newest version of a table; commits nothing where there is nothing to do.

    `options`: see `CompactionOptions`; what is not given comes from the table's config. Deletes and updates
    that others commit meanwhile are carried over; fragments that another compaction took are planned again.
    Raises `InvalidInput` and `UnsupportedFeature` before anything is written, `TooMuchContention` when
    others kept taking the fragments, and what reading, writing and committing raise.
    """
    metrics, rows = Metrics(), 0
    why = ""
    for _ in range(MAX_PLANS):
        snapshot = open_latest(store, session)
        chosen = CompactionOptions.of(options, snapshot.manifest.config)
        plan = plan_compaction(snapshot, chosen)
        if not plan.tasks:
            return Compacted(snapshot, metrics, rows, plan.held)
        try:
            rewritten = run_tasks(snapshot, plan, progress)
            done = commit_rewrites(
                store,
                session,
                rewritten,
                defer_index_remap=chosen.defer_index_remap,
                partial=True,
                properties=properties,
            )
        except TooMuchContention:
            raise
        except (RetryableConflict, VersionNotFound) as error:
            why = str(error)  # taken by others, or cleaned away while it was read
            continue
        lost = {id(group) for group, _ in done.lost}
        metrics += done.metrics
        rows += sum(_rows(group) for group in rewritten if id(group) not in lost)
        if not lost:
            return Compacted(done.snapshot, metrics, rows, plan.held)
        why = "; ".join(sorted({reason for _, reason in done.lost}))
    raise TooMuchContention(
        f"the compaction of {store.uri} was planned {MAX_PLANS} times, and each time others had changed the "
        f"same fragments ({why}); compact again when it is quieter"
    )


def run_tasks(snapshot: Snapshot, plan: CompactionPlan, progress: Progress | None = None) -> list[Rewritten]:
    """Run all tasks of a plan; on failure nothing of any of them is left."""
    told = _Told(sum(task.live_rows for task in plan.tasks), progress)
    done: list[Rewritten] = []
    width = plan.options.num_threads or 1
    try:
        for start in range(0, len(plan.tasks), width):
            batch = plan.tasks[start : start + width]
            done += runtime.parallel([partial(_run, snapshot, task, told, done) for task in batch])
            done[:] = list({id(each): each for each in done}.values())
    except BaseException:
        remove_rewritten(snapshot.store, done)
        raise
    return done


def _run(snapshot: Snapshot, task: Task, told: _Told, done: list[Rewritten]) -> Rewritten:
    made = execute(snapshot, task, progress=told)
    done.append(made)  # at once: when a task beside this one fails, its files are known
    return made


class _Told:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = runtime.leaf_lock()

    def __call__(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            done = self._done
        if self._progress is not None:
            self._progress(done, self._total)


def _rows(group: Rewritten) -> int:
    return sum(fragment.num_rows for fragment in group.old)
