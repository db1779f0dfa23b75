"""Every wrong argument of merges, updates, indices, compaction and searches is told as `InvalidInput`, and
changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard
import tiltyard.lance as lance
from tiltyard.errors import InvalidInput
from tiltyard.lance.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from wrong_arguments import FAST, Case, refused

DATA = pa.table(
    {
        "a": pa.array(range(20)),
        "s": [f"x{i}" for i in range(20)],
        "v": pa.array([[i, 1] for i in range(20)], pa.list_(pa.float32(), 2)),
    }
)
SOURCE = DATA.slice(15).select(["a", "s"])


def _merge(path: str) -> Any:
    return lance.dataset(path).merge_insert("a").when_matched_update_all()


def _merging() -> Iterator[Case]:
    def said(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: getattr(_merge(path), name)(junk).execute(SOURCE)

    def executed(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: _merge(path).execute(**{"data_obj": SOURCE, name: junk})

    yield "merge_insert", lambda path, junk: lance.dataset(path).merge_insert(junk), "set"
    yield "when_matched_update_all", said("when_matched_update_all"), ""
    yield "when_matched_update", said("when_matched_update"), ""
    yield (
        "when_matched_update(condition)",
        lambda path, junk: _merge(path).when_matched_update({"s": "source.s"}, junk).execute(SOURCE),
        "",
    )
    yield "by_source_delete", said("when_not_matched_by_source_delete"), ""
    yield "source_dedupe_behavior", said("source_dedupe_behavior"), ""
    yield "conflict_retries", said("conflict_retries"), "int, huge"
    yield "retry_timeout", said("retry_timeout"), "int, float, huge"
    yield "use_index", said("use_index"), "true"
    yield "write_mode", said("write_mode"), ""
    yield "data_storage_version", said("data_storage_version"), ""
    yield "mark_sstables_as_compacted", said("mark_sstables_as_compacted"), "nothing"
    yield "execute", executed("data_obj"), "nothing"
    yield "execute(schema)", executed("schema"), ""
    yield "execute(commit_message)", executed("commit_message"), "text, empty"
    yield "execute(transaction_properties)", executed("transaction_properties"), ""
    yield "explain_plan", lambda path, junk: _merge(path).explain_plan(junk), ""
    yield "explain_plan(verbose)", lambda path, junk: _merge(path).explain_plan(verbose=junk), "true"
    yield "dedupe", lambda path, junk: lance.dataset(path).dedupe(junk), "set"
    yield "dedupe(keep)", lambda path, junk: lance.dataset(path).dedupe("a", keep=junk), ""
    yield "duplicate_keys", lambda path, junk: lance.dataset(path).duplicate_keys(junk), "set"
    yield "update", lambda path, junk: lance.dataset(path).update(junk), ""
    yield "update(where)", lambda path, junk: lance.dataset(path).update({"s": "'z'"}, junk), ""
    for name, taken in (("conflict_retries", "int, huge"), ("retry_timeout", "int, float, huge")):
        yield f"update({name})", _update(name), taken


def _update(name: str) -> Callable[[str, Any], Any]:
    return lambda path, junk: lance.dataset(path).update({"s": "'z'"}, "a = 1", **{name: junk})


def _indexing() -> Iterator[Case]:
    def built(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path).create_scalar_index("a", **{name: junk})

    def extended(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path).optimize.optimize_indices(**{name: junk})

    yield "create_scalar_index", lambda path, junk: lance.dataset(path).create_scalar_index(junk), ""
    yield "create_scalar_index(index_type)", built("index_type"), ""
    yield "create_scalar_index(name)", built("name"), "text"
    yield "create_scalar_index(replace)", built("replace"), "true"
    yield "create_scalar_index(train)", built("train"), "true"
    yield "create_scalar_index(progress_callback)", built("progress_callback"), "class"
    yield "drop_index", lambda path, junk: lance.dataset(path).drop_index(junk), "text, empty"
    yield "prewarm_index", lambda path, junk: lance.dataset(path).prewarm_index(junk), "text, empty"
    yield (
        "prewarm_index(index_segments)",
        lambda path, junk: lance.dataset(path).prewarm_index("a_idx", index_segments=junk),
        "list, nested, pair, nothing, set, array",
    )
    yield "index_stats", lambda path, junk: lance.dataset(path).stats.index_stats(junk), "text, empty"
    yield "optimize_indices(num_indices_to_merge)", extended("num_indices_to_merge"), "int"
    yield "optimize_indices(index_names)", extended("index_names"), "nothing, set"
    yield "optimize_indices(retrain)", extended("retrain"), "true"


WHOLE = (
    "target_rows_per_fragment",
    "max_rows_per_group",
    "max_bytes_per_file",
    "num_threads",
    "batch_size",
    "binary_copy_read_batch_bytes",
    "max_source_fragments",
    "max_source_rows",
    "max_source_bytes",
)


def _compacting() -> Iterator[Case]:
    def compact(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path).optimize.compact_files(**{name: junk})

    for name in WHOLE:
        yield f"compact_files({name})", compact(name), "int"
    for name in ("materialize_deletions", "defer_index_remap"):
        yield f"compact_files({name})", compact(name), "true"
    yield "compact_files(threshold)", compact("materialize_deletions_threshold"), ""
    yield "compact_files(compaction_mode)", compact("compaction_mode"), ""
    yield "compact_files(data_storage_version)", compact("data_storage_version"), ""
    yield "compact_files(excluded)", compact("excluded_fragment_ids"), "pair, nothing, array, numbers"
    yield "compact_files(progress)", compact("progress"), "class"
    yield "Compaction.plan", lambda path, junk: Compaction.plan(junk), ""
    yield "Compaction.plan(options)", lambda path, junk: Compaction.plan(lance.dataset(path), junk), ""
    yield "Compaction.commit", lambda path, junk: Compaction.commit(lance.dataset(path), junk), "nothing"
    for each in (CompactionPlan, CompactionTask, RewriteResult):
        yield f"{each.__name__}.from_json", _loaded(each), ""
    yield (
        "Table.optimize(progress)",
        lambda path, junk: tiltyard.open_table(path).optimize(progress=junk),
        "class",
    )
    yield (
        "Table.optimize(older_than)",
        lambda path, junk: tiltyard.open_table(path).optimize(older_than=junk),
        "",
    )


def _loaded(kind: Any) -> Callable[[str, Any], Any]:
    return lambda path, junk: kind.from_json(junk)


def _searching() -> Iterator[Case]:
    def near(name: str) -> Callable[[str, Any], Any]:
        known = {"column": "v", "q": [1.0, 2.0]}
        return lambda path, junk: lance.dataset(path).to_table(nearest={**known, name: junk})

    yield "nearest", lambda path, junk: lance.dataset(path).to_table(nearest=junk), ""
    yield "nearest(column)", near("column"), ""
    yield "nearest(q)", near("q"), "pair, array"
    yield "nearest(k)", near("k"), "int"
    yield "nearest(metric)", near("metric"), ""
    yield "nearest(distance_range)", near("distance_range"), "pair, array"
    yield "nearest(use_index)", near("use_index"), "true"
    yield "nearest(nprobes)", near("nprobes"), "int"
    yield "nearest(unknown)", near("unknown"), ""


CASES = [*_merging(), *_indexing(), *_compacting(), *_searching()]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of three fragments and an index, which no test here changes."""
    place = str(tmp_path_factory.mktemp("junk") / "t.lance")
    lance.write_dataset(DATA, place, max_rows_per_file=7, storage_options=FAST)
    lance.dataset(place).create_scalar_index("a")
    return place


@pytest.mark.parametrize(("call", "takes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_wrong_argument_is_told_and_changes_nothing(
    path: str, call: Callable[[str, Any], Any], takes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(path, call, takes)


@pytest.mark.parametrize("asof", [datetime.min, datetime.max])
def test_a_time_at_the_end_of_the_calendar_is_answered(path: str, asof: datetime) -> None:
    if asof == datetime.max:
        assert lance.dataset(path, asof=asof).version == 2
    else:
        with pytest.raises(InvalidInput, match="asof"):
            lance.dataset(path, asof=asof)
