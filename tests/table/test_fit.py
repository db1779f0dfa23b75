"""How data fits a table: by name, widened where every value survives, else refused with both schemas."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.table.fit import fit, new_schema, refuse_nulls, widens

TABLE = Schema.from_arrow(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("s", pa.string()),
            ("st", pa.struct([("a", pa.float64()), ("b", pa.int8())])),
        ]
    )
)


def apply(data: pa.Table) -> pa.Table:
    fitted = fit(TABLE, data.schema)
    return pa.Table.from_batches([fitted.apply(batch) for batch in data.to_batches()], fitted.schema.arrow)


def test_columns_are_matched_by_name_in_any_order() -> None:
    data = pa.table({"st": [{"b": 1, "a": 2.0}], "s": ["x"], "id": [7]})
    data = data.set_column(0, "st", data["st"].cast(pa.struct([("b", pa.int8()), ("a", pa.float64())])))
    found = apply(data)
    assert found.schema.names == ["id", "s", "st"]
    assert found.to_pylist() == [{"id": 7, "s": "x", "st": {"a": 2.0, "b": 1}}]


def test_nullable_columns_and_children_may_be_missing() -> None:
    found = fit(TABLE, pa.schema([("id", pa.int64()), ("st", pa.struct([("b", pa.int8())]))]))
    assert [leaf.id for leaf in found.schema.leaves()] == [0, 4]


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.uint32(), pa.int64(), True),
        (pa.uint64(), pa.int64(), False),
        (pa.int64(), pa.int32(), False),
        (pa.int8(), pa.uint8(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int32(), pa.float32(), False),
        (pa.float16(), pa.float32(), True),
        (pa.float64(), pa.float32(), False),
        (pa.large_string(), pa.string(), True),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), True),
        (pa.decimal128(9, 2), pa.decimal128(9, 4), False),
        (pa.timestamp("s"), pa.timestamp("us"), True),
        (pa.timestamp("ns"), pa.timestamp("us"), False),
        (pa.timestamp("s", "UTC"), pa.timestamp("us"), False),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
        (pa.null(), pa.date32(), True),
        (pa.list_(pa.int8()), pa.large_list(pa.int64()), True),
        (pa.bool_(), pa.int8(), False),
    ],
)
def test_a_type_widens_only_where_every_value_survives(given, wanted, fits: bool) -> None:
    assert widens(given, wanted) is fits


def test_widened_values_are_equal() -> None:
    found = apply(
        pa.table(
            {
                "id": pa.array([1, 2], pa.int16()),
                "s": pa.array(["a", None], pa.dictionary(pa.int8(), pa.string())),
                "st": pa.array(
                    [{"a": 1.5, "b": 2}, None], pa.struct([("a", pa.float32()), ("b", pa.int8())])
                ),
            }
        )
    )
    assert found.to_pylist() == [
        {"id": 1, "s": "a", "st": {"a": 1.5, "b": 2}},
        {"id": 2, "s": None, "st": None},
    ]


def test_a_mismatch_shows_both_schemas_side_by_side() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        fit(TABLE, pa.schema([("s", pa.int32()), ("q", pa.bool_())]))
    text = str(caught.value)
    assert "'q' is not in the table" in text
    assert "'id' is missing" in text
    lines = [line.split() for line in text.splitlines()[1:]]
    assert ["table", "|", "data"] in lines
    assert ["s:", "string", "|", "s:", "int32"] in lines
    assert ["(missing)", "|", "q:", "bool"] in lines


def test_nulls_are_refused_where_the_schema_forbids_them_at_any_depth() -> None:
    with pytest.raises(InvalidInput, match="'id'"):
        apply(pa.table({"id": pa.array([1, None], pa.int64())}))
    kind = pa.list_(pa.struct([pa.field("x", pa.int8(), nullable=False)]))
    field = Schema.from_arrow(pa.schema([("l", kind)])).fields[0]
    loose = pa.list_(pa.struct([("x", pa.int8())]))
    refuse_nulls(pa.array([[{"x": 1}, None], None, []], loose), field, "l")
    with pytest.raises(InvalidInput, match=r"l\.item\.x"):
        refuse_nulls(pa.array([[{"x": 1}, {"x": None}]], loose), field, "l")


@pytest.mark.parametrize("names", [["_rowid"], ["_rowaddr"], [""], ["a", "a"], ["a.b"]])
def test_names_that_nobody_could_read_back_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInput):
        new_schema(pa.schema([pa.field(name, pa.int8()) for name in names]), FileVersion.V2_2)


def test_a_map_needs_files_of_version_2_2() -> None:
    arrow = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    assert new_schema(arrow, FileVersion.V2_2).names == ["m"]
    with pytest.raises(UnsupportedFeature, match=r"'m'.*2\.2"):
        new_schema(arrow, FileVersion.V2_1)
