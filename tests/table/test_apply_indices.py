"""Upkeep of indices by every commit: rule P, bitmaps, rewrites, MemWAL marks and catch-up (packs: 3.1-3.3,
7.3, 7.5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conflict_operations import (
    OTHER_SHARD,
    SCHEMA,
    SHARD,
    fragment,
    index,
    mem_wal_index,
    new_fragment,
    replacement,
)
from tiltyard.errors import IncompatibleTransaction, InvalidInput
from tiltyard.format.fragment import DeletionFile
from tiltyard.format.index_metadata import FRAGMENT_REUSE, MEM_WAL, IndexFile, TypedBytes
from tiltyard.format.manifest import Manifest
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
    Append,
    CompactedSsTable,
    CreateIndex,
    DataReplacement,
    Delete,
    Overwrite,
    Project,
    Rewrite,
    RewriteGroup,
    RewrittenIndex,
    Update,
    UpdateMemWalState,
)
from tiltyard.format.row_ids import encode_row_ids
from tiltyard.format.transaction import Transaction
from tiltyard.table.apply import NewTable, apply
from tiltyard.table.index_entries import covered_fragments

BTREE, BITMAP = TypedBytes("/lance.table.BTreeIndexDetails"), TypedBytes("/lance.table.BitmapIndexDetails")


def table(*indices: Any, fragments: int = 4, stable: bool = False) -> Manifest:
    operation = Overwrite(tuple(fragment(n) for n in range(fragments)), SCHEMA)
    made = apply(
        None,
        Transaction(0, "u", operation),
        version=1,
        timestamp_ns=0,
        new_table=NewTable(stable_row_ids=stable),
    )
    return after(made, CreateIndex(tuple(indices)))


def after(previous: Manifest, operation: Any, **more: Any) -> Manifest:
    transaction = Transaction(previous.version, "u", operation)
    more.setdefault("read", previous)
    return apply(previous, transaction, version=previous.version + 1, timestamp_ns=0, **more)


def names(manifest: Manifest) -> list[tuple[str, int]]:
    return [(entry.name, int(entry.uuid[-12:])) for entry in manifest.indices if entry.name != MEM_WAL]


def covers(manifest: Manifest, name: str) -> Any:
    return next(covered_fragments(entry) for entry in manifest.indices if entry.name == name)


# -- rule P --------------------------------------------------------------------------------------------


def test_index_of_a_dropped_column_leaves() -> None:
    made = table(index("a", 1, (1,), (0, 1)), index("ab", 2, (1, 2), (0,)), index("id", 3, (0,), (0,)))
    assert names(after(made, Project(SCHEMA.project(["id", "b"]), True))) == [("id", 3)]


def test_segments_that_cover_nothing_leave_but_the_last_one_stays() -> None:
    one = index("a", 1, (1,), (0,), dataset_version=1)
    two = index("a", 2, (1,), (1,), dataset_version=2)
    unknown = index("a", 3, (1,), None, dataset_version=3)
    single = index("id", 4, (0,), (0,))
    made = table(one, two, single)
    made = after(made, Delete((), (0,)))
    assert names(made) == [("a", 2), ("id", 4)]
    assert covers(made, "id") == {0}  # bitmaps are not trimmed: readers intersect with live fragments
    assert names(after(made, Delete((), (1, 2, 3)))) == [("a", 2), ("id", 4)]
    assert names(after(table(two, one, single), Delete((), (0, 1, 2, 3)))) == [("a", 1), ("id", 4)]
    assert names(after(table(one, unknown), Delete((), (0,)))) == [("a", 3)]


# -- changes in place ------------------------------------------------------------------------------------


def test_indices_on_rewritten_columns_lose_the_fragments() -> None:
    made = table(index("a", 1, (1,), (0, 1)), index("id", 2, (0,), (0, 1)), index("u", 3, (1,), None))
    copy = made.fragments[0]
    columns = after(made, Update((), (copy,), (), (1,), update_mode=REWRITE_COLUMNS))
    assert (covers(columns, "a"), covers(columns, "id"), covers(columns, "u")) == ({1}, {0, 1}, None)
    replaced = after(made, DataReplacement((replacement(1, 1),)))
    assert (covers(replaced, "a"), covers(replaced, "id")) == ({0}, {0, 1})


def test_moved_and_new_rows_leave_bitmaps_alone() -> None:
    made = table(index("a", 1, (1,), (0, 1)))
    moved = replace(made.fragments[0], deletion=DeletionFile("arrow", 2, 1, 1))
    assert covers(after(made, Update((), (moved,), (new_fragment("m"),))), "a") == {0, 1}
    assert covers(after(made, Append((new_fragment("m"),))), "a") == {0, 1}


# -- rewrites ------------------------------------------------------------------------------------------------


def rewriting(manifest: Manifest, *old: int, rows: int = 200) -> RewriteGroup:
    new = replace(new_fragment(f"n{old[0]}", rows=rows), row_ids=encode_row_ids(range(rows)))
    if not manifest.fragments[0].has_row_ids:
        new = replace(new, row_ids=None)
    return RewriteGroup(tuple(f for f in manifest.fragments if f.id in old), (new,))


def test_stable_row_ids_let_indices_of_ids_follow() -> None:
    entries = (
        index("ids", 1, (1,), (0, 1, 3), details=BITMAP),
        index("old-btree", 2, (1,), (0, 1), details=BTREE, index_version=0),
        index("addresses", 3, (1,), (0, 1, 3), details=BTREE, index_version=1),
        index("elsewhere", 4, (1,), (3,), details=BITMAP),
    )
    made = table(*entries, stable=True)
    made = after(made, Rewrite((rewriting(made, 0, 1),)))
    assert covers(made, "ids") == {3, 4}
    assert covers(made, "old-btree") == {4}
    assert covers(made, "addresses") == {3}
    assert covers(made, "elsewhere") == {3}


def test_half_covered_group_is_refused() -> None:
    made = table(index("ids", 1, (1,), (0,), details=BITMAP), stable=True)
    with pytest.raises(InvalidInput, match="index ids covers with others"):
        after(made, Rewrite((rewriting(made, 0, 1),)))


def test_remapped_index_takes_the_rewriters_entry() -> None:
    entry = index("a", 1, (1,), (0, 1, 3), created_at=5, index_version=0)
    left = index("b", 2, (2,), (0, 1))
    made = table(entry, left)
    new = RewrittenIndex(entry.uuid, "00000000-0000-0000-0000-000000000009", BTREE, 2, (IndexFile("x", 3),))
    made = after(made, Rewrite((rewriting(made, 0, 1),), (new,)))
    found = made.indices[0]
    assert (found.uuid, found.index_version, found.files) == (new.new_id, 2, new.new_index_files)
    assert (found.created_at, found.dataset_version, found.fields) == (5, 1, (1,))
    assert covered_fragments(found) == {3, 4}
    assert covers(made, "b") == {0, 1}  # stale addresses: its fragments are gone, the new one is scanned


def test_deferred_remap_leaves_entries_and_replaces_the_reuse_index() -> None:
    old_reuse = index(FRAGMENT_REUSE, 8, (), (9,))
    new_reuse = index(FRAGMENT_REUSE, 9, (), (4,))
    made = table(index("a", 1, (1,), (0, 1)), old_reuse)
    made = after(made, Rewrite((rewriting(made, 0, 1),)), reuse_entry=new_reuse)
    assert names(made) == [("a", 1), (FRAGMENT_REUSE, 9)]
    assert covers(made, "a") == {0, 1}


# -- MemWAL
# ------------------------------------------------------------------------------------------------------


def marks(manifest: Manifest) -> dict[str, int]:
    return dict(next(MemWalDetails.of(e).marks for e in manifest.indices if e.name == MEM_WAL))


def caught_up(manifest: Manifest) -> dict[str, dict[str, int]]:
    details = next(MemWalDetails.of(e) for e in manifest.indices if e.name == MEM_WAL)
    return {name: dict(each) for name, each in details.catch_up.items()}


def compacted(*pairs: tuple[str, int]) -> tuple[CompactedSsTable, ...]:
    return tuple(CompactedSsTable(shard, generation) for shard, generation in pairs)


def test_marks_advance_and_the_entry_is_a_new_one() -> None:
    made = table(mem_wal_index(1, {SHARD: 1}))
    before = made.indices[0]
    made = after(made, UpdateMemWalState(compacted((SHARD, 2), (OTHER_SHARD, 7))))
    assert marks(made) == {SHARD: 2, OTHER_SHARD: 7}
    assert made.indices[0].uuid != before.uuid
    assert made.indices[0].dataset_version == made.version
    assert made.indices[0].index_version == 0
    assert list(made.fragments.ids) == [0, 1, 2, 3]
    details = MemWalDetails.of(made.indices[0])
    assert details._message.writer_config_defaults == {"tiltyard.incarnation": "x"}
    assert details._message.HasField("maintain_all_indexes")
    made = after(made, Update(new_fragments=(new_fragment("n"),), compacted_sstables=compacted((SHARD, 5))))
    assert marks(made) == {SHARD: 5, OTHER_SHARD: 7}


def test_marks_that_do_not_advance_are_refused() -> None:
    made = table(mem_wal_index(1, {SHARD: 3}))
    for generation in (2, 3):
        with pytest.raises(IncompatibleTransaction, match="Stale SSTable compaction for shard"):
            after(made, UpdateMemWalState(compacted((SHARD, generation))))
    with pytest.raises(InvalidInput, match="Duplicate shard"):
        after(made, UpdateMemWalState(compacted((SHARD, 4), (SHARD, 5))))
    with pytest.raises(InvalidInput, match="does not exist on this table"):
        after(table(), UpdateMemWalState(compacted((SHARD, 1))))


def test_catch_up_follows_what_the_official_implementation_was_seen_to_do() -> None:
    """The sequence of MemWAL, section 7.5: marks, optimise, marks, re-create, delete, compaction, append."""
    entry = index("i", 2, (1,), (0, 1, 2, 3))
    made = table(mem_wal_index(1, {}), entry)
    made = after(made, Update(new_fragments=(new_fragment("g1"),), compacted_sstables=compacted((SHARD, 1))))
    assert caught_up(made) == {}
    whole = index("i", 3, (1,), (0, 1, 2, 3, 4))
    made = after(made, CreateIndex((whole,), (entry,)))
    assert caught_up(made) == {"i": {SHARD: 1}}
    made = after(made, Update(new_fragments=(new_fragment("g2"),), compacted_sstables=compacted((SHARD, 2))))
    assert caught_up(made) == {"i": {SHARD: 1}}
    again = index("i", 4, (1,), (0, 1, 2, 3, 4, 5))
    made = after(made, CreateIndex((again, index("j", 5, (2,), (0, 1, 2, 3, 4, 5))), (whole,)))
    assert caught_up(made) == {"i": {SHARD: 2}, "j": {SHARD: 2}}
    made = after(made, CreateIndex((), (index("j", 5, (2,), None),)))
    assert caught_up(made) == {"i": {SHARD: 2}}
    uuid = next(e.uuid for e in made.indices if e.name == MEM_WAL)
    deleted = replace(made.fragments[0], deletion=DeletionFile("arrow", 1, 1, 1))
    made = after(made, Delete((deleted,)))
    assert caught_up(made) == {"i": {SHARD: 2}}
    assert uuid == next(e.uuid for e in made.indices if e.name == MEM_WAL)  # nothing to rewrite
    remap = RewrittenIndex(again.uuid, "00000000-0000-0000-0000-000000000077", BTREE, 0)
    made = after(made, Rewrite((rewriting(made, 0, 1, 2, 3, 4, 5, rows=419),), (remap,)))
    assert caught_up(made) == {}
    made = after(made, Append((new_fragment("late"),)))
    assert caught_up(made) == {"i": {SHARD: 2}}


def test_no_credit_without_the_version_that_was_read_or_with_an_empty_one() -> None:
    start = table(mem_wal_index(1, {SHARD: 2}), index("i", 2, (1,), (0, 1, 2, 3)))
    assert caught_up(after(start, Append((new_fragment("a"),)))) == {"i": {SHARD: 2}}
    assert caught_up(after(start, Append((new_fragment("a"),)), read=None)) == caught_up(start)
    empty = table(mem_wal_index(1, {SHARD: 2}), index("i", 2, (1,), ()), fragments=0)
    assert caught_up(after(empty, Append((new_fragment("a"),)))) == {}


def test_credit_never_exceeds_the_marks_of_the_version_that_is_made() -> None:
    start = table(mem_wal_index(1, {SHARD: 1}), index("i", 2, (1,), (0, 1, 2, 3)))
    ahead = after(start, UpdateMemWalState(compacted((SHARD, 9))))
    made = after(start, Append((new_fragment("a"),)), read=ahead)
    assert caught_up(made) == {"i": {SHARD: 1}}
