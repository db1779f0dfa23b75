"""Compaction of whole tables, against the official reader and writer: rows, row lineage, indices, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.lance.optimize import Compaction, CompactionMetrics, RewriteResult
from tiltyard.table.compact import execute as execute_task
from tiltyard.table.compact import options as options_module

ROWS = 10


def batch(number: int, rows: int = ROWS) -> pa.Table:
    start = number * rows
    return pa.table(
        {
            "id": pa.array(range(start, start + rows), pa.int64()),
            "text": [None if i % 7 == 3 else f"row {i}" for i in range(start, start + rows)],
            "tags": [[str(i), None] if i % 3 else None for i in range(start, start + rows)],
            "at": [{"x": i, "y": None} if i % 5 else None for i in range(start, start + rows)],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * rows, dtype=np.float32)), 2),
        }
    )


def make(path: Path, fragments: int = 6, **options: Any) -> lance.LanceDataset:
    for number in range(fragments):
        ds = lance.write_dataset(batch(number), path, mode="append" if number else "create", **options)
    return ds


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


def ids(path: Path, peer: Peer | None = None, where: str | None = None) -> list[int]:
    if peer is not None:
        found: list[int] = peer(
            "lance.dataset(p).to_table(columns=['id'], filter=w)['id'].to_pylist()", p=str(path), w=where
        )
        return found
    found = lance.dataset(path).to_table(columns=["id"], filter=where)["id"].to_pylist()
    return found


def test_small_fragments_become_one_and_every_value_stays(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path)
    ds.delete("id in (3, 14, 15)")
    before = ds.to_table()
    metrics = ds.optimize.compact_files()
    assert metrics == CompactionMetrics(6, 1, 8, 1)
    assert ds.version == 9  # one more for the reserved ids
    assert ds.to_table().combine_chunks() == before.combine_chunks()
    assert peer("lance.dataset(p).to_table()", p=str(tmp_path)).combine_chunks() == before.combine_chunks()
    assert [(f.fragment_id, f.physical_rows, f.num_deletions) for f in ds.get_fragments()] == [(6, 57, 0)]
    peer("lance.dataset(p).validate()", p=str(tmp_path))
    assert ds.optimize.compact_files() == CompactionMetrics()
    assert ds.version == 9


def test_new_fragments_have_the_rows_of_the_official_writer(tmp_path: Path, peer: Peer) -> None:
    for case, (rows, target) in enumerate([(100, 30), (77, 20), (50, 9), (100, 7), (64, 40), (1000, 33)]):
        sizes = []
        for side in ("ours", "theirs"):
            path = tmp_path / f"{side}{case}"
            lance.write_dataset(pa.table({"a": range(rows)}), path).delete("a % 4 = 0")
            if side == "ours":
                lance.dataset(path).optimize.compact_files(target_rows_per_fragment=target)
            else:
                peer(
                    "lance.dataset(p).optimize.compact_files(target_rows_per_fragment=t) and None",
                    p=str(path),
                    t=target,
                )
            sizes.append([f.physical_rows for f in lance.dataset(path).get_fragments()])
        assert sizes[0] == sizes[1]


def test_a_file_ends_at_its_limit_of_bytes_but_holds_a_page(tmp_path: Path) -> None:
    wide = pa.FixedSizeListArray.from_arrays(pa.array(range(4 << 20)), 1024)
    lance.write_dataset(pa.table({"a": wide}), tmp_path, max_rows_per_file=2048)
    ds = lance.dataset(tmp_path)
    ds.optimize.compact_files(max_bytes_per_file=1, batch_size=128)
    assert [f.physical_rows for f in ds.get_fragments()] == [1024] * 4


def test_columns_from_several_files_come_together_and_dropped_ones_go(tmp_path: Path, peer: Peer) -> None:
    make(tmp_path, 3)
    peer(
        "ds = lance.dataset(p)\n"
        "ds.add_columns({'double': 'id * 2'})\n"
        "ds.drop_columns(['tags'])\n"
        "ds.alter_columns({'path': 'text', 'name': 'words'})\n",
        p=str(tmp_path),
    )
    ds = lance.dataset(tmp_path)
    before = ds.to_table()
    ds.optimize.compact_files()
    (fragment,) = ds.get_fragments()
    assert len(fragment.data_files()) == 1
    assert ds.to_table().combine_chunks() == before.combine_chunks()
    assert peer("lance.dataset(p).to_table()", p=str(tmp_path)).combine_chunks() == before.combine_chunks()


def test_stable_row_ids_and_both_versions_of_rows_are_carried(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path, enable_stable_row_ids=True)
    ds.update({"text": "'moved'"}, where="id in (5, 25, 26)")
    ds.delete("id in (3, 41)")
    columns = ["id", "text", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    before = ds.to_table(columns=columns)
    ds.optimize.compact_files()
    after = ds.to_table(columns=columns)
    assert after.sort_by("_rowid").combine_chunks() == before.sort_by("_rowid").combine_chunks()
    theirs = peer("lance.dataset(p).to_table(columns=c)", p=str(tmp_path), c=columns)
    assert theirs.combine_chunks() == after.combine_chunks()
    assert len(ds.get_fragments()) == 1
    wanted = before["_rowid"].to_pylist()[7]
    taken = peer("lance.dataset(p)._take_rows([r])['id'].to_pylist()", p=str(tmp_path), r=wanted)
    assert taken == [before["id"].to_pylist()[7]]
    ds.update({"text": "'again'"}, where="id = 5")
    ds.optimize.compact_files()
    assert sorted(ids(tmp_path)) == sorted(set(range(60)) - {3, 41})


def test_deferred_remapping_with_stable_row_ids_is_refused_at_planning(tmp_path: Path) -> None:
    """Case D13: no new file."""
    ds = make(tmp_path, enable_stable_row_ids=True)
    before = files(tmp_path)
    with pytest.raises(UnsupportedFeature, match="stable row ids"):
        ds.optimize.compact_files(defer_index_remap=True)
    with pytest.raises(UnsupportedFeature, match="stable row ids"):
        Compaction.plan(ds, {"defer_index_remap": True})
    assert files(tmp_path) == before


@pytest.mark.parametrize("stable", [False, True])
def test_btrees_of_both_implementations_answer_after_a_compaction(
    tmp_path: Path, peer: Peer, stable: bool
) -> None:
    make(tmp_path, 6, enable_stable_row_ids=stable)
    ds = lance.dataset(tmp_path)
    ds.create_scalar_index("id", "BTREE")
    peer("lance.dataset(p).create_scalar_index('text', 'BTREE')", p=str(tmp_path))
    lance.write_dataset(batch(6), tmp_path, mode="append")
    ds = lance.dataset(tmp_path)
    ds.delete("id in (3, 14)")
    ds.optimize.compact_files(target_rows_per_fragment=30)
    assert peer("lance.dataset(p).validate()", p=str(tmp_path)) is None
    covered = {each["name"]: set(each["fragment_ids"]) for each in described(peer, tmp_path)}
    new = {f.fragment_id for f in ds.get_fragments()} - {6}
    assert covered == {"id_idx": new, "text_idx": new}
    for where in ("id = 25", "id in (3, 14, 41)", "text = 'row 55'", "id >= 58 and id < 63"):
        expected = ids_without_index(tmp_path, where)
        assert ids(tmp_path, where=where) == expected == ids(tmp_path, peer, where)
    plan = peer("lance.dataset(p).scanner(filter='id = 25').explain_plan(True)", p=str(tmp_path))
    assert "ScalarIndexQuery" in plan


def described(peer: Peer, path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = peer(
        "result = [{'name': i['name'], 'fragment_ids': list(i['fragment_ids'])} "
        "for i in lance.dataset(p).list_indices()]",
        p=str(path),
    )
    return found


def ids_without_index(path: Path, where: str) -> list[int]:
    found: list[int] = (
        lance.dataset(path).to_table(columns=["id"], filter=where, use_scalar_index=False)["id"].to_pylist()
    )
    return found


BUILD = {
    "BITMAP": "ds.create_scalar_index('id', 'BITMAP')",
    "LABEL_LIST": "ds.create_scalar_index('tags', 'LABEL_LIST')",
    "INVERTED": "ds.create_scalar_index('text', 'INVERTED')",
    "IVF_FLAT": "ds.create_index('vec', 'IVF_FLAT', num_partitions=1)",
}
QUERY = {
    "BITMAP": "ds.to_table(filter='id in (5, 25, 57)', columns=['id'])['id'].to_pylist()",
    "LABEL_LIST": ("ds.to_table(filter='array_has(tags, \\'25\\')', columns=['id'])['id'].to_pylist()"),
    "INVERTED": "sorted(ds.to_table(full_text_query='25', columns=['id'])['id'].to_pylist())",
    "IVF_FLAT": (
        "sorted(ds.to_table(columns=['id'], nearest={'column': 'vec', 'q': [0, 1], 'k': 3})"
        "['id'].to_pylist())"
    ),
}


@pytest.mark.parametrize("kind", sorted(BUILD))
def test_fragments_under_an_index_that_cannot_follow_stay_and_are_told(
    tmp_path: Path, peer: Peer, kind: str
) -> None:
    make(tmp_path, 4)
    peer(f"ds = lance.dataset(p)\n{BUILD[kind]}", p=str(tmp_path))
    for number in (4, 5):
        lance.write_dataset(batch(number), tmp_path, mode="append")
    before = peer(f"ds = lance.dataset(p)\nresult = {QUERY[kind]}", p=str(tmp_path))
    ds = lance.dataset(tmp_path)
    held = Compaction.plan(ds).held_back()
    assert list(held.values()) == [4]
    ds.optimize.compact_files()
    assert [f.fragment_id for f in ds.get_fragments()] == [0, 1, 2, 3, 6]
    assert peer(f"ds = lance.dataset(p)\nresult = {QUERY[kind]}", p=str(tmp_path)) == before


@pytest.mark.parametrize("kind", [*sorted(BUILD), "BTREE"])
def test_with_deferred_remapping_indices_are_translated_by_the_official_reader(
    tmp_path: Path, peer: Peer, kind: str
) -> None:
    make(tmp_path, 6)
    build = {**BUILD, "BTREE": "ds.create_scalar_index('id', 'BTREE')"}[kind]
    query = {**QUERY, "BTREE": QUERY["BITMAP"]}[kind]
    peer(f"ds = lance.dataset(p)\n{build}", p=str(tmp_path))
    ds = lance.dataset(tmp_path)
    ds.delete("id in (5, 14)")
    before = peer(f"ds = lance.dataset(p)\nresult = {query}", p=str(tmp_path))
    ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=20)
    assert len(ds.get_fragments()) == 2
    assert peer(f"ds = lance.dataset(p)\nresult = {query}", p=str(tmp_path)) == before
    assert any(each["name"] == "__lance_frag_reuse" for each in described(peer, tmp_path))
    ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=100)
    assert len(ds.get_fragments()) == 1
    assert peer(f"ds = lance.dataset(p)\nresult = {query}", p=str(tmp_path)) == before
    where = "id in (5, 25, 57)"
    assert ids(tmp_path, where=where) == ids_without_index(tmp_path, where)


def test_addresses_are_translated_as_the_official_reader_translates_them(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path, 6)
    ds.create_scalar_index("id", "BTREE")
    assert ds.remap_row_addrs(pa.array([0], pa.uint64())) is None
    ds.delete("id in (5, 14)")
    old = ds.to_table(columns=["id"], with_row_address=True)
    ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=20)
    ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=100)
    addresses = pa.array([*old["_rowaddr"].to_pylist(), 5, (1 << 32) + 4, 99 << 32], pa.uint64())
    ours = ds.remap_row_addrs(addresses)
    theirs = peer("lance.dataset(p).remap_row_addrs(a)", p=str(tmp_path), a=addresses)
    assert ours.to_pylist() == theirs.to_pylist()
    now = ds.to_table(columns=["id"], with_row_address=True)
    assert ours.to_pylist()[:-3] == now["_rowaddr"].to_pylist()
    assert ours.to_pylist()[-3:] == [None, None, 99 << 32]


@pytest.mark.parametrize("rounds", [1, 2])
def test_btrees_left_by_a_deferred_compaction_of_the_official_writer_answer_here(
    tmp_path: Path, peer: Peer, rounds: int
) -> None:
    make(tmp_path, 6)
    peer("lance.dataset(p).create_scalar_index('id', 'BTREE')", p=str(tmp_path))
    lance.dataset(tmp_path).delete("id in (5, 14)")
    for target in (20, 100)[:rounds]:
        peer(
            "ds = lance.dataset(p)\n"
            "ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=t)",
            p=str(tmp_path),
            t=target,
        )
    # The next writer may carry the entry with a bitmap that names the new fragments already.
    peer("lance.write_dataset(b, p, mode='append') and None", p=str(tmp_path), b=batch(7))
    for where in ("id in (5, 25, 57)", "id = 14", "id >= 55", "id < 3"):
        expected = ids_without_index(tmp_path, where)
        assert ids(tmp_path, where=where) == expected
        assert lance.dataset(tmp_path).count_rows(where) == len(expected)
    ds = lance.dataset(tmp_path)
    ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(batch(2))
    assert sorted(ids(tmp_path)) == sorted(set(range(60)) - {5, 14} | set(range(70, 80)))


def test_an_eager_compaction_after_a_deferred_one_brings_indices_up_to_date(
    tmp_path: Path, peer: Peer
) -> None:
    ds = make(tmp_path, 6)
    ds.create_scalar_index("id", "BTREE")
    ds.delete("id in (5, 14)")
    ds.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=20)
    assert {each["name"] for each in described(peer, tmp_path)} == {"id_idx", "__lance_frag_reuse"}
    ds.optimize.compact_files()
    (fragment,) = ds.get_fragments()
    assert described(peer, tmp_path) == [{"name": "id_idx", "fragment_ids": [fragment.fragment_id]}]
    for where in ("id in (5, 25, 57)", "id = 14", "id >= 55"):
        expected = ids_without_index(tmp_path, where)
        assert ids(tmp_path, where=where) == expected == ids(tmp_path, peer, where)


def test_tasks_run_in_other_processes_and_are_committed_together(tmp_path: Path, peer: Peer) -> None:
    ds = make(tmp_path, 6)
    plan = Compaction.plan(ds, {"target_rows_per_fragment": 20})
    assert plan.num_tasks() == 3
    sent = [pickle.loads(pickle.dumps(task)) for task in plan.tasks]
    results = [pickle.loads(pickle.dumps(task.execute(lance.dataset(tmp_path)))) for task in sent]
    assert all(isinstance(each, RewriteResult) for each in results)
    assert [each.metrics for each in results] == [CompactionMetrics(2, 1, 2, 1)] * 3
    assert ds.version == 6
    assert Compaction.commit(ds, results) == CompactionMetrics(6, 3, 6, 3)
    assert ds.version == 8
    assert ids(tmp_path) == list(range(60)) == ids(tmp_path, peer)


def test_progress_is_told_in_rows(tmp_path: Path) -> None:
    ds = make(tmp_path, 4)
    told: list[tuple[int, int]] = []
    ds.optimize.compact_files(progress=lambda rows, of: told.append((rows, of)))
    assert told[-1] == (40, 40)


def test_a_new_file_that_does_not_give_back_what_was_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    ds = make(tmp_path, 4)
    before = files(tmp_path)
    module = importlib.import_module("tiltyard.table.compact.execute")
    real = module.write_fragments

    def damaged(store: Any, *arguments: Any, **named: Any) -> Any:
        found = real(store, *arguments, **named)
        path = tmp_path / "data" / found[0].files[0].path
        data = bytearray(path.read_bytes())
        data[0] ^= 0xFF
        path.write_bytes(bytes(data))
        return found

    monkeypatch.setattr(module, "write_fragments", damaged)
    with pytest.raises(CorruptFile):
        ds.optimize.compact_files()
    assert files(tmp_path) == before
    assert ids(tmp_path) == list(range(40))


def test_the_names_of_the_package_are_there() -> None:
    assert callable(execute_task)
    assert options_module.TARGET_ROWS == 1 << 20


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_files_have_the_version_asked_for_or_that_of_the_table(
    tmp_path: Path, version: str, peer: Peer
) -> None:
    ds = make(tmp_path, 3, data_storage_version="2.1")
    ds.optimize.compact_files(data_storage_version=None if version == "2.1" else version)
    (fragment,) = ds.get_fragments()
    (file,) = fragment.data_files()
    assert f"{file.file_major_version}.{file.file_minor_version}" == version
    assert ids(tmp_path, peer) == list(range(30))


def test_upserts_in_a_loop_with_two_indices_are_compacted_twice(tmp_path: Path, peer: Peer) -> None:
    """Case D06."""
    for stable in (False, True):
        path = tmp_path / str(stable)
        ds = make(path, 2, enable_stable_row_ids=stable)
        ds.create_scalar_index("id", "BTREE")
        ds.create_scalar_index("text", "BTREE")
        rows = set(range(20))
        for turn in range(6):
            more = batch(turn + 1)
            ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(more)
            rows |= set(more["id"].to_pylist())
            if turn % 3 == 2:
                ds.optimize.compact_files(target_rows_per_fragment=25)
                ds.optimize.optimize_indices()
        assert sorted(ids(path)) == sorted(rows) == sorted(ids(path, peer))
        for where in ("id = 33", "text = 'row 41'", "id between 8 and 12"):
            assert sorted(ids(path, where=where)) == sorted(ids_without_index(path, where))
            assert sorted(ids(path, peer, where)) == sorted(ids_without_index(path, where))


def test_an_index_on_a_column_rewritten_in_place_is_right_after_a_compaction(
    tmp_path: Path, peer: Peer
) -> None:
    """Case D03."""
    ds = make(tmp_path, 3)
    ds.create_scalar_index("id", "BTREE")
    source = pa.table({"text": [f"row {i}" for i in range(10, 20) if i % 7 != 3]})
    source = source.append_column("id", pa.array([i + 1000 for i in range(10, 20) if i % 7 != 3], pa.int64()))
    builder = ds.merge_insert("text").when_matched_update_all()
    builder.execute(source)
    ds.optimize.compact_files()
    ds.optimize.optimize_indices()
    for where in ("id = 1011", "id >= 1000", "id = 12"):
        expected = sorted(ids_without_index(tmp_path, where))
        assert sorted(ids(tmp_path, where=where)) == expected == sorted(ids(tmp_path, peer, where))
    upsert = pa.table({"id": pa.array([1011], pa.int64()), "text": ["new"]})
    done = ds.merge_insert("id").when_matched_update_all().execute(upsert)
    assert done["num_updated_rows"] == 1
    assert peer("lance.dataset(p).count_rows(\"text = 'new'\")", p=str(tmp_path)) == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_a_clone_is_compacted_into_files_of_its_own_and_its_source_stays(
    tmp_path: Path, peer: Peer, deferred: bool
) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    ds = make(source, 4)
    ds.create_scalar_index("id", "BTREE")
    ds.delete("id = 3")
    peer("lance.dataset(p).shallow_clone(c, 6) and None", p=str(source), c=str(clone))
    before = files(source)
    copy = lance.dataset(clone)
    assert copy.optimize.compact_files(defer_index_remap=deferred).fragments_added == 1
    assert files(source) == before
    expected = [i for i in range(40) if i != 3]
    assert ids(clone) == expected == ids(clone, peer) == ids(source)
    for where in ("id = 3", "id = 25"):
        assert ids(clone, where=where) == ids_without_index(clone, where) == ids(clone, peer, where)
    copy.optimize.compact_files(target_rows_per_fragment=20)
    copy.optimize.optimize_indices()
    assert ids(clone, where="id = 25") == [25] == ids(clone, peer, "id = 25")
