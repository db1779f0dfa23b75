"""Schemas to and from Arrow and the wire; types and ids as the official writer has them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.format.protos import file_pb2
from tiltyard.format.schema import Schema, decode_schema
from tiltyard.format.version import FileVersion

LEAVES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "fixed_size_binary:7": pa.binary(7),
    "decimal:128:38:-2": pa.decimal128(38, -2),
    "decimal:256:76:5": pa.decimal256(76, 5),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    "timestamp:us:-": pa.timestamp("us"),
    "timestamp:ns:Europe/Berlin": pa.timestamp("ns", "Europe/Berlin"),
    "timestamp:ms:+05:30": pa.timestamp("ms", "+05:30"),
    "duration:ns": pa.duration("ns"),
    "fixed_size_list:float:16": pa.list_(pa.float32(), 16),
    "fixed_size_list:bool:3": pa.list_(pa.bool_(), 3),
    "fixed_size_list:fixed_size_list:float:50:20": pa.list_(pa.list_(pa.float32(), 50), 20),
    "fixed_size_list:timestamp:us:UTC:2": pa.list_(pa.timestamp("us", "UTC"), 2),
    "fixed_size_list:decimal:128:5:2:2": pa.list_(pa.decimal128(5, 2), 2),
    "dict:string:int8:false": pa.dictionary(pa.int8(), pa.string()),
    "dict:double:uint64:false": pa.dictionary(pa.uint64(), pa.float64()),
}
POINT = pa.struct([("x", pa.float64()), pa.field("y", pa.float64(), nullable=False)])
NESTED = {
    "struct": POINT,
    "list": pa.list_(pa.field("element", pa.int8(), nullable=False)),
    "large_list": pa.large_list(pa.string()),
    "list.struct": pa.list_(POINT),
    "large_list.struct": pa.large_list(POINT),
    "map": pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", POINT)),
    "fixed_size_list:struct:3": pa.list_(POINT, 3),
}


def one(arrow: pa.DataType, **extra: object) -> Schema:
    return Schema.from_arrow(pa.schema([pa.field("c", arrow, **extra)]))


def again(schema: Schema) -> Schema:
    return Schema.from_messages(schema.to_messages(), schema.metadata)


@pytest.mark.parametrize("text", LEAVES)
def test_plain_types_round_trip(text: str) -> None:
    schema = one(LEAVES[text])
    assert schema.fields[0].logical_type == text
    assert schema.fields[0].is_leaf
    assert schema.arrow.field(0).type == LEAVES[text]
    assert again(schema) == schema


@pytest.mark.parametrize("text", NESTED)
def test_nested_types_round_trip(text: str) -> None:
    schema = one(NESTED[text], nullable=False)
    assert schema.fields[0].logical_type == text
    assert not schema.fields[0].is_leaf
    assert schema.arrow.field(0).equals(pa.field("c", NESTED[text], nullable=False), check_metadata=True)
    assert again(schema) == schema


def test_views_come_back_as_plain_strings() -> None:
    schema = Schema.from_arrow(pa.schema([("s", pa.string_view()), ("b", pa.binary_view())]))
    assert schema.arrow.types == [pa.string(), pa.binary()]


def test_extension_types_come_back_as_storage_and_metadata() -> None:
    schema = Schema.from_arrow(
        pa.schema([("u", pa.uuid()), ("t", pa.fixed_shape_tensor(pa.float32(), [2, 2])), ("j", pa.json_())])
    )
    u, t, j = schema.arrow
    assert (u.type, t.type, j.type) == (pa.binary(16), pa.list_(pa.float32(), 4), pa.large_binary())
    assert u.metadata == {b"ARROW:extension:name": b"arrow.uuid", b"ARROW:extension:metadata": b""}
    assert t.metadata[b"ARROW:extension:metadata"] == b'{"shape":[2,2]}'
    assert schema.field("j").logical_type == "json"
    assert j.metadata[b"ARROW:extension:name"] == b"lance.json"
    assert [each.extension_name for each in schema.fields] == [
        "arrow.uuid",
        "arrow.fixed_shape_tensor",
        "lance.json",
    ]


def test_bfloat16_inside_a_vector_is_named_by_its_extension() -> None:
    item = pa.field("item", pa.binary(2), metadata={"ARROW:extension:name": "lance.bfloat16"})
    schema = one(pa.list_(item, 4))
    assert schema.fields[0].logical_type == "fixed_size_list:lance.bfloat16:4"
    assert schema.arrow.field(0).type.value_field.equals(item, check_metadata=True)


UNSUPPORTED = [
    pa.list_view(pa.int8()),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.month_day_nano_interval(),
    pa.run_end_encoded(pa.int32(), pa.int8()),
    pa.decimal32(5, 2),
    pa.decimal64(5, 2),
    pa.map_(pa.string(), pa.int8(), keys_sorted=True),
    pa.list_(pa.list_(pa.int8()), 2),
    pa.list_(pa.int8(), 0),
    pa.list_(pa.string(), 2),
    pa.dictionary(pa.int8(), pa.decimal128(5, 2)),
]


@pytest.mark.parametrize("arrow", UNSUPPORTED, ids=str)
def test_types_without_a_place_are_refused_with_their_column(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeature, match="column 'c'"):
        one(arrow)
    with pytest.raises(UnsupportedFeature, match=r"column 'c\.inner'"):
        one(pa.struct([("inner", arrow)]))


def test_names_that_cannot_be_addressed_are_refused() -> None:
    with pytest.raises(InvalidInput, match="empty name"):
        Schema.from_arrow(pa.schema([("", pa.int8())]))
    with pytest.raises(InvalidInput, match="two columns named 'a'"):
        Schema.from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(InvalidInput, match="struct column 's'"):
        Schema.from_arrow(pa.schema([("s", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]))
    with pytest.raises(InvalidInput, match="contains a dot"):
        Schema.from_arrow(pa.schema([("a.b", pa.int8())]))


WIDE = pa.schema(
    [
        ("a", pa.struct([("x", pa.int32())])),
        ("b", pa.int64()),
        ("y", pa.struct([("z", pa.int32()), ("c", pa.int64()), ("w", pa.string())])),
        ("l", pa.list_(pa.int32())),
    ]
)


def test_ids_are_given_in_pre_order_and_leaves_own_columns() -> None:
    schema = Schema.from_arrow(WIDE)
    assert [(each.name, each.id, each.parent_id) for each in schema.walk()][:4] == [
        ("a", 0, -1),
        ("x", 1, 0),
        ("b", 2, -1),
        ("y", 3, -1),
    ]
    assert schema.max_id == 8
    assert [each.name for each in schema.leaves()] == ["x", "b", "z", "c", "w", "item"]
    assert [each.name for each in schema.columns(FileVersion.V2_0)] == [
        "a",
        "x",
        "b",
        "y",
        "z",
        "c",
        "w",
        "l",
        "item",
    ]
    assert Schema.from_arrow(WIDE, first_id=10).fields[0].id == 10


def test_packed_structs_and_empty_structs_are_leaves() -> None:
    packed = pa.field("p", POINT, metadata={"lance-encoding:packed": "true"})
    schema = Schema.from_arrow(pa.schema([packed, ("e", pa.struct([]))]))
    assert [each.name for each in schema.leaves()] == ["p", "e"]
    assert schema.arrow.field("e").type == pa.struct([])


def test_projection_keeps_ids_and_the_order_asked_for() -> None:
    schema = Schema.from_arrow(WIDE)
    found = schema.project(["l", "y.w", "y.z", ("a", "x")])
    assert found.names == ["l", "y", "a"]
    assert [each.name for each in found.field("y").children] == ["z", "w"]
    assert [each.id for each in found.leaves()] == [8, 4, 6, 1]
    assert schema.project(["y.z", "y"]).field("y") == schema.field("y")


def test_projection_passes_through_lists() -> None:
    schema = Schema.from_arrow(pa.schema([("ps", pa.list_(POINT)), ("m", pa.map_(pa.string(), POINT))]))
    assert schema.project(["ps.x"]).arrow.field("ps").type == pa.list_(pa.struct([("x", pa.float64())]))
    assert schema.project(["ps.item.x"]) == schema.project(["ps.x"])
    assert schema.project(["m.key"]).field("m") == schema.field("m")


def test_unknown_columns_list_the_nearest() -> None:
    schema = Schema.from_arrow(WIDE)
    with pytest.raises(FieldNotFound, match=r"the struct y has no field 'zz'; nearest: z"):
        schema.field("y.zz")
    with pytest.raises(FieldNotFound):
        schema.by_id(99)


def test_quoted_names_may_contain_dots() -> None:
    schema = Schema.from_arrow(pa.schema([("s", pa.struct([("a.b", pa.int8()), ("c`d", pa.int8())]))]))
    assert schema.field("s.`a.b`").name == "a.b"
    assert schema.field("s.`c``d`").name == "c`d"
    with pytest.raises(FieldNotFound, match="unclosed"):
        schema.field("s.`a")


def test_keys_follow_from_metadata() -> None:
    def key(name: str, **metadata: str) -> pa.Field:
        prefix = "lance-schema:unenforced-"
        return pa.field(name, pa.int64(), False, {prefix + k: v for k, v in metadata.items()})

    schema = Schema.from_arrow(
        pa.schema(
            [
                key("later", **{"primary-key:position": "2"}),
                key("last", **{"primary-key": "Yes"}),
                key("first", **{"primary-key:position": "1"}),
                key("near", **{"clustering-key:position": "1"}),
            ]
        )
    )
    assert [each.name for each in schema.primary_key] == ["first", "later", "last"]
    messages = schema.to_messages()
    assert [each.primary_key for each in messages] == [True, True, True, False]
    assert [each.primary_key_position for each in messages] == [2, 0, 1, 0]
    assert messages[3].clustering_key_position == 1
    assert not schema.field("last").with_metadata({}).primary_key
    with pytest.raises(InvalidInput, match="must not be nullable"):
        Schema.from_arrow(pa.schema([key("k", **{"primary-key": "true"}).with_nullable(True)]))
    with pytest.raises(InvalidInput, match="must be a number"):
        Schema.from_arrow(pa.schema([key("k", **{"primary-key:position": "x"})]))


def test_equal_bytes_share_one_arrow_schema() -> None:
    data = Schema.from_arrow(WIDE).encode()
    assert decode_schema(data) is decode_schema(bytes(bytearray(data)))
    assert decode_schema(data).arrow is decode_schema(data).arrow


def test_unknown_wire_fields_survive() -> None:
    message = Schema.from_arrow(WIDE).to_messages()
    message[2].MergeFromString(b"\xf2\x06\x03abc")  # field 110
    schema = Schema.from_messages(message, {})
    assert schema.field("b").unknown == b"\xf2\x06\x03abc"
    assert [each.SerializeToString() for each in schema.to_messages()] == [
        each.SerializeToString() for each in message
    ]


def test_a_tree_that_does_not_hold_together_is_corrupt() -> None:
    def fields(*parents: tuple[int, int]) -> bytes:
        each = [file_pb2.Field(name=str(i), id=i, parent_id=p, logical_type="struct") for i, p in parents]
        return file_pb2.Schema(fields=each).SerializeToString()

    with pytest.raises(CorruptFile, match="names parent 7"):
        decode_schema(fields((0, 7)))
    with pytest.raises(CorruptFile, match="two fields have id 0"):
        decode_schema(fields((0, -1), (0, -1)))
    with pytest.raises(CorruptFile, match="levels deep"):
        decode_schema(fields((0, -1), *((i, i - 1) for i in range(1, 5000))))


def test_unknown_logical_types_are_refused_by_name() -> None:
    for text in (
        "time:s",
        "timestamp:us",
        "decimal:128:99:1",
        "fixed_size_list:float:0",
        "list_view",
        "dict:x:y:z",
    ):
        data = file_pb2.Schema(fields=[file_pb2.Field(name="c", parent_id=-1, logical_type=text)])
        with pytest.raises(UnsupportedFeature, match="is not known"):
            assert decode_schema(data.SerializeToString()).arrow


def arrow_types() -> st.SearchStrategy[pa.DataType]:
    leaves = st.sampled_from(list(LEAVES.values()))
    return st.recursive(
        leaves,
        lambda inner: (
            inner.map(pa.list_)
            | inner.map(pa.large_list)
            | inner.map(lambda each: pa.map_(pa.string(), each))
            | st.lists(inner, max_size=3).map(
                lambda all: pa.struct([(f"f{i}", t) for i, t in enumerate(all)])
            )
        ),
        max_leaves=8,
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(arrow_types(), st.booleans()), max_size=5))
def test_any_schema_round_trips(columns: list[tuple[pa.DataType, bool]]) -> None:
    arrow = pa.schema(
        [pa.field(f"c{i}", t, n or t == pa.null()) for i, (t, n) in enumerate(columns)], metadata={"k": "v"}
    )
    schema = again(Schema.from_arrow(arrow))
    assert schema.arrow.equals(arrow, check_metadata=True)
    ids = [each.id for each in schema.walk()]
    assert ids == list(range(len(ids)))


def test_pylance_sees_the_same_fields(peer, tmp_path) -> None:
    names = {f"c{i}": t for i, t in enumerate([*LEAVES.values(), *NESTED.values()]) if t != pa.null()}
    key = {"lance-schema:unenforced-primary-key:position": "1"}
    arrow = pa.schema(
        [
            *(pa.field(name, t) for name, t in names.items()),
            pa.field("uuid", pa.uuid()),
            pa.field("json", pa.json_()),
            pa.field("tensor", pa.fixed_shape_tensor(pa.float32(), [2, 2])),
            pa.field("opaque", pa.opaque(pa.int8(), "a", "b")),
            pa.field("key", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}),
            pa.field("first", pa.string(), False, key),
            pa.field("near", pa.int8(), True, {"lance-schema:unenforced-clustering-key:position": "1"}),
            pa.field("packed", POINT, metadata={"lance-encoding:packed": "true"}),
        ],
        metadata={"m": "n"},
    )
    written = peer(
        """
import glob
lance.write_dataset(schema.empty_table(), path)
result = open(glob.glob(path + "/_versions/*.manifest")[0], "rb").read()
""",
        schema=arrow,
        path=str(tmp_path / "t"),
    )
    from tiltyard.format.manifest import decode_manifest

    manifest, _ = decode_manifest(written, "m")
    ours = Schema.from_arrow(arrow)
    assert manifest.schema == ours
    assert manifest.schema.encode() == ours.encode()
