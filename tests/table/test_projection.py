"""Projections: names, nested leaves, pseudo columns and expressions, resolved without reading."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.format.schema import Schema
from tiltyard.table.projection import SYSTEM_COLUMNS, project, prune

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"m": "n"}),
        ("name", pa.string()),
        (
            "st",
            pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.struct([("c", pa.float64())]))]),
        ),
        ("ls", pa.list_(pa.struct([("x", pa.int8())]))),
    ],
    metadata={"k": "v"},
)
SCHEMA = Schema.from_arrow(ARROW)


def test_all_columns_come_as_they_are_with_all_metadata() -> None:
    whole = project(SCHEMA)
    assert whole.direct
    assert whole.schema.equals(ARROW, check_metadata=True)


def test_a_nested_path_gives_a_column_of_its_own_name_in_a_scan() -> None:
    found = project(SCHEMA, ["st.b.c", "id", "st.a"])
    assert found.schema.names == ["st.b.c", "id", "st.a"]
    assert found.schema.field("st.a").type == pa.int64()
    assert found.schema.field("st.a").nullable  # a null struct makes it null
    assert not found.schema.field("id").nullable
    assert [each.name for each in found.fields] == ["st", "id"]
    assert not found.direct


def test_a_nested_path_gives_the_pruned_struct_in_a_take() -> None:
    found = project(SCHEMA, ["st.b.c", "id", "st.a"], nested_as_struct=True)
    assert found.schema.names == ["st", "id"]
    assert [each.name for each in found.schema.field("st").type] == ["a", "b"]
    assert found.direct


def test_a_struct_and_a_leaf_of_it_may_be_asked_for_together() -> None:
    found = project(SCHEMA, ["st.a", "st"])
    assert found.schema.field("st").type == ARROW.field("st").type
    assert [each.name for each in found.fields] == ["st"]


def test_pseudo_columns_come_where_they_are_named_and_flags_put_them_at_the_end() -> None:
    assert project(SCHEMA, ["_rowid", "id"]).schema.names == ["_rowid", "id"]
    assert project(SCHEMA, ["_rowid", "id"], row_id=True).schema.names == ["id", "_rowid"]
    flags = project(SCHEMA, ["id"], row_id=True, row_address=True)
    assert flags.schema.names == ["id", "_rowid", "_rowaddr"]
    assert all(project(SCHEMA, [name]).schema.field(0).type == pa.uint64() for name in SYSTEM_COLUMNS)


def test_computed_columns_have_the_type_of_their_expression_and_renames_keep_the_field() -> None:
    found = project(SCHEMA, {"n": "id", "twice": "id * 2", "c": "st.b.c", "r": "_rowid"})
    assert found.schema.names == ["n", "twice", "c", "r"]
    assert found.schema.field("n").metadata == {b"m": b"n"}
    assert found.schema.field("twice").type == pa.int64()
    assert found.schema.field("c").type == pa.float64()
    assert found.has_expressions
    assert {each.name for each in found.fields} == {"id", "st"}


def test_nothing_asked_for_reads_nothing() -> None:
    assert project(SCHEMA, []).fields == ()
    assert project(SCHEMA, []).direct


@pytest.mark.parametrize("columns", [["nme"], ["st.z"], ["ID"], ["id * 2"], ["ls.z"]])
def test_unknown_columns_are_refused_with_the_nearest_names(columns: list[str]) -> None:
    with pytest.raises(FieldNotFound):
        project(SCHEMA, columns)
    with pytest.raises(FieldNotFound, match="name"):
        project(SCHEMA, ["nme"])


def test_a_path_into_a_list_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="ls"):
        project(SCHEMA, ["ls.x"])


@pytest.mark.parametrize("columns", [["id", "id"], "id", [1], {"a": 3}])
def test_columns_that_are_no_list_of_distinct_names_are_refused(columns: object) -> None:
    with pytest.raises(InvalidInput):
        project(SCHEMA, columns)  # type: ignore[arg-type]


def test_pruning_keeps_the_way_to_the_leaves() -> None:
    st = SCHEMA.field("st")
    leaf = SCHEMA.field("st.b.c")
    pruned = prune(st, frozenset([leaf.id]))
    assert pruned is not None
    assert [each.id for each in pruned.leaves()] == [leaf.id]
    assert prune(st, frozenset()) is None
    assert prune(st, frozenset(each.id for each in st.leaves())) is st
