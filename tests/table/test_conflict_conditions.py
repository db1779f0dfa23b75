"""The faces of each lettered condition of the conflict matrix (transactions pack, section 6), and the rebase
(7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conflict_operations import (
    OTHER_SHARD,
    ROWS,
    SCHEMA,
    SHARD,
    bloom,
    fragment,
    index,
    mem_wal_index,
    new_fragment,
    overlay,
    replacement,
    sets,
)
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DeletionFile
from tiltyard.format.index_metadata import FRAGMENT_REUSE, TypedBytes
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
    Append,
    CompactedSsTable,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    KeyExistenceFilter,
    Merge,
    Overwrite,
    Project,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
)
from tiltyard.table.conflict import (
    Merged,
    Outcome,
    Verdict,
    check,
    merge_deletions,
    rebase_operation,
    stale_fragments,
    with_deletions,
)
from tiltyard.table.conflict.keys import may_share_a_key
from tiltyard.table.index_entries import covered_fragments

OK, R, X = Outcome.OK, Outcome.RETRYABLE, Outcome.INCOMPATIBLE


def rows(**by_fragment: list[int]) -> dict[int, np.ndarray]:
    return {int(key[1:]): np.array(value, np.uint32) for key, value in by_fragment.items()}


def said(ours: Any, theirs: Any, **known: Any) -> Outcome:
    verdict = check(ours, theirs, **known)
    assert verdict.ok or verdict.reason
    return verdict.outcome


# -- (a) ------------------------------------------------------------------------------------------


def test_rows_of_one_fragment_need_known_rows() -> None:
    ours = Delete((fragment(5, deleted=2),), ())
    theirs = Update((), (fragment(5, deleted=3),), (new_fragment("moved"),))
    assert said(ours, theirs) is R
    assert said(ours, theirs, my_affected=rows(f5=[1, 2])) is OK  # the rows are compared in the rebase
    assert said(Delete((fragment(6, deleted=1),), ()), theirs) is OK


def test_removed_or_rewritten_fragment_cannot_be_merged() -> None:
    known = {"my_affected": rows(f5=[1])}
    ours = Delete((fragment(5, deleted=1),), ())
    assert said(ours, Delete((), (5,)), **known) is R
    assert said(Delete((), (5,)), ours, **known) is R
    assert said(Delete((), (5,)), Delete((), (5,)), **known) is R
    other_files = Update(
        (), (fragment(5, files=3, deleted=0),), fields_modified=(1,), update_mode=REWRITE_COLUMNS
    )
    assert said(ours, other_files, **known) is R


# -- (c), (s), (t), (u), (v) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"config_updates": sets(a="1")}, {"config_updates": sets(b="1")}, OK),
        ({"config_updates": sets(a="1")}, {"config_updates": sets(a="1")}, X),
        ({"config_updates": sets(a="1")}, {"config_updates": sets(a=None)}, X),
        ({"config_updates": sets(a=None)}, {"config_updates": sets(a="1")}, X),
        ({"config_updates": sets(a=None)}, {"config_updates": sets(a=None)}, OK),
        ({"config_updates": UpdateMap(replace=True)}, {"config_updates": sets(a="1")}, OK),
        ({"config_updates": sets(a="1")}, {"table_metadata_updates": sets(a="1")}, OK),
        ({"table_metadata_updates": sets(a="1")}, {"table_metadata_updates": sets(a="2")}, X),
        ({"table_metadata_updates": sets(a="1")}, {"table_metadata_updates": sets(b="2")}, OK),
        ({"schema_metadata_updates": sets(a="1")}, {"schema_metadata_updates": sets(b="1")}, X),
        ({"field_metadata_updates": {1: sets(a="1")}}, {"field_metadata_updates": {1: sets(b="1")}}, X),
        ({"field_metadata_updates": {1: sets(a="1")}}, {"field_metadata_updates": {2: sets(a="1")}}, OK),
    ],
)
def test_metadata_changes_meet_in_keys(ours: Any, theirs: Any, expected: Outcome) -> None:
    assert said(UpdateConfig(**ours), UpdateConfig(**theirs)) is expected


def test_schema_changes_against_metadata() -> None:
    plain = UpdateConfig(config_updates=sets(a="1"), table_metadata_updates=sets(a="1"))
    schema = UpdateConfig(schema_metadata_updates=UpdateMap(replace=True))
    field = UpdateConfig(field_metadata_updates={1: sets(a="1")})
    merge = Merge((fragment(1),), SCHEMA, True)
    for config in (schema, field):
        assert said(merge, config) is R
        assert said(config, merge) is R
    assert said(merge, plain) is OK
    assert said(plain, merge) is OK


def test_overwrite_meets_in_config_keys() -> None:
    assert said(Overwrite((), SCHEMA, {"a": "1"}), Overwrite((), SCHEMA, {"b": "1"})) is R
    assert said(Overwrite((), SCHEMA, {"a": "1"}), Overwrite((), SCHEMA, {"a": "1"})) is X
    assert said(Overwrite((), SCHEMA, {"a": "1"}), UpdateConfig(sets(a="2"))) is X
    assert said(Overwrite((), SCHEMA, {"a": "1"}), UpdateConfig(sets(b="2"))) is OK
    assert said(UpdateConfig(sets(a="2")), Overwrite((), SCHEMA, {"a": "1"})) is X
    assert said(UpdateConfig(sets(b="2")), Overwrite((), SCHEMA, {"a": "1"})) is OK
    assert said(UpdateConfig(schema_metadata_updates=sets(b="2")), Overwrite((), SCHEMA)) is X


# -- (d), (i), (j), (b), (w) ------------------------------------------------------------------------


def test_index_meets_replaced_data_in_fields_of_any_fragment() -> None:
    entry = CreateIndex((index("i", 1, (1,), (2,)),))
    assert said(entry, DataReplacement((replacement(99, 1),))) is R
    assert said(DataReplacement((replacement(99, 1),)), entry) is R
    assert said(entry, DataReplacement((replacement(2, 2),))) is OK


def test_indices_meet_in_names_and_entries() -> None:
    one, two = index("i", 1, (1,), (2,)), index("i", 2, (1,), (3,))
    other = index("j", 3, (2,), (2,))
    assert said(CreateIndex((one,)), CreateIndex((two,))) is R
    assert said(CreateIndex((one,)), CreateIndex((other,))) is OK
    assert said(CreateIndex((one,)), CreateIndex((), (two,))) is R
    assert said(CreateIndex((), (two,)), CreateIndex((one,))) is R
    assert said(CreateIndex((), (one,)), CreateIndex((), (one,))) is OK  # both drop it
    source = index("k", 4, (1,), (2,))
    assert said(CreateIndex((one,), (source,)), CreateIndex((other,), (source,))) is R
    reuse = index(FRAGMENT_REUSE, 5, (), (1,))
    assert said(CreateIndex((reuse,)), CreateIndex((replace(reuse, uuid=one.uuid),))) is R


def test_index_meets_rewrite_in_covered_fragments() -> None:
    group = RewriteGroup((fragment(5), fragment(6)), (new_fragment("n"),))
    rewrite = Rewrite((group,))
    for covered, expected in (((1, 2), OK), ((1, 5), R), (None, R)):
        entry = CreateIndex((index("i", 1, (1,), covered),))
        assert said(entry, rewrite) is expected
        assert said(rewrite, entry) is expected


def test_rewrite_that_leaves_a_reuse_index_meets_only_half_covered_groups() -> None:
    rewrite = Rewrite((RewriteGroup((fragment(5), fragment(6)), (new_fragment("n"),)),))
    half = CreateIndex((index("i", 1, (1,), (1, 5)),))
    whole = CreateIndex((index("i", 1, (1,), (1, 5, 6)),))
    ngram = CreateIndex(
        (index("i", 1, (1,), (1, 5, 6), details=TypedBytes("/lance.table.NGramIndexDetails")),)
    )
    assert said(half, rewrite, their_reuse=True) is R
    assert said(whole, rewrite, their_reuse=True) is OK
    assert said(rewrite, whole, my_reuse=True) is OK
    assert said(ngram, rewrite, their_reuse=True) is R
    assert said(whole, rewrite) is R


def test_new_index_loses_fragments_whose_columns_an_update_rewrote() -> None:
    entry = index("i", 1, (1,), (2, 5))
    update = Update((), (fragment(5, files=3),), (), (1,), update_mode=REWRITE_COLUMNS)
    assert said(CreateIndex((entry,)), update) is OK
    rebased = rebase_operation(CreateIndex((entry,)), update, ())
    assert isinstance(rebased, CreateIndex)
    assert covered_fragments(rebased.new_indices[0]) == {2}
    other = replace(update, fields_modified=(2,))
    assert rebase_operation(CreateIndex((entry,)), other, ()) == CreateIndex((entry,))


def test_mem_wal_index_against_marks_and_merges() -> None:
    entry = CreateIndex((mem_wal_index(1, {SHARD: 1}),))
    marks = UpdateMemWalState((CompactedSsTable(SHARD, 3),))
    assert said(entry, marks) is OK
    assert said(CreateIndex((index("i", 1, (1,), (2,)),)), marks) is X
    merge = Merge((fragment(1),), SCHEMA, True)
    assert said(entry, merge) is R
    assert said(merge, entry) is R
    current = mem_wal_index(2, {SHARD: 3, OTHER_SHARD: 1})
    rebased = rebase_operation(entry, marks, (current,))
    assert isinstance(rebased, CreateIndex)
    assert MemWalDetails.of(rebased.new_indices[0]).marks == {SHARD: 3, OTHER_SHARD: 1}
    assert [each.uuid for each in rebased.removed_indices] == [current.uuid]


# -- (f), (r) -------------------------------------------------------------------------------------------


def test_fragments_may_not_be_shared_with_a_rewrite() -> None:
    rewrite = Rewrite((RewriteGroup((fragment(5), fragment(6)), ()),))
    for other in (
        Delete((fragment(6, deleted=1),), ()),
        Delete((), (5,)),
        Update((5,), (), (new_fragment("n"),)),
        DataReplacement((replacement(6, 1),)),
        DataOverlays((overlay(5, 1, 3),)),
        rewrite,
    ):
        assert said(rewrite, other) is R
        assert said(other, rewrite, my_affected=rows(f5=[1], f6=[1])) is R
    assert said(rewrite, Delete((fragment(7, deleted=1),), ())) is OK


def test_two_rewrites_with_reuse_indices_conflict() -> None:
    one, two = (Rewrite((RewriteGroup((fragment(i),), ()),)) for i in (1, 2))
    assert said(one, two) is OK
    assert said(one, two, my_reuse=True) is OK
    assert said(one, two, my_reuse=True, their_reuse=True) is R


# -- (g), (h), (p), (q), (o) --------------------------------------------------------------------------------


def test_replacement_after_row_changes() -> None:
    ours = DataReplacement((replacement(5, 1),))
    assert said(ours, Delete((fragment(5, deleted=1),), ())) is OK
    assert said(ours, Delete((), (5,))) is X
    assert said(ours, Update((5,))) is X
    assert said(ours, Update((), (fragment(5, deleted=1),), (new_fragment("n"),))) is R
    assert said(ours, Update((), (fragment(5, deleted=1),))) is OK  # rows deleted, none moved
    assert said(ours, Update((), (fragment(5),), (), (1,), update_mode=REWRITE_COLUMNS)) is R
    assert said(ours, Update((), (fragment(5),), (), (2,), update_mode=REWRITE_COLUMNS)) is OK
    assert said(ours, Project(SCHEMA.project(["id", "b"]), True)) is X
    assert said(ours, Project(SCHEMA.project(["id", "a"]), True)) is OK
    assert said(ours, DataReplacement((replacement(5, 2),))) is OK
    assert said(ours, DataReplacement((replacement(6, 1),))) is OK
    assert said(ours, DataReplacement((replacement(5, 1, "other"),))) is R


def test_overlays() -> None:
    theirs = DataOverlays((overlay(5, 1, 3, 4),))
    columns = Update((), (fragment(5),), (), (1,), update_mode=REWRITE_COLUMNS)
    assert said(columns, theirs) is R
    assert said(replace(columns, fields_modified=(2,)), theirs) is OK
    moves = Update((), (fragment(5, deleted=1),), (new_fragment("n"),))
    assert said(moves, theirs) is R
    assert said(moves, theirs, my_affected=rows(f5=[3])) is R
    assert said(moves, theirs, my_affected=rows(f5=[5])) is OK
    assert said(theirs, Update((5,))) is R
    assert said(theirs, moves) is R
    assert said(theirs, columns) is R
    assert said(theirs, replace(columns, fields_modified=(2,))) is OK
    assert said(theirs, Delete((fragment(5, deleted=1),), ())) is OK


# -- (k) ------------------------------------------------------------------------------------------------


def test_inserted_keys() -> None:
    ours = Update(new_fragments=(new_fragment("n"),), inserted_rows=bloom(7))
    plain = Update(new_fragments=(new_fragment("m"),))
    assert said(ours, Append((new_fragment("a"),))) is R
    assert said(ours, plain) is R
    assert said(plain, ours) is OK
    assert said(ours, replace(plain, inserted_rows=bloom(8))) is OK
    assert said(ours, replace(plain, inserted_rows=bloom(7, 9))) is R
    assert said(ours, replace(plain, inserted_rows=bloom(8, fields=(1,)))) is R
    assert said(ours, replace(plain, inserted_rows=KeyExistenceFilter((0,), exact=(7,)))) is R
    empty = replace(plain, inserted_rows=bloom())
    assert said(ours, empty) is OK
    assert said(ours, empty, unhashed_key=True) is R
    assert said(ours, replace(empty, new_fragments=()), unhashed_key=True) is OK


def test_filters_of_other_sizes_cannot_be_compared_and_zero_means_the_default() -> None:
    ours = bloom(7)
    assert ours.bloom is not None
    small = KeyExistenceFilter((0,), bloom=replace(ours.bloom, bitmap=bytes(32), num_bits=256))
    assert may_share_a_key(ours, small)
    defaults = KeyExistenceFilter((0,), bloom=replace(ours.bloom, number_of_items=0, probability=0.0))
    assert may_share_a_key(ours, defaults)
    assert not may_share_a_key(bloom(8), defaults)
    assert may_share_a_key(KeyExistenceFilter((0,), exact=(1, 2)), KeyExistenceFilter((0,), exact=(2,)))
    assert not may_share_a_key(KeyExistenceFilter((0,), exact=(1,)), KeyExistenceFilter((0,), exact=(2,)))


@given(st.sets(st.integers(0, 50_000), max_size=20), st.sets(st.integers(0, 50_000), max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_shared_key_is_never_missed(mine: set[int], theirs: set[int]) -> None:
    if mine & theirs:
        assert may_share_a_key(bloom(*mine), bloom(*theirs))
    if not mine or not theirs:
        assert not may_share_a_key(bloom(*mine), bloom(*theirs))


# -- (m), (n), (x) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "expected"), [(2, R), (3, X), (4, X)])
def test_marks_of_one_shard_only_move_forward(theirs: int, expected: Outcome) -> None:
    ours = (CompactedSsTable(SHARD, 3),)
    other = (CompactedSsTable(SHARD, theirs), CompactedSsTable(OTHER_SHARD, 9))
    state = UpdateMemWalState(ours)
    assert said(state, UpdateMemWalState(other)) is expected
    assert said(state, Update(compacted_sstables=other)) is expected
    assert said(Update(compacted_sstables=ours), UpdateMemWalState(other)) is expected
    assert said(Update(compacted_sstables=ours), Update(compacted_sstables=other)) is expected
    assert said(state, CreateIndex((mem_wal_index(1, {SHARD: theirs}),))) is expected
    assert said(state, UpdateMemWalState(other[1:])) is OK
    assert said(state, CreateIndex((index("i", 1, (1,), (2,)),))) is OK


@pytest.mark.parametrize("change", [Project(SCHEMA, False), Merge((), SCHEMA, False)])
def test_tighter_nullability_meets_new_data_in_both_directions(change: Any) -> None:
    for data in (
        Append((new_fragment("a"),)),
        Update(new_fragments=(new_fragment("u"),)),
        DataReplacement((replacement(5, 1),)),
        DataOverlays((overlay(5, 1, 3),)),
    ):
        assert said(change, data) is R
        assert said(data, change) is R


def test_bases_meet_in_id_name_and_path() -> None:
    ours = UpdateBases((BasePath(3, "/a", "a"),))
    assert said(ours, UpdateBases((BasePath(3, "/b", "b"),))) is X
    assert said(ours, UpdateBases((BasePath(0, "/b", "a"),))) is X
    assert said(ours, UpdateBases((BasePath(0, "/a", "b"),))) is X
    assert said(UpdateBases((BasePath(0, "/a"),)), UpdateBases((BasePath(0, "/b"),))) is OK


# -- the rebase of deletion vectors ------------------------------------------------------------------------


def _stale(ours: Delete | Update, now: Any) -> tuple[int, ...]:
    planned = {5: fragment(5).deletion}
    return stale_fragments(ours, planned, {5: now})


def test_fragments_with_another_deletion_file_are_stale() -> None:
    ours = Delete((fragment(5, deleted=1),), ())
    assert _stale(ours, fragment(5)) == ()
    assert _stale(ours, fragment(5, deleted=2)) == (5,)
    assert stale_fragments(Append(()), {}, {}) == ()


def test_same_row_is_a_conflict_and_unknown_rows_too() -> None:
    ours = Delete((fragment(5, deleted=2),), ())
    verdict = merge_deletions(ours, (5,), rows(f5=[1, 2]), rows(f5=[2, 7]))
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is R
    assert "offsets 2" in verdict.reason
    assert isinstance(merge_deletions(ours, (5,), None, rows(f5=[7])), Verdict)


def test_merged_rows_that_empty_the_fragment_remove_it() -> None:
    ours = Delete((fragment(5, deleted=50), fragment(6, deleted=1)), (1,))
    merged = merge_deletions(
        ours, (5, 6), rows(f5=list(range(50)), f6=[0]), rows(f5=list(range(50, ROWS)), f6=[3])
    )
    assert isinstance(merged, Merged)
    assert merged.emptied == (5,)
    assert merged.rewritten[6].tolist() == [0, 3]
    file = DeletionFile("bin", 9, 1, 2)
    done = with_deletions(ours, {6: file}, merged.emptied)
    assert done == Delete((replace(fragment(6), deletion=file),), (1, 5))
    update = with_deletions(Update((1,), ours.updated_fragments), {6: file}, (5,))
    assert isinstance(update, Update)
    assert update.removed_fragment_ids == (1, 5)


@given(
    st.sets(st.integers(0, ROWS - 1), min_size=1),
    st.sets(st.integers(0, ROWS - 1)),
    st.sets(st.integers(0, ROWS - 1)),
)
@settings(max_examples=50, deadline=None)
def test_rebase_equals_one_delete_after_the_other(mine: set[int], theirs: set[int], before: set[int]) -> None:
    mine, theirs = mine - before, theirs - before
    current = sorted(before | theirs)
    ours = Delete((fragment(5, deleted=len(before | mine)),), ())
    merged = merge_deletions(ours, (5,), rows(f5=sorted(mine)), rows(f5=current))
    if mine & theirs:
        assert isinstance(merged, Verdict)
        return
    assert isinstance(merged, Merged)
    everything = sorted(before | mine | theirs)
    if len(everything) == ROWS:
        assert merged.emptied == (5,)
    else:
        assert merged.rewritten[5].tolist() == everything
        assert merged.rewritten[5].dtype == np.uint32
