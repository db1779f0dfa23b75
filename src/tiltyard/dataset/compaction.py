"""Compaction as callers hold it: plans, tasks and results that can be sent to other processes, and the JSON
forms of the official package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.dataset.metadata import FragmentMetadata
from tiltyard.errors import InvalidInput
from tiltyard.table import compact as table_compact
from tiltyard.table.compact import CompactionOptions as Options
from tiltyard.table.compact import Metrics, Rewritten, Task

_OPTIONS = frozenset(each.name for each in fields(Options))


class CompactionOptions(TypedDict, total=False):
    """Options of a compaction; see `tiltyard.table.compact.CompactionOptions`."""

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    io_buffer_size: int | None
    compaction_mode: str | None
    binary_copy_read_batch_bytes: int | None
    defer_index_remap: bool | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: list[int] | None
    data_storage_version: str | None


@dataclass(frozen=True)
class CompactionMetrics:
    """Fragments and files (data and deletion files) that went and came."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    @classmethod
    def _of(cls, fact: Metrics) -> CompactionMetrics:
        return cls(fact.fragments_removed, fact.fragments_added, fact.files_removed, fact.files_added)


@dataclass(frozen=True)
class RewriteResult:
    """Fragments of a version and the new ones with their live rows, not committed yet."""

    read_version: int
    original_fragments: list[FragmentMetadata]
    new_fragments: list[FragmentMetadata]

    def __repr__(self) -> str:
        return (
            f"RewriteResult(read_version={self.read_version}, new_fragments={self.new_fragments}, "
            f"old_fragments={self.original_fragments})"
        )

    @property
    def old_fragments(self) -> list[FragmentMetadata]:
        """The same as `original_fragments`."""
        return self.original_fragments

    @property
    def metrics(self) -> CompactionMetrics:
        """What a commit of it removes and adds."""
        return CompactionMetrics._of(self._fact().metrics)

    def json(self) -> str:
        """Its JSON form; `from_json` reads it back."""
        return json.dumps(
            {
                "metrics": vars(self.metrics),
                "new_fragments": [each.to_json() for each in self.new_fragments],
                "read_version": self.read_version,
                "original_fragments": [each.to_json() for each in self.original_fragments],
                "row_addrs": None,
            }
        )

    @staticmethod
    def from_json(json: str) -> RewriteResult:
        """A result from its JSON form. Raises `InvalidInput`."""
        value = _loaded(json, "a rewrite result", "read_version", "original_fragments", "new_fragments")
        return RewriteResult(
            arguments.whole("read_version", value["read_version"]),
            _fragments(value["original_fragments"]),
            _fragments(value["new_fragments"]),
        )

    def __reduce__(self) -> Any:
        return RewriteResult.from_json, (self.json(),)

    def _fact(self) -> Rewritten:
        return Rewritten(
            arguments.whole("read_version", self.read_version),
            tuple(each.to_fragment() for each in self.original_fragments),
            tuple(each.to_fragment() for each in self.new_fragments),
        )

    @classmethod
    def _of(cls, fact: Rewritten) -> RewriteResult:
        return cls(fact.read_version, _shown(fact.old), _shown(fact.new))


@dataclass(frozen=True)
class CompactionTask:
    """Fragments of one version that are rewritten together. Send it anywhere, `execute` it there, and hand
    the result to `Compaction.commit`.
    """

    read_version: int
    fragments: list[FragmentMetadata]
    _options: Options

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"

    def execute(self, dataset: Any) -> RewriteResult:
        """Rewrite the fragments as they were at `read_version`; commits nothing. Raises `RetryableConflict`
        when that version is gone, and what reading and writing raise; then no file is left.
        """
        handle = arguments.instance("dataset", dataset, Handle)
        task = Task(self.read_version, tuple(each.to_fragment() for each in self.fragments), self._options)
        return RewriteResult._of(table_compact.execute(handle._snapshot, task))

    def json(self) -> str:
        """Its JSON form; `from_json` reads it back."""
        task = {"fragments": [each.to_json() for each in self.fragments]}
        options = _listed(self._options)
        return json.dumps({"task": task, "read_version": self.read_version, "options": options})

    @staticmethod
    def from_json(json: str) -> CompactionTask:
        """A task from its JSON form. Raises `InvalidInput`."""
        value = _loaded(json, "a compaction task", "task", "read_version", "options")
        task = arguments.mapping("task", value["task"])
        return CompactionTask(
            arguments.whole("read_version", value["read_version"]),
            _fragments(task.get("fragments")),
            _options(value["options"]),
        )

    def __reduce__(self) -> Any:
        return CompactionTask.from_json, (self.json(),)


