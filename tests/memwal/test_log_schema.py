"""Batches of log entries in the columns of now: fields are matched by id at every depth (MemWAL, 3.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamed import KEY
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.field import Field
from tiltyard.format.schema import Schema
from tiltyard.memwal.log_schema import FIELD_ID, TOMBSTONE, LogSchema, log_schema, reconciled

INNER = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])
KINDS: dict[str, tuple[Any, list[Any]]] = {
    "struct": (INNER, [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}]),
    "list": (pa.list_(INNER), [[{"a": 1, "b": "x"}], [], None, [{"a": 2, "b": "y"}, None]]),
    "large list": (pa.large_list(INNER), [[{"a": 1, "b": "x"}], [], None, [{"a": 2, "b": "y"}]]),
    "map": (pa.map_(pa.string(), INNER), [[("k", {"a": 1, "b": "x"})], [], None, [("l", None)]]),
    "list of lists": (pa.list_(pa.list_(INNER)), [[[{"a": 1, "b": "x"}], []], None, [], [None]]),
    "struct of struct": (
        pa.struct([pa.field("in", INNER)]),
        [{"in": {"a": 1, "b": "x"}}, None, {"in": None}, None],
    ),
}


def schema_of(kind: Any) -> Schema:
    return Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("c", kind)]))


def changed(schema: Schema, which: str, /, **what: Any) -> Schema:
    """The schema with another field in place of the one of this name, wherever it is."""

    def of(field: Field) -> Field:
        inside = tuple(of(each) for each in field.children)
        return replace(field, children=inside, **(what if field.name == which else {}))

    return Schema(tuple(of(each) for each in schema.fields), schema.metadata)


def logged(log: LogSchema, values: list[Any]) -> pa.RecordBatch:
    """A batch as it is read from an entry."""
    kind = log.entry.field("c").type
    columns = [pa.array(range(len(values))), pa.array(values, kind), pa.array([False] * len(values))]
    made = pa.RecordBatch.from_arrays(columns, schema=log.entry)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, log.entry) as stream:
        stream.write_batch(made)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        return stream.read_next_batch()


def named(value: Any, old: str, new: str | None) -> Any:
    """A value whose structs have `new` for `old`; None: nothing there."""
    if isinstance(value, dict):
        return {
            (new or old) if name == old else name: None
            if name == old and new is None
            else named(each, old, new)
            for name, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(named(each, old, new) for each in value)
    return value


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("piece", [slice(0, 4), slice(1, 3), slice(3, 4), slice(0, 0)], ids=str)
def test_fields_inside_are_found_by_their_ids(name: str, piece: slice) -> None:
    kind, values = KINDS[name]
    schema = schema_of(kind)
    log = log_schema(schema)
    batch = logged(log, values)[piece.start : piece.stop]
    assert reconciled(batch, log, "x").column("c").to_pylist() == values[piece]
    renamed = log_schema(changed(schema, "b", name="bb"))
    found = reconciled(batch, renamed, "x").column("c")
    found.validate(full=True)
    assert found.to_pylist() == named(values, "b", "bb")[piece]
    another = log_schema(changed(schema, "b", id=99))  # dropped, and another one of its name added
    found = reconciled(batch, another, "x").column("c")
    found.validate(full=True)
    assert found.to_pylist() == named(values, "b", None)[piece]


@pytest.mark.parametrize("name", KINDS)
def test_entries_without_ids_are_matched_by_name(name: str) -> None:
    kind, values = KINDS[name]
    log = log_schema(schema_of(kind))
    bare = pa.schema([pa.field("id", pa.int64()), pa.field("c", kind), pa.field(TOMBSTONE, pa.bool_())])
    columns = [pa.array(range(4)), pa.array(values, kind), pa.array([False, True, False, False])]
    found = reconciled(pa.RecordBatch.from_arrays(columns, schema=bare), log, "x")
    assert found.column("c").to_pylist() == values
    assert found.column(TOMBSTONE).to_pylist() == [False, True, False, False]


@pytest.mark.parametrize("name", KINDS)
def test_a_field_inside_that_changed_its_type_is_damage(name: str) -> None:
    kind, values = KINDS[name]
    schema = schema_of(kind)
    batch = logged(log_schema(schema), values)
    other = log_schema(changed(schema, "a", logical_type="int64"))
    with pytest.raises(CorruptFile, match=r"stored as .* a column's type cannot change"):
        reconciled(batch, other, "x")


def test_every_field_has_its_id_in_an_entry() -> None:
    kind = pa.struct([pa.field(name, each) for name, (each, _) in KINDS.items()])
    schema = schema_of(kind)
    numbers: list[int] = []

    def walk(arrow: Any) -> None:
        number = (arrow.metadata or {}).get(FIELD_ID)
        if number is not None:
            numbers.append(int(number))
        inside = arrow.type
        if pa.types.is_map(inside):
            for each in (inside.key_field, inside.item_field):
                walk(each)
            return
        for at in range(inside.num_fields):
            walk(inside.field(at))

    for each in log_schema(schema).entry:
        walk(each)
    entries = [each.id for each in schema.walk() if each.name == "entries"]  # no Arrow field of their own
    assert sorted(numbers) == sorted({each.id for each in schema.walk()} - set(entries))


def test_keys_inside_structs_and_blobs_are_refused() -> None:
    inside = pa.struct([pa.field("k", pa.int64(), False, KEY)])
    with pytest.raises(UnsupportedFeature, match="lies inside another column"):
        log_schema(Schema.from_arrow(pa.schema([pa.field("s", inside, False)])))
    blob = pa.field("photo", pa.large_binary(), metadata={b"lance-encoding:blob": b"true"})
    with pytest.raises(UnsupportedFeature, match="'photo' holds blobs"):
        log_schema(Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False, KEY), blob])))
