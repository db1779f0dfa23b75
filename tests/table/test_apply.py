"""The next manifest for each operation: fragments, schema, maps, marks (transactions pack, section 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conflict_operations import SCHEMA, fragment, index, new_fragment, overlay, replacement, sets
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format import flags
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DeletionFile, Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import (
    Append,
    Clone,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.table.apply import NewTable, apply

NOW = 1_700_000_000_000_000_000


def table(*fragments: Fragment, **new: Any) -> Manifest:
    operation = Overwrite(fragments or (new_fragment("first"), new_fragment("second")), SCHEMA)
    return apply(
        None, Transaction(0, "u0", operation), version=1, timestamp_ns=NOW, new_table=NewTable(**new)
    )


def after(previous: Manifest, operation: Any, **more: Any) -> Manifest:
    transaction = Transaction(previous.version, "u", operation)
    return apply(previous, transaction, version=previous.version + 1, timestamp_ns=NOW, **more)


def ids(manifest: Manifest) -> list[int]:
    return manifest.fragments.ids.tolist()


# -- creation, append, overwrite ------------------------------------------------------------------------


def test_first_version() -> None:
    made = table()
    assert (made.version, ids(made), made.max_fragment_id) == (1, [0, 1], 1)
    assert made.data_format is not None
    assert (made.data_format.file_format, made.data_format.version) == ("lance", "2.2")
    assert made.writer_version is not None
    assert made.writer_version.library == "tiltyard"
    assert (made.reader_flags, made.writer_flags, made.timestamp_ns) == (0, 0, NOW)


def test_empty_table_has_no_greatest_fragment_id_and_takes_the_version_asked_for() -> None:
    operation = Overwrite((), SCHEMA, {"k": "v"}, (BasePath(0, "/b", "b"), BasePath(0, "/c", "c")))
    made = apply(
        None,
        Transaction(0, "u", operation),
        version=1,
        timestamp_ns=NOW,
        new_table=NewTable(data_version="2.1", table_metadata={"m": "1"}),
    )
    assert made.max_fragment_id is None
    assert made.data_format is not None
    assert made.data_format.version == "2.1"
    assert (made.config, made.table_metadata) == ({"k": "v"}, {"m": "1"})
    assert [(base.id, base.name) for base in made.base_paths] == [(1, "b"), (2, "c")]
    assert made.writer_flags & flags.TABLE_CONFIG
    assert made.reader_flags & flags.BASE_PATHS


def test_append_numbers_new_fragments_and_keeps_reserved_ids() -> None:
    made = after(table(), Append((new_fragment("a"), replace(new_fragment("b"), id=9), new_fragment("c"))))
    assert ids(made) == [0, 1, 2, 3, 9]
    assert made.max_fragment_id == 9
    assert ids(after(made, Append((new_fragment("d"),)))) == [0, 1, 2, 3, 9, 10]


@pytest.mark.parametrize(
    "operation",
    [
        Append((replace(new_fragment("a"), id=1),)),
        Append((replace(new_fragment("a"), id=7), replace(new_fragment("b"), id=7))),
        Append((new_fragment("a", rows=0),)),
        Append((Fragment(0, (DataFile("l.lance", (0,), (), 0, 2),), 3),)),
        Append((Fragment(0, (DataFile("x.lance", (0,), (0,)), DataFile("y.lance", (0,), (0,))), 3),)),
        Delete((fragment(77, deleted=1),)),
        Delete((fragment(1, deleted=1), fragment(1, deleted=1))),
        Delete((), (77,)),
        Rewrite((RewriteGroup((fragment(77),), (new_fragment("n"),)),)),
        DataReplacement((replacement(77, 1),)),
        DataReplacement((replacement(0, 1), replacement(1, 2))),
        Overwrite((fragment(0, deleted=1),), SCHEMA),
        Overwrite((), SCHEMA, {}, (BasePath(0, "/b"),)),
        Restore(7),
        Clone(ref_version=1),
        UpdateBases((BasePath(0, "/a", "a"), BasePath(0, "/a", "b"))),
        UpdateConfig(field_metadata_updates={99: sets(a="1")}),
        ReserveFragments(2**32),
        Project(Schema.from_arrow(pa.schema([("z", pa.int64())]), 7), True),
        CreateIndex((index("i", 1, (99,), (0,)),)),
    ],
)
def test_transactions_that_do_not_fit_are_refused(operation: Any) -> None:
    from tiltyard.errors import FieldNotFound

    with pytest.raises((InvalidInput, FieldNotFound)):
        after(table(), operation)


def test_unknown_operation_and_table_that_does_not_begin_with_its_creation_are_refused() -> None:
    with pytest.raises(UnsupportedFeature):
        after(table(), UnknownOperation(116))
    with pytest.raises(InvalidInput, match="cannot begin with Append"):
        apply(None, Transaction(0, "u", Append(())), version=1, timestamp_ns=NOW)


def test_overwrite_renumbers_keeps_maps_and_drops_indices() -> None:
    start = after(table(), CreateIndex((index("i", 1, (1,), (0,)),)))
    start = after(start, UpdateConfig(sets(a="1", b="1"), sets(m="1")))
    schema = Schema.from_arrow(pa.schema([("z", pa.int32())], metadata={"new": "1"}))
    new = Fragment(5, (DataFile("z.lance", (0,), (0,), 2, 1),), 3)
    made = after(start, Overwrite((new,), schema, {"b": "2"}))
    assert ids(made) == [2]
    assert made.indices == ()
    assert made.config == {"a": "1", "b": "2"}
    assert made.table_metadata == {"m": "1"}
    assert made.schema.metadata == {"new": b"1"}
    assert made.data_format is not None
    assert made.data_format.version == "2.1"
    assert made.reader_flags == 0


def test_append_of_another_file_version_marks_the_table_for_good() -> None:
    other = Fragment(0, (DataFile("o.lance", (0, 1, 2), (0, 1, 2), 2, 1),), 3)
    made = after(table(), Append((other,)))
    assert made.data_format is not None
    assert made.data_format.version == "2.2"
    assert made.reader_flags & made.writer_flags & flags.MIXED_FILE_VERSIONS
    assert after(made, Delete((), (2,))).reader_flags & flags.MIXED_FILE_VERSIONS


# -- rows ---------------------------------------------------------------------------------------------------


def test_delete_replaces_and_removes_and_flags_follow() -> None:
    start = table()
    deleted = replace(start.fragments[0], deletion=DeletionFile("arrow", 1, 5, 2))
    made = after(start, Delete((deleted,), (1,), "x"))
    assert ids(made) == [0]
    assert made.num_rows == 8
    assert made.reader_flags & made.writer_flags & flags.DELETION_FILES
    assert made.max_fragment_id == 1
    assert after(made, Delete((), (0,))).reader_flags == 0


def test_unchanged_fragments_are_carried_over_and_superseded_files_leave() -> None:
    start = table(fragment(0, files=3), fragment(1))
    dead = DataFile("dead.lance", (-2,), (0,))
    changed = replace(start.fragments[0], files=(dead, *start.fragments[0].files))
    made = after(start, Update((), (changed,), (new_fragment("moved"),)))
    assert ids(made) == [0, 1, 2]
    assert made.fragments[0].files == start.fragments[0].files
    assert made.fragments[1] == start.fragments[1]


def test_update_keeps_overlays_committed_meanwhile() -> None:
    start = table()
    covered = after(start, DataOverlays((overlay(0, 1, 3),)))
    assert covered.fragments[0].overlays[0].committed_version == 2
    assert covered.reader_flags & flags.DATA_OVERLAYS
    stale = replace(start.fragments[0], deletion=DeletionFile("arrow", 1, 5, 1))
    made = after(covered, Update((), (stale,)))
    assert made.fragments[0].overlays == covered.fragments[0].overlays


# -- columns
# --------------------------------------------------------------------------------------------------


def _with_column(manifest: Manifest) -> tuple[Schema, tuple[Fragment, ...]]:
    arrow = pa.schema([*SCHEMA.arrow, pa.field("c", pa.int32())])
    schema = Schema.from_arrow(arrow)
    fragments = tuple(
        replace(f, files=(*f.files, DataFile(f"c{f.id}.lance", (3,), (0,)))) for f in manifest.fragments
    )
    return schema, fragments


def test_merge_takes_the_complete_list() -> None:
    start = table()
    schema, fragments = _with_column(start)
    made = after(start, Merge((*fragments, new_fragment("n")), schema, True))
    assert ids(made) == [0, 1, 2]
    assert made.schema.names == ["id", "a", "b", "c"]
    assert [len(f.files) for f in made.fragments] == [2, 2, 1]


def test_merge_that_loses_or_changes_fragments_is_refused() -> None:
    start = table()
    schema, fragments = _with_column(start)
    with pytest.raises(InvalidInput, match=r"\[1\] are missing"):
        after(start, Merge(fragments[:1], schema))
    with pytest.raises(InvalidInput, match="10 rows and the merge gives it 11"):
        after(start, Merge((replace(fragments[0], physical_rows=11), fragments[1]), schema))
    retyped = Schema.from_arrow(pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())]))
    with pytest.raises(InvalidInput, match="changes field 1"):
        after(start, Merge(tuple(start.fragments), retyped))
    tight = Schema.from_arrow(
        pa.schema([pa.field("id", pa.int64(), False), ("a", pa.int64()), ("b", pa.string())])
    )
    with pytest.raises(InvalidInput, match="changes field 0"):
        after(start, Merge(tuple(start.fragments), tight))


def test_project_drops_files_that_no_column_is_left_of() -> None:
    start = table(fragment(0, files=3))
    made = after(start, Project(SCHEMA.project(["id", "b"]), True))
    assert [file.fields for file in made.fragments[0].files] == [(0,), (2,)]
    whole = after(table(), Project(SCHEMA.project(["id"]), True))
    assert [file.fields for file in whole.fragments[0].files] == [(0, 1, 2)]


def test_data_replacement_forms() -> None:
    start = table(fragment(0, files=3))
    same = DataReplacement((replacement(0, 1),))
    made = after(start, same)
    assert [file.path for file in made.fragments[0].files] == ["0-0.lance", "new-0-1.lance", "0-2.lance"]
    wide = table()
    made = after(wide, DataReplacement((replacement(0, 1), replacement(1, 1))))
    assert [file.fields for file in made.fragments[0].files] == [(0, -2, 2), (1,)]
    again = after(made, DataReplacement((replacement(0, 1, "newer"),)))
    assert [file.path for file in again.fragments[0].files][1] == "newer-0-1.lance"
    filled = after(start, DataReplacement((replacement(0, 7),)))
    assert len(filled.fragments[0].files) == 4
    partly = DataReplacement((replace(replacement(0, 1), new_file=DataFile("p.lance", (1, 9), (0, 1))),))
    with pytest.raises(InvalidInput, match="no changes were made"):
        after(start, partly)


# -- rewrite, restore, clone
# ------------------------------------------------------------------------------------


def test_rewrite_replaces_groups() -> None:
    start = after(table(), ReserveFragments(3))
    assert start.max_fragment_id == 4
    new = replace(new_fragment("n", rows=20), id=4)
    made = after(start, Rewrite((RewriteGroup(tuple(start.fragments), (new,)),)))
    assert ids(made) == [4]
    assert made.max_fragment_id == 4


def test_reservation_on_a_table_that_never_had_fragments_counts_from_zero() -> None:
    empty = apply(None, Transaction(0, "u", Overwrite((), SCHEMA)), version=1, timestamp_ns=NOW)
    assert after(empty, ReserveFragments(3)).max_fragment_id == 3


def test_restore_brings_content_back_and_marks_never_fall() -> None:
    first = after(table(), UpdateConfig(sets(a="1")))
    later = after(first, Append((new_fragment("late"),)))
    later = after(later, UpdateConfig(sets(a="2", b="3"), sets(m="1")))
    later = after(later, UpdateBases((BasePath(0, "/b", "b"),)))
    made = after(later, Restore(first.version), restored=first)
    assert ids(made) == [0, 1]
    assert (made.version, made.max_fragment_id) == (later.version + 1, 2)
    assert (made.config, made.table_metadata) == ({"a": "1"}, {})
    assert [base.name for base in made.base_paths] == ["b"]


def test_clones() -> None:
    source = after(table(), CreateIndex((index("i", 1, (1,), (0,)),)))
    deleted = replace(source.fragments[0], deletion=DeletionFile("arrow", 1, 5, 2))
    source = after(source, Delete((deleted,)))
    operation = Clone(True, "gold", 3, "/source", "dev")
    transaction = Transaction(3, "u", operation)
    made = apply(None, transaction, version=3, timestamp_ns=NOW, source=source)
    assert (made.version, made.branch) == (3, "dev")
    base = made.base_paths[0]
    assert (base.id, base.name, base.path, base.is_dataset_root) == (0, "gold", "/source", True)
    assert all(file.base_id == 0 for f in made.fragments for file in f.files)
    assert made.fragments[0].deletion is not None
    assert made.fragments[0].deletion.base_id == 0
    assert made.indices[0].base_id == 0
    assert made.reader_flags == flags.BASE_PATHS | flags.DELETION_FILES
    again = apply(
        None,
        Transaction(3, "u", Clone(True, None, 3, "/second")),
        version=3,
        timestamp_ns=NOW,
        source=made,
    )
    assert [(each.id, each.path) for each in again.base_paths] == [(0, "/source"), (1, "/second")]
    assert again.fragments[0].files[0].base_id == 0
    deep = apply(
        None, Transaction(3, "u", Clone(False, None, 3, "/second")), version=3, timestamp_ns=NOW, source=again
    )
    assert deep.base_paths == ()
    assert deep.fragments[0].files[0].base_id is None
    assert deep.branch is None


# -- maps
# ---------------------------------------------------------------------------------------------------------


def test_config_maps() -> None:
    made = after(table(), UpdateConfig(sets(a="1", b="2"), sets(t="1"), sets(s="1"), {1: sets(f="1")}))
    assert (made.config, made.table_metadata) == ({"a": "1", "b": "2"}, {"t": "1"})
    assert made.schema.metadata == {"s": b"1"}
    assert made.schema.by_id(1).metadata == {"f": "1"}
    assert made.writer_flags == flags.TABLE_CONFIG
    gone = after(
        made, UpdateConfig(sets(a=None), None, UpdateMap((("n", "2"),), True), {1: UpdateMap((), True)})
    )
    assert gone.config == {"b": "2"}
    assert gone.schema.metadata == {"n": b"2"}
    assert gone.schema.by_id(1).metadata == {}
    assert after(gone, UpdateConfig(UpdateMap(replace=True))).writer_flags == 0


def test_primary_key_can_be_set_once() -> None:
    key = "lance-schema:unenforced-primary-key"
    schema = Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False), ("a", pa.int64())]))
    start = apply(None, Transaction(0, "u", Overwrite((), schema)), version=1, timestamp_ns=NOW)
    made = after(start, UpdateConfig(field_metadata_updates={0: UpdateMap(((key, "true"),))}))
    assert [field.name for field in made.schema.primary_key] == ["id"]
    with pytest.raises(InvalidInput, match="cannot be changed once set"):
        after(made, UpdateConfig(field_metadata_updates={0: UpdateMap(replace=True)}))
    with pytest.raises(InvalidInput, match="must not be nullable"):
        after(start, UpdateConfig(field_metadata_updates={1: UpdateMap(((key, "true"),))}))


def test_new_bases_take_the_next_unused_id() -> None:
    made = after(table(), UpdateBases((BasePath(0, "/a", "a"), BasePath(5, "/b", "b"))))
    made = after(made, UpdateBases((BasePath(0, "/c", "c"),)))
    assert [(base.id, base.name) for base in made.base_paths] == [(1, "a"), (5, "b"), (6, "c")]


# -- indices
# --------------------------------------------------------------------------------------------------------


def test_create_index_replaces_by_uuid() -> None:
    one, two = index("i", 1, (1,), (0,)), index("i", 2, (1,), (1,))
    made = after(after(table(), CreateIndex((one, two))), CreateIndex((replace(one, name="j"),), (two,)))
    assert [(entry.name, entry.uuid) for entry in made.indices] == [("j", one.uuid)]


# -- histories
# --------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: Any) -> list[str]:
    return draw(
        st.lists(
            st.sampled_from(["append", "delete", "remove", "overwrite", "reserve", "restore"]), max_size=12
        )
    )


@given(histories())
@settings(max_examples=50, deadline=None)
def test_ids_are_unique_ascending_and_never_used_again(steps: list[str]) -> None:
    current = table()
    versions = [current]
    used: dict[int, str] = {f.id: f.files[0].path for f in current.fragments}
    for number, step in enumerate(steps):
        more: dict[str, Any] = {}
        operation: Any
        match step:
            case "append":
                operation = Append((new_fragment(f"a{number}"),))
            case "overwrite":
                operation = Overwrite((new_fragment(f"o{number}"),), SCHEMA)
            case "reserve":
                operation = ReserveFragments(2)
            case "restore":
                more = {"restored": versions[0]}
                operation = Restore(versions[0].version)
            case _:
                if not len(current.fragments):
                    continue
                last = current.fragments[-1]
                gone = (last.id,) if step == "remove" else ()
                kept = () if gone else (replace(last, deletion=DeletionFile("bin", number, number, 1)),)
                operation = Delete(kept, gone)
        following = after(current, operation, **more)
        assert following.version == current.version + 1
        now = ids(following)
        assert now == sorted(set(now))
        for each in following.fragments:
            assert used.setdefault(each.id, each.files[0].path) == each.files[0].path
        assert (following.max_fragment_id or 0) >= (current.max_fragment_id or 0)
        current = following
        versions.append(current)
