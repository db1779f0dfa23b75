"""Row ids and row versions through each operation (table format, section 13.3), on tables with stable row
ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conflict_operations import SCHEMA, bitmap, new_fragment, overlay, replacement
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format import flags
from tiltyard.format.fragment import DataFile, DeletionFile, Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
    Append,
    DataOverlays,
    DataReplacement,
    Delete,
    Merge,
    Overwrite,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
)
from tiltyard.format.row_ids import decode_row_ids, decode_versions, encode_row_ids
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.table.apply import NewTable, apply


def table(*rows: int) -> Manifest:
    fragments = tuple(new_fragment(f"first{n}", rows=count) for n, count in enumerate(rows))
    return apply(
        None,
        Transaction(0, "u", Overwrite(fragments, SCHEMA)),
        version=1,
        timestamp_ns=0,
        new_table=NewTable(stable_row_ids=True),
    )


def after(previous: Manifest, operation: Any, **more: Any) -> Manifest:
    transaction = Transaction(previous.version, "u", operation)
    return apply(previous, transaction, version=previous.version + 1, timestamp_ns=0, **more)


def lineage(fragment: Fragment) -> list[tuple[int, int, int]]:
    """(row id, created, last updated) of each physical row."""
    assert fragment.row_ids is not None
    assert fragment.created_versions is not None
    assert fragment.last_updated_versions is not None
    rows = fragment.physical_rows
    return list(
        zip(
            decode_row_ids(fragment.row_ids, rows).tolist(),
            decode_versions(fragment.created_versions, rows).tolist(),
            decode_versions(fragment.last_updated_versions, rows).tolist(),
            strict=True,
        )
    )


def test_new_rows_take_the_next_ids_and_the_new_version() -> None:
    made = table(3, 2)
    assert made.reader_flags & made.writer_flags & flags.STABLE_ROW_IDS
    assert lineage(made.fragments[1]) == [(3, 1, 1), (4, 1, 1)]
    made = after(made, Append((new_fragment("a", rows=2), new_fragment("b", rows=1))))
    assert lineage(made.fragments[2]) == [(5, 2, 2), (6, 2, 2)]
    assert lineage(made.fragments[3]) == [(7, 2, 2)]
    assert made.next_row_id == 8
    made = after(made, Overwrite((new_fragment("o", rows=1),), SCHEMA))
    assert lineage(made.fragments[0]) == [(8, 3, 3)]
    assert made.reader_flags & flags.STABLE_ROW_IDS


def test_tables_without_stable_row_ids_get_none() -> None:
    operation = Overwrite((new_fragment("a"),), SCHEMA)
    made = apply(None, Transaction(0, "u", operation), version=1, timestamp_ns=0)
    assert made.fragments[0].row_ids is None
    assert made.fragments[0].created_versions is None
    assert made.next_row_id == 0


def test_delete_leaves_lineage_alone() -> None:
    made = table(3)
    before = lineage(made.fragments[0])
    changed = replace(made.fragments[0], deletion=DeletionFile("arrow", 1, 1, 1))
    assert lineage(after(made, Delete((changed,))).fragments[0]) == before


def test_moved_rows_keep_id_and_creation_and_inserted_rows_follow_them() -> None:
    made = after(table(3), Append((new_fragment("a", rows=3),)))
    made = after(made, Append((new_fragment("b", rows=2),)))
    touched = [replace(made.fragments[at], deletion=DeletionFile("arrow", 3, at, 1)) for at in (0, 1)]
    new = replace(new_fragment("moved", rows=4), row_ids=encode_row_ids([4, 2]))
    made = after(made, Update((), tuple(touched), (new,)))
    assert lineage(made.fragments[3]) == [(4, 2, 4), (2, 1, 4), (8, 4, 4), (9, 4, 4)]
    assert made.next_row_id == 10


def test_rows_moved_out_of_a_removed_fragment_keep_their_creation() -> None:
    made = after(table(1), Append((new_fragment("a", rows=2),)))
    new = replace(new_fragment("moved", rows=2), row_ids=encode_row_ids([1, 2]))
    made = after(made, Update((1,), (), (new,)))
    assert lineage(made.fragments[1]) == [(1, 2, 3), (2, 2, 3)]


def test_more_carried_ids_than_rows_are_refused() -> None:
    new = replace(new_fragment("moved", rows=1), row_ids=encode_row_ids([1, 2]))
    with pytest.raises(InvalidInput, match="carries 2 row ids"):
        after(table(3), Update(new_fragments=(new,)))


def test_rows_rewritten_in_place_change_only_their_last_update() -> None:
    made = table(4)
    copy = made.fragments[0]
    update = Update((), (copy,), (), (1,), update_mode=REWRITE_COLUMNS)
    bits = after(made, replace(update, updated_fragment_offset_bitmaps={0: bitmap(1, 3)}))
    assert lineage(bits.fragments[0]) == [(0, 1, 1), (1, 1, 2), (2, 1, 1), (3, 1, 2)]
    old_form = after(made, replace(update, updated_fragment_offsets={0: (1, 3)}))
    assert lineage(old_form.fragments[0]) == lineage(bits.fragments[0])
    with pytest.raises(InvalidInput, match="offset 4 is outside"):
        after(made, replace(update, updated_fragment_offset_bitmaps={0: bitmap(4)}))


def test_merge_stamps_fragments_whose_files_changed() -> None:
    made = table(2, 2)
    schema = Schema.from_arrow(pa.schema([*SCHEMA.arrow, pa.field("c", pa.int32())]))
    first = replace(made.fragments[0], files=(*made.fragments[0].files, DataFile("c.lance", (3,), (0,))))
    made = after(made, Merge((first, made.fragments[1], new_fragment("n", rows=1)), schema, True))
    assert lineage(made.fragments[0]) == [(0, 1, 2), (1, 1, 2)]
    assert lineage(made.fragments[1]) == [(2, 1, 1), (3, 1, 1)]
    assert lineage(made.fragments[2]) == [(4, 2, 2)]


def test_replacement_and_overlay_stamp_what_they_cover() -> None:
    made = after(table(2, 2), DataReplacement((replacement(1, 1),)))
    assert lineage(made.fragments[0]) == [(0, 1, 1), (1, 1, 1)]
    assert lineage(made.fragments[1]) == [(2, 1, 2), (3, 1, 2)]
    made = after(made, DataOverlays((overlay(0, 1, 1),)))
    assert lineage(made.fragments[0]) == [(0, 1, 1), (1, 1, 3)]


def test_rewrite_carries_and_never_invents() -> None:
    made = table(2, 2)
    old = tuple(made.fragments)
    carried = Fragment(
        0,
        (DataFile("n.lance", (0, 1, 2), (0, 1, 2)),),
        3,
        row_ids=encode_row_ids([0, 2, 3]),
        created_versions=old[0].created_versions,
        last_updated_versions=old[0].last_updated_versions,
    )
    made = after(made, Rewrite((RewriteGroup(old, (carried,)),)))
    assert made.fragments[0].row_ids == carried.row_ids
    assert made.next_row_id == 4
    with pytest.raises(InvalidInput, match="must carry the row ids"):
        after(made, Rewrite((RewriteGroup(tuple(made.fragments), (new_fragment("n"),)),)))


def test_next_row_id_never_falls() -> None:
    first = table(2)
    later = after(first, Append((new_fragment("a", rows=5),)))
    made = after(later, Restore(1), restored=first)
    assert made.next_row_id == 7
    assert lineage(after(made, Append((new_fragment("b", rows=1),))).fragments[1]) == [(7, 4, 4)]


def test_restore_to_before_stable_row_ids_is_refused() -> None:
    old = apply(None, Transaction(0, "u", Overwrite((), SCHEMA)), version=1, timestamp_ns=0)
    with pytest.raises(InvalidInput, match="before stable row ids"):
        after(replace(table(1), version=2), Restore(1), restored=old)


def test_spilled_lineage_is_carried_or_refused() -> None:
    made = table(2)
    spilled = replace(
        made.fragments[0],
        last_updated_versions=None,
        spilled_last_updated=True,
        created_versions=None,
        spilled_created=True,
    )
    made = replace(made, fragments=made.fragments.replaced({0: spilled}))
    kept = after(made, Append((new_fragment("a"),)))
    assert kept.reader_flags & kept.writer_flags & flags.SPILLED_ROW_LINEAGE
    update = Update(
        (), (spilled,), update_mode=REWRITE_COLUMNS, updated_fragment_offset_bitmaps={0: bitmap(1)}
    )
    with pytest.raises(UnsupportedFeature):
        after(made, update)
    moved = replace(new_fragment("m", rows=1), row_ids=encode_row_ids([1]))
    with pytest.raises(UnsupportedFeature):
        after(made, Update((), (spilled,), (moved,)))


@given(st.lists(st.tuples(st.sampled_from(["append", "move", "delete"]), st.integers(1, 4)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_ids_of_live_rows_are_unique_and_creation_never_changes(steps: list[tuple[str, int]]) -> None:
    current = table(5)
    created = {id: version for id, version, _ in lineage(current.fragments[0])}
    dead: dict[int, set[int]] = {}
    for number, (step, count) in enumerate(steps):
        if step == "append":
            current = after(current, Append((new_fragment(f"a{number}", rows=count),)))
        else:
            source = next((f for f in current.fragments if len(dead.get(f.id, ())) < f.physical_rows), None)
            if source is None:
                continue
            gone = dead.setdefault(source.id, set())
            live = [at for at in range(source.physical_rows) if at not in gone][:count]
            gone.update(live)
            empty = len(gone) == source.physical_rows
            copies = () if empty else (replace(source, deletion=DeletionFile("bin", 1, number, len(gone))),)
            removed = (source.id,) if empty else ()
            new: tuple[Fragment, ...] = ()
            if step == "move":
                ids = [lineage(source)[at][0] for at in live]
                new = (replace(new_fragment(f"m{number}", rows=len(ids)), row_ids=encode_row_ids(ids)),)
            current = after(current, Update(removed, copies, new))
        live_ids = []
        for fragment in current.fragments:
            for at, (id, version, updated) in enumerate(lineage(fragment)):
                assert created.setdefault(id, version) == version
                assert updated >= version
                if at not in dead.get(fragment.id, ()):
                    live_ids.append(id)
        assert len(live_ids) == len(set(live_ids))
        assert all(id < current.next_row_id for id in live_ids)
