"""The indexing face of a dataset: indices made, dropped, described and brought up to date.

BTREE is the kind that this version builds. Indices of other kinds are shown, kept by every operation, and
can be dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle, refuse
from tiltyard.dataset.progress import IndexProgress
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.table.indexing import IndexFacts, SegmentFacts
    from tiltyard.table.snapshot import Snapshot

LOAD_STAGE = "load_data"
"""The stage of a build that reads the column, as its progress names it."""


@dataclass(frozen=True)
class IndexSegmentDescription:
    """One segment of an index. `fragment_ids` are the covered fragments, vanished ones included;
    `size_bytes` is None where the table does not say it."""

    uuid: str
    dataset_version_at_last_update: int
    fragment_ids: frozenset[int]
    index_version: int
    created_at: datetime | None
    size_bytes: int | None
    base_id: int | None
    covering_fields: list[int]


@dataclass(frozen=True)
class IndexDescription:
    """One index with its segments. `num_rows_indexed`: live rows of the fragments that it covers."""

    name: str
    type_url: str = field(repr=False)
    index_type: str
    num_rows_indexed: int
    fields: list[int] = field(repr=False)
    field_names: list[str]
    segments: list[IndexSegmentDescription] = field(repr=False)
    details: dict[str, Any] = field(repr=False)
    total_size_bytes: int | None
    num_rows_unindexed: int = 0
    """Live rows that it does not answer for; they are scanned."""

    @property
    def num_segments(self) -> int:
        """How many segments there are."""
        return len(self.segments)

    def __str__(self) -> str:
        rest = f", {counted(self.num_rows_unindexed, 'row')} not indexed" if self.num_rows_unindexed else ""
        told = f"{self.index_type} on {', '.join(self.field_names)}"
        return f"{self.name}: {told}, {counted(self.num_rows_indexed, 'row')} indexed{rest}"

    def __repr__(self) -> str:
        return f"<IndexDescription {self}>"


def describe(snapshot: Snapshot) -> list[IndexDescription]:
    """The indices of a version, by name."""
    if not snapshot.manifest.indices:
        return []
    from tiltyard.table.indexing import indices

    return [_described(facts) for facts in indices(snapshot)]


def _described(facts: IndexFacts) -> IndexDescription:
    return IndexDescription(
        facts.name,
        facts.type_url,
        facts.index_type,
        facts.rows_indexed,
        list(facts.fields),
        list(facts.field_names),
        [_segment(each) for each in facts.segments],
        {},
        facts.size_bytes,
        facts.rows_unindexed,
    )


def _segment(facts: SegmentFacts) -> IndexSegmentDescription:
    return IndexSegmentDescription(
        facts.uuid,
        facts.dataset_version_at_last_update,
        facts.fragment_ids,
        facts.index_version,
        facts.created_at,
        facts.size_bytes,
        facts.base_id,
        list(facts.covering_fields),
    )


class IndexFace(Handle):
    """Indices of a dataset. What changes them is decided on the newest version, which the handle then
    shows."""

    def create_scalar_index(
        self,
        column: str | list[str],
        index_type: Any = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: Iterable[int] | None = None,
        index_uuid: str | None = None,
        progress_callback: Callable[[IndexProgress], None] | None = None,
        format_version: Any = None,
        document_granularity: Any = None,
        **kwargs: Any,
    ) -> None:
        """Build an index on a column, or on a field of structs by dotted path, so that filters, counts,
        deletes and merges on it read only the rows they need.

        `index_type`: `"BTREE"`; others raise `UnsupportedFeature` by name. `name`: `<column>_idx` by default;
        an index of this name on the same column is replaced, or, without `replace`, refused
        (`IndexAlreadyExists`). Without `train` the index stays empty until `optimize.optimize_indices()`.
        `progress_callback` is told how many rows were read. The column holds integers, floats, booleans,
        text, binary, decimals, fixed-size binary, dates, times, timestamps or durations.

        Rows that are added later are found by scanning until the index is brought up to date. Raises
        `FieldNotFound`, `WrongType`, `InvalidInput`, and `TooMuchContention` where other writers kept
        rewriting the data.
        """
        from tiltyard.table.indexing import create_index
        from tiltyard.table.indexing.create import check_kind

        check_kind(getattr(index_type, "index_type", index_type))
        if fragment_ids is not None:
            raise UnsupportedFeature(
                "fragment_ids: an index of some fragments is built uncommitted, which this version of "
                "tiltyard does not do; leave it out to index all fragments"
            )
        refuse(index_uuid=index_uuid, format_version=format_version)
        if kwargs:
            raise InvalidInput(f"a BTREE index takes no argument {sorted(kwargs)[0]!r}")
        train = arguments.flag("train", train)
        callback = arguments.maybe_function("progress_callback", progress_callback)
        told = None if callback is None else _Told(callback)
        after = create_index(
            self._store,
            self._session,
            _one_column(column),
            name=arguments.maybe_text("name", name),
            replace=arguments.flag("replace", replace),
            train=train,
            progress=None if told is None else told.progress,
        )
        if told is not None:
            told.complete()
        self._move(after)

    def create_index(
        self,
        column: str | list[str],
        index_type: Any,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        *arguments_: Any,
        train: bool = True,
        progress_callback: Callable[[IndexProgress], None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Build an index and give this dataset: `create_scalar_index` for `"BTREE"`; vector indices raise
        `UnsupportedFeature` by name."""
        from tiltyard.table.indexing.create import check_kind

        check_kind(getattr(index_type, "index_type", index_type))
        if arguments_ or kwargs:
            given = sorted(kwargs)[0] if kwargs else "num_partitions"
            raise InvalidInput(f"a BTREE index takes no argument {given!r}")
        self.create_scalar_index(
            column, index_type, name, replace=replace, train=train, progress_callback=progress_callback
        )
        return self

    def drop_index(self, name: str) -> None:
        """Drop an index of any kind by name; its files stay for the versions that use it. Raises
        `IndexNotFound`."""
        from tiltyard.table.indexing import drop_index

        self._move(drop_index(self._store, self._session, arguments.text("name", name)))

    def describe_indices(self) -> list[IndexDescription]:
        """The indices, by name, each with its segments."""
        return describe(self._snapshot)

    def list_indices(self) -> list[dict[str, Any]]:
        """One dict per segment: name, type, uuid, fields, version, fragment_ids, base_id. Deprecated."""
        _deprecated("list_indices", "describe_indices()")
        return [
            {
                "name": each.name,
                "type": each.index_type,
                "uuid": segment.uuid,
                "fields": each.field_names,
                "version": segment.dataset_version_at_last_update,
                "fragment_ids": segment.fragment_ids,
                "base_id": segment.base_id,
            }
            for each in self.describe_indices()
            for segment in each.segments
        ]

    @property
    def has_index(self) -> bool:
        """Whether there is an index of any kind."""
        return any(not entry.is_system for entry in self._snapshot.manifest.indices)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """`stats.index_stats`. Deprecated."""
        _deprecated("index_statistics", "stats.index_stats()")
        return statistics(self._snapshot, index_name)

    def prewarm_index(
        self, name: str, *, with_position: bool = False, index_segments: Iterable[Any] | None = None
    ) -> None:
        """Read an index, or those of its segments whose uuids are given, into the session's cache."""
        from tiltyard.table.indexing import prewarm

        refuse(with_position=with_position)
        uuids = None
        if index_segments is not None:
            uuids = [str(each) for each in arguments.items("index_segments", index_segments, object)]
        prewarm(self._snapshot, arguments.text("name", name), uuids)


