"""Indices of a table: made, dropped, described, kept up; refused by name where they cannot be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltyard import lance as tl
from tiltyard.errors import (
    CorruptFile,
    FieldNotFound,
    IndexAlreadyExists,
    IndexNotFound,
    InvalidInput,
    ObjectNotFound,
    RetryableConflict,
    TooMuchContention,
    UnsupportedFeature,
    WrongType,
)
from tiltyard.expr.index_query import ColumnQuery
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexMetadata, TypedBytes
from tiltyard.format.operations import Rewrite, RewriteGroup
from tiltyard.format.roaring import encode_roaring
from tiltyard.format.transaction import Transaction
from tiltyard.index.btree import BTree, BuildLimits
from tiltyard.table.commit import commit
from tiltyard.table.index_segments import btree_segments, segment_of
from tiltyard.table.indexing import (
    RowMap,
    create_btree,
    create_index,
    drop_index,
    index_statistics,
    indices,
    optimize_indices,
    optimize_once,
    prewarm,
    remap_indices,
)
from tiltyard.table.indexing.source import commit_indices
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.write import write_fragments

KEY = pa.int64()


def _made(path: Path, rows: Iterable[int | None] = range(10), *, per_file: int = 4, **options: Any) -> Any:
    values = list(rows)
    table = pa.table({"k": pa.array(values, KEY), "other": pa.array(range(len(values)), pa.int64())})
    return tl.write_dataset(table, str(path), max_rows_per_file=per_file, **options)


def _rows(snapshot: Snapshot, value: int) -> list[tuple[int, int]]:
    """(fragment, offset) of the rows that the index finds, deleted ones included."""
    query = ColumnQuery(("k",), KEY, values=(value,))
    found = [address for each in btree_segments(snapshot, 0) for address in each.search(query).tolist()]
    return sorted((address >> 32, address & 0xFFFFFFFF) for address in found)


def _index_directories(ds: Any) -> int:
    return len(ds._store.list_names("_indices"))


def _peer_like(name: str, url: str, fragments: list[int], *, field: int = 0) -> IndexMetadata:
    """The entry of an index of a kind that we do not know."""
    return IndexMetadata(
        f"00000000-0000-4000-8000-{len(name):012}",
        (field,),
        name,
        1,
        encode_roaring(np.array(fragments, np.uint32)),
        TypedBytes(url, b"\x08\x01"),
        7,
        123,
    )


# -- making and dropping ---------------------------------------------------------------------------


def test_an_index_finds_rows_by_fragment_and_offset(tmp_path: Path) -> None:
    ds = _made(tmp_path, [5, None, 5, 7, 5, 9])
    after = create_index(ds._store, ds._session, "k", limits=BuildLimits(run_bytes=16, page_rows=2))
    assert _rows(after, 5) == [(0, 0), (0, 2), (1, 0)]
    (facts,) = indices(after)
    assert (facts.name, facts.index_type, facts.field_names, facts.rows_indexed) == (
        "k_idx",
        "BTree",
        ("k",),
        6,
    )
    assert facts.size_bytes == sum(each.size for each in ds._store.list("_indices"))


def test_a_nested_field_is_indexed_under_its_path(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "s": [{"x": 4, "y": "a"}, None]})
    ds = tl.write_dataset(table, str(tmp_path))
    ds.create_scalar_index("s.x", "BTREE")
    (facts,) = indices(ds._snapshot)
    assert (facts.name, facts.field_names) == ("s.x_idx", ("s.x",))
    field = ds._snapshot.schema.field("s.x")
    (segment,) = btree_segments(ds._snapshot, field.id)
    assert segment.search(ColumnQuery(("s", "x"), KEY, values=(4,))).tolist() == [0]
    assert segment.search(ColumnQuery(("s", "x"), KEY, nulls=True)).tolist() == [1]


def test_a_column_is_found_whatever_its_case_where_there_is_no_other(tmp_path: Path) -> None:
    ds = tl.write_dataset(pa.table({"Key": [1], "v": [1], "V": [2]}), str(tmp_path))
    ds.create_scalar_index("kEY", "BTREE")
    assert indices(ds._snapshot)[0].name == "Key_idx"
    ds.create_scalar_index("V", "BTREE")
    assert indices(ds._snapshot)[1].field_names == ("V",)


def test_an_index_of_that_name_makes_room_or_stays(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    first = ds._snapshot.manifest.indices[0]
    with pytest.raises(IndexAlreadyExists, match="replace=True"):
        ds.create_scalar_index("k", "BTREE", replace=False)
    with pytest.raises(IndexAlreadyExists, match="different fields") as caught:
        ds.create_scalar_index("other", "BTREE", name="k_idx")
    assert isinstance(caught.value, RuntimeError)
    assert ds._snapshot.manifest.indices == (first,)
    assert _index_directories(ds) == 1
    ds.create_scalar_index("k", "BTREE")
    (second,) = ds._snapshot.manifest.indices
    assert second.uuid != first.uuid
    ds.create_scalar_index("k", "BTREE", name="another")
    assert [each.name for each in indices(ds._snapshot)] == ["another", "k_idx"]


def test_columns_that_cannot_be_indexed_are_named(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": [1],
            "words": pa.array(["a"]).dictionary_encode(),
            "many": [[1]],
            "both": [{"x": 1}],
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "nothing": pa.nulls(1),
        }
    )
    ds = tl.write_dataset(table, str(tmp_path))
    for column in ("words", "many", "both", "vector", "nothing", "many.item"):
        with pytest.raises(WrongType, match=f"cannot be on column '{column}'"):
            ds.create_scalar_index(column, "BTREE")
    for column in ("missing", "both.y", "_rowid"):
        with pytest.raises(FieldNotFound, match=column.rpartition(".")[2]):
            ds.create_scalar_index(column, "BTREE")
    with pytest.raises(WrongType):
        ds.create_scalar_index(4, "BTREE")
    with pytest.raises(UnsupportedFeature, match="on one column"):
        ds.create_scalar_index(["k", "both.x"], "BTREE")
    assert ds.version == 1
    assert ds._store.list("_indices") == []


def test_other_kinds_and_unknown_arguments_are_refused_by_name(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    for kind in ("BITMAP", "inverted", "IVF_PQ"):
        with pytest.raises(UnsupportedFeature, match=kind.upper()):
            ds.create_index("k", kind)
    with pytest.raises(UnsupportedFeature, match="'TREE' is not a kind of index"):
        ds.create_scalar_index("k", "tree")
    with pytest.raises(UnsupportedFeature, match="fragment_ids"):
        ds.create_scalar_index("k", "BTREE", fragment_ids=[0])
    with pytest.raises(UnsupportedFeature, match="index_uuid"):
        ds.create_scalar_index("k", "BTREE", index_uuid="x")
    with pytest.raises(InvalidInput, match="zones"):
        ds.create_scalar_index("k", "BTREE", zones=4)
    with pytest.raises(InvalidInput, match="must not be empty"):
        ds.create_scalar_index("k", "BTREE", name="")
    with pytest.raises(InvalidInput, match="state of the table"):
        ds.create_scalar_index("k", "BTREE", name=FRAGMENT_REUSE)
    with pytest.raises(InvalidInput, match="has no fragment 9"):
        create_btree(ds._snapshot, "k", fragments=[9])
    assert ds.version == 1


def test_a_dropped_index_is_gone_and_a_missing_one_lists_those_there_are(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    with pytest.raises(IndexNotFound, match="there are: k_idx") as caught:
        ds.drop_index("zzz")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, RuntimeError)
    for call in (ds.stats.index_stats, ds.prewarm_index):
        with pytest.raises(IndexNotFound, match="zzz"):
            call("zzz")
    with pytest.raises(InvalidInput, match="state of the table"):
        ds.drop_index(FRAGMENT_REUSE)
    ds.drop_index("k_idx")
    assert not ds.has_index
    assert _index_directories(ds) == 1  # older versions use it
    assert tl.dataset(str(tmp_path), version=2).has_index


def test_an_index_of_an_empty_table_is_there_and_is_filled_later(tmp_path: Path) -> None:
    ds = tl.write_dataset(pa.table({"k": pa.array([], KEY)}), str(tmp_path))
    ds.create_scalar_index("k", "BTREE")
    assert ds.stats.index_stats("k_idx")["num_indexed_rows"] == 0
    ds.insert(pa.table({"k": [4, 5]}))
    assert ds.stats.index_stats("k_idx")["num_unindexed_rows"] == 2
    done = optimize_indices(ds._store, ds._session)
    assert index_statistics(done.snapshot, "k_idx")["num_indexed_rows"] == 2
    assert _rows(done.snapshot, 5) == [(0, 1)]


def test_without_training_an_index_answers_for_nothing(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE", train=False)
    assert ds.stats.index_stats("k_idx")["num_indexed_fragments"] == 0
    assert ds.to_table(filter="k = 3").num_rows == 1


def test_deleted_rows_are_not_indexed(tmp_path: Path) -> None:
    ds = _made(tmp_path, [1, 2, 1, 2, 1])
    ds.delete("other = 2")
    ds.create_scalar_index("k", "BTREE")
    assert _rows(ds._snapshot, 1) == [(0, 0), (1, 0)]


def test_the_progress_of_a_build_is_told(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    told: list[Any] = []
    ds.create_scalar_index("k", "BTREE", progress_callback=told.append)
    assert [each.event for each in told] == ["start", "progress", "progress", "progress", "complete"]
    assert told[-2].fraction == 1.0
    with pytest.raises(WrongType, match="progress_callback"):
        ds.create_scalar_index("k", "BTREE", progress_callback=3)


# -- keeping up ------------------------------------------------------------------------------------


def test_new_fragments_are_indexed_with_the_last_segment_or_beside_it(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    for number in range(3):
        ds.insert(pa.table({"k": [100 + number], "other": [0]}))
        done = optimize_indices(ds._store, ds._session, num_indices_to_merge=0)
        assert done.updated == ("k_idx",)
    assert [len(each.fragments) for each in btree_segments(done.snapshot, 0)] == [3, 1, 1, 1]
    again = optimize_indices(ds._store, ds._session)
    assert again.updated == ()
    assert again.snapshot.version == done.snapshot.version
    ds.insert(pa.table({"k": [7], "other": [0]}))
    done = optimize_indices(ds._store, ds._session)
    assert [len(each.fragments) for each in btree_segments(done.snapshot, 0)] == [3, 1, 1, 2]
    done = optimize_indices(ds._store, ds._session, num_indices_to_merge=99)
    (segment,) = btree_segments(done.snapshot, 0)
    assert segment.fragments.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert segment.entry.dataset_version == 1
    assert _rows(done.snapshot, 7) == [(1, 3), (6, 0)]
    assert index_statistics(done.snapshot, "k_idx")["num_indexed_rows_per_delta"] == [14]


def test_rows_that_are_gone_leave_the_index_when_it_is_merged(tmp_path: Path) -> None:
    ds = _made(tmp_path, [1] * 12)
    ds.create_scalar_index("k", "BTREE")
    ds.delete("other < 6")  # one whole fragment and half of another
    ds.insert(pa.table({"k": [1], "other": [99]}))
    done = optimize_indices(ds._store, ds._session)
    (segment,) = btree_segments(done.snapshot, 0)
    assert segment.fragments.tolist() == [1, 2, 3]
    assert segment.tree().rows == 7
    assert _rows(done.snapshot, 1) == [(1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]


def test_retraining_builds_every_index_anew_from_the_data(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    before = ds._snapshot.manifest.indices[0]
    done = optimize_indices(ds._store, ds._session, retrain=True)
    (entry,) = done.snapshot.manifest.indices
    assert entry.uuid != before.uuid
    assert entry.dataset_version == ds.version


def test_named_indices_alone_are_brought_up_to_date(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    ds.create_scalar_index("other", "BTREE")
    ds.insert(pa.table({"k": [7], "other": [0]}))
    done = optimize_indices(ds._store, ds._session, names=["other_idx"])
    assert [each.rows_unindexed for each in indices(done.snapshot)] == [1, 0]
    with pytest.raises(IndexNotFound, match="zzz"):
        optimize_indices(ds._store, ds._session, names=["zzz"])
    for count in (-1, True, "1"):
        with pytest.raises(InvalidInput, match="num_indices_to_merge"):
            optimize_once(ds._snapshot, num_indices_to_merge=count)  # type: ignore[arg-type]


def test_a_damaged_segment_is_built_anew_from_the_data(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    ds.insert(pa.table({"k": [7], "other": [0]}))
    (entry,) = ds._snapshot.manifest.indices
    ds._store.put(f"_indices/{entry.uuid}/page_data.lance", b"nothing")
    ds._session.cache.clear()
    ds._session.maps.clear()
    done = optimize_indices(ds._store, ds._session)
    assert _rows(done.snapshot, 7) == [(1, 3), (3, 0)]


def test_indices_of_other_kinds_are_kept_as_they_are(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    other = _peer_like("words", "/lance.table.InvertedIndexDetails", [0, 1, 2])
    newer = _peer_like("newer", "/lance.table.BTreeIndexDetails", [0, 1, 2])
    url = "/lance.table.FragmentReuseIndexDetails"
    system = replace(_peer_like(FRAGMENT_REUSE, url, []), fields=(), index_version=0)
    commit_indices(ds._snapshot, [other, newer, system], [])
    ds = tl.dataset(str(tmp_path))
    ds.create_scalar_index("k", "BTREE")
    ds.insert(pa.table({"k": [7], "other": [0]}))
    ds.delete("other = 3")
    done = optimize_indices(ds._store, ds._session)
    assert done.updated == ("k_idx",)
    assert done.passed_over == ("newer", "words")
    drop_index(ds._store, ds._session, "k_idx")
    after = open_latest(ds._store, ds._session)
    assert set(after.manifest.indices) == {other, newer, system}
    assert [(each.name, each.index_type) for each in indices(after)] == [
        ("newer", "BTree"),
        ("words", "Inverted"),
    ]
    assert index_statistics(after, "words")["segments"] == [{}]
    prewarm(after, "words")
    with pytest.raises(UnsupportedFeature, match="'words' is of type Inverted"):
        optimize_indices(ds._store, ds._session, names=["words"])
    assert tl.dataset(str(tmp_path)).to_table(filter="k = 7").num_rows == 2


# -- others meanwhile ------------------------------------------------------------------------------


def test_rows_that_others_append_meanwhile_are_only_not_indexed(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    stale = ds._snapshot
    tl.dataset(str(tmp_path)).insert(pa.table({"k": [3], "other": [0]}))
    after = create_btree(stale, "k")
    (facts,) = indices(after)
    assert (facts.rows_indexed, facts.rows_unindexed) == (10, 1)
    assert facts.segments[0].dataset_version_at_last_update == 1


def test_two_makers_of_one_index_conflict_and_the_second_plans_again(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    stale = ds._snapshot
    create_btree(stale, "k")
    with pytest.raises(RetryableConflict, match="k_idx"):
        create_btree(stale, "k")
    assert _index_directories(ds) == 1  # the loser took its files away
    create_index(ds._store, ds._session, "k")
    assert len(open_latest(ds._store, ds._session).manifest.indices) == 1


def test_an_upkeep_from_an_old_version_conflicts_with_another(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    ds.insert(pa.table({"k": [3], "other": [0]}))
    stale = ds._snapshot
    optimize_once(stale)
    with pytest.raises(RetryableConflict):
        optimize_once(stale)
    assert optimize_indices(ds._store, ds._session).updated == ()


def test_a_spent_budget_of_retries_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    from tiltyard.table.indexing import create

    ds = _made(tmp_path)

    def lost(*_: Any, **__: Any) -> None:
        raise RetryableConflict("others were faster")

    monkeypatch.setattr(create, "commit_indices", lost)
    with pytest.raises(TooMuchContention, match="index on k"):
        create_index(ds._store, ds._session, "k", conflict_retries=2)
    assert ds._store.list("_indices") == []


# -- moved rows ------------------------------------------------------------------------------------


def _compacted(ds: Any, *, with_index: bool = True) -> Snapshot:
    """All fragments as one new one, by hand; deleted rows leave."""
    snapshot: Snapshot = ds._snapshot
    request = ScanRequest(row_address=True)
    table = Scan(snapshot, request).table()
    old = table["_rowaddr"].to_numpy().astype(np.uint64)
    data = table.drop_columns(["_rowaddr"]).combine_chunks()
    (made,) = write_fragments(snapshot.store, snapshot.schema, data.to_batches())
    new_id = int(max(snapshot.fragments.ids)) + 1
    made = replace(made, id=new_id)
    order = np.argsort(old)
    new = (np.uint64(new_id) << np.uint64(32)) + np.arange(len(old), dtype=np.uint64)
    groups = [(frozenset(int(id) for id in snapshot.fragments.ids), frozenset((new_id,)))]
    rewritten = remap_indices(snapshot, RowMap(old[order], new[order]), groups) if with_index else []
    group = RewriteGroup(tuple(snapshot.fragments), (made,))
    operation = Rewrite((group,), tuple(rewritten))
    reserve = replace(snapshot.manifest, max_fragment_id=new_id)
    base = replace(snapshot, manifest=reserve)
    transaction = Transaction(snapshot.version, "11111111-0000-4000-8000-000000000000", operation)
    return commit(snapshot.store, transaction, session=snapshot.session, base=base)


def test_an_index_follows_its_rows_through_a_compaction(tmp_path: Path) -> None:
    ds = _made(tmp_path, [5, 6, 5, 7, None, 5, 8, 9])
    ds.create_scalar_index("k", "BTREE")
    ds.delete("other IN (2, 3)")
    before = ds._snapshot.manifest.indices[0]
    after = _compacted(ds)
    (segment,) = btree_segments(after, 0)
    assert segment.entry.uuid != before.uuid
    assert segment.entry.dataset_version == before.dataset_version
    assert segment.fragments.tolist() == [2]
    assert segment.tree().rows == 6
    assert _rows(after, 5) == [(2, 0), (2, 3)]
    assert tl.dataset(str(tmp_path)).to_table(filter="k = 5")["other"].to_pylist() == [0, 5]


def test_a_damaged_index_does_not_hold_a_compaction_up(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    (entry,) = ds._snapshot.manifest.indices
    ds._store.put(f"_indices/{entry.uuid}/page_lookup.lance", b"nothing")
    ds._session.cache.clear()
    ds._session.maps.clear()
    after = _compacted(ds)
    assert after.manifest.indices == (entry,)
    assert [len(each.fragments) for each in btree_segments(after, 0)] == [0]


def test_values_rewritten_in_place_are_no_longer_taken_from_the_index(tmp_path: Path) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    snapshot = ds._snapshot
    (entry,) = snapshot.manifest.indices
    less = replace(entry, fragment_bitmap=encode_roaring(np.array([0, 2], np.uint32)))
    assert segment_of(snapshot, entry).search(ColumnQuery(("k",), KEY, values=(4, 9))).tolist() == [
        1 << 32,
        (2 << 32) + 1,
    ]
    smaller = replace(snapshot, manifest=replace(snapshot.manifest, indices=(less,), timestamp_ns=1))
    (segment,) = btree_segments(smaller, 0)
    assert segment.search(ColumnQuery(("k",), KEY, values=(4, 9))).tolist() == [(2 << 32) + 1]
    positions, addresses = segment.find(pa.array([9, 4, 0]))
    assert (sorted(positions.tolist()), sorted(addresses.tolist())) == ([0, 2], [0, (2 << 32) + 1])


def _refused(self: BTree) -> Any:
    raise AssertionError("all row ids of an index are read")


def test_an_index_is_not_read_whole_to_find_out_what_it_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the values of a fragment were written anew, nor behind a deferred compaction."""
    monkeypatch.setattr(BTree, "ids", _refused)
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    snapshot = ds._snapshot
    (entry,) = snapshot.manifest.indices
    less = replace(entry, fragment_bitmap=encode_roaring(np.array([1, 2], np.uint32)))
    smaller = replace(snapshot, manifest=replace(snapshot.manifest, indices=(less,), timestamp_ns=1))
    assert [each.fragments.tolist() for each in btree_segments(smaller, 0)] == [[1, 2]]
    ds.optimize.compact_files(defer_index_remap=True)
    assert ds.to_table(filter="k = 9")["k"].to_pylist() == [9]
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [0]


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page_lookup.lance", "page_data.lance"])
def test_a_damaged_index_says_what_to_do_and_filters_have_an_answer(tmp_path: Path, name: str) -> None:
    ds = _made(tmp_path)
    ds.create_scalar_index("k", "BTREE")
    (entry,) = ds._snapshot.manifest.indices
    path = f"_indices/{entry.uuid}/{name}"
    ds._store.put(path, ds._store.read(path).to_pybytes()[:-40])
    ds._session.cache.clear()
    ds._session.maps.clear()
    segment = segment_of(ds._snapshot, entry)
    with pytest.raises(CorruptFile, match=r"k_idx.*drop_index.*replace=True"):
        segment.search(ColumnQuery(("k",), KEY, values=(4,)))
    with pytest.raises(CorruptFile, match=name):
        ds.stats.index_stats("k_idx")
    with pytest.warns(RuntimeWarning, match="k_idx"):
        assert ds.to_table(filter="k = 4").num_rows == 1
    ds._store.delete(path)
    ds._session.cache.clear()
    ds._session.maps.clear()
    with pytest.raises(ObjectNotFound, match=name):
        segment.tree()
    ds.create_scalar_index("k", "BTREE")
    assert ds.to_table(filter="k = 4").num_rows == 1


def test_a_row_that_its_fragment_does_not_have_is_named(tmp_path: Path) -> None:
    ds = _made(tmp_path, range(8))
    ds.create_scalar_index("k", "BTREE")
    snapshot = ds._snapshot
    (entry,) = snapshot.manifest.indices
    fewer = _made(tmp_path / "b", range(6))._snapshot
    other = replace(snapshot, manifest=replace(snapshot.manifest, fragments=fewer.fragments, timestamp_ns=2))
    with pytest.raises(CorruptFile, match="row 2 of fragment 1, which has fewer rows"):
        segment_of(other, entry).search(ColumnQuery(("k",), KEY, values=(6,)))
