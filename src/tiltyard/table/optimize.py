"""Everything that keeps a table fast, in one call: compaction, upkeep of indices, cleanup of old versions.

Each step stands alone: one that fails does not keep the others from their work, and the report says what each
did. What a step committed stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import InvalidInput
from tiltyard.table.cleanup.run import Cleaned, clean
from tiltyard.table.cleanup.select import Policy
from tiltyard.table.cleanup.survey import place_of
from tiltyard.table.compact import Compacted, CompactionOptions, compact, plan_compaction
from tiltyard.table.compact.catch_up import catch_up_indices
from tiltyard.table.compact.run import Progress
from tiltyard.table.indexing import Optimized, optimize_indices
from tiltyard.table.replanning import replanned
from tiltyard.table.snapshot import open_latest
from tiltyard.table.wording import NS_PER_SECOND, counted, sized

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store

COMPACTION, INDICES, CLEANUP = "compaction", "indices", "cleanup"
STEPS = (COMPACTION, INDICES, CLEANUP)

EXPIRE_AFTER_SECONDS = 7 * 86_400.0
"""Versions older than this are removed by default."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it did, in words; whether it changed anything; seconds; and what failed it."""

    name: str
    summary: str
    changed: bool
    seconds: float
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}"


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """What was done: `before` and `after` are versions. `compaction`, `indices` and `cleanup` hold the facts
    of steps that succeeded.
    """

    before: int
    after: int
    steps: tuple[Step, ...]
    compaction: Compacted | None = None
    indices: Optimized | None = None
    cleanup: Cleaned | None = None

    @property
    def ok(self) -> bool:
        """Whether every step succeeded."""
        return not self.failed

    @property
    def failed(self) -> tuple[Step, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.error is not None)

    def __str__(self) -> str:
        versions = f"version {self.before}"
        if self.after != self.before:
            versions += f" to {self.after}"
        return "\n".join([versions, *(f"  {step}" for step in self.steps)])