class _Told:
    """Tells a callback how far a build is."""

    def __init__(self, callback: Callable[[IndexProgress], None]) -> None:
        self._callback = callback
        self._rows = 0
        self._begun = False

    def progress(self, rows: int, total: int) -> None:
        """`rows` of `total` were read."""
        if not self._begun:
            self._begun = True
            self._callback(IndexProgress("start", LOAD_STAGE, 0, total, "rows"))
        if rows != self._rows:
            self._rows = rows
            self._callback(IndexProgress("progress", LOAD_STAGE, rows, total, "rows"))

    def complete(self) -> None:
        """The index is there."""
        self._callback(IndexProgress("complete", LOAD_STAGE, self._rows, self._rows, "rows"))


def _one_column(column: Any) -> str:
    if isinstance(column, (list, tuple)):
        if len(column) != 1:
            raise UnsupportedFeature(f"a BTREE index is on one column, found {len(column)}")
        column = column[0]
    return arguments.text("column", column)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"{name}() is deprecated; use {instead}", DeprecationWarning, stacklevel=3)


def statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """What there is to say about an index; see `table.indexing.index_statistics`."""
    from tiltyard.table.indexing import index_statistics

    return index_statistics(snapshot, arguments.text("index_name", name))


def optimize_indices(
    handle: Handle,
    *,
    num_indices_to_merge: int | None = None,
    index_names: Iterable[str] | None = None,
    retrain: bool = False,
) -> None:
    """`optimize.optimize_indices`: index what no index answers for yet; see
    `table.indexing.optimize_once`."""
    from tiltyard.table.indexing import optimize_indices as run

    done = run(
        handle._store,
        handle._session,
        names=None if index_names is None else arguments.texts("index_names", index_names),
        num_indices_to_merge=arguments.maybe_whole("num_indices_to_merge", num_indices_to_merge),
        retrain=arguments.flag("retrain", retrain),
    )
    handle._move(done.snapshot)
