"""Planning a compaction: the bins of the official writer, the options, and what is refused before a write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, UnsupportedFeature, WrongType
from tiltyard.lance.optimize import Compaction, CompactionPlan, CompactionTask
from tiltyard.table.compact import CompactionOptions
from tiltyard.table.compact.execute import file_rows
from tiltyard.table.compact.plan import FragmentFacts, choose


def facts(
    physical: list[int],
    deleted: list[int] | None = None,
    covered_by: list[Any] | None = None,
    nbytes: list[int] | None = None,
) -> FragmentFacts:
    count = len(physical)
    return FragmentFacts(
        np.arange(count, dtype=np.int64),
        np.array(physical, np.int64),
        np.array(deleted or [0] * count, np.int64),
        np.array(nbytes or [0] * count, np.int64),
        covered_by or [()] * count,
        np.ones(count, np.bool_),
    )


def table(path: Path, sizes: list[int]) -> None:
    for number, rows in enumerate(sizes):
        lance.write_dataset(
            pa.table({"a": np.arange(rows), "f": np.full(rows, number)}),
            path,
            mode="append" if number else "create",
        )


def chosen(given_facts: FragmentFacts, **options: Any) -> list[list[int]]:
    return choose(given_facts, CompactionOptions.of(options))


def test_bins_are_cut_as_soon_as_they_have_the_target_rows() -> None:
    """The example of the transactions pack, section 10."""
    assert chosen(facts([10] * 10), target_rows_per_fragment=25) == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_a_fragment_that_lost_many_rows_is_rewritten_by_itself() -> None:
    lost = facts([10] * 4, deleted=[0, 2, 1, 0])
    assert chosen(lost, target_rows_per_fragment=10) == [[1]]
    assert chosen(lost, target_rows_per_fragment=10, materialize_deletions=False) == []
    assert chosen(lost, target_rows_per_fragment=10, materialize_deletions_threshold=0.05) == [[1, 2]]


def test_fragments_of_other_indices_and_excluded_ones_are_boundaries() -> None:
    mixed = facts([10] * 6, covered_by=["x", "x", "x", "y", "y", "y"])
    assert chosen(mixed) == [[0, 1, 2], [3, 4, 5]]
    assert chosen(facts([10] * 6), excluded_fragment_ids=[2, 99]) == [[0, 1], [3, 4, 5]]
    assert chosen(facts([10] * 3), excluded_fragment_ids=[1]) == []


def test_bounds_of_a_run_take_the_first_tasks_that_fit() -> None:
    many = facts([10] * 8, nbytes=[100] * 8)
    assert len(chosen(many, target_rows_per_fragment=20)) == 4
    assert len(chosen(many, target_rows_per_fragment=20, max_source_fragments=5)) == 2
    assert len(chosen(many, target_rows_per_fragment=20, max_source_rows=60)) == 3
    assert len(chosen(many, target_rows_per_fragment=20, max_source_bytes=399)) == 1
    assert chosen(many, target_rows_per_fragment=20, max_source_fragments=1) == []


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 60),
    st.lists(st.integers(0, 11), max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_a_plan_keeps_the_order_and_takes_no_fragment_twice(
    sizes: list[int], target: int, excluded: list[int]
) -> None:
    tasks = chosen(facts(sizes), target_rows_per_fragment=target, excluded_fragment_ids=excluded)
    flat = [at for task in tasks for at in task]
    assert flat == sorted(set(flat))
    for task in tasks:
        assert task == list(range(task[0], task[-1] + 1))
        assert not set(task) & set(excluded)
        assert all(sizes[at] < target for at in task)
        assert len(task) > 1
    assert all(sum(sizes[at] for at in task) >= target for task in tasks[:-1]) or excluded or len(tasks) < 2


@given(st.integers(0, 10_000), st.integers(1, 500))
@settings(max_examples=50, deadline=None)
def test_rows_are_spread_evenly_over_files_of_the_target(rows: int, target: int) -> None:
    spread = file_rows(rows, target)
    sizes = [size for count, size in spread for _ in range(count)]
    assert sum(sizes) == rows
    if rows:
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= min(target, rows)
        assert sizes == sorted(sizes, reverse=True)


def test_plans_are_those_of_the_official_writer(tmp_path: Path, peer: Peer) -> None:
    """Random tables, deletions, indices and options, planned by both."""
    random = np.random.default_rng(7)
    for case in range(12):
        path = tmp_path / str(case)
        sizes = random.integers(1, 30, random.integers(2, 14)).tolist()
        table(path, sizes)
        if case % 2:
            lance.dataset(path).delete(f"a % {int(random.integers(3, 12))} = 1")
        if case % 3 == 0:
            peer("lance.dataset(p).create_scalar_index('a', 'BTREE')", p=str(path))
            table_more = pa.table({"a": np.arange(5), "f": np.full(5, 99)})
            for _ in range(3):
                lance.write_dataset(table_more, path, mode="append")
        for _ in range(4):
            options: dict[str, Any] = {"target_rows_per_fragment": int(random.integers(1, 60))}
            if random.random() < 0.3:
                options["materialize_deletions_threshold"] = float(random.choice([0.0, 0.05, 0.3, 1.0]))
            if random.random() < 0.3:
                options["excluded_fragment_ids"] = random.integers(0, 12, 2).tolist()
            if random.random() < 0.3:
                options["max_source_fragments"] = int(random.integers(1, 9))
            if random.random() < 0.3:
                options["max_source_rows"] = int(random.integers(1, 90))
            if random.random() < 0.3:
                options["max_source_bytes"] = int(random.integers(400, 6000))
            ours = [
                [each.id for each in task.fragments]
                for task in Compaction.plan(lance.dataset(path), options).tasks  # type: ignore[arg-type]
            ]
            theirs = peer(
                "import lance.optimize\n"
                "plan = lance.optimize.Compaction.plan(lance.dataset(p), o)\n"
                "result = [[f.id for f in t.fragments] for t in plan.tasks]",
                p=str(path),
                o=options,
            )
            assert ours == theirs, (sizes, options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"target_rows_per_fragment": 0}, InvalidInput),
        ({"target_rows_per_fragment": -1}, InvalidInput),
        ({"target_rows_per_fragment": 2.5}, WrongType),
        ({"target_rows_per_fragment": True}, WrongType),
        ({"max_rows_per_group": 0}, InvalidInput),
        ({"max_bytes_per_file": 0}, InvalidInput),
        ({"materialize_deletions": "no"}, WrongType),
        ({"materialize_deletions_threshold": 1.5}, InvalidInput),
        ({"materialize_deletions_threshold": -0.1}, InvalidInput),
        ({"materialize_deletions_threshold": float("nan")}, InvalidInput),
        ({"num_threads": 0}, InvalidInput),
        ({"batch_size": 0}, InvalidInput),
        ({"compaction_mode": "fast"}, InvalidInput),
        ({"compaction_mode": "force_binary_copy"}, UnsupportedFeature),
        ({"max_source_fragments": 0}, InvalidInput),
        ({"max_source_rows": 0}, InvalidInput),
        ({"max_source_bytes": 0}, InvalidInput),
        ({"excluded_fragment_ids": "12"}, WrongType),
        ({"excluded_fragment_ids": [-1]}, InvalidInput),
        ({"data_storage_version": "9"}, UnsupportedFeature),
        ({"data_storage_version": "2.0"}, UnsupportedFeature),
    ],
)
def test_options_out_of_range_are_refused_before_a_file_is_written(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    """Case D12 for compaction: named, with what was found; nothing changes."""
    table(tmp_path, [3, 3])
    before = sorted(each for each in tmp_path.rglob("*") if each.is_file())
    with pytest.raises(error):
        lance.dataset(tmp_path).optimize.compact_files(**options)
    assert sorted(each for each in tmp_path.rglob("*") if each.is_file()) == before


def test_an_unknown_option_is_named_with_the_nearest(tmp_path: Path) -> None:
    table(tmp_path, [3, 3])
    with pytest.raises(
        InvalidInput, match=r"Invalid compaction option: target_rows.*target_rows_per_fragment"
    ):
        Compaction.execute(lance.dataset(tmp_path), {"target_rows": 3})  # type: ignore[typeddict-unknown-key]


def test_defaults_come_from_the_config_of_the_table(tmp_path: Path, peer: Peer) -> None:
    table(tmp_path, [10] * 6)
    ds = lance.dataset(tmp_path)
    ds.update_config({"lance.compaction.target_rows_per_fragment": "20"})
    ours = [[f.id for f in task.fragments] for task in Compaction.plan(ds).tasks]
    theirs = peer(
        "import lance.optimize\n"
        "plan = lance.optimize.Compaction.plan(lance.dataset(p), {})\n"
        "result = [[f.id for f in t.fragments] for t in plan.tasks]",
        p=str(tmp_path),
    )
    assert ours == theirs == [[0, 1], [2, 3], [4, 5]]
    assert Compaction.plan(ds, {"target_rows_per_fragment": 30}).num_tasks() == 2
    ds.update_config({"lance.compaction.target_rows_per_fragment": "many"})
    with pytest.raises(InvalidInput, match=r"lance\.compaction\.target_rows_per_fragment is 'many'"):
        ds.optimize.compact_files()


def test_plans_and_tasks_survive_their_json_form_and_pickling(tmp_path: Path) -> None:
    import pickle

    table(tmp_path, [5] * 4)
    ds = lance.dataset(tmp_path)
    ds.delete("a = 2")
    plan = Compaction.plan(ds, {"target_rows_per_fragment": 10})
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert CompactionPlan.from_json(json=plan.json()) == plan
    task = plan.tasks[0]
    assert pickle.loads(pickle.dumps(task)) == task
    assert CompactionTask.from_json(json=task.json()) == task
    with pytest.raises(InvalidInput, match="JSON form"):
        CompactionTask.from_json("{}")
    for tasks in ("5", "[5]", '["x"]', '{"a": 1}', "null"):
        with pytest.raises(InvalidInput, match="tasks"):
            CompactionPlan.from_json(f'{{"tasks": {tasks}, "read_version": 1, "options": {{}}}}')


def test_tasks_of_the_official_writer_are_understood(tmp_path: Path, peer: Peer) -> None:
    table(tmp_path, [5] * 4)
    text = peer(
        "import lance.optimize\n"
        "plan = lance.optimize.Compaction.plan(lance.dataset(p), {'target_rows_per_fragment': 10})\n"
        "result = (plan.json(), plan.tasks[0].json())",
        p=str(tmp_path),
    )
    ours = Compaction.plan(lance.dataset(tmp_path), {"target_rows_per_fragment": 10})
    assert CompactionPlan.from_json(text[0]).tasks[0].fragments == ours.tasks[0].fragments
    assert CompactionTask.from_json(text[1]).fragments == ours.tasks[0].fragments


def test_which_indices_can_follow_their_rows() -> None:
    from tiltyard.format.index_metadata import IndexMetadata, TypedBytes
    from tiltyard.table.compact.coverage import can_follow

    def entry(kind: str, version: int | None = 0, bitmap: bytes | None = b"x") -> IndexMetadata:
        details = TypedBytes(f"/lance.table.{kind}IndexDetails")
        return IndexMetadata("u", (0,), "i", 1, bitmap, details, version)

    def follows(each: IndexMetadata) -> tuple[bool, bool, bool]:
        """Without stable row ids, with them, deferred."""
        return (
            can_follow(each, stable=False, deferred=False),
            can_follow(each, stable=True, deferred=False),
            can_follow(each, stable=False, deferred=True),
        )

    assert follows(entry("BTree")) == (True, True, True)
    assert follows(entry("BTree", version=9)) == (False, False, False)
    assert follows(entry("BTree", version=9, bitmap=None)) == (True, True, True)
    assert follows(entry("ZoneMap")) == (True, True, True)
    assert follows(entry("Bitmap")) == (False, True, True)
    assert follows(entry("Vector")) == (False, True, True)
    assert follows(entry("NGram")) == (False, True, False)
    assert follows(IndexMetadata("u", (0,), "i", 1, b"x")) == (False, True, False)