def optimize(
    store: Store,
    session: Session,
    *,
    steps: Iterable[str] = STEPS,
    compaction: Mapping[str, Any] | None = None,
    index_names: Iterable[str] | None = None,
    older_than_seconds: float = EXPIRE_AFTER_SECONDS,
    retain_versions: int | None = None,
    root: Store | None = None,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Compact the table, bring its indices up to date, remove versions older than `older_than_seconds`.

    `compaction`: options, see `CompactionOptions`. `root`: the table's root where `store` is a branch of it.
    Raises `InvalidInput` for bad options and what opening the table raises, before anything is done; what
    fails later is in the report.
    """
    wanted = tuple(steps)
    for name in wanted:
        if name not in STEPS:
            raise InvalidInput(f"steps are {', '.join(STEPS)}; found {name!r:.60}")
    policy = expiring(older_than_seconds, retain_versions)
    names = None if index_names is None else tuple(index_names)
    before = open_latest(store, session)
    CompactionOptions.of(compaction, before.manifest.config)
    done = Steps()
    if COMPACTION in wanted:
        done.run(
            COMPACTION,
            lambda: compact(store, session, compaction, progress=progress),
            lambda each: (bool(each.metrics.fragments_removed), told_compaction(each)),
        )
    if INDICES in wanted:
        done.run(
            INDICES,
            lambda: keep_up_indices(store, session, names),
            lambda each: (
                bool(each.updated),
                told_indices(each)
                + _then(store, session, compaction, COMPACTION in done.facts and each.updated),
            ),
        )
    if CLEANUP in wanted:
        done.run(CLEANUP, lambda: clean_up(store, session, policy, root), told_cleanup)
    after = open_latest(store, session)
    return done.report(before.version, after.version)


class Steps:
    """Runs steps one after another and keeps what each says."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.facts: dict[str, Any] = {}

    def run(self, name: str, work: Callable[[], Any], told: Callable[[Any], tuple[bool, str]]) -> None:
        began = runtime.monotonic()
        try:
            found = work()
        except Exception as error:  # told in the report: one step must not keep the others from their work
            self.failed(name, error, runtime.monotonic() - began)
            return
        changed, summary = told(found)
        self.facts[name] = found
        self.steps.append(Step(name, summary, changed, runtime.monotonic() - began))

    def failed(self, name: str, error: Exception, seconds: float) -> None:
        text = f"failed: {type(error).__name__}: {error}"
        self.steps.append(Step(name, text, False, seconds, error))

    def left(self, name: str, why: str) -> None:
        """A step that was not needed, or not allowed."""
        self.steps.append(Step(name, why, False, 0.0))

    def report(self, before: int, after: int) -> OptimizeReport:
        return OptimizeReport(
            before,
            after,
            tuple(self.steps),
            self.facts.get(COMPACTION),
            self.facts.get(INDICES),
            self.facts.get(CLEANUP),
        )


def _then(store: Store, session: Session, compaction: Mapping[str, Any] | None, asked: object) -> str:
    """What the next run can join: fragments that an index knows and those that it does not stay apart, and
    an upkeep of indices ends the difference.
    """
    if not asked:
        return ""
    snapshot = open_latest(store, session)
    planned = plan_compaction(snapshot, CompactionOptions.of(compaction, snapshot.manifest.config))
    fragments = sum(len(task.fragments) for task in planned.tasks)
    return f"; run again: {counted(fragments, 'fragment')} can be joined now" if fragments else ""


# -- the steps ---------------------------------------------------------------------------------------


def keep_up_indices(store: Store, session: Session, names: tuple[str, ...] | None = None) -> Optimized:
    """Bring segments up to date with deferred compactions, then index what no segment answers for."""
    before = open_latest(store, session)
    after = replanned(catch_up_indices, store, session, what="upkeep of indices")
    done = optimize_indices(store, session, names=names)
    if after.version != before.version and not done.updated:
        moved = sorted({entry.name for entry in after.manifest.indices if not entry.is_system})
        return Optimized(done.snapshot, tuple(moved), done.passed_over)
    return done


def expiring(older_than_seconds: float, retain_versions: int | None = None) -> Policy:
    """The policy that removes versions of an age; those that tags name stay. Raises `InvalidInput`."""
    if isinstance(older_than_seconds, bool) or not isinstance(older_than_seconds, int | float):
        raise InvalidInput(f"the age of versions is a number of seconds, found {older_than_seconds!r:.60}")
    if not 0 <= older_than_seconds < 1e11:
        raise InvalidInput(f"the age of versions is a number of seconds from 0, found {older_than_seconds}")
    return Policy(round(older_than_seconds * NS_PER_SECOND), retain_versions, refuse_tagged=False)


def clean_up(store: Store, session: Session, policy: Policy, root: Store | None = None) -> Cleaned:
    """Remove what the policy lets go."""
    snapshot = open_latest(store, session)
    return clean(place_of(snapshot, root), snapshot.version, policy)


def told_compaction(done: Compacted) -> str:
    """What a compaction did, in words."""
    metrics = done.metrics
    text = "nothing to do"
    if metrics.fragments_removed:
        text = (
            f"{counted(metrics.fragments_removed, 'fragment')} became {metrics.fragments_added:,} "
            f"({counted(done.rows, 'row')} rewritten)"
        )
    for held in done.held:
        text += f"; {counted(held.fragments, 'fragment')} stay for index {held.index!r} ({held.kind})"
    return text


def told_indices(done: Optimized) -> str:
    """What an upkeep of indices did, in words."""
    text = f"{', '.join(done.updated)} brought up to date" if done.updated else "up to date"
    if done.passed_over:
        text += f"; {', '.join(done.passed_over)} left to who built it"
    return text


def told_cleanup(done: Cleaned) -> tuple[bool, str]:
    """Whether a cleanup changed anything, and what, in words."""
    files = len(done.files)
    if not done.versions and not files:
        text = "nothing to remove"
    else:
        text = (
            f"{counted(len(done.versions), 'version')} and {counted(files, 'file')} removed "
            f"({sized(done.bytes_removed)})"
        )
    if done.failed:
        text += f"; {counted(len(done.failed), 'file')} not deleted, left to the next cleanup"
    return bool(done.versions or files), text
