"""The maintainer: looks at a table from time to time and does what keeps it within stated limits.

After a pass that failed in nothing, a table has at most `MAX_SMALL_FILES` small fragments, at most
`MAX_UNINDEXED` fragments that an index does not answer for, and no version older than `EXPIRE_AFTER_SECONDS`
that nothing holds; unless the work for that is more than the `PASS_BYTES` that one pass may touch: then the
next passes go on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tiltyard import runtime
from tiltyard.errors import InvalidInput
from tiltyard.runtime.again import Keeper
from tiltyard.table.compact import CompactionOptions, compact, plan_compaction
from tiltyard.table.index_segments import covered_now, is_usable
from tiltyard.table.optimize import (
    CLEANUP,
    COMPACTION,
    EXPIRE_AFTER_SECONDS,
    INDICES,
    OptimizeReport,
    Steps,
    clean_up,
    expiring,
    keep_up_indices,
    told_cleanup,
    told_compaction,
    told_indices,
)
from tiltyard.table.plan import estimated_row_bytes
from tiltyard.table.row_counts import live_rows
from tiltyard.table.snapshot import open_latest
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

MAX_SMALL_FILES = 100
"""Small fragments that a table may have before it is compacted."""

MAX_UNINDEXED = 20
"""Fragments that an index may not answer for before it is brought up to date."""

PASS_BYTES = 1 << 30
"""Bytes of data that one pass reads to write them anew."""

INTERVAL_SECONDS = 60.0
"""Time from the end of a pass to the next one."""

MAX_INTERVAL_SECONDS = 30 * 86_400.0
INDEX_ROW_BYTES = 16
"""Bytes that an index entry takes beside its value: address, and its share of pages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a maintained table keeps to, and what a pass may touch."""

    small_files: int = MAX_SMALL_FILES
    unindexed: int = MAX_UNINDEXED
    expire_after_seconds: float = EXPIRE_AFTER_SECONDS
    pass_bytes: int = PASS_BYTES

    def __post_init__(self) -> None:
        for name, low in (("small_files", 0), ("unindexed", 0), ("pass_bytes", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidInput(f"{name} must be a number of at least {low}, found {value!r:.60}")
        expiring(self.expire_after_seconds)


@dataclass(frozen=True, slots=True)
class Condition:
    """How a version stands: small fragments (or with many deleted rows); by index that is kept up here, the
    fragments that it does not answer for and the bytes that indexing them touches.
    """

    small: int
    unindexed: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def condition_of(snapshot: Snapshot, options: CompactionOptions) -> Condition:
    """How a version stands; reads at most a few file tails."""
    fragments = snapshot.fragments
    physical = np.asarray(fragments.physical_rows)
    small = physical < options.target_rows_per_fragment
    if options.materialize_deletions:
        share = np.asarray(fragments.deleted_rows) / np.maximum(physical, 1)
        small = small | (share > options.materialize_deletions_threshold)
    covered: dict[str, frozenset[int]] = {}
    fields: dict[str, int] = {}
    for entry in snapshot.manifest.indices:
        if is_usable(entry) and len(entry.fields) == 1:
            covered[entry.name] = covered.get(entry.name, frozenset()) | covered_now(snapshot, entry)
            fields[entry.name] = entry.fields[0]
    if not covered:
        return Condition(int(small.sum()))
    live = dict(zip(fragments.ids.tolist(), live_rows(snapshot).tolist(), strict=True))
    unindexed: dict[str, tuple[int, int]] = {}
    for name, fragment_ids in covered.items():
        missing = frozenset(live) - fragment_ids
        if missing:
            width = estimated_row_bytes([snapshot.schema.by_id(fields[name])]) + INDEX_ROW_BYTES
            unindexed[name] = len(missing), width * sum(live[id] for id in missing)
    return Condition(int(small.sum()), unindexed)


def bounded_options(snapshot: Snapshot, pass_bytes: int) -> dict[str, Any]:
    """Options of a compaction that touches at most so many bytes. Rows so wide that one task of the usual
    size would be more are joined into smaller fragments.
    """
    options: dict[str, Any] = {"max_source_bytes": pass_bytes}
    chosen = CompactionOptions.of(None, snapshot.manifest.config)
    rows = int(np.asarray(snapshot.fragments.physical_rows).sum())
    total = sum(file.size for fragment in snapshot.fragments for file in fragment.files)
    if rows and total:
        # A task has less than twice the target's rows.
        fitting = max(1, int(pass_bytes * rows / total) // 2)
        if fitting < chosen.target_rows_per_fragment:
            options["target_rows_per_fragment"] = fitting
    return options


StreamSteps = Callable[["Snapshot", Steps], frozenset[str]]
"""Keeps the streams of a table that has any, step by step; gives the names of indices that have to catch up
before more of them can be deleted.
"""


def maintain_once(
    store: Store,
    session: Session,
    limits: Limits = Limits(),
    *,
    root: Store | None = None,
    streams: StreamSteps | None = None,
) -> OptimizeReport:
    """One pass: what is beyond its limit is brought back within it. `streams`: keeps the table's streams,
    before everything else. Raises what opening the table raises; what fails later is in the report.
    """
    before = now = open_latest(store, session)
    done = Steps()
    waited_for: frozenset[str] = frozenset()
    if streams is not None:
        waited_for = streams(before, done)
        now = open_latest(store, session)
    left = limits.pass_bytes
    began = runtime.monotonic()
    try:
        given = bounded_options(now, limits.pass_bytes)
        options = CompactionOptions.of(given, now.manifest.config)
        condition = condition_of(now, options)
        if condition.small > limits.small_files:
            planned = plan_compaction(now, options)
            left -= sum(file.size for task in planned.tasks for each in task.fragments for file in each.files)
    except Exception as error:  # told in the report, as everything that fails below
        done.failed(COMPACTION, error, runtime.monotonic() - began)
        condition = Condition(0)
    else:
        if condition.small > limits.small_files:
            done.run(
                COMPACTION,
                lambda: compact(store, session, given),
                lambda each: (bool(each.metrics.fragments_removed), told_compaction(each)),
            )
        else:
            done.left(
                COMPACTION, f"{counted(condition.small, 'small fragment')} (at most {limits.small_files:,})"
            )
    _indices(store, session, condition, limits, left, waited_for, done)
    policy = expiring(limits.expire_after_seconds)
    done.run(CLEANUP, lambda: clean_up(store, session, policy, root), told_cleanup)
    return done.report(before.version, open_latest(store, session).version)


def _indices(
    store: Store,
    session: Session,
    condition: Condition,
    limits: Limits,
    left: int,
    waited_for: frozenset[str],
    done: Steps,
) -> None:
    beyond = {
        name: each
        for name, each in condition.unindexed.items()
        if each[0] > limits.unindexed or name in waited_for
    }
    if not beyond:
        most = max((count for count, _ in condition.unindexed.values()), default=0)
        done.left(INDICES, f"{counted(most, 'fragment')} not indexed (at most {limits.unindexed:,})")
        return
    chosen: list[str] = []
    for name, (_, nbytes) in sorted(beyond.items(), key=lambda pair: pair[1][1]):
        if nbytes <= left:
            left -= nbytes
            chosen.append(name)
    waiting = sorted(set(beyond) - set(chosen))
    more = f"; {', '.join(waiting)}: more than a pass may touch, run optimize()" if waiting else ""
    if not chosen:
        done.left(INDICES, more[2:])
        return
    done.run(
        INDICES,
        lambda: keep_up_indices(store, session, tuple(chosen)),
        lambda each: (bool(each.updated), told_indices(each) + more),
    )


# -- again and again ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """How a maintainer stands: passes that ended, the report of the last one, or what kept it from beginning,
    and seconds to the next (None while one runs, or when it is stopped).
    """

    running: bool
    passes: int
    last: OptimizeReport | None
    error: Exception | None
    next_in: float | None


class Maintainer:
    """Keeps one table within its limits from a thread of its own, until `stop`. Use it as a block, or call
    `start`.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        limits: Limits = Limits(),
        *,
        interval: float = INTERVAL_SECONDS,
        root: Store | None = None,
        streams: StreamSteps | None = None,
        told: Callable[[OptimizeReport | Exception], None] | None = None,
    ) -> None:
        """`interval`: seconds from the end of a pass to the next. `streams`: see `maintain_once`. `told` gets
        each report, or what kept a pass from beginning; it is called on the maintainer's thread.
        """
        if isinstance(interval, bool) or not isinstance(interval, int | float):
            raise InvalidInput(f"interval is a number of seconds, found {interval!r:.60}")
        if not 0 < interval <= MAX_INTERVAL_SECONDS:
            raise InvalidInput(
                f"interval is a number of seconds up to {MAX_INTERVAL_SECONDS:.0f}, found {interval}"
            )
        self._keeper = Keeper[OptimizeReport](
            lambda: maintain_once(store, session, limits, root=root, streams=streams),
            float(interval),
            "tiltyard-maintainer",
            at_once=True,
            told=told,
        )
        self._uri = store.uri

    def start(self) -> Maintainer:
        """Begin; the first pass at once. Raises `InvalidInput` when it runs already."""
        if self._keeper.running:
            raise InvalidInput(f"the maintainer of {self._uri} runs already")
        self._keeper.start()
        return self

    def stop(self, *, deadline: float | None = None) -> None:
        """End after the pass that runs now. `deadline` (of `runtime.monotonic()`): raises `TimeoutError` when
        it has not ended by then; it still will.
        """
        self._keeper.stop(deadline=deadline)

    def status(self) -> Status:
        """How it stands."""
        keeper = self._keeper
        return Status(keeper.running, keeper.passes, keeper.last, keeper.error, keeper.next_in)

    def run_once(self) -> OptimizeReport:
        """One pass on the calling thread."""
        return self._keeper.once()

    def __enter__(self) -> Maintainer:
        return self if self._keeper.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
