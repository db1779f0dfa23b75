"""Fields of null structs: the official reader must find them null in our files, as in its own.

A scan does not show what stands below a null struct, but a filter on a field does: the official package reads
the field without looking at the struct.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer

COUNT = "{f: lance.dataset(p).count_rows(filter=f) for f in filters}"
GIVEN = [None if row % 3 == 0 else row for row in range(40)]


def column(kind: str) -> tuple[pa.Array, dict[str, int]]:
    """A column with null structs, none of whose fields is null elsewhere, and how many rows filters find."""
    there = sum(row is not None for row in GIVEN)
    if kind == "nested":
        inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
        rows: list[Any] = [None if row is None else {"a": {"x": row}} for row in GIVEN]
        some = {
            "s.a.x > 9": sum(row is not None and row > 9 for row in GIVEN),
            "s.a.x is null": len(GIVEN) - there,
        }
        return pa.array(rows, pa.struct([("a", inner)])), some
    values = {
        "number": (pa.int64(), lambda row: row),
        "text": (pa.string(), str),
        "long text": (pa.string(), lambda row: f"{row} " * 200),
        "constant": (pa.int64(), lambda row: 7),
        "flag": (pa.bool_(), lambda row: True),
        "vector": (pa.list_(pa.float32(), 2), lambda row: [row, row]),
        "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda row: f"{row % 3}"),
        "list": (pa.list_(pa.int64()), lambda row: [row]),
    }
    type_, value = values[kind]
    fields = pa.array([value(0 if row is None else row) for row in GIVEN], type_)
    nulls = pa.array([row is None for row in GIVEN])
    told = {"s.a is null": len(GIVEN) - there, "s.a is not null": there}
    return pa.StructArray.from_arrays([fields], ["a"], mask=nulls), told


KINDS = ["number", "text", "long text", "constant", "flag", "vector", "dictionary", "list", "nested"]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_official_filters_on_a_field_find_no_row_without_a_struct(
    version: str, tmp_path: Path, peer: Peer
) -> None:
    for kind in KINDS:
        array, right = column(kind)
        path = str(tmp_path / f"{kind}.lance")
        table = pa.table({"s": array})
        ours.write_dataset(table, path, data_storage_version=version)
        assert peer(COUNT, p=path, filters=list(right)) == right, kind
        assert {each: ours.dataset(path).count_rows(each) for each in right} == right, kind
        assert ours.dataset(path).to_table().equals(table)
