"""JSON inside structs, lists and maps, and in live reads: text for callers at any depth."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput

JSON = pa.json_()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("s", pa.struct([pa.field("j", JSON), pa.field("n", pa.int64())])),
        pa.field("l", pa.list_(pa.field("item", JSON))),
        pa.field("d", pa.large_list(pa.struct([pa.field("j", JSON)]))),
        pa.field("m", pa.map_(pa.string(), pa.field("value", JSON))),
    ]
)
ROWS = [
    {
        "id": 1,
        "s": {"j": '{"x":1}', "n": 1},
        "l": ["1", None],
        "d": [{"j": "[1]"}],
        "m": [("k", '{"z":1}')],
    },
    {"id": 2, "s": None, "l": None, "d": None, "m": None},
    {"id": 3, "s": {"j": None, "n": 3}, "l": [], "d": [None, {"j": "2"}], "m": []},
    {
        "id": 4,
        "s": {"j": '{"x":"s"}', "n": None},
        "l": ['{"x":7}'],
        "d": [],
        "m": [("a", "1"), ("b", None)],
    },
]
COLUMNS = {
    "a": "json_extract(s.j, '$.x')",
    "b": "s.j",
    "c": "json_get(s.j, 'x')",
    "d": "json_extract(l[1], '$.x')",
    "e": "l[1]",
    "f": "s",
}
FILTERS = ["json_exists(s.j, '$.x')", "json_extract(l[1], '$.x') = '7'", "s.j is not null"]


def nested() -> pa.Table:
    """The rows as Arrow data; Arrow makes no such columns of Python values."""
    texts = pa.schema([(each.name, _texts(each.type)) for each in SCHEMA])
    plain = pa.Table.from_pylist(ROWS, texts).combine_chunks()
    return pa.Table.from_arrays(
        [_shown(column.chunk(0), field.type) for column, field in zip(plain.columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def _texts(kind: pa.DataType) -> pa.DataType:
    if kind == JSON:
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _texts(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), pa.string())
    if pa.types.is_large_list(kind):
        return pa.large_list(_texts(kind.value_type))
    return pa.list_(_texts(kind.value_type)) if pa.types.is_list(kind) else kind


def _shown(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == JSON:
        return pa.ExtensionArray.from_storage(JSON, array)
    mask = array.is_null()
    if pa.types.is_struct(kind):
        parts = [_shown(array.field(each.name), each.type) for each in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        items = _shown(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _shown(array.values, kind.value_type)
        return type(array).from_arrays(array.offsets, values, type=kind, mask=mask)
    return array


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_both_read_and_compute_alike(peer: Peer, path: str, writer: str) -> None:
    table = nested()
    if writer == "ours":
        lance.write_dataset(table, path)
    else:
        peer("lance.write_dataset(t, p) and None", t=table, p=path)
    ours = lance.dataset(path)
    assert ours.schema == SCHEMA
    found = ours.to_table()
    assert found.to_pylist() == ROWS
    assert found.equals(peer("lance.dataset(p).to_table()", p=path))
    assert [batch.schema for batch in ours.to_batches()] == [SCHEMA]
    assert ours.take([3, 0]).to_pylist() == [ROWS[3], ROWS[0]]
    assert ours.get_fragments()[0].take([2]).to_pylist() == [ROWS[2]]
    assert ours.to_table(offset=1, limit=2).to_pylist() == ROWS[1:3]
    computed = ours.to_table(columns=COLUMNS)
    assert computed.equals(peer("lance.dataset(p).to_table(columns=c)", p=path, c=COLUMNS))
    assert computed.schema.field("b").type == JSON
    for each in FILTERS:
        expected = peer("lance.dataset(p).to_table(filter=f)['id'].to_pylist()", p=path, f=each)
        assert ours.to_table(filter=each)["id"].to_pylist() == expected, each


def test_slices_and_rows_of_python_are_written_as_they_are(path: str) -> None:
    dataset = lance.write_dataset(nested().slice(1, 2), path)
    assert dataset.to_table().to_pylist() == ROWS[1:3]
    table = ty.open_table(path)
    table.append(ROWS[3:])
    table.append(ROWS[:1], schema=SCHEMA)
    assert table.scan().to_arrow().to_pylist() == [*ROWS[1:], ROWS[0]]
    copy = lance.write_dataset(table.scan().to_arrow(), path + ".copy")
    assert copy.to_table().slice(2).to_pylist() == [ROWS[3], ROWS[0]]
    assert copy.schema == SCHEMA


def test_text_that_is_no_json_is_refused_where_it_stands(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"'s\.j'.*no JSON"):
        ty.create_table(path, SCHEMA).append([{**ROWS[0], "s": {"j": "{oops", "n": 1}}])
    assert lance.dataset(path).version == 1


def test_streams_take_and_give_text(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", SCHEMA, key="id")
    table.append(ROWS[:2])
    with table.stream() as stream:
        stream.put(ROWS[2:])
        stream.put([{**ROWS[0], "id": 2}])
        live = table.live()
        types = [field.type for field in SCHEMA]
        assert [field.type for field in live.schema] == types
        now = sorted(live.to_arrow().to_pylist(), key=lambda row: row["id"])
        assert now == [ROWS[0], {**ROWS[0], "id": 2}, *ROWS[2:]]
        assert live.lookup([4, 1]).schema == live.schema
        assert live.lookup([4]).to_pylist() == [ROWS[3]]
        assert live.scan(["id"], "json_exists(s.j, '$.x')").to_arrow().num_rows == 3
        assert {batch.schema.field("s").type for batch in live.batches()} == {types[1]}
        with pytest.raises(InvalidInput, match="no JSON"):
            stream.put([{**ROWS[0], "l": ["{oops"]}])
        assert [row["s"] for change in table.tail() for row in change.rows.to_pylist()] == [
            *(row["s"] for row in ROWS[2:]),
            ROWS[0]["s"],
        ]
    table.drain()
    assert table.scan(where="id = 2").to_arrow().to_pylist() == [{**ROWS[0], "id": 2}]


def test_scanners_of_mem_wal_give_the_binary_form_as_there(peer: Peer, path: str) -> None:
    key = SCHEMA.field("id").with_metadata({"lance-schema:unenforced-primary-key": "true"})
    dataset = lance.write_dataset(nested().cast(SCHEMA.set(0, key)), path)
    ours = lance.mem_wal.LsmScanner.from_snapshots(dataset, []).to_table()
    theirs = peer("lance.mem_wal.LsmScanner.from_snapshots(lance.dataset(p), []).to_table()", p=path)
    assert ours.schema.equals(theirs.schema)
    assert ours.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()
