"""The upkeep face of a dataset: few large fragments instead of many small ones, and indices that know every
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.cleaning import AutoCleanupSwitch, age_ns
from tiltyard.dataset.handle import Handle
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.dataset.compaction import CompactionMetrics
    from tiltyard.table.maintain import Limits, Maintainer, StreamSteps
    from tiltyard.table.optimize import OptimizeReport, Steps
    from tiltyard.table.snapshot import Snapshot


class UpkeepFace(Handle):
    """Keeping a table fast."""

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compaction and upkeep of indices."""
        return DatasetOptimizer(self)

    def remap_row_addrs(self, addrs: Any) -> Any:
        """Where rows are now that compactions with deferred index remapping moved: a `pa.Array` of uint64
        addresses, null for rows that are gone. None where the version has no notes of such compactions.
        """
        import numpy as np
        import pyarrow as pa

        from tiltyard.table.fragment_reuse import reuse_of

        reuse = reuse_of(self._snapshot)
        if reuse is None:
            return None
        if not isinstance(addrs, pa.Array | pa.ChunkedArray) or not pa.types.is_integer(addrs.type):
            raise arguments.wrong("addrs", "an Arrow array of row addresses (uint64)", addrs)
        given = addrs.cast(pa.uint64())
        known = np.asarray(given.is_valid())
        values = given.fill_null(0).to_numpy(
            **({} if isinstance(given, pa.ChunkedArray) else {"zero_copy_only": False})
        )
        kept, now = reuse.translate(values)
        found = np.zeros(len(values), np.uint64)
        found[kept] = now
        return pa.array(found, mask=~(kept & known))


class DatasetOptimizer(AutoCleanupSwitch):
    """What `ds.optimize` gives."""

    def __init__(self, dataset: Any) -> None:
        self._handle = dataset

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        defer_index_remap: bool | None = None,
        num_threads: int | None = None,
        batch_size: int | None = None,
        compaction_mode: str | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Iterable[int] | None = None,
        data_storage_version: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionMetrics:
        """Rewrite small fragments, and those with many deleted rows, as few large ones; rows keep their order
        within what is rewritten. Always works on the newest version, commits nothing where there is nothing
        to do, and the dataset then shows the newest version.

        Fragments with fewer than `target_rows_per_fragment` rows (1,048,576) are joined with their
        neighbours; one of which more than `materialize_deletions_threshold` (0.1) is deleted is rewritten by
        itself. New files hold at least the target's rows where there are so many, and end at
        `max_bytes_per_file`. `max_source_fragments`, `max_source_rows` (live) and `max_source_bytes` bound a
        run. `defer_index_remap` leaves indices as they are, with notes of where rows went. What is not given
        comes from the table's config (`lance.compaction.*`). `progress` is called with rows done and rows to
        do.

        What others delete or update meanwhile is carried over. Raises `InvalidInput` and `UnsupportedFeature`
        before anything is written, `TooMuchContention`, and what reading, writing and committing raise; then
        no file is left.
        """
        from tiltyard.dataset.compaction import Compaction

        options: Any = {
            "target_rows_per_fragment": target_rows_per_fragment,
            "max_rows_per_group": max_rows_per_group,
            "max_bytes_per_file": max_bytes_per_file,
            "materialize_deletions": materialize_deletions,
            "materialize_deletions_threshold": materialize_deletions_threshold,
            "defer_index_remap": defer_index_remap,
            "num_threads": num_threads,
            "batch_size": batch_size,
            "compaction_mode": compaction_mode,
            "binary_copy_read_batch_bytes": binary_copy_read_batch_bytes,
            "max_source_fragments": max_source_fragments,
            "max_source_rows": max_source_rows,
            "max_source_bytes": max_source_bytes,
            "excluded_fragment_ids": excluded_fragment_ids,
            "data_storage_version": data_storage_version,
        }
        return Compaction.execute(self._handle, options, progress=progress)

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Iterable[str] | None = None,
        retrain: bool = False,
    ) -> None:
        """Index the rows that no index answers for yet: all indices, or those named.

        The newest `num_indices_to_merge` segments (one by default) become one with the new rows; 0 leaves
        them beside a new one. `retrain` builds an index anew. Indices of kinds that this version does not
        build are left as they are, or refused where they are named. The dataset then shows the newest
        version.
        """
        from tiltyard.dataset.indexing import optimize_indices

        optimize_indices(
            self._handle,
            num_indices_to_merge=num_indices_to_merge,
            index_names=index_names,
            retrain=retrain,
        )


def optimize(
    handle: Handle,
    *,
    older_than: Any,
    retain_versions: int | None,
    progress: Callable[[int, int], None] | None,
    compaction: Any,
) -> OptimizeReport:
    """Compaction, upkeep of indices and cleanup of a dataset's newest version; see `table.optimize`."""
    from tiltyard.table.optimize import optimize as run

    report = run(
        handle._store,
        handle._session,
        compaction=compaction,
        older_than_seconds=age_ns("older_than", older_than) / NS_PER_SECOND,
        retain_versions=arguments.maybe_whole("retain_versions", retain_versions),
        root=handle._root,
        progress=arguments.maybe_function("progress", progress),
    )
    handle._look()
    return report


def maintainer(
    handle: Handle, *, interval: Any, limits: Limits | None = None, told: Any = None
) -> Maintainer:
    """A maintainer of a dataset's table, not started yet."""
    from tiltyard.table.maintain import Limits, Maintainer

    return Maintainer(
        handle._store,
        handle._session,
        Limits() if limits is None else arguments.instance("limits", limits, Limits),
        interval=span_of("interval", interval),
        root=handle._root,
        streams=stream_steps(handle),
        told=told,
    )


def stream_steps(handle: Handle) -> StreamSteps:
    """The steps of a maintainer that keep the table's streams; what they need is loaded where it has any."""
    from tiltyard.table.apply.mem_wal import entry_of

    def steps(before: Snapshot, done: Steps) -> frozenset[str]:
        if entry_of(before.manifest) is None:
            return frozenset()
        from tiltyard.memwal.upkeep import stream_upkeep

        return stream_upkeep(handle, done)

    return steps


def span_of(name: str, value: Any) -> float:
    """Seconds from a number, a `timedelta`, or text such as `"7d"`."""
    if isinstance(value, str):
        from tiltyard.table.cleanup.auto import parse_span

        return parse_span(value) / NS_PER_SECOND
    return arguments.seconds(name, value)
