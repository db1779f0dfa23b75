"""Public bug reports about indices that no longer fit their table (cases D03, D04, D06, T11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard import runtime
from tiltyard.errors import RetryableConflict
from tiltyard.format.operations import REWRITE_COLUMNS, Update
from tiltyard.format.transaction import Transaction
from tiltyard.table.commit import commit
from tiltyard.table.indexing import indices, optimize_once
from tiltyard.table.indexing.source import commit_indices
from tiltyard.table.write import write_fragments

GONE = -2
"""Stands for a field that a data file no longer holds."""


def _agrees(path: Path, column: str, values: list[int]) -> None:
    """Filters by the index find what a full scan finds."""
    ds = lance.dataset(str(path))
    for text in [f"{column} = {value}" for value in values] + [
        f"{column} > {values[0]}",
        f"{column} IS NULL",
    ]:
        plain = ds.to_table(filter=text, use_scalar_index=False)
        assert ds.to_table(filter=text).equals(plain), text
        assert ds.count_rows(text) == plain.num_rows, text


@pytest.mark.parametrize("stable", [False, True])
def test_d03_a_column_rewritten_in_place_then_compacted_then_optimised(tmp_path: Path, stable: bool) -> None:
    """D03: the index never points at rows that moved or at values that were replaced."""
    path = tmp_path / "t"
    table = pa.table({"k": pa.array(range(300), pa.int64()), "v": pa.array([n % 50 for n in range(300)])})
    ds = lance.write_dataset(table, str(path), max_rows_per_file=100, enable_stable_row_ids=stable)
    ds.create_scalar_index("v", "BTREE")
    ds.create_scalar_index("k", "BTREE")
    _rewrite_in_place(ds, 1, "v", pa.array([n + 1000 for n in range(100)], pa.int64()))
    ds = lance.dataset(str(path))
    covered = {each.name: sorted(each.segments[0].fragment_ids) for each in ds.describe_indices()}
    assert covered == {"k_idx": [0, 1, 2], "v_idx": [0, 2]}
    values = [7, 49, 1000, 1099]
    _agrees(path, "v", values)
    ds.optimize.compact_files()
    _agrees(path, "v", values)
    _agrees(path, "k", [5, 150, 299])
    ds = lance.dataset(str(path))
    ds.optimize.optimize_indices()
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [0, 0]
    _agrees(path, "v", values)
    news = pa.table({"k": pa.array([900, 901], pa.int64()), "v": pa.array([1099, 5000], pa.int64())})
    ds.merge_insert("v").when_matched_update_all().when_not_matched_insert_all().execute(news)
    _agrees(path, "v", [*values, 5000])
    found = lance.dataset(str(path)).to_table(filter="v IN (1099, 5000)")
    assert sorted(found["k"].to_pylist()) == [900, 901]


def _rewrite_in_place(ds: Any, fragment_id: int, column: str, values: pa.Array) -> None:
    """Write a column of one fragment anew, beside the file that keeps the others."""
    snapshot = ds._snapshot
    batch = pa.RecordBatch.from_arrays([values], [column])
    (made,) = write_fragments(snapshot.store, snapshot.schema.project([column]), [batch])
    fragment = snapshot.fragment(fragment_id)
    field = snapshot.schema.field(column).id
    old = fragment.files[0]
    rest = replace(old, fields=tuple(GONE if id == field else id for id in old.fields))
    changed = replace(fragment, files=(rest, *made.files))
    operation = Update(updated_fragments=(changed,), fields_modified=(field,), update_mode=REWRITE_COLUMNS)
    transaction = Transaction(snapshot.version, str(runtime.uuid4()), operation)
    commit(snapshot.store, transaction, session=snapshot.session, base=snapshot)


def test_d04_an_upkeep_from_before_a_deferred_compaction_conflicts(tmp_path: Path) -> None:
    """D04: the second commit conflicts and indices can still be listed."""
    path = tmp_path / "t"

    def rows(start: int) -> pa.Table:
        return pa.table({"k": pa.array(range(start, start + 20), pa.int64())})

    ds = lance.write_dataset(rows(0), str(path))
    ds.create_scalar_index("k", "BTREE")
    ds.insert(rows(20))
    stale = lance.dataset(str(path))._snapshot
    ds.insert(rows(40))
    ds.optimize.compact_files(defer_index_remap=True)
    before = lance.dataset(str(path)).version
    with pytest.raises(RetryableConflict, match="k_idx"):
        optimize_once(stale)
    after = lance.dataset(str(path))
    assert after.version == before
    assert [each.name for each in after.describe_indices()] == ["k_idx"]
    _agrees(path, "k", [3, 25, 59])
    after.optimize.optimize_indices()
    assert [each.rows_unindexed for each in indices(after._snapshot)] == [0]
    _agrees(path, "k", [3, 25, 59])


def test_d04_the_peer_lists_and_uses_what_comes_of_it(tmp_path: Path, peer: Peer) -> None:
    """D04: index, deferred compaction and upkeep, each by another program in turn."""
    path = tmp_path / "t"
    table = pa.table({"k": pa.array(range(60), pa.int64())})
    ds = lance.write_dataset(table, str(path), max_rows_per_file=20)
    ds.create_scalar_index("k", "BTREE")
    peer("done = lance.dataset(p).optimize.compact_files(defer_index_remap=True)", p=str(path))
    (segment,) = lance.dataset(str(path)).describe_indices()[0].segments
    assert segment.fragment_ids == peer(
        "set(lance.dataset(p).describe_indices()[-1].segments[0].fragment_ids)", p=str(path)
    )
    _agrees(path, "k", [3, 25, 59])
    lance.dataset(str(path)).insert(pa.table({"k": pa.array([25, 100], pa.int64())}))
    lance.dataset(str(path)).optimize.optimize_indices()
    _agrees(path, "k", [3, 25, 59, 100])
    assert peer("lance.dataset(p).to_table(filter='k = 25').num_rows", p=str(path)) == 2
    assert peer("lance.dataset(p).count_rows('k >= 0')", p=str(path)) == 62


@pytest.mark.parametrize("stable", [False, True])
def test_d06_upserts_with_two_indices_then_two_compactions(tmp_path: Path, stable: bool) -> None:
    """D06: both compactions succeed and the contents stay."""
    path = tmp_path / "t"
    rng = np.random.default_rng(0)
    keys = pa.array(range(200), pa.int64())
    ds = lance.write_dataset(
        pa.table({"k": keys, "v": keys}), str(path), max_rows_per_file=40, enable_stable_row_ids=stable
    )
    ds.create_scalar_index("k", "BTREE")
    ds.create_scalar_index("v", "BTREE")
    expected = dict(zip(range(200), range(200), strict=True))
    for turn in range(6):
        some = sorted({int(k) for k in rng.integers(0, 260, 30)})
        news = pa.table(
            {"k": pa.array(some, pa.int64()), "v": pa.array([k * 10 + turn for k in some], pa.int64())}
        )
        ds = lance.dataset(str(path))
        ds.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(news)
        expected.update(zip(some, news["v"].to_pylist(), strict=True))
        if turn % 2:
            lance.dataset(str(path)).optimize.optimize_indices()
        if turn in (2, 5):
            lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=100)
        rows = lance.dataset(str(path)).to_table()
        assert dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)) == expected
        assert rows.num_rows == len(expected)
        _agrees(path, "k", [0, 57, 199, 255])
        _agrees(path, "v", [0, 57, expected[57], 2005])


def test_t11_an_index_on_values_of_another_type_is_not_asked(tmp_path: Path) -> None:
    """T11: a column that another program cast under its index is scanned; the index says what to do."""
    path = tmp_path / "t"
    ds = lance.write_dataset(pa.table({"k": [1, 2], "s": ["1", "2"]}), str(path))
    ds.create_scalar_index("k", "BTREE")
    snapshot = ds._snapshot
    (entry,) = snapshot.manifest.indices
    cast = replace(entry, fields=(1,))
    commit_indices(snapshot, [cast], [])
    ds = lance.dataset(str(path))
    with pytest.warns(RuntimeWarning, match="it holds int64, the column is string"):
        assert ds.to_table(filter="s = '2'").num_rows == 1
    ds.optimize.optimize_indices(retrain=True)
    assert lance.dataset(str(path)).to_table(filter="s = '2'").num_rows == 1
