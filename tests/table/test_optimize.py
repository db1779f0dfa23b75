"""optimize() and the maintainer: steps that stand alone, a report of each, stated limits."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer
from tiltyard import runtime
from tiltyard.errors import InvalidInput, StoreError, TableNotFound
from tiltyard.table.maintain import Limits, Maintainer, bounded_options, maintain_once
from tiltyard.table.optimize import CLEANUP, COMPACTION, INDICES, OptimizeReport

optimize_module = importlib.import_module("tiltyard.table.optimize")
maintain_module = importlib.import_module("tiltyard.table.maintain")


def make(path: Path, fragments: int = 6, rows: int = 10) -> ty.Table:
    for number in range(fragments):
        data = pa.table({"id": range(rows * number, rows * number + rows), "v": ["x" * 20] * rows})
        lance.write_dataset(data, path, mode="append" if number else "create")
    return ty.open_table(str(path))


def summaries(report: OptimizeReport) -> dict[str, str]:
    return {step.name: step.summary for step in report.steps}


def test_everything_at_once_and_what_was_done_is_said(tmp_path: Path, peer: Peer) -> None:
    table = make(tmp_path)
    table.create_index("id")
    table.append({"id": [100], "v": ["y"]})
    table.delete("id = 5")
    report = table.optimize(older_than="0s")
    assert report.ok
    said = summaries(report)
    assert said[COMPACTION].startswith("7 fragments became 2") or said[COMPACTION].startswith("6 fragments")
    assert said[INDICES] == "id_idx brought up to date; run again: 2 fragments can be joined now"
    assert "versions and" in said[CLEANUP]
    assert report.after == table.version
    assert [each["version"] for each in table.history()] == [table.version]
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(set(range(60)) - {5} | {100})
    assert peer("lance.dataset(p).count_rows('id > 50')", p=str(tmp_path)) == 10
    again = table.optimize(older_than="0s")
    assert again.ok
    assert summaries(again)[COMPACTION].startswith("2 fragments became 1")
    assert "run again" not in str(again)
    assert str(again).count("\n") == 3


def test_a_step_that_fails_does_not_keep_the_others_from_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path)
    table.create_index("id")
    table.append({"id": [100], "v": ["y"]})

    def full(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is full")

    monkeypatch.setattr(optimize_module, "compact", full)
    report = table.optimize(older_than="0s")
    assert not report.ok
    assert [step.name for step in report.failed] == [COMPACTION]
    assert isinstance(report.failed[0].error, StoreError)
    assert "failed: StoreError: the disk is full" in str(report)
    assert summaries(report)[INDICES] == "id_idx brought up to date"
    assert len(table.history()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"older_than": -1},
        {"older_than": "soon"},
        {"retain_versions": -1},
        {"target_rows_per_fragment": 0},
        {"no_such_option": 1},
    ],
)
def test_bad_options_are_refused_before_anything_is_done(tmp_path: Path, options: dict[str, Any]) -> None:
    table = make(tmp_path, 2)
    with pytest.raises(InvalidInput):
        table.optimize(**options)
    assert table.version == 2


def test_optimize_through_a_version_that_is_only_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="optimize is refused"):
        make(tmp_path, 2).at(version=1).optimize()


def test_a_pass_leaves_alone_what_is_within_the_limits(tmp_path: Path) -> None:
    table = make(tmp_path, 5)
    ds = table.dataset
    report = maintain_once(ds._store, ds._session, Limits(small_files=5))
    assert report.before == report.after == 5
    assert summaries(report) == {
        COMPACTION: "5 small fragments (at most 5)",
        INDICES: "0 fragments not indexed (at most 20)",
        CLEANUP: "nothing to remove",
    }


def test_a_pass_brings_back_within_limits_what_is_beyond(tmp_path: Path) -> None:
    table = make(tmp_path, 5)
    table.create_index("id")
    for number in range(4):
        table.append({"id": [100 + number], "v": ["y"]})
    ds = table.dataset
    limits = Limits(small_files=8, unindexed=0, expire_after_seconds=0)
    report = maintain_once(ds._store, ds._session, limits)
    assert report.ok
    assert [step.changed for step in report.steps] == [True, True, True]
    assert len(table.dataset.get_fragments()) == 2
    assert len(table.history()) == 1


def test_a_pass_touches_no_more_bytes_than_allowed_and_the_next_goes_on(tmp_path: Path) -> None:
    table = make(tmp_path, 12, rows=50)
    sizes = [f.data_files()[0].file_size_bytes or 0 for f in table.dataset.get_fragments()]
    limits = Limits(small_files=1, pass_bytes=4 * max(sizes))
    options = bounded_options(table.dataset._snapshot, limits.pass_bytes)
    assert options["max_source_bytes"] == limits.pass_bytes
    assert options["target_rows_per_fragment"] <= 100
    left = [12]
    for _ in range(6):
        ds = table.dataset
        before = {f.fragment_id: f.data_files()[0].file_size_bytes or 0 for f in ds.get_fragments()}
        report = maintain_once(ds._store, ds._session, limits)
        assert report.ok
        after = {f.fragment_id for f in table.dataset.get_fragments()}
        assert sum(size for id, size in before.items() if id not in after) <= limits.pass_bytes
        left.append(len(after))
    assert left[-1] < 7
    assert left == sorted(left, reverse=True)
    assert table.to_arrow()["id"].to_pylist() == list(range(600)) or sorted(
        table.to_arrow()["id"].to_pylist()
    ) == list(range(600))


def test_an_index_that_takes_more_than_a_pass_may_touch_waits(tmp_path: Path) -> None:
    table = make(tmp_path, 2)
    table.create_index("id")
    table.append({"id": range(100, 1000), "v": ["y"] * 900})
    ds = table.dataset
    report = maintain_once(ds._store, ds._session, Limits(unindexed=0, pass_bytes=1000))
    assert report.ok
    assert summaries(report)[INDICES] == "id_idx: more than a pass may touch, run optimize()"


def test_the_maintainer_works_until_it_is_stopped(tmp_path: Path) -> None:
    table = make(tmp_path, 5)
    with table.maintain(interval=0.05, limits=Limits(small_files=2)) as keeper:
        end = runtime.monotonic() + 60
        while keeper.status().passes < 2 and runtime.monotonic() < end:
            runtime.sleep(0.01)
        status = keeper.status()
        assert status.running
        assert status.passes >= 2
        assert status.error is None
        with pytest.raises(InvalidInput, match="runs already"):
            keeper.start()
    assert not keeper.status().running
    assert keeper.status().next_in is None
    assert len(table.dataset.get_fragments()) == 1
    keeper.start()
    keeper.stop()


def test_a_table_that_cannot_be_opened_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = make(tmp_path, 2).dataset
    real, tries = maintain_module.open_latest, []

    def missing(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise TableNotFound("no table here")
        return real(*arguments)

    monkeypatch.setattr(maintain_module, "open_latest", missing)
    told: list[Any] = []
    keeper = Maintainer(ds._store, ds._session, interval=0.01, told=told.append).start()
    end = runtime.monotonic() + 60
    while not any(isinstance(each, OptimizeReport) for each in told) and runtime.monotonic() < end:
        runtime.sleep(0.01)
    keeper.stop()
    assert [type(each) for each in told[:3]] == [TableNotFound, TableNotFound, OptimizeReport]
    assert keeper.status().error is None


@pytest.mark.parametrize(
    "make_it",
    [
        lambda: Limits(small_files=-1),
        lambda: Limits(unindexed=True),
        lambda: Limits(pass_bytes=0),
        lambda: Limits(expire_after_seconds=-1),
        lambda: Limits(expire_after_seconds=float("nan")),
        lambda: Maintainer(None, None, interval=0),  # type: ignore[arg-type]
        lambda: Maintainer(None, None, interval=float("inf")),  # type: ignore[arg-type]
        lambda: Maintainer(None, None, interval="1"),  # type: ignore[arg-type]
    ],
)
def test_limits_out_of_range_are_refused(make_it: Any) -> None:
    with pytest.raises(InvalidInput):
        make_it()


def test_upkeep_remaps_what_a_deferred_compaction_left(tmp_path: Path, peer: Peer) -> None:
    table = make(tmp_path)
    table.create_index("id")
    table.dataset.optimize.compact_files(defer_index_remap=True)
    report = table.optimize()
    assert summaries(report)[INDICES] == "id_idx brought up to date"
    names = [each.name for each in table.dataset.describe_indices()]
    assert names == ["id_idx"]
    assert peer("[i['name'] for i in lance.dataset(p).list_indices()]", p=str(tmp_path)) == ["id_idx"]
    assert peer("lance.dataset(p).to_table(filter='id = 33')['id'].to_pylist()", p=str(tmp_path)) == [33]
    assert table.scan(where="id = 33").to_arrow()["id"].to_pylist() == [33]
    assert summaries(table.optimize())[INDICES] == "up to date"