@dataclass(frozen=True)
class CompactionPlan:
    """What a compaction of one version would do."""

    read_version: int
    tasks: list[CompactionTask]
    _options: Options
    _held: tuple[table_compact.Held, ...] = ()

    def __repr__(self) -> str:
        return f"CompactionPlan(read_version={self.read_version}, tasks=<{len(self.tasks)} compaction tasks>)"

    def num_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    def held_back(self) -> dict[str, int]:
        """By index: how many fragments would be compacted but for that index, which could not follow."""
        return {each.index: each.fragments for each in self._held}

    def json(self) -> str:
        """Its JSON form; `from_json` reads it back."""
        return json.dumps(
            {
                "tasks": [{"fragments": [each.to_json() for each in task.fragments]} for task in self.tasks],
                "read_version": self.read_version,
                "options": _listed(self._options),
            }
        )

    @staticmethod
    def from_json(json: str) -> CompactionPlan:
        """A plan from its JSON form. Raises `InvalidInput`."""
        value = _loaded(json, "a compaction plan", "tasks", "read_version", "options")
        read_version = arguments.whole("read_version", value["read_version"])
        options = _options(value["options"])
        tasks = [
            CompactionTask(read_version, _fragments(task.get("fragments")), options)
            for task in arguments.items("tasks", value["tasks"], dict)
        ]
        return CompactionPlan(read_version, tasks, options)

    def __reduce__(self) -> Any:
        return CompactionPlan.from_json, (self.json(),)


class Compaction:
    """Compaction in steps, for work that is spread over processes: `plan`, `CompactionTask.execute`,
    `commit`; or all at once with `execute`.
    """

    @staticmethod
    def plan(dataset: Any, options: CompactionOptions | None = None) -> CompactionPlan:
        """Plan on the version that the dataset shows. Raises `InvalidInput` and `UnsupportedFeature`."""
        snapshot = arguments.instance("dataset", dataset, Handle)._snapshot
        chosen = Options.of(_mapping(options), snapshot.manifest.config)
        plan = table_compact.plan_compaction(snapshot, chosen)
        tasks = [CompactionTask(plan.read_version, _shown(task.fragments), chosen) for task in plan.tasks]
        return CompactionPlan(plan.read_version, tasks, chosen, plan.held)

    @staticmethod
    def commit(
        dataset: Any, rewrites: Iterable[RewriteResult], options: CompactionOptions | None = None
    ) -> CompactionMetrics:
        """Commit results of tasks together; the dataset then shows the new version.

        What others deleted meanwhile stays deleted. Raises `RetryableConflict` where others rewrote the same
        fragments: nothing is committed then, and the new files are gone.
        """
        handle = arguments.instance("dataset", dataset, Handle)
        chosen = Options.of(_mapping(options), handle._snapshot.manifest.config)
        facts = [each._fact() for each in arguments.items("rewrites", rewrites, RewriteResult)]
        done = table_compact.commit_rewrites(
            handle._store, handle._session, facts, defer_index_remap=chosen.defer_index_remap
        )
        handle._move(done.snapshot)
        return CompactionMetrics._of(done.metrics)

    @staticmethod
    def execute(
        dataset: Any, options: CompactionOptions | None = None, *, progress: Any = None
    ) -> CompactionMetrics:
        """Compact the newest version, whatever the dataset shows; it then shows the version made."""
        handle = arguments.instance("dataset", dataset, Handle)
        progress = arguments.maybe_function("progress", progress)
        done = table_compact.compact(handle._store, handle._session, _mapping(options), progress=progress)
        handle._move(done.snapshot)
        return CompactionMetrics._of(done.metrics)


def _mapping(options: Any) -> dict[str, Any]:
    return {} if options is None else arguments.mapping("options", options)


def _shown(found: Iterable[Any]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_fragment(each) for each in found]


def _fragments(value: Any) -> list[FragmentMetadata]:
    if not isinstance(value, list):
        raise InvalidInput("this is not the JSON form of a compaction: it has no list of fragments")
    return [FragmentMetadata.from_json(each) for each in value]


def _listed(options: Options) -> dict[str, Any]:
    return {**options.given(), "excluded_fragment_ids": list(options.excluded_fragment_ids)}


def _options(value: Any) -> Options:
    """Options from their JSON form; what another implementation adds is left out."""
    given: Mapping[str, Any] = arguments.mapping("options", value)
    return Options.of({name: each for name, each in given.items() if name in _OPTIONS})


def _loaded(data: Any, what: str, *names: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"this is not the JSON form of {what}: {error}") from error
    if not isinstance(value, dict) or any(name not in value for name in names):
        raise InvalidInput(f"this is not the JSON form of {what}, which has {', '.join(names)}")
    return value
